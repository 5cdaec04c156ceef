"""Epoch times: frameworks in the order of the geometric mean of their ratios to the fastest of each model."""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Sequence, Tuple

from framework_compare.report.figures.look import title
from framework_compare.report.parts import Notes, epoch_text, unsure
from framework_compare.report.tables import NOTHING, Figure, Group, Row, Table
from framework_compare.results import ratios
from framework_compare.results.columns import Record
from framework_compare.results.metrics import digits
from framework_compare.results.ratios import epoch_seconds
from framework_compare.results.speed_verdicts import Verdict
from framework_compare.results.winners import Winner, winners

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
    fastest = {(one.model, one.condition["dataset"]): one for one in winners(cells, verdicts)}
    marked = [grid[(one.framework, *column)] for column, one in fastest.items() if one.framework]
    notes, rows = Notes(), []
    for framework in frameworks:
        figures: List[Figure] = []
        for column in columns:
            cell = grid.get((framework, *column))
            figures.append(_time(cell, cell in marked, notes))
            if compared:
                figures.append(_ratio(cell, best))
        mean = [means[framework].figure(len(columns), notes)] if compared and len(columns) > 1 else []
        rows.append(Row((title(framework),), (*figures, *mean)))
    return Table(
        f"Median epoch time in seconds ± longer arm of the 95 % interval over runs. {caption}",
        ("framework",),
        _groups(columns, compared),
        tuple(rows),
        tuple(notes.texts),
        (*_remarks(fastest, columns), *([_legend(len(columns))] if compared else []), *unsure(marked)),
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


def _remarks(winners: Dict[Column, Winner], columns: Sequence[Column]) -> List[str]:
    lines = []
    if any(one.framework for one in winners.values()):
        lines.append("Marked: the fastest, shown to be faster than each other in the column.")
    excluded = {_heading(column, columns): winners[column].excluded for column in columns if column in winners}
    left_out = [f"{title(name)} ({heading})" for heading, names in excluded.items() for name in names]
    if left_out:
        lines.append(f"Not compared, as they fail parity: {', '.join(left_out)}.")
    reasons = {_heading(column, columns): winners[column].why(title) for column in columns if column in winners}
    for why in dict.fromkeys(filter(None, reasons.values())):
        headings = [heading for heading, reason in reasons.items() if reason == why]
        where = ", ".join(headings) if len(headings) < len(columns) else "all models"
        lines.append(f"No fastest framework is marked ({why}): {where}.")
    return lines
