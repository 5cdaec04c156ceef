"""The order of runs, and which of a block compete, so that their workers take turns.

Cells that run in the same order all day meet the same neighbours and the same hours. So in each block every cell runs
once, in a new order, which spreads what warms up, fills or slows the machine (Fisher's randomised blocks).
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Hashable, Sequence
from typing import TypeVar

from framework_compare.errors import check_name
from framework_compare.plan import searches
from framework_compare.plan.settings import COMPARED
from framework_compare.protocol import TrainConfig, replicas_of
from framework_compare.records import Cell

INTERLEAVED, SEQUENTIAL = "interleaved", "sequential"
SCHEDULES = (INTERLEAVED, SEQUENTIAL)
MOST_RIVALS = 8  # a round of more is so long that a slow minute no longer meets all of them
_T = TypeVar("_T")
Planned = tuple[int, Cell, int]  # run_id, cell, and the number of its block
# With noise of 3 % from run to run, five runs show that one of two cells is 10 % slower in 94 studies of 100, three runs
# in 55; that one of five is 20 % slower, after the correction for ten comparisons, in 99 and 28
# (benchmarks/results/intervals.json). With one run there is no interval at all.
REPEATS = 5
MOST_REPEATS = 1000  # of a cell: each is a row before any has run


def check(schedule: str) -> str:
    """The schedule, or UnknownNameError."""
    return check_name("schedule", schedule, SCHEDULES)


def groups(planned: Sequence[Planned], schedule: str, across_models: bool = False) -> list[list[Planned]]:
    """Runs that take turns, in the order of the first of each; a run by itself is a group of one.

    across_models: whether models compete, too, and not only what trains them.
    """
    found: dict[Hashable, list[Planned]] = {}
    for run_id, cell, block in planned:
        key: Hashable = run_id
        if schedule == INTERLEAVED and not why_alone(cell):
            key = (block, shared(cell, across_models))
            while len(found.get(key, ())) >= MOST_RIVALS:
                key = (key,)
        found.setdefault(key, []).append((run_id, cell, block))
    return list(found.values())


def why_alone(cell: Cell) -> str | None:
    """Why a cell cannot take turns with any other; None where it can."""
    if searches.is_search(cell.model):
        return "a search is measured as a whole"
    if len(replicas_of(cell.config)) > 1:
        return "several devices train it"
    if cell.config.batch_growth != 1:
        return "its batches grow"
    if cell.device != "cpu" and cell.config.pipeline != "memory" and reads_ahead(cell.config):
        return "on a GPU its loaders cannot be stopped between turns"
    return None


def reads_ahead(config: TrainConfig) -> bool:
    """Whether anything reads images while the worker waits: every pipeline of a framework may, ours with loaders."""
    return config.pipeline == "native" or config.loader_workers > 0


def shared(cell: Cell, across_models: bool = False) -> Hashable:
    """What competitors have in common."""
    config = dataclasses.replace(cell.config, **{name: getattr(_DEFAULTS, name) for name in COMPARED})
    return (cell.dataset, cell.device, config, "" if across_models else cell.model)


_DEFAULTS = TrainConfig()


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
