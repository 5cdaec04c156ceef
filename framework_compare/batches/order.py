"""The order of samples in an epoch, each replica's share of it, and the sizes of its batches. Worker side."""

import math
from typing import Iterable, Iterator, List, Optional

import numpy as np

from framework_compare.protocol import Replicas

_WORD = 0xFFFFFFFF


def seed_words(seed: int, *more: int) -> "list[int]":
    """The seed of a RandomState that belongs to (seed, more...) alone; any integer is a seed."""
    return [word & _WORD for word in (seed, seed >> 32, *more)]


def epoch_order(seed: int, number: int, count: int) -> np.ndarray:
    """Indices of `count` images in the order of epoch `number`, int (count,)."""
    return np.random.RandomState(seed_words(seed, number)).permutation(count)


def share_of(order: np.ndarray, batch_size: int, replicas: Optional[Replicas]) -> np.ndarray:
    """This process's part of an order, (n,): of each global batch its rank's `batch_size`, all of it where it is alone.

    batch_size is that of all replicas of the process together.

    Of the last global batch, if it is not full, each replica gets as many images. What does not divide evenly is left
    out: the mean of unequal parts' gradients would be that of no batch.
    """
    if replicas is None:
        return order
    ranks, rank = replicas.processes, replicas.rank or 0
    full = len(order) - len(order) % (ranks * batch_size)
    tail = (len(order) - full) // len(replicas.devices) * len(replicas.devices) // ranks
    batches = order[:full].reshape(-1, ranks, batch_size)[:, rank]
    return np.concatenate([batches.ravel(), order[full + rank * tail : full + (rank + 1) * tail]])


def share_size(count: int, batch_size: int, replicas: Optional[Replicas]) -> int:
    """Return how many of `count` images an epoch of this process has."""
    return len(share_of(np.arange(count), batch_size, replicas))


def epoch_sizes(samples: int, first: int, growth: float = 1.0, limit: float = math.inf) -> List[int]:
    """Samples of each batch of an epoch in order, the last with the remaining ones.

    A batch is `growth` times as large as the one before, but no larger than `limit`: whole samples of that, as spaCy's
    `compounding` and `minibatch` have it. Each epoch begins with `first` again.
    """
    sizes: List[int] = []
    size, left = float(first), samples
    while left > 0:
        sizes.append(min(int(size), left))
        left -= sizes[-1]
        size = min(size * growth, max(first, limit))
    return sizes


def distinct(sizes: List[int]) -> List[int]:
    """Each size once, the largest first."""
    return sorted(set(sizes), reverse=True)


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
