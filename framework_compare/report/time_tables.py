"""Tables of time: epochs beside those of the fastest, and start-up with what an execution needs to pay for its longer one."""

import math
from collections.abc import Iterable, Sequence

from framework_compare.plan.settings import DEFAULTS
from framework_compare.report.names import title
from framework_compare.report.table_notes import epoch_value, status_value, unverified_winner_note
from framework_compare.report.table_spec import FRAMEWORK, NAMES, Column, Sheet, TableSpec, named
from framework_compare.report.tables import BEST, NOTHING, Value, estimate, number
from framework_compare.results.columns import SHARED, Record, batch_sizes
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


def _compared(sheet: Sheet) -> bool:
    return len({cell.framework for cell in sheet.cells}) > 1


def _columns(sheet: Sheet) -> list[Column]:
    """A group per model: of one data set the seconds, of several a column for each; then the mean of the ratios."""
    keys, marked = _keys(sheet), {cell.Index for cell in _marked(sheet)}
    one_set, compared = len({dataset for _, dataset in keys}) == 1, _compared(sheet)

    def seconds(cell: Record) -> Value:
        if cell.status != "ok" or math.isnan(epoch_seconds(cell)):
            return status_value(cell)
        return epoch_value(cell, best=cell.Index in marked)

    def ratio(cell: Record) -> str:
        return number(sheet.best.get(cell.Index))

    def mean(cell: Record) -> Value:
        own = ratios[cell.framework]
        return Value(number(_mean(own)), f"over {len(own)} of {len(keys)}" if 0 < len(own) < len(keys) else "")

    if one_set and not compared:
        return [Column(title(key[0]), seconds, None, key) for key in keys]
    columns, ratios = [], _ratios(sheet)
    for model, dataset in keys:
        columns.append(Column("s" if one_set else dataset, seconds, title(model), (model, dataset)))
        columns += [Column(RATIO, ratio, title(model), (model, dataset))] if compared else []
    return [*columns, *([Column(RATIO, mean, "mean")] if compared and len(keys) > 1 else [])]


def _ratios(sheet: Sheet) -> dict[str, list[float]]:
    """Return the ratios of each framework's cells to the best."""
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
        yield f"{BEST}: significantly faster than every other framework in the column."
    left_out = [f"{title(name)} ({heading})" for key, heading in headings.items() for name in found[key].excluded]
    if left_out:
        yield f"Excluded, because they failed parity: {', '.join(left_out)}."
    reasons = {heading: found[key].why(title) for key, heading in headings.items()}
    for why in dict.fromkeys(filter(None, reasons.values())):
        same = [heading for heading, reason in reasons.items() if reason == why]
        yield f"No framework is marked as fastest ({why}): {', '.join(same) if len(same) < len(keys) else 'all models'}."
    if _compared(sheet):
        mean = "; rows are sorted by its geometric mean" if len(keys) > 1 else ""
        yield f"{RATIO.capitalize()}: slowdown relative to the fastest framework for the model{mean}."
    yield from unverified_winner_note(_marked(sheet))


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


def _epoch(cell: Record) -> Value:
    about = cell.epoch_estimate_s > 0
    name = "epoch_estimate_s" if about else "epoch_s_median"
    return estimate(METRICS[name].show(getattr(cell, name)), about)


def _startup_columns(sheet: Sheet) -> tuple[Column, ...]:
    pays = _pays_after(sheet.cells)
    return (
        Column("start-up s", "startup_s"),
        Column("first step s", "first_step_s"),
        Column("epoch s", _epoch),
        Column("steps", lambda cell: pays[cell.Index][0], "pays after"),
        Column("epochs", lambda cell: pays[cell.Index][1], "pays after"),
    )


def _pays_after(cells: Sequence[Record]) -> dict[object, tuple[str, str]]:
    """Return by Index of a cell the steps and epochs after which its start has paid."""
    bases: dict[object, Record] = {}
    for execution in reversed(BASES):
        bases.update(
            {_without_execution(cell): cell for cell in cells if cell.execution == execution and cell.status == "ok"}
        )
    return {cell.Index: _break_even(cell, bases.get(_without_execution(cell))) for cell in cells}


def _without_execution(cell: Record) -> tuple[str, ...]:
    return tuple(str(getattr(cell, name)) for name in ("framework", "model", "dataset", *SHARED) if name != "execution")


def _break_even(cell: Record, base: Record | None) -> tuple[str, str]:
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
