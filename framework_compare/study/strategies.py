"""The choice of the cells that a study runs: all of a product, or each next one by the outcomes before it; or one once more.

A strategy is stored with its study, so that any study is resumed the same way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from framework_compare.errors import StudyError
from framework_compare.protocol import Document, Fields, TrainConfig
from framework_compare.records import Cell
from framework_compare.results.intervals import LEAST_RUNS, MIN_RUNS
from framework_compare.store.study_file import Store
from framework_compare.study import schedules
from framework_compare.study.run_options import RunOptions
from framework_compare.study.schedules import Planned, shared

SEARCHES = ("steps", "doubling")
Outcomes = Mapping[Cell, Sequence[str]]  # statuses of its runs by cell
WallSeconds = Mapping[Cell, Sequence[float]]  # of its runs by cell


class Progress(NamedTuple):
    """The progress of a study, cell by cell: statuses and wall seconds of its runs, and how sure its ratio is.

    half_widths: the larger half-width of its ratio to the reference of its competitors, as a share; a cell without, or
    with one over fewer than LEAST_RUNS blocks, is not in it. slowness: its mean time over that of the reference, where
    both have been measured.
    """

    outcomes: Outcomes
    wall_s: WallSeconds
    half_widths: Mapping[Cell, float] = {}
    slowness: Mapping[Cell, float] = {}

    @property
    def spent_s(self) -> float:
        """Wall seconds of all runs."""
        return sum(map(sum, self.wall_s.values()))


class Strategy:
    """Picks cells; this one takes all that are planned, and adds none.

    `name` and `to_dict` say in the study file how cells were picked. seconds: wall seconds that all runs together may
    take. sample_s: the seconds of a longer epoch that are measured; 0: all of it. reference: the framework whose ratios
    decide; "": the fastest. note: what a forecast has to say of
    `possible`.
    """

    name: ClassVar[str]
    limits_decide: ClassVar[bool] = False  # whether other limits would pick other cells
    adds_blocks: ClassVar[bool] = False  # whether known cells get more runs
    note: ClassVar[str] = ""
    seconds: float = math.inf
    sample_s: float = 0
    reference: str = ""

    def possible(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """All cells that a study of the planned ones may run."""
        return cells

    def first(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """Return those of the planned cells that the study starts with."""
        return cells

    def next(self, progress: Progress) -> Sequence[Cell]:
        """Cells to add now that these have ended, or another block of known ones; none when the study is complete."""
        return ()

    def to_dict(self) -> Fields:
        """JSON for the study file, with the name under "name"."""
        return {"name": self.name}

    @classmethod
    def from_dict(cls, document: Document) -> Strategy:
        """Return the strategy that `to_dict` stored."""
        return cls()


@dataclasses.dataclass(frozen=True)
class Product(Strategy):
    """Every combination of the listed values, known from the start."""

    sample_s: float = 0

    name: ClassVar[str] = "product"

    def to_dict(self) -> Fields:
        return {**super().to_dict(), **({"sample_s": self.sample_s} if self.sample_s else {})}

    @classmethod
    def from_dict(cls, document: Document) -> Product:
        return cls(float(document.get("sample_s", 0)))


@dataclasses.dataclass(frozen=True)
class Growth(Strategy):
    """Every cell with a growing batch size until one fails, cell after cell.

    search "steps" tries `sizes` in turn; "doubling" doubles from the smallest, then halves the gap until it is no
    wider than the smallest.
    """

    cells: tuple[Cell, ...]
    sizes: tuple[int, ...]
    search: str

    name: ClassVar[str] = "growth"
    limits_decide: ClassVar[bool] = True
    note: ClassVar[str] = "The estimate assumes that no size fails."

    def possible(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        tried: dict[int, bool] = {}
        while (size := next_size(tried, self.sizes, self.search)) is not None:
            tried[size] = True
        return [_sized(cell, size) for cell in cells for size in tried]

    def first(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        return ()

    def next(self, progress: Progress) -> Sequence[Cell]:
        for cell in self.cells:
            size = next_size(self._of(cell, progress.outcomes), self.sizes, self.search)
            if size is not None:
                return (_sized(cell, size),)
        return ()

    def _of(self, cell: Cell, outcomes: Outcomes) -> dict[int, bool]:
        """Return by batch size whether the cell worked with it."""
        return {
            other.config.batch_size: all(status == "ok" for status in statuses)
            for other, statuses in outcomes.items()
            if _sized(other, cell.config.batch_size) == cell
        }

    def to_dict(self) -> Fields:
        return {
            **super().to_dict(),
            "batch_sizes": list(self.sizes),
            "search": self.search,
            "first_cells": [dataclasses.asdict(cell) for cell in self.cells],
        }

    @classmethod
    def from_dict(cls, document: Document) -> Growth:
        cells = (Cell(**{**cell, "config": TrainConfig.from_dict(cell["config"])}) for cell in document["first_cells"])
        return cls(tuple(cells), tuple(document["batch_sizes"]), document["search"])


# A run takes about as long to start as this, so that longer samples would buy less than more runs do.
LONGEST_SAMPLE_S = 20.0
SHORTEST_SAMPLE_S = 1.0
# In turns the machine's speed leaves a ratio, and what stays is the effect that a worker keeps for life: longer samples
# of the same workers do not make it smaller (docs/records/turns.md).
LONGEST_SAMPLE_IN_TURNS_S = 5.0
NEAR = 2.0  # times the time of the reference: slower rivals decide no verdict that a block more could change
NEAR_BLOCKS = 5  # of near rivals, before slower ones get more than the blocks of an interval


@dataclasses.dataclass(frozen=True)
class Budget(Strategy):
    """Blocks of runs, each of cells that compete, until all are sure or the time is spent.

    All first get the MIN_RUNS blocks of an interval. Then come the reference and its near rivals, up to NEAR_BLOCKS; then
    others with the reference, up to LEAST_RUNS; then near ones until they are sure, and at last the others. A cell that is
    sure runs no more, the reference apart. Of several blocks, those of the fewest runs come first, and then those of which
    a cell is likely to be sure soonest, as half-widths fall with the root of the number of blocks. target: the larger
    half-width of a ratio to the reference, as a share, below which a cell is sure.
    """

    seconds: float = dataclasses.field()  # none of the defaults that strategies have
    target: float
    sample_s: float = dataclasses.field()
    reference: str = ""

    name: ClassVar[str] = "budget"
    adds_blocks: ClassVar[bool] = True

    @classmethod
    def of(cls, seconds: float, target: float, cells: int, in_turns: bool, reference: str = "") -> Budget:
        """Samples so long that LEAST_RUNS of them, with as long a start each, fit into the budget."""
        share = seconds / (cells * LEAST_RUNS * 2)
        longest = LONGEST_SAMPLE_IN_TURNS_S if in_turns else LONGEST_SAMPLE_S
        return cls(seconds, target, min(max(share, SHORTEST_SAMPLE_S), longest), reference)

    def next(self, progress: Progress) -> Sequence[Cell]:
        left = self.seconds - progress.spent_s
        found = []
        for rivals in _rivals(progress):
            for near, (first, *others) in _blocks(rivals, progress, self.reference):
                unsure = [cell for cell in others or [first] if half_width(cell, progress) > self.target]
                cells = [first, *unsure] if others else unsure
                cost_s = sum(run_s(cell, progress.wall_s) for cell in cells)
                if unsure and cost_s <= left:
                    fewest = min(len(progress.outcomes[cell]) for cell in unsure)
                    soon = fewest < (NEAR_BLOCKS if near else LEAST_RUNS)
                    lacking = min(self._lacking_blocks(cell, progress) for cell in unsure)
                    order = -fewest if fewest < LEAST_RUNS else -cost_s * lacking
                    found.append(((fewest < MIN_RUNS, soon, near, fewest < LEAST_RUNS, order), cells))
        return max(found, key=lambda one: one[0], default=((), ()))[1]

    def _lacking_blocks(self, cell: Cell, progress: Progress) -> float:
        return len(progress.outcomes[cell]) * ((half_width(cell, progress) / self.target) ** 2 - 1)

    def to_dict(self) -> Fields:
        return {**super().to_dict(), **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, document: Document) -> Budget:
        seconds, target, sample_s = (float(document[name]) for name in ("seconds", "target", "sample_s"))
        return cls(seconds, target, sample_s, document.get("reference", ""))


def half_width(cell: Cell, progress: Progress) -> float:
    """The larger half-width of a cell's ratio; inf where that is of too few runs."""
    return progress.half_widths.get(cell, math.inf) if len(progress.outcomes[cell]) >= LEAST_RUNS else math.inf


