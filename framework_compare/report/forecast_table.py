"""The time and disk that a study would take, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from framework_compare import registry
from framework_compare.plan.settings import IDENTITY, SETTINGS, of_role
from framework_compare.report.table_notes import plural
from framework_compare.report.table_spec import Column, tabulate
from framework_compare.report.tables import NOTHING, Table
from framework_compare.results import timing_history
from framework_compare.results.columns import grouped
from framework_compare.results.metrics import digits
from framework_compare.results.timing_history import CellForecast

_SETTINGS = (*of_role(IDENTITY), "epochs")
_OTHERS = tuple(name for name in SETTINGS if name not in _SETTINGS)  # shown where two rows would be alike without


def table(
    cells: Sequence[CellForecast],
    seconds: timing_history.Range,
    disk_bytes: Mapping[str, float],
    budget_s: float | None,
    notes: Sequence[str] = (),
) -> Table:
    """One row per cell; `seconds` is the range of all runs; notes: further sentences."""
    varied = [name for name in ("dataset", *_SETTINGS) if len({_setting(name)(one) for one in cells}) > 1]
    alike = grouped((one.cell for one in cells), lambda cell: (cell.framework, cell.model, cell.dataset)).values()
    varied += [name for name in _OTHERS if any(len({getattr(c.config, name) for c in some}) > 1 for some in alike)]
    runs = sum(one.runs for one in cells)
    return tabulate(
        f"Estimate for this study: {plural(len(cells), 'cell')}, {plural(runs, 'run')}. Nothing was started.",
        (
            Column("framework", lambda one: one.cell.framework),
            Column("model", lambda one: one.cell.model),
            *(Column(name, _setting(name)) for name in varied),
        ),
        (
            Column("runs", lambda one: str(one.runs)),
            *_range("epoch s", lambda one: one.epoch_s),
            *_range("minutes of all runs", lambda one: [value / 60 for value in one.total_s]),
            Column("by", lambda one: one.basis),
        ),
        cells,
        remarks=(*_remarks(cells, seconds, disk_bytes, budget_s), *filter(None, notes)),
    )


def _setting(name: str) -> Callable[[CellForecast], str]:
    return lambda one: str(one.cell.dataset if name == "dataset" else one.cell.config.to_dict()[name])


def _range(group: str, ends: Callable[[CellForecast], Sequence[float]]) -> list[Column]:
    def end(place: int) -> Callable[[CellForecast], str]:
        return lambda one: NOTHING if one.lack else digits(ends(one)[place])

    return [Column(heading, end(place), group) for place, heading in enumerate(("from", "about", "to"))]


def _remarks(
    cells: Sequence[CellForecast],
    seconds: timing_history.Range,
    disk_bytes: Mapping[str, float],
    budget_s: float | None,
) -> Iterable[str]:
    low, middle, high = (digits(value / 60) for value in seconds)
    bound = "" if budget_s is None else f", at most the budget of {budget_s / 60:.3g} minutes"
    yield f"Total: about {middle} minutes, {low} to {high}{bound}; plus time to install environments and data sets."
    least_s = sum(one.total_s.middle for one in cells)
    if budget_s is not None and least_s > budget_s:
        yield (
            f"The runs needed for a verdict would take about {digits(least_s / 60)} minutes, more than the budget of "
            f"{digits(budget_s / 60)}. Some cells will lack runs; the tables will name them. Request fewer cells or a larger "
            "budget."
        )
    elif budget_s is not None:
        yield "With a budget, these are the minimum runs per cell; cells with the widest intervals get more."
    parts = ", ".join(f"{name} {size / 1e9:.2g}" for name, size in disk_bytes.items())
    yield f"Disk: about {sum(disk_bytes.values()) / 1e9:.2g} GB ({parts})."
    yield from (f"Cannot run here: {lack}." for lack in dict.fromkeys(one.lack for one in cells) if lack)
    yield from registry.labels(one.cell.framework for one in cells)
    assumed = [one.cell for one in cells if one.basis == timing_history.ASSUMPTION]
    if assumed:
        (low_cpu, _, high_cpu), (low_gpu, _, high_gpu) = timing_history.ASSUMED_CPU, timing_history.ASSUMED_GPU
        start, token = timing_history.ASSUMED_START_S, timing_history.ASSUMED_TOKEN_S
        steps = f", {token[0] * 1e3:.1f} to {token[2] * 1e3:.0f} ms per step of generation"
        yield (
            f"By {timing_history.ASSUMPTION}: {low_cpu / 1e9:.0f} to {high_cpu / 1e9:.0f} G multiply-accumulates per second and "
            f"thread, {low_gpu / 1e12:.1f} to {high_gpu / 1e12:.0f} T on a GPU, {start[0]:.0f} to {start[2]:.0f} s to start"
            f"{steps if any(cell.config.mode == 'generation' for cell in assumed) else ''}."
        )
