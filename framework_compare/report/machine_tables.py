"""Tables that stand beside the machine: cells beside its peaks, the peaks themselves, the cost of readings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from framework_compare.plan.searches import is_search
from framework_compare.report.table_spec import Column, Sheet, TableSpec, named, tabulate
from framework_compare.report.tables import Table, Value, number
from framework_compare.results import roofline
from framework_compare.results.columns import Record

BUSY = 0.1  # of a core


def _scaled(name: str, scale: float) -> Callable[[Record], str]:
    return lambda cell: number(getattr(cell, name), scale)


def _percent(part: str, whole: str) -> Callable[[Record], str]:
    def percent(cell: Record) -> str:
        of = getattr(cell, whole)
        return number(getattr(cell, part) / of if of > 0 else None, 100)

    return percent


def _roofline_remarks(sheet: Sheet) -> Iterable[str]:
    cells = sheet.cells
    yield (
        "Reached and moved: the demand of each layer of the model, divided by the time of the epochs; a framework that fuses "
        "layers moves less. Roofline: the minimum time that the peaks allow, layer by layer, divided by the time taken."
    )
    if any(cell.flop_per_s > 0 and math.isnan(cell.peak_flop_per_s) for cell in cells):
        yield "Peak unknown: run `framework-compare peaks STUDY` on the machine that ran the study."
    busy = max((cell.peak_disturbed_share for cell in cells if cell.peak_disturbed_share > BUSY), default=0.0)
    if busy:
        yield (
            f"Peaks may be too low: other programs took {100 * busy:.0f} % of a core during their measurement. Repeat it with "
            "`framework-compare peaks STUDY`."
        )
    if any(cell.roofline_share > 1 for cell in cells):
        yield (
            "Above 100 %: the measured peak is too low, or the framework fuses layers or has faster kernels than the benchmark."
        )


ROOFLINE = TableSpec(
    "Arithmetic and memory traffic of the measured epochs, relative to the peaks of this machine.",
    (
        Column("reached", _scaled("flop_per_s", 1e-9), "GFLOP/s"),
        Column("peak", _scaled("peak_flop_per_s", 1e-9), "GFLOP/s"),
        Column("%", _percent("flop_per_s", "peak_flop_per_s"), "GFLOP/s"),
        Column("moved", _scaled("bytes_per_s", 1e-9), "GB/s"),
        Column("peak", _scaled("peak_bytes_per_s", 1e-9), "GB/s"),
        Column("%", _percent("bytes_per_s", "peak_bytes_per_s"), "GB/s"),
        Column("roofline %", _scaled("roofline_share", 100)),
        Column("wait %", "data_wait_share"),
    ),
    (*roofline.COLUMNS, "images_per_s", "data_wait_share"),
    remarks=_roofline_remarks,
    frame="roofline",
    there=lambda cells: any(cell.status == "ok" and not is_search(cell.model) for cell in cells),
    slow=True,
)


def peak_table(measured: Sequence[Any]) -> Table:
    """One row per `peaks.MeasuredPeak`: GFLOP/s, GB/s, and what others took of a core meanwhile."""

    def of_peak(name: str, scale: float) -> Callable[[Any], str]:
        return lambda one: number(getattr(one.peak, name, None), scale)

    return tabulate(
        "Peaks of this machine: a matrix product and a memory copy, best of several repetitions.",
        [named(name, always=True) for name in ("device", "precision", "threads")],
        (
            Column("GFLOP/s", lambda one: Value(of_peak("flop_per_s", 1e-9)(one), one.reason), "peak"),
            Column("GB/s", of_peak("bytes_per_s", 1e-9), "peak"),
            Column("% of a core", of_peak("others", 100), "others"),
        ),
        measured,
    )
