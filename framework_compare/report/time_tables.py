"""Tables of time: epochs beside those of the fastest, and start-up with what an execution needs to pay for its longer one."""

import math
import statistics
from collections.abc import Iterable, Sequence

from framework_compare.plan.settings import DEFAULTS
from framework_compare.report.names import title
from framework_compare.report.table_notes import epoch_value, status_value, unproved
from framework_compare.report.table_spec import FRAMEWORK, NAMES, Column, Sheet, TableSpec, named
from framework_compare.report.tables import BEST, NOTHING, Value, estimate, number
from framework_compare.results import ratios
from framework_compare.results.columns import Record, batch_sizes, grouped
from framework_compare.results.metrics import METRICS
from framework_compare.results.ratios import epoch_seconds

RATIO = "ratio"
# What an execution is weighed against: the first of these that the same framework has.
BASES = ("eager", DEFAULTS.execution)
NEVER = "never"
_ESTIMATES = ("epoch_estimate_s", "epoch_estimate_s_low", "epoch_estimate_s_high")
Key = tuple[str, str]  # model, data set


def _key(cell: Record) -> Key:
    return cell.model, cell.dataset


def _keys(sheet: Sheet) -> list[Key]:
    """Models and data sets, those of a model beside each other."""
    models = list(dict.fromkeys(cell.model for cell in sheet.cells))
    return sorted(dict.fromkeys(map(_key, sheet.cells)), key=lambda key: models.index(key[0]))


def _columns(sheet: Sheet) -> list[Column]:
    """A group per model: of one data set the seconds, of several a column for each; then the mean of the ratios."""
    keys, marked, by_framework = _keys(sheet), {cell.Index for cell in _marked(sheet)}, _ratios(sheet)
    one_set, compared = len({dataset for _, dataset in keys}) == 1, len(by_framework) > 1

    def seconds(cell: Record) -> Value:
        if cell.status != "ok" or math.isnan(epoch_seconds(cell)):
            return status_value(cell)
        return epoch_value(cell, best=cell.Index in marked)

    def mean(cell: Record) -> Value:
        own = by_framework[cell.framework]
        return Value(number(_mean(own)), f"over {len(own)} of {len(keys)}" if 0 < len(own) < len(keys) else "")

    if one_set and not compared:
        return [Column(title(key[0]), seconds, None, key) for key in keys]
    columns = []
    for key in keys:
        columns.append(Column("s" if one_set else key[1], seconds, title(key[0]), key))
        if compared:
            columns.append(Column(RATIO, lambda cell: number(sheet.best.get(cell.Index)), title(key[0]), key))
    return [*columns, *([Column(RATIO, mean, "mean")] if compared and len(keys) > 1 else [])]


def _ratios(sheet: Sheet) -> dict[str, list[float]]:
    """Return the ratios of each framework's cells to the best."""
    cells = {(cell.framework, _key(cell)): cell for cell in sheet.cells}.values()
    best = sheet.best
    return {
        framework: [best[cell.Index] for cell in own if cell.Index in best]
        for framework, own in grouped(cells, lambda cell: cell.framework).items()
    }


def _mean(values: Sequence[float]) -> float | None:
    return statistics.geometric_mean(values) if values else None


def _rows(sheet: Sheet) -> list[Record]:
    """Frameworks by the mean of their ratios; one over fewer models ranks behind those over more."""
    order = {name: (-len(own), _mean(own) or math.inf) for name, own in _ratios(sheet).items()}
    return sorted(sheet.cells, key=lambda cell: order[cell.framework])


def _marked(sheet: Sheet) -> list[Record]:
    """The cells of the winners."""
    cells = {(_key(cell), cell.framework): cell for cell in sheet.cells}
    return [cells[key, one.framework] for key, one in sheet.winners.items() if one.framework]


