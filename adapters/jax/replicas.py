"""Replicas on all devices of one process, or of one on each node: jax.shard_map over a mesh."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

import numpy as np

from framework_compare.adapters.common.trainer import gpu_number
from framework_compare.protocol import Replicas

DATA = "data"  # the mesh's only axis


def join(jax: Any, replicas: Replicas) -> None:
    """Meet the processes of the other nodes; from then on `jax.devices` are those of all."""
    numbers = None if replicas.own[0] == "cpu" else list(map(gpu_number, replicas.own))
    jax.distributed.initialize(replicas.address, replicas.processes, replicas.rank, local_device_ids=numbers)


class Mesh:
    """Placement of arrays: those that all replicas share, and those that each has of its own, along a first axis.

    own: how many replicas this process has; spread: whether other processes have more. A process sees its own
    part of an array that is spread, and all processes take part in a computation on it.
    """

    def __init__(self, jax: Any, own: Sequence[Any]) -> None:
        devices = list(own)
        if jax.process_count() > 1:  # those of all processes, in their order
            devices = sorted(jax.devices(own[0].platform), key=lambda device: (device.process_index, device.id))
        self.jax, self.own, self.count = jax, len(own), len(devices)
        self.spread = self.count > self.own
        self.mesh = jax.sharding.Mesh(np.array(devices), (DATA,))
        spec = jax.sharding.PartitionSpec
        self.all, self.each = spec(), spec(DATA)

    def sharding(self, spec: Any, **memory: Any) -> Any:
        return self.jax.sharding.NamedSharding(self.mesh, spec, **memory)

    def put_batch(self, inputs: Any, labels: np.ndarray) -> Any:
        """This process's part of a batch, split in order; one that does not divide evenly, never trained on, is everywhere."""
        place = self.sharding(self.all if len(labels) % self.own else self.each)
        if not self.spread:
            return self.jax.device_put((inputs, labels), place)
        put = self.jax.make_array_from_process_local_data
        return self.jax.tree.map(lambda array: put(place, array), (inputs, labels))

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

    def put_all(self, array: Any) -> Any:
        """A copy that all replicas share; never the memory of what is given."""
        place = self.sharding(self.all)
        if self.spread:
            return self._put_parts(np.asarray(array), place)
        return self.jax.device_put(array, place, may_alias=False)

    def put_each(self, array: np.ndarray) -> Any:
        """A copy for each replica."""
        copies, place = np.broadcast_to(array, (self.count, *array.shape)), self.sharding(self.each)
        return self._put_parts(copies, place) if self.spread else self.jax.device_put(copies, place)

    def _put_parts(self, array: np.ndarray, place: Any) -> Any:
        # copies, as JAX may take the memory for its own
        return self.jax.make_array_from_callback(array.shape, place, lambda index: np.array(array[index]))

    def here(self, array: Any) -> Any:
        """This process's part of an array on its first device; all of one that replicas share."""
        if not self.spread:
            return array
        shards = array.addressable_shards
        if array.is_fully_replicated:
            return shards[0].data
        parts = sorted(shards, key=lambda shard: shard.index[0].start or 0)
        return self.jax.numpy.concatenate([self.jax.device_put(p.data, *shards[0].data.devices()) for p in parts])

    def meet(self) -> None:
        """Return when all processes are here."""
        if self.spread:
            from jax.experimental import multihost_utils

            multihost_utils.sync_global_devices("framework_compare")


def stacked(mesh: Any, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """A replica's arrays as its part of those of all."""
    return dict(arrays) if mesh is None else {name: array[None] for name, array in arrays.items()}


def unstacked(mesh: Any, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """The other way; of the arrays of all replicas those of replica 0."""
    return dict(arrays) if mesh is None else {name: array[0] for name, array in arrays.items()}
