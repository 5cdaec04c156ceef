"""Start-up beside the time of epochs, and how many steps an execution needs to pay for its longer start."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence, Tuple

from framework_compare.plan.settings import DEFAULTS
from framework_compare.report.parts import ABOUT, Notes, names_of, row_names
from framework_compare.report.tables import Figure, Group, Row, Table
from framework_compare.results.columns import NAMES, SHARED, Record, batch_sizes
from framework_compare.results.metrics import METRICS
from framework_compare.results.ratios import epoch_seconds

STARTUP = ("startup_s", "first_step_s", "epoch_s_median", "epoch_estimate_s", "images_per_s", "pictures")
_COLUMNS = (("start-up s", "startup_s"), ("first step s", "first_step_s"), ("epoch s", "epoch_s_median"))
# What an execution is weighed against: the first of these that the same framework has.
BASES = ("eager", DEFAULTS.execution)
NEVER = "never"


def startup_table(cells: Sequence[Record], caption: str) -> Table:
    """One row per framework, model and execution: start-up, first step, epoch, and steps until its start has paid."""
    headings = row_names(cells, "execution")
    bases = _bases(cells)
    notes, rows = Notes(), []
    for cell in cells:
        shown = [Figure(METRICS[name].show(getattr(cell, name))) for _, name in _COLUMNS]
        if cell.epoch_estimate_s > 0:
            shown[-1] = Figure(ABOUT + METRICS["epoch_estimate_s"].show(cell.epoch_estimate_s))
        shown[0] = notes.first(cell, shown[0].text)
        rows.append(Row(names_of(cell, headings), (*shown, *_break_even(cell, bases.get(_key(cell)), notes))))
    return Table(
        f"Start-up: from the start of the process to the first measured epoch, mean over runs. {caption}",
        headings,
        (Group("", tuple(heading for heading, _ in _COLUMNS)), Group("pays after", ("steps", "epochs"))),
        tuple(rows),
        tuple(notes.texts),
        (
            "Pays after: measured steps until start-up and steps together take no longer than those of the same framework "
            f"in {' or '.join(BASES)} execution; {NEVER} where its steps are not shorter. It is a figure without an "
            "interval.",
        ),
    )


def _key(cell: Record) -> Tuple[str, ...]:
    return tuple(str(getattr(cell, name)) for name in (*NAMES, *SHARED) if name != "execution")


def _bases(cells: Sequence[Record]) -> Dict[Any, Record]:
    bases: Dict[Any, Record] = {}
    for execution in reversed(BASES):
        bases.update({_key(cell): cell for cell in cells if cell.execution == execution and cell.status == "ok"})
    return bases


def epochs_until_paid(cells: Sequence[Record]) -> Dict[Any, str]:
    """When the start of a cell has paid, in words, by its Index; only of cells that have another to be weighed against."""
    bases, words = _bases(cells), {}
    for cell in cells:
        steps, epochs = (one.text for one in _break_even(cell, bases.get(_key(cell)), Notes()))
        if steps != "-":
            known = {NEVER: "never pays", "0": "pays at once"}
            later = "pays within an epoch" if epochs.startswith("0.") else f"pays after {epochs} epochs"
            words[cell.Index] = known.get(steps, later)
    return words


def _break_even(cell: Record, base: Optional[Record], notes: Notes) -> Tuple[Figure, Figure]:
    none = (Figure("-"), Figure("-"))
    if base is None or base.Index == cell.Index or cell.status != "ok":
        return none
    steps = steps_until_paid(cell.startup_s, _step_s(cell), base.startup_s, _step_s(base))
    if math.isnan(steps):
        return none
    if math.isinf(steps):
        return Figure(NEVER), Figure(NEVER)
    epochs = steps * _step_s(cell) / epoch_seconds(cell)
    return Figure(f"{steps:,}"), Figure(f"{epochs:,.1f}")


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
