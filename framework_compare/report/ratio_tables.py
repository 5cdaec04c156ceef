"""Tables of how many times faster: a device against the CPU, precisions and executions against fp32 eager."""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from framework_compare.protocol import EXECUTIONS, PRECISIONS, replicas_of
from framework_compare.report.parts import ABOUT, Notes, Record, names_of, row_names, unit_of, with_interval
from framework_compare.report.tables import Figure, Group, Row, Table
from framework_compare.results.metrics import digits
from framework_compare.results.ratios import Ratio, epoch_seconds

_SURE = "± is the longer arm of the 95 % interval; it needs 2 runs of both cells."
Ratios = Mapping[int, Ratio]


def speedup_table(cells: Sequence[Record], caption: str, ratios: Ratios) -> Table:
    """One row per framework and model, columns per device: median epoch there and on the CPU, and their ratio."""
    faster = [cell for cell in cells if cell.Index in ratios]
    headings = row_names(faster, "threads")
    devices = list(dict.fromkeys(cell.device for cell in faster))
    notes, rows = Notes(), []
    for names, by_device in _rows(faster, headings, lambda cell: cell.device).items():
        figures = [_speedup(by_device.get(device), ratios, notes) for device in devices]
        rows.append(Row(names, tuple(figure for three in figures for figure in three)))
    return Table(
        f"Median epoch in seconds on the CPU and on the device, and the speedup; {_SURE} {caption}",
        headings,
        tuple(Group(device, ("CPU", "device", "times faster")) for device in devices),
        tuple(rows),
        tuple(notes.texts),
    )


def _speedup(cell: Optional[Record], ratios: Ratios, notes: Notes) -> Tuple[Figure, ...]:
    if cell is None:
        return (Figure("-"),) * 3
    ratio = ratios[cell.Index]
    threads = f"{ratio.base.threads} threads on the CPU, {cell.threads} beside the device"
    differ = threads if ratio.base.threads != cell.threads else ""
    medians = _median(ratio.base, notes), _median(cell, notes)
    return (*medians, _times(ratio, notes.parity(cell, ratio.base, differ)))


def _median(cell: Record, notes: Notes) -> Figure:
    if cell.status != "ok" or math.isnan(epoch_seconds(cell)):
        return notes.figure(cell)
    mark = ABOUT if math.isnan(cell.epoch_s_median) else ""
    return Figure(mark + digits(epoch_seconds(cell)), notes.parity(cell))


def _times(one: Ratio, note: int = 0) -> Figure:
    if math.isnan(one.ratio):
        return Figure("-", note)
    return Figure(with_interval(one.ratio, one.ratio_ci_low, one.ratio_ci_high), note)


def devices_table(cells: Sequence[Record], caption: str, ratios: Ratios) -> Table:
    """One row per cell on several devices or their baseline: images/s, speed-up, and its share of the number of devices.

    Weak scaling: the batch of each device is the same. Strong: that of all devices together is the single one's.
    """
    shown = [
        cell for cell in cells if cell.Index in ratios or any(one.base.Index == cell.Index for one in ratios.values())
    ]
    nodes = ("nodes",) if any(cell.nodes > 1 for cell in shown) else ()
    headings = (*row_names(shown, "threads"), "batch_size", "device", *nodes)
    shown = sorted(shown, key=lambda cell: (cell.framework, cell.model, cell.batch_size, len(replicas_of(cell))))
    notes, unit = Notes(), unit_of(shown or cells)
    rows = [Row(names_of(cell, headings), _on_devices(cell, ratios, notes)) for cell in shown]
    return Table(
        f"{unit.capitalize()}s/s on several devices; times faster than on one, and per device. Weak: as many {unit}s per device "
        f"and step; strong: as many {unit}s per step of all. {_SURE} {caption}",
        headings,
        (
            Group("", (f"{unit}s/s",)),
            Group("weak", ("times faster", "% per device")),
            Group("strong", ("% per device",)),
        ),
        tuple(rows),
        tuple(notes.texts),
    )


def _on_devices(cell: Record, ratios: Ratios, notes: Notes) -> Tuple[Figure, ...]:
    count, one = len(replicas_of(cell)), ratios.get(cell.Index)
    if cell.status != "ok" or math.isnan(cell.images_per_s):
        return (notes.figure(cell), *(Figure("-"),) * 3)
    speed = Figure(digits(cell.images_per_s), notes.parity(cell))
    weak = (Figure("-"),) * 2
    if one is not None and not math.isnan(one.ratio):
        weak = (_times(one, notes.parity(cell, one.base)), Figure(f"{100 * one.ratio / count:.0f}"))
    strong = math.nan if one is None else one.strong
    return (speed, *weak, Figure("-" if math.isnan(strong) else f"{100 * strong / count:.0f}"))


def precision_table(cells: Sequence[Record], caption: str, ratios: Ratios) -> Table:
    """One row per framework, model and batch size, one column per precision and execution: images/s over fp32 eager."""
    headings = (*row_names(cells), "batch_size")
    steps = _steps(cells)
    notes, rows = Notes(), []
    for names, by_step in _rows(cells, headings, lambda cell: (cell.precision, cell.execution)).items():
        figures = [
            _rung(by_step.get((precision, execution)), ratios, notes)
            for precision, executions in steps.items()
            for execution in executions
        ]
        rows.append(Row(names, tuple(figures)))
    return Table(
        f"{unit_of(cells).capitalize()}s/s relative to fp32 eager (= 1); {_SURE} {caption}",
        headings,
        tuple(Group(precision, executions) for precision, executions in steps.items()),
        tuple(rows),
        tuple(notes.texts),
    )


def _steps(cells: Sequence[Record]) -> Dict[str, Tuple[str, ...]]:
    """The executions of each precision among the cells."""
    there = {(cell.precision, cell.execution) for cell in cells}
    steps = {one: tuple(execution for execution in EXECUTIONS if (one, execution) in there) for one in PRECISIONS}
    return {precision: executions for precision, executions in steps.items() if executions}


def _rung(cell: Optional[Record], ratios: Ratios, notes: Notes) -> Figure:
    if cell is None:
        return Figure("-")
    if cell.status != "ok" or math.isnan(epoch_seconds(cell)):
        return notes.figure(cell)
    ratio = ratios.get(cell.Index)
    if ratio is None:
        return Figure("-", notes.number("no fp32 eager baseline in this study"))
    if math.isnan(ratio.ratio):
        return Figure("-", notes.number(f"its baseline, fp32 eager, is {ratio.base.status}"))
    if ratio.base.Index == cell.Index:
        return Figure("1", notes.parity(cell))
    return _times(ratio, notes.parity(cell, ratio.base))


def _rows(cells: Sequence[Record], headings: Sequence[str], column: Any) -> Dict[Tuple[str, ...], Dict[Any, Record]]:
    """Cells by the names of their row, then by their column."""
    rows: Dict[Tuple[str, ...], Dict[Any, Record]] = {}
    for cell in cells:
        rows.setdefault(names_of(cell, headings), {})[column(cell)] = cell
    return rows
