"""Whether epochs come in orders that were shuffled over all images, each anew: statistics of permutations.

Each of the 18 tests fails orders that are drawn uniformly with a probability of at most about ALPHA.
"""

import itertools
import math
from typing import Iterator, NamedTuple

import numpy as np

from framework_compare.parity.network.ladder import LevelFailed
from framework_compare.parity.pipeline.crops import ALPHA, DEVIATIONS

Array = np.ndarray
MATES = 5.5  # deviations that shared batch-mates may be off: their distribution leans to the right


class Pair(NamedTuple):
    """Two orders of the same images, by number, and what to call them."""

    first: Array
    second: Array
    names: str
    short: str  # what of both is kept


def check(labels: Array, count: int, batch_size: int) -> None:
    """LevelFailed unless the epochs in `labels`, of `count` images each, are shuffled over all of them, and anew."""
    epochs = labels.reshape(-1, count)
    for pair in _pairs(epochs):
        if np.array_equal(pair.first, pair.second):
            raise LevelFailed(f"{pair.names} have their images in the same order")
    for pair in _pairs(epochs):
        check_ranks(pair)
        check_neighbours(pair)
        check_mates(pair, batch_size)


def _pairs(epochs: Array) -> Iterator[Pair]:
    listed = np.arange(epochs.shape[1])
    for number, order in enumerate(epochs, start=1):
        yield Pair(listed, order, f"the list and epoch {number}", "of the list")
    for (i, one), (j, other) in itertools.combinations(enumerate(epochs, start=1), 2):
        yield Pair(one, other, f"epochs {i} and {j}", "of another epoch")


def check_ranks(pair: Pair) -> None:
    """LevelFailed where images that come early in one order come early, or late, in the other.

    Spearman's correlation of two random orders of n has mean 0 and variance 1 / (n - 1), and is nearly normal.
    """
    found = float(np.corrcoef(np.argsort(pair.first), np.argsort(pair.second))[0, 1])
    allowed = DEVIATIONS / math.sqrt(len(pair.first) - 1)
    if abs(found) > allowed:
        raise LevelFailed(
            f"images are not shuffled over the whole set: positions in {pair.names} have a rank correlation of"
            f" {found:.2f}, by chance at most {allowed:.2f}"
        )


def check_neighbours(pair: Pair) -> None:
    """LevelFailed where too many images that follow each other in one order are next to each other in the other.

    Of two random orders about a Poisson number with mean 2 are.
    """
    from scipy.stats import poisson

    steps = np.abs(np.diff(np.argsort(pair.first)[pair.second]))
    found, allowed = int((steps == 1).sum()), int(poisson.isf(ALPHA, 2.0))
    if found > allowed:
        raise LevelFailed(
            f"images are not shuffled over the whole set: {found} of {len(pair.first) - 1} neighbours {pair.short}"
            f" are neighbours again in {pair.names.rpartition(' and ')[2]}, by chance at most {allowed}"
        )


def check_mates(pair: Pair, batch_size: int) -> None:
    """LevelFailed where too many pairs of images share a batch in both orders.

    Of random orders their number has mean P^2 / T, of T pairs in all and P in a batch together, and about its square
    root as deviation.
    """
    count = len(pair.first)
    sizes = np.bincount(np.arange(count) // batch_size)
    mean = float((sizes * (sizes - 1) / 2).sum()) ** 2 / (count * (count - 1) / 2)
    batches = [np.argsort(order) // batch_size for order in (pair.first, pair.second)]
    together = np.bincount(batches[0] * len(sizes) + batches[1])
    found, allowed = int((together * (together - 1) // 2).sum()), mean + MATES * math.sqrt(mean)
    if found > allowed:
        raise LevelFailed(
            f"batches are not reshuffled: {found} pairs of images share a batch in {pair.names}, {mean:.0f} expected,"
            f" by chance at most {allowed:.0f}"
        )