def _remarks(sheet: Sheet) -> Iterable[str]:
    keys, found = _keys(sheet), sheet.winners
    several = len({dataset for _, dataset in keys}) > 1
    headings = {key: f"{title(key[0])} / {key[1]}" if several else title(key[0]) for key in keys if key in found}
    if any(one.framework for one in found.values()):
        yield f"{BEST}: significantly faster than every other framework in the column."
    left_out = [f"{title(name)} ({heading})" for key, heading in headings.items() for name in found[key].excluded]
    if left_out:
        yield f"Excluded, because they failed parity: {', '.join(left_out)}."
    reasons = {heading: found[key].why(title) for key, heading in headings.items()}
    for why in dict.fromkeys(filter(None, reasons.values())):
        same = [heading for heading, reason in reasons.items() if reason == why]
        yield f"No framework is marked as fastest ({why}): {', '.join(same) if len(same) < len(keys) else 'all models'}."
    if len({cell.framework for cell in sheet.cells}) > 1:
        mean = "; rows are sorted by its geometric mean" if len(keys) > 1 else ""
        yield f"{RATIO.capitalize()}: slowdown relative to the fastest framework for the model{mean}."
    doubtful = [cell for cell in _marked(sheet) if unproved(cell.parity) or cell.parity is None]
    if doubtful:
        names = ", ".join(dict.fromkeys(title(cell.framework) for cell in doubtful))
        yield f"Marked as fastest, but not verified to train the same function: {names}."


TIME = TableSpec(
    "Epoch time in seconds, geometric mean over runs ± larger half-width of the 95 % confidence interval.",
    _columns,
    ("epoch_s", "epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high", *_ESTIMATES, "epochs_measured"),
    names=(FRAMEWORK,),
    rows=_rows,
    spread=_key,
    remarks=_remarks,
    judged=True,
)


def _startup_columns(sheet: Sheet) -> tuple[Column, ...]:
    def epoch(cell: Record) -> Value:
        return estimate(METRICS["epoch_s_median"].show(epoch_seconds(cell)), cell.epoch_estimate_s > 0)

    alike = ratios.alike_but("execution")
    bases: dict[object, Record] = {}
    for execution in reversed(BASES):
        some = (cell for cell in sheet.cells if cell.execution == execution and cell.status == "ok")
        bases.update({alike(cell): cell for cell in some})
    pays = {cell.Index: _pays_after(cell, bases.get(alike(cell))) for cell in sheet.cells}
    return (
        Column("start-up s", "startup_s"),
        Column("first step s", "first_step_s"),
        Column("epoch s", epoch),
        Column("steps", lambda cell: pays[cell.Index][0], "pays after"),
        Column("epochs", lambda cell: pays[cell.Index][1], "pays after"),
    )


def _pays_after(cell: Record, base: Record | None) -> tuple[str, str]:
    """Return the steps and epochs after which the start of a cell has paid."""
    if base is None or base.Index == cell.Index or cell.status != "ok":
        return NOTHING, NOTHING
    steps = steps_until_paid(cell.startup_s, _step_s(cell), base.startup_s, _step_s(base))
    if math.isnan(steps):
        return NOTHING, NOTHING
    if math.isinf(steps):
        return NEVER, NEVER
    return f"{steps:,}", f"{steps * _step_s(cell) / epoch_seconds(cell):,.1f}"


def steps_until_paid(start_s: float, step_s: float, base_start_s: float, base_step_s: float) -> float:
    """The least number of steps after which a start and steps take no longer than those of the base; inf for never.

    NaN where a time is not known.
    """
    times = (start_s, step_s, base_start_s, base_step_s)
    if any(math.isnan(time) for time in times):
        return math.nan
    if start_s <= base_start_s:
        return 0 if step_s <= base_step_s else math.inf
    return math.ceil((start_s - base_start_s) / (base_step_s - step_s)) if step_s < base_step_s else math.inf


def _step_s(cell: Record) -> float:
    """Seconds of a step: an epoch over its steps."""
    return float(epoch_seconds(cell) / len(batch_sizes(cell))) if cell.images > 0 else math.nan


STARTUP = TableSpec(
    "Start-up: from process start to the first measured epoch, mean over runs.",
    _startup_columns,
    ("startup_s", "first_step_s", "epoch_s_median", "epoch_estimate_s", "images_per_s", "images"),
    names=(*NAMES, named("execution")),
    remarks=lambda sheet: (
        f"Pays after: steps after which the slower start-up is recovered, relative to {' or '.join(BASES)}; {NEVER} if its "
        "steps are not faster. No interval is given.",
    ),
    across=("execution",),
)
