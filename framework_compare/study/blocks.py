"""Blocks of runs: in each, every cell runs once, in an order of its own.

Cells that run in the same order all day meet the same neighbours and the same hours; a new order in each block spreads
what warms up, fills or slows the machine over all cells alike (Fisher's randomised blocks).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")

# With noise of 3 % from run to run, five runs show that one of two cells is 10 % slower in 94 studies of 100, three runs
# in 55; that one of five is 20 % slower, after the correction for ten comparisons, in 99 and 28
# (benchmarks/results/intervals.json). With one run there is no interval at all.
REPEATS = 5
MOST_REPEATS = 1000  # of a cell: each is a row before any has run


def new_seed() -> int:
    """A seed that no other study has; it is stored with the study."""
    return random.SystemRandom().randrange(2**32)


def orders(cells: int, repeats: int, seed: int | None) -> list[list[int]]:
    """For each block the places of the cells in the plan, shuffled; as planned where there is one block or no seed."""
    places = list(range(cells))
    if repeats < 2 or seed is None:
        return [places] * repeats
    shuffle = random.Random(seed)
    return [shuffle.sample(places, cells) for _ in range(repeats)]


def shuffled(cells: Sequence[_T], seed: int | None, place: int) -> list[_T]:
    """The cells of one more block in an order of its own; `place` tells it from the blocks before."""
    return random.Random(f"{seed}-{place}").sample(list(cells), len(cells))
