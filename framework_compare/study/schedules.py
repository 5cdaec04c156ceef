"""The order of runs, and which of a block compete, so that their workers take turns.

Cells that run in the same order all day meet the same neighbours and the same hours. So in each block every cell runs
once, in a new order, which spreads what warms up, fills or slows the machine (Fisher's randomised blocks).
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from framework_compare.plan import searches
from framework_compare.plan.settings import COMPARED, DEFAULTS
from framework_compare.protocol import replicas_of
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
Paces = Mapping[Cell, float]  # seconds per sample of cells whose runs of a block are ok
MOST_NAMED = 4  # models in a sentence
IN_TURNS = "In turns"  # such sentences begin so


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


def anchor(group: Sequence[Planned], ran: Paces, across_models: bool, reference: str) -> Cell | None:
    """The competitor of these runs that runs with them once more: of those that ran before them in their block the
    reference, a framework, else the fastest; None where none did."""
    cells = {cell for _, cell, _ in group}
    if any(map(why_alone, cells)):
        return None
    common = {shared(cell, across_models) for cell in cells}
    rivals = [one for one in ran if one not in cells and {shared(one, across_models)} == common]
    return min(rivals, key=lambda one: (one.framework != reference, ran[one]), default=None)


def sentences(
    planned: Sequence[Planned],
    schedule: str,
    across_models: bool = False,
    ran: Callable[[int], Paces] = lambda _: {},
    reference: str = "",
) -> list[str]:
    """Say which of these runs take turns, and why the others do not.

    ran: the paces of a block, of runs that have ended; reference: as for `anchor`.
    """
    if schedule == SEQUENTIAL:
        return ["One run after another, as requested."]
    rivals: dict[Hashable, list[list[Planned]]] = {}
    for group in groups(planned, schedule, across_models):
        run_id, cell, block = group[0]
        rivals.setdefault(run_id if why_alone(cell) else (block, shared(cell, across_models)), []).append(group)
    found: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for several in rivals.values():
        cells = [cell for group in several for _, cell, _ in group]
        names = _names(cells, across_models)
        how = _how(several, anchor(several[0], ran(several[0][0][2]), across_models, reference))
        listed, models = found.setdefault((how, ", ".join(names) if how.startswith(IN_TURNS) else ""), ({}, {}))
        listed.update(dict.fromkeys(names))
        models[cells[0].model] = None
    return [
        f"{how}: {', '.join(listed)}{_of_models(list(models), across_models)}."
        for (how, _), (listed, models) in found.items()
    ]


def _how(several: Sequence[Sequence[Planned]], fastest: Cell | None) -> str:
    """Return how runs of a block that compete run, in groups of `groups`."""
    (_, cell, _), *others = several[0]
    if fastest:
        return f"{IN_TURNS} with {fastest.framework}, which runs once more"
    if len(several) > 1:
        return f"{IN_TURNS}, {MOST_RIVALS} at a time; the others of a block with the fastest of these, which runs once more"
    return IN_TURNS if others else f"Alone ({why_alone(cell) or 'no other cell competes with it'})"


def _names(cells: Sequence[Cell], across_models: bool) -> list[str]:
    """The names of competitors: frameworks, or models, and those settings that differ."""
    differing = [name for name in COMPARED if len({getattr(cell.config, name) for cell in cells}) > 1]
    several = across_models and len({cell.model for cell in cells}) > 1
    named = (
        " ".join([cell.framework, *[cell.model] * several, *(str(getattr(cell.config, name)) for name in differing)])
        for cell in cells
    )
    return list(dict.fromkeys(named))


def _of_models(models: Sequence[str], across_models: bool) -> str:
    if across_models:
        return ""
    return f" ({', '.join(models) if len(models) <= MOST_NAMED else f'{len(models)} models'})"


def why_alone(cell: Cell) -> str | None:
    """Return why a cell cannot take turns with any other; None where it can."""
    if searches.is_search(cell.model):
        return "a search is measured as a whole"
    if len(replicas_of(cell.config)) > 1:
        return "several devices train it"
    if cell.config.batch_growth != 1:
        return "its batches grow"
    # while a worker waits every pipeline of a framework may read images, ours with loaders
    reads_ahead = cell.config.pipeline == "native" or cell.config.loader_workers > 0
    if cell.device != "cpu" and cell.config.pipeline != "memory" and reads_ahead:
        return "on a GPU its loaders cannot be stopped between turns"
    return None


def shared(cell: Cell, across_models: bool = False) -> Hashable:
    """Return what competitors have in common."""
    config = dataclasses.replace(cell.config, **{name: getattr(DEFAULTS, name) for name in COMPARED})
    return (cell.dataset, cell.device, config, "" if across_models else cell.model)


def new_seed() -> int:
    """A seed that no other study has; it is stored with the study."""
    return random.SystemRandom().randrange(2**32)


def orders(cells: int, repeats: int, seed: int | None) -> list[list[int]]:
    """Return each block's order of the cells: shuffled, or as planned if there is one block or no seed."""
    places = list(range(cells))
    if repeats < 2 or seed is None:
        return [places] * repeats
    shuffle = random.Random(seed)
    return [shuffle.sample(places, cells) for _ in range(repeats)]


def shuffled(cells: Sequence[_T], seed: int | None, place: int) -> list[_T]:
    """The cells of one more block in an order of its own; `place` tells it from the blocks before."""
    return random.Random(f"{seed}-{place}").sample(list(cells), len(cells))
