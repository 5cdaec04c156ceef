"""Start-up beside the time of epochs, and how many steps an execution needs to pay for its longer start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from framework_compare.plan.settings import DEFAULTS
from framework_compare.report.table_spec import NAMES as ROW_NAMES
from framework_compare.report.table_spec import Column, Sheet, TableSpec, named
from framework_compare.report.tables import ABOUT, NOTHING
from framework_compare.results.columns import NAMES, SHARED, Record, batch_sizes
from framework_compare.results.metrics import METRICS
from framework_compare.results.ratios import epoch_seconds

# What an execution is weighed against: the first of these that the same framework has.
BASES = ("eager", DEFAULTS.execution)
NEVER = "never"


def _epoch(cell: Record) -> str:
    name, mark = ("epoch_estimate_s", ABOUT) if cell.epoch_estimate_s > 0 else ("epoch_s_median", "")
    return mark + METRICS[name].show(getattr(cell, name))


def _columns(sheet: Sheet) -> tuple[Column, ...]:
    pays = _pays_after(sheet.cells)
    return (
        Column("start-up s", "startup_s"),
        Column("first step s", "first_step_s"),
        Column("epoch s", _epoch),
        Column("steps", lambda cell: pays[cell.Index][0], "pays after"),
        Column("epochs", lambda cell: pays[cell.Index][1], "pays after"),
    )


def _pays_after(cells: Sequence[Record]) -> dict[Any, tuple[str, str]]:
    """By the Index of a cell after how many steps and epochs its start has paid."""
    bases: dict[Any, Record] = {}
    for execution in reversed(BASES):
        bases.update({_key(cell): cell for cell in cells if cell.execution == execution and cell.status == "ok"})
    return {cell.Index: _break_even(cell, bases.get(_key(cell))) for cell in cells}


def _key(cell: Record) -> tuple[str, ...]:
    return tuple(str(getattr(cell, name)) for name in (*NAMES, *SHARED) if name != "execution")


def _break_even(cell: Record, base: Record | None) -> tuple[str, str]:
    if base is None or base.Index == cell.Index or cell.status != "ok":
        return NOTHING, NOTHING
    steps = steps_until_paid(cell.startup_s, _step_s(cell), base.startup_s, _step_s(base))
    if math.isnan(steps):
        return NOTHING, NOTHING
    if math.isinf(steps):
        return NEVER, NEVER
    return f"{steps:,}", f"{steps * _step_s(cell) / epoch_seconds(cell):,.1f}"


def epochs_until_paid(cells: Sequence[Record]) -> dict[Any, str]:
    """When the start of a cell has paid, in words, by its Index; only of cells that have another to be weighed against."""
    words = {}
    for place, (steps, epochs) in _pays_after(cells).items():
        if steps != NOTHING:
            known = {NEVER: "never pays", "0": "pays at once"}
            later = "pays within an epoch" if epochs.startswith("0.") else f"pays after {epochs} epochs"
            words[place] = known.get(steps, later)
    return words


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
    return float(epoch_seconds(cell) / len(batch_sizes(cell))) if cell.pictures > 0 else math.nan


STARTUP = TableSpec(
    "Start-up: from the start of the process to the first measured epoch, mean over runs.",
    _columns,
    ("startup_s", "first_step_s", "epoch_s_median", "epoch_estimate_s", "images_per_s", "pictures"),
    names=(*ROW_NAMES, named("execution")),
    remarks=lambda sheet: (
        "Pays after: measured steps until start-up and steps together take no longer than those of the same framework "
        f"in {' or '.join(BASES)} execution; {NEVER} where its steps are not shorter. It is a figure without an "
        "interval.",
    ),
    across=("execution",),
)