def run_s(cell: Cell, wall_s: WallSeconds) -> float:
    """Mean wall seconds of a cell's runs; of all cells' where it has none, 0 where there are none."""
    seconds = wall_s.get(cell) or [one for several in wall_s.values() for one in several]
    return sum(seconds) / len(seconds) if seconds else 0.0


def _rivals(progress: Progress) -> list[list[Cell]]:
    """Cells that compete, in the order of the plan; without those of which a run was not ok."""
    rivals: dict[Hashable, list[Cell]] = {}
    for cell, statuses in progress.outcomes.items():
        if all(status == "ok" for status in statuses):
            rivals.setdefault(shared(cell), []).append(cell)
    return list(rivals.values())


def _blocks(rivals: Sequence[Cell], progress: Progress, reference: str) -> list[tuple[bool, list[Cell]]]:
    """The reference before its near rivals (True), and before all others (False)."""
    first = min(rivals, key=lambda cell: (cell.framework != reference, progress.slowness.get(cell, 1.0)))
    near = [cell for cell in rivals if cell != first and 1 / NEAR <= progress.slowness.get(cell, 1.0) <= NEAR]
    far = [cell for cell in rivals if cell != first and cell not in near]
    return [(True, [first, *near])] * bool(near or not far) + [(False, [first, *far])] * bool(far)


