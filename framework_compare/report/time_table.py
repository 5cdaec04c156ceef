"""Epoch times: frameworks in the order of the geometric mean of their ratios to the fastest of each model."""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Sequence, Tuple

from framework_compare.report import headlines
from framework_compare.report.figures.look import title
from framework_compare.report.parts import Notes, epoch_text, unsure
from framework_compare.report.tables import NOTHING, Figure, Group, Row, Table
from framework_compare.results import ratios, repeats
from framework_compare.results.columns import Record
from framework_compare.results.metrics import digits
from framework_compare.results.parity import fails
from framework_compare.results.ratios import epoch_seconds
from framework_compare.results.speed_verdicts import Verdict

RATIO = "x best"
Column = Tuple[str, str]  # model, data set
Grid = Dict[Tuple[str, str, str], Record]  # by framework, model, data set


def time_table(cells: Sequence[Record], caption: str, verdicts: Sequence[Verdict] = ()) -> Table:
    """One row per framework, columns per model and data set: median epoch seconds, and their ratio to the least."""
    grid = {(cell.framework, cell.model, cell.dataset): cell for cell in cells}
    models = list(dict.fromkeys(cell.model for cell in cells))
    columns = sorted(dict.fromkeys(key[1:] for key in grid), key=lambda column: models.index(column[0]))
    compared, best = len({cell.framework for cell in cells}) > 1, ratios.to_best(cells)
    means = _means(grid, columns, best)
    frameworks = sorted(means, key=lambda framework: means[framework].order)
    winners = {
        column: _fastest([grid.get((f, *column)) for f in frameworks], _of_column(verdicts, *column))
        for column in columns
    }
    notes, rows = Notes(), []
    for framework in frameworks:
        figures: List[Figure] = []
        for column in columns:
            cell = grid.get((framework, *column))
            figures.append(_time(cell, winners[column][0] == framework, notes))
            if compared:
                figures.append(_ratio(cell, best))
        mean = [means[framework].figure(len(columns), notes)] if compared and len(columns) > 1 else []
        rows.append(Row((title(framework),), (*figures, *mean)))
    marked = [grid[(winner, *column)] for column, (winner, _) in winners.items() if winner]
    said = {_heading(column, columns): winner for column, winner in winners.items()}
    return Table(
        f"Median epoch time in seconds ± longer arm of the 95 % interval over runs. {caption}",
        ("framework",),
        _groups(columns, compared),
        tuple(rows),
        tuple(notes.texts),
        (*_remarks(said), *([_legend(len(columns))] if compared else []), *unsure(marked)),
    )


def _groups(columns: Sequence[Column], compared: bool) -> Tuple[Group, ...]:
    """A group per model: of one data set the seconds, of several a column for each; then the mean of the ratios."""
    one_set = len({dataset for _, dataset in columns}) == 1
    if one_set and not compared:
        return tuple(Group("", (title(model),)) for model, _ in columns)
    groups = []
    for name in dict.fromkeys(model for model, _ in columns):
        headings = ["s" if one_set else dataset for model, dataset in columns if model == name]
        groups.append(
            Group(title(name), tuple(text for one in headings for text in ((one, RATIO) if compared else (one,))))
        )
    return (*groups, *([Group("mean", (RATIO,))] if compared and len(columns) > 1 else []))


def _legend(columns: int) -> str:
    mean = "; rows by its geometric mean" if columns > 1 else ""
    return f"{RATIO}: epoch time over the least of the model{mean}."


class _Mean:
    """The geometric mean of a framework's ratios to the best; one over fewer models ranks behind those over more."""

    def __init__(self, found: Sequence[float]) -> None:
        self.count = len(found)
        self.value = math.exp(sum(map(math.log, found)) / len(found)) if found else math.inf
        self.order = (-self.count, self.value)

    def figure(self, columns: int, notes: Notes) -> Figure:
        if not self.count:
            return Figure(NOTHING)
        return Figure(
            digits(self.value), 0 if self.count == columns else notes.number(f"over {self.count} of {columns}")
        )


def _means(grid: Grid, columns: Sequence[Column], best: Dict[int, float]) -> Dict[str, _Mean]:
    frameworks = dict.fromkeys(framework for framework, _, _ in grid)
    cells = {name: [grid[(name, *column)] for column in columns if (name, *column) in grid] for name in frameworks}
    return {name: _Mean([best[cell.Index] for cell in own if cell.Index in best]) for name, own in cells.items()}


def _of_column(verdicts: Sequence[Verdict], model: str, dataset: str) -> List[Verdict]:
    return [one for one in verdicts if one.model == model and one.condition["dataset"] == dataset]


def _heading(column: Column, columns: Sequence[Column]) -> str:
    model = title(column[0])
    return model if len({dataset for _, dataset in columns}) == 1 else f"{model} / {column[1]}"


def _time(cell: Optional[Record], best: bool, notes: Notes) -> Figure:
    if cell is None:
        return Figure(NOTHING)
    if cell.status != "ok" or math.isnan(epoch_seconds(cell)):
        return notes.figure(cell)
    return Figure(epoch_text(cell), notes.parity(cell), best)


def _ratio(cell: Optional[Record], best: Dict[int, float]) -> Figure:
    return Figure(NOTHING if cell is None or cell.Index not in best else digits(best[cell.Index]))


def _fastest(cells: Sequence[Optional[Record]], verdicts: Sequence[Verdict]) -> Tuple[Optional[str], str]:
    """The framework that is shown to be faster than all others, or None and why none is named."""
    worked = [
        cell for cell in cells if cell is not None and cell.status == "ok" and not math.isnan(epoch_seconds(cell))
    ]
    if len(worked) < 2:
        return None, ""
    disturbed = [
        title(cell.framework)
        for cell in worked
        if repeats.disturbed_throughout(cell.epochs_disturbed, cell.epochs_measured)
    ]
    if disturbed:
        return None, f"others took CPU time in every epoch of {', '.join(disturbed)}"
    first, *others = sorted(worked, key=epoch_seconds)
    if fails(first.parity):
        return None, f"{title(first.framework)} is ahead and fails parity"
    rivals = {cell.framework for cell in others if not fails(cell.parity)}
    among = [one for one in verdicts if {one.faster, one.slower} <= {first.framework, *rivals}]
    unclear = [headlines.titled(one) for one in among if one.p is None]
    if unclear or not among:
        few = not unclear or any(cell.runs_ok < 2 for cell in worked)
        return None, "fewer than 2 runs" if few else unclear[0].reason
    slower = {one.slower for one in among if one.shown and one.faster == first.framework}
    return (first.framework, "") if rivals <= slower else (None, "no difference shown")


def _remarks(winners: Dict[str, Tuple[Optional[str], str]]) -> List[str]:
    lines = []
    if any(name for name, _ in winners.values()):
        lines.append("Marked: the fastest, shown to be faster than each other in the column.")
    for why in dict.fromkeys(why for name, why in winners.values() if why):
        headings = [heading for heading, winner in winners.items() if winner[1] == why]
        where = ", ".join(headings) if len(headings) < len(winners) else "all models"
        lines.append(f"No fastest framework is marked ({why}): {where}.")
    return lines
