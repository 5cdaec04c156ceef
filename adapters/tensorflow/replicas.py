"""Replicas on the devices of one process: tf.distribute.MirroredStrategy, each with its part of every batch."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List, Sequence

import numpy as np


class Mirrored:
    """The strategy, and what a trainer asks of it. Values of all replicas are tf.distribute's PerReplica."""

    def __init__(self, tf: Any, devices: List[str]) -> None:
        self._tf, self._devices, self.count = tf, devices, len(devices)
        self._strategy = tf.distribute.MirroredStrategy(self._devices)

    @contextlib.contextmanager
    def variables(self) -> Iterator[None]:
        """Trained variables made here are mirrored. Of all others (running statistics, an optimiser's) each replica has
        its own, which it changes by itself; whoever asks gets replica 0's.
        """
        tf = self._tf

        def create(make: Callable[..., Any], **how: Any) -> Any:
            how["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
            if not how.get("trainable", True):
                how["synchronization"] = tf.VariableSynchronization.ON_READ
            return make(**how)

        with self._strategy.scope(), tf.variable_creator_scope(create):
            yield

    def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return what the function gives on each replica, of its part of the arguments."""
        return self._strategy.run(function, args=arguments, kwargs=options)

    def number(self) -> int:
        """Return the number of the calling replica; 0 outside a function that runs on each."""
        context = self._tf.distribute.get_replica_context()
        return 0 if context is None else int(self._tf.get_static_value(context.replica_id_in_sync_group))

    def mean(self, values: Any) -> Any:
        return self._strategy.reduce("MEAN", values, axis=None)

    def mean_in_replica(self, tensors: List[Any]) -> List[Any]:
        """Over the replicas; in a function that runs on each."""
        context = self._tf.distribute.get_replica_context()
        return list(context.all_reduce(self._tf.distribute.ReduceOp.MEAN, tensors))

    def parts(self, values: Any) -> Sequence[Any]:
        """Return the parts of all replicas in order; a value that is not split is one part."""
        return self._strategy.experimental_local_results(values)

    def split(self, array: Any) -> Any:
        """A batch in order, a part on each replica; what does not divide evenly, and is never trained on, stays whole."""
        size = len(array) // self.count
        if size * self.count != len(array):
            return self._tf.constant(array)

        def part(context: Any) -> Any:
            number = context.replica_id_in_sync_group
            with self._tf.device(self._devices[number]):
                return self._tf.identity(array[number * size : (number + 1) * size])

        return self._strategy.experimental_distribute_values_from_function(part)

    def whole(self, values: Any) -> np.ndarray:
        return np.concatenate([part.numpy() for part in self.parts(values)])
