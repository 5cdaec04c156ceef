"""Blocks of runs: in each, every cell runs once, in an order of its own.

Cells that run in the same order all day meet the same neighbours and the same hours; a new order in each block spreads
what warms up, fills or slows the machine over all cells alike (Fisher's randomised blocks).
"""

from __future__ import annotations

import random
from typing import List, Optional

# Of five frameworks under Holm's correction, five runs find differences of 2.5 standard deviations of a run, four find
# 3.7, three 8; a sixth run would gain a fifth more for a fifth of the time. Below two there is no interval at all.
REPEATS = 5


def new_seed() -> int:
    """A seed that no other study has; it is stored with the study."""
    return random.SystemRandom().randrange(2**32)


def orders(cells: int, repeats: int, seed: Optional[int]) -> List[List[int]]:
    """For each block the places of the cells in the plan, shuffled; as planned where there is one block or no seed."""
    places = list(range(cells))
    if repeats < 2 or seed is None:
        return [places] * repeats
    shuffle = random.Random(seed)
    return [shuffle.sample(places, cells) for _ in range(repeats)]