def of_settings(settings: Document, path: object) -> Strategy:
    """The strategy that a study began with; StudyError if its settings do not name one."""
    document = settings.get("strategy") or {"name": Product.name}
    kinds: dict[str, type[Strategy]] = {kind.name: kind for kind in (Product, Growth, Budget)}
    try:
        return kinds[document["name"]].from_dict(document)
    except (AttributeError, KeyError, TypeError) as error:
        raise StudyError(f"{path} is damaged: its strategy cannot be read: {error!r}; name another folder") from None


def with_anchor(
    store: Store, group: list[Planned], options: RunOptions, strategy: Strategy, say: Callable[[str], None]
) -> list[Planned]:
    """Return runs of a block, beside the reference or the fastest of the rivals that ran before, if there are any.

    It runs once more, so that they can take turns with it.
    """
    if options.schedule != schedules.INTERLEAVED or strategy.limits_decide:
        return group
    paces = store.paces(group[0][2])
    anchor = schedules.anchor(group, paces, options.across_models, strategy.reference)
    if anchor and (added := store.beside_anchor([run_id for run_id, *_ in group], anchor)):
        labels = ", ".join(cell.label for _, cell, _ in group)
        say(f"{anchor.label} runs once more, so that {labels} can take turns with it")
        run_id, block = added
        return [(run_id, anchor, block), *((one, cell, block) for one, cell, _ in group)]
    return group


def grows(settings: Document) -> bool:
    """Return whether a study with these settings is a sweep of growing batch sizes."""
    return (settings.get("strategy") or {}).get("name") == Growth.name


def next_size(outcomes: Mapping[int, bool], sizes: Sequence[int], search: str) -> int | None:
    """The batch size to try after these outcomes (True: ok); None when enough is known."""
    failed = min((size for size, ok in outcomes.items() if not ok), default=None)
    worked = max((size for size, ok in outcomes.items() if ok), default=None)
    if search == "steps":
        return next((size for size in sizes if size not in outcomes), None) if failed is None else None
    first, last = sizes[0], sizes[-1]
    if failed is None:
        following = first if worked is None else min(2 * worked, last)
        return None if worked == last else following
    if worked is None or failed - worked <= first:
        return None
    return (worked + failed) // 2


def _sized(cell: Cell, size: int) -> Cell:
    return dataclasses.replace(cell, config=dataclasses.replace(cell.config, batch_size=size))
