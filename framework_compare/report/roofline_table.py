"""Arithmetic and memory traffic of each cell beside what the machine can do."""

from __future__ import annotations

import math
from typing import List, Sequence

from framework_compare.report.parts import Notes, names_of, row_names
from framework_compare.report.tables import NOTHING, Figure, Group, Row, Table
from framework_compare.results.columns import Record
from framework_compare.results.metrics import METRICS, digits

BUSY = 0.1  # of a core


def roofline_table(cells: Sequence[Record], caption: str) -> Table:
    """One row per cell: GFLOP/s and GB/s beside the machine's, and the share of the roofline."""
    headings = row_names(cells)
    notes = Notes()
    rows = []
    for cell in cells:
        first = notes.first(cell, _shown(cell.flop_per_s, 1e-9))
        others = (
            _shown(cell.peak_flop_per_s, 1e-9),
            _shown(_ratio(cell.flop_per_s, cell.peak_flop_per_s), 100),
            _shown(cell.bytes_per_s, 1e-9),
            _shown(cell.peak_bytes_per_s, 1e-9),
            _shown(_ratio(cell.bytes_per_s, cell.peak_bytes_per_s), 100),
            _shown(cell.roofline_share, 100),
            METRICS["data_wait_share"].show(cell.data_wait_share),
        )
        rows.append(Row(names_of(cell, headings), (first, *map(Figure, others))))
    return Table(
        f"Arithmetic and memory traffic of the measured epochs, beside the peaks of this machine. {caption}",
        headings,
        (
            Group("GFLOP/s", ("reached", "peak", "%")),
            Group("GB/s", ("moved", "peak", "%")),
            Group("", ("roofline %", "wait %")),
        ),
        tuple(rows),
        tuple(notes.texts),
        tuple(_remarks(cells)),
    )


def _shown(value: float, scale: float) -> str:
    return NOTHING if math.isnan(value) else digits(value * scale)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan


def _remarks(cells: Sequence[Record]) -> List[str]:
    lines = [
        "Reached and moved are what the layers of the model need, each by itself, over the time of the epochs; a framework "
        "that fuses layers moves less. Roofline: the least time that the peaks allow, layer by layer, over the time taken."
    ]
    if any(cell.flop_per_s > 0 and math.isnan(cell.peak_flop_per_s) for cell in cells):
        lines.append(
            "No peak is known here: `framework-compare peaks STUDY` measures it, on the machine that ran the study."
        )
    busy = max((cell.peak_disturbed_share for cell in cells if cell.peak_disturbed_share > BUSY), default=0.0)
    if busy:
        lines.append(
            f"Peaks may be too low: others took {busy:.0%} of a core while they were measured. `framework-compare peaks STUDY` "
            "measures them again."
        )
    if any(cell.roofline_share > 1 for cell in cells):
        lines.append(
            "More than 100 %: the peak is too low, or the framework fuses layers or has faster kernels than what measured it."
        )
    return lines
