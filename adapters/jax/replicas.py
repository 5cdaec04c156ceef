"""Replicas on the devices of one process: jax.shard_map over a mesh of them, each with its part of every batch."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

import numpy as np

DATA = "data"  # the mesh's only axis


class Mesh:
    """Where arrays are that all replicas share, and those that each has of its own, along a first axis."""

    def __init__(self, jax: Any, devices: Sequence[Any]) -> None:
        self.jax = jax
        self.count = len(devices)
        self.mesh = jax.sharding.Mesh(np.array(devices), (DATA,))
        spec = jax.sharding.PartitionSpec
        self.all, self.each = spec(), spec(DATA)

    def sharding(self, spec: Any, **memory: Any) -> Any:
        return self.jax.sharding.NamedSharding(self.mesh, spec, **memory)

    def of_batch(self, images: int) -> Any:
        """Batches are split in order; one that does not divide evenly, which is never trained on, is everywhere."""
        return self.sharding(self.all if images % self.count else self.each)

    def on_each(self, function: Callable[..., Any], inputs: Tuple[Any, ...], outputs: Any) -> Callable[..., Any]:
        """A function of global arrays that runs on each replica with its part of them.

        Plain jax.jit of sharded arrays would compute the function of the global batch, its BatchNorm synchronised.
        check_vma: with it jax.grad of what is shared sums over replicas, so that the mean of it would be N times too large.
        """
        return self.jax.shard_map(function, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)

    def mean(self, values: Any) -> Any:
        """Over the replicas; in a function that runs on each."""
        return self.jax.lax.pmean(values, DATA)

    def own_key(self, key: Any) -> Any:
        """A replica's own key; in a function that runs on each."""
        return self.jax.random.fold_in(key, self.jax.lax.axis_index(DATA))

    def put_each(self, array: np.ndarray) -> Any:
        """A copy for each replica."""
        return self.jax.device_put(np.broadcast_to(array, (self.count, *array.shape)), self.sharding(self.each))


def stacked(mesh: Any, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """A replica's arrays as its part of those of all."""
    return dict(arrays) if mesh is None else {name: array[None] for name, array in arrays.items()}


def unstacked(mesh: Any, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """The other way; of the arrays of all replicas those of replica 0."""
    return dict(arrays) if mesh is None else {name: array[0] for name, array in arrays.items()}
