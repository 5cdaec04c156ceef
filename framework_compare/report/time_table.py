"""Epoch times: frameworks in the order of the geometric mean of their ratios to the fastest of each model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from framework_compare.report.names import title
from framework_compare.report.table_notes import epoch_text, parity_note, status_value, unverified_winner_note
from framework_compare.report.table_spec import FRAMEWORK, Column, Sheet, TableSpec
from framework_compare.report.tables import Value, number
from framework_compare.results.columns import Record
from framework_compare.results.ratios import epoch_seconds

RATIO = "x best"
_ESTIMATES = ("epoch_estimate_s", "epoch_estimate_s_low", "epoch_estimate_s_high")
Key = tuple[str, str]  # model, data set


def _key(cell: Record) -> Key:
    return cell.model, cell.dataset


def _keys(sheet: Sheet) -> list[Key]:
    """Models and data sets, those of a model beside each other."""
    models = list(dict.fromkeys(cell.model for cell in sheet.cells))
    return sorted(dict.fromkeys(map(_key, sheet.cells)), key=lambda key: models.index(key[0]))


def _compared(sheet: Sheet) -> bool:
    return len({cell.framework for cell in sheet.cells}) > 1


def _columns(sheet: Sheet) -> list[Column]:
    """A group per model: of one data set the seconds, of several a column for each; then the mean of the ratios."""
    keys, marked = _keys(sheet), {cell.Index for cell in _marked(sheet)}
    one_set, compared = len({dataset for _, dataset in keys}) == 1, _compared(sheet)

    def seconds(cell: Record) -> Value:
        if cell.status != "ok" or math.isnan(epoch_seconds(cell)):
            return status_value(cell)
        return Value(epoch_text(cell), parity_note(cell), cell.Index in marked)

    columns = []
    for model, dataset in keys:
        if one_set and not compared:
            columns.append(Column(title(model), seconds, None, (model, dataset)))
            continue
        columns.append(Column("s" if one_set else dataset, seconds, title(model), (model, dataset)))
        if compared:
            columns.append(
                Column(RATIO, lambda cell: number(sheet.best.get(cell.Index)), title(model), (model, dataset))
            )
    ratios = _ratios(sheet)

    def mean(cell: Record) -> Value:
        own = ratios[cell.framework]
        return Value(number(_mean(own)), f"over {len(own)} of {len(keys)}" if 0 < len(own) < len(keys) else "")

    return [*columns, *([Column(RATIO, mean, "mean")] if compared and len(keys) > 1 else [])]


def _ratios(sheet: Sheet) -> dict[str, list[float]]:
    """By framework the ratios of its cells to the best."""
    ratios: dict[str, list[float]] = {cell.framework: [] for cell in sheet.cells}
    cells = {(cell.framework, _key(cell)): cell for cell in sheet.cells}
    for cell in cells.values():
        ratios[cell.framework] += [sheet.best[cell.Index]] if cell.Index in sheet.best else []
    return ratios


def _mean(ratios: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def _rows(sheet: Sheet) -> list[Record]:
    """Frameworks by the mean of their ratios; one over fewer models ranks behind those over more."""
    order = {name: (-len(own), _mean(own) or math.inf) for name, own in _ratios(sheet).items()}
    return sorted(sheet.cells, key=lambda cell: order[cell.framework])


def _marked(sheet: Sheet) -> list[Record]:
    cells = {(_key(cell), cell.framework): cell for cell in sheet.cells}
    return [cells[key, one.framework] for key, one in sheet.winners.items() if one.framework]


def _remarks(sheet: Sheet) -> Iterable[str]:
    keys, found = _keys(sheet), sheet.winners
    several = len({dataset for _, dataset in keys}) > 1
    headings = {key: f"{title(key[0])} / {key[1]}" if several else title(key[0]) for key in keys if key in found}
    if any(one.framework for one in found.values()):
        yield "Marked: the fastest, shown to be faster than each other in the column."
    left_out = [f"{title(name)} ({heading})" for key, heading in headings.items() for name in found[key].excluded]
    if left_out:
        yield f"Not compared, as they fail parity: {', '.join(left_out)}."
    reasons = {heading: found[key].why(title) for key, heading in headings.items()}
    for why in dict.fromkeys(filter(None, reasons.values())):
        same = [heading for heading, reason in reasons.items() if reason == why]
        yield f"No fastest framework is marked ({why}): {', '.join(same) if len(same) < len(keys) else 'all models'}."
    if _compared(sheet):
        mean = "; rows by its geometric mean" if len(keys) > 1 else ""
        yield f"{RATIO}: epoch time over the least of the model{mean}."
    yield from unverified_winner_note(_marked(sheet))


TIME = TableSpec(
    "Median epoch time in seconds ± longer arm of the 95 % interval over runs.",
    _columns,
    ("epoch_s", "epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high", *_ESTIMATES, "epochs_measured"),
    names=(FRAMEWORK,),
    rows=_rows,
    spread=_key,
    remarks=_remarks,
    judged=True,
)
