"""The precision of a study under a budget: the larger half-width of each ratio to the reference beside the target."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from framework_compare.plan.settings import OF_RIVALS
from framework_compare.protocol import Document, Fields
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import BUDGET, SHARED, Record, grouped
from framework_compare.results.intervals import LEAST_RUNS, Interval, geometric_mean
from framework_compare.results.metrics import percent

MOST_NAMED = 8  # cells of a study of which none is sure enough
UNFINISHED = ("interrupted", "running")
COMPETING = ("ok", "planned", *UNFINISHED)
_STORED = dict(zip(BUDGET, ("target", "seconds")))


@dataclasses.dataclass(frozen=True)
class BudgetOutcome:
    """The outcome of a study under a budget, or its state so far.

    spent_s: wall seconds of all runs. within: whether cells worked, and the ratio of every one to the reference, by
    default the fastest of its competitors, is within the target. unsure: the cells of which it is not, with its larger
    half-width; not_run: those the time did not reach. Of a study that was interrupted, or runs, nothing is within yet.
    """

    budget_s: float
    spent_s: float
    precision_target: float
    within: bool
    unsure: tuple[str, ...]
    not_run: tuple[str, ...]
    sentence: str


def stored_budget(settings: Document) -> Document:
    """Return the budget of a study that adds runs until its ratios are sure, as its settings have it; {} without one."""
    strategy = settings.get("strategy")
    return strategy if isinstance(strategy, dict) and strategy.get("name") == "budget" else {}


def columns(budget: Document) -> Fields:
    """BUDGET of every cell of a study with this budget, without its half-width; None without a budget."""
    values = {name: budget.get(key) for name, key in _STORED.items()}
    return {**dict.fromkeys(BUDGET), **{n: value for n, value in values.items() if type(value) in (int, float)}}


class ToReference(NamedTuple):
    """A cell beside the reference: the ratio that decides, None if unknown, and its mean time over the reference's."""

    ratio: Interval | None
    slowness: float


def to_reference(cells: Sequence[Document], blocks: BlockTimes, to: str) -> dict[int, ToReference]:
    """Return by cell its ratio to the reference; for the reference, to the fastest of the others.

    A cell without a competitor has the interval of its own time, one that failed has nothing, and is no reference either.
    cells: rows of the cell frame. to: the framework that is the reference; "": the fastest.
    """
    times = {
        place: geometric_mean([*blocks[place].values()], looked=blocks.looked)
        for place in range(len(cells))
        if blocks.get(place) and cells[place]["status"] in COMPETING
    }
    found = {}
    for rivals in grouped(times, lambda place: tuple(cells[place][name] for name in OF_RIVALS)).values():
        first, *others = sorted(rivals, key=lambda place: (cells[place]["framework"] != to, times[place].value))
        ratios = {place: blocks.ratio(place, first) for place in others}
        ratios[first] = ratios[others[0]] if others else times[first]
        found.update({place: ToReference(ratios[place], times[place].value / times[first].value) for place in rivals})
    return found


def outcome(cells: Sequence[Record], spent_s: float) -> BudgetOutcome:
    """Return the outcome of all cells of a study under a budget."""
    unsure, not_run = _unsure(cells), _names(cells, lambda cell: cell.status == "planned")
    budget_s, target = float(cells[0].budget_s), float(cells[0].precision_target)
    used = f"{spent_s / 60:.1f} of {budget_s / 60:.3g} minutes used"
    sentence = " ".join([*sentences(cells), f"Budget: {used}."])
    statuses = {cell.status for cell in cells}
    within = "ok" in statuses and not (unsure or not_run or statuses.intersection(UNFINISHED))
    return BudgetOutcome(budget_s, spent_s, target, within, unsure, not_run, sentence)


def sentences(cells: Sequence[Record]) -> list[str]:
    """Return what to say of cells under a budget; nothing of others."""
    if not cells or not cells[0].budget_s > 0:
        return []
    minutes, target = f"{cells[0].budget_s / 60:.3g} minutes", f"±{100 * cells[0].precision_target:.3g} %"
    unsure, not_run = _unsure(cells), _names(cells, lambda cell: cell.status == "planned")
    unfinished = _names(cells, lambda cell: cell.status in UNFINISHED)
    texts = []
    ok = [cell for cell in cells if cell.status == "ok"]
    if len(unsure) == len(ok) > MOST_NAMED:
        half_widths = [cell.ratio_half_width for cell in ok if cell.ratio_half_width > 0]
        known = (
            f"; their intervals are ±{percent(min(half_widths), 1)} to ±{percent(max(half_widths), 1)}"
            if half_widths
            else ""
        )
        none = len(ok) - len(half_widths)
        alone = f"; {none} of them {'has' if none == 1 else 'have'} no interval" if none else ""
        texts.append(f"No ratio of {len(ok)} cells is within {target} under the budget of {minutes}{known}{alone}.")
    elif unsure:
        texts.append(f"Ratios not within {target} under the budget of {minutes}: {', '.join(unsure)}.")
    if not_run:
        texts.append(f"Not run, because the budget of {minutes} was used up: {', '.join(not_run)}.")
    if unfinished:
        texts.append(f"Not finished: {', '.join(unfinished)}.")
    if not ok and not texts:
        return ["No cell finished, so none has an interval."]
    lacking = f"; {len(cells) - len(ok)} of {len(cells)} cells failed" if len(ok) < len(cells) else ""
    return texts or [f"Every ratio that decides is within {target}, under the budget of {minutes}{lacking}."]


def _unsure(cells: Sequence[Record]) -> tuple[str, ...]:
    """Cells that worked and are not within the target, with their larger half-width."""

    def is_unsure(cell: Record) -> bool:
        sure = cell.ratio_blocks >= LEAST_RUNS and cell.ratio_half_width <= cell.precision_target
        return cell.status == "ok" and not sure

    def width(cell: Record) -> str:
        if math.isnan(cell.ratio_half_width):
            return "without interval"
        # One digit fewer, and a half-width this close would read as the target itself.
        near = cell.ratio_half_width < 1.1 * cell.precision_target
        few = f" over {cell.ratio_blocks:.0f} blocks" if cell.ratio_blocks < LEAST_RUNS else ""
        return f"±{100 * cell.ratio_half_width:.{2 if near and not few else 1}f} %{few}"

    widths = map(width, filter(is_unsure, cells))
    return tuple(map(" ".join, zip(_names(cells, is_unsure), widths)))


def _names(cells: Sequence[Record], chosen: Callable[[Record], bool]) -> tuple[str, ...]:
    """The chosen ones of the cells, each by what tells it from the others."""
    varied = [name for name in ("dataset", *SHARED) if len({str(getattr(cell, name)) for cell in cells}) > 1]
    words = {name: "" if name == "dataset" else f"{name} " for name in varied}
    return tuple(
        " ".join([cell.framework, cell.model, *(f"{word}{getattr(cell, name)}" for name, word in words.items())])
        for cell in filter(chosen, cells)
    )
