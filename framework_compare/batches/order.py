"""The order of images as a sampler, for loaders that bring processes of their own. Worker side."""

from typing import Iterable, Iterator, Optional

from framework_compare.batches.images import epoch_order
from framework_compare.batches.shares import share_of, share_size
from framework_compare.protocol import Replicas


class EpochOrder:
    """Indices of `count` images, shuffled anew on every pass by (seed, epoch), as the `shared` pipeline does.

    The first pass is empty: a loader asked for it starts its processes and reads nothing. They must be forked
    before training fills the heap: afterwards every page that a step writes is copied once for the sake of the
    children, which made the first step of an epoch of PyTorch take 6 s instead of 1 (ResNet-50, batch 16).
    """

    def __init__(self, count: int, seed: int, batch_size: int = 1, replicas: Optional[Replicas] = None) -> None:
        """With several `replicas`, hold the indices of this process, which makes batches of `batch_size`."""
        self._count = count
        self._seed = seed
        self._batch_size, self._replicas = batch_size, replicas
        self._passes = 0

    def __len__(self) -> int:
        return share_size(self._count, self._batch_size, self._replicas)

    def __iter__(self) -> Iterator[int]:
        number = self._passes
        self._passes += 1
        order = epoch_order(self._seed, number, self._count)
        return iter(share_of(order, self._batch_size, self._replicas).tolist() if number else [])


def start_loader(loader: Iterable[object]) -> None:
    """Go through the empty first pass of a loader over an EpochOrder, so that its processes are there."""
    for _ in loader:
        raise RuntimeError("the first pass over an EpochOrder is empty, but the loader found a batch in it")
