"""What a machine can do, to read."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from framework_compare.report.tables import NOTHING, Figure, Group, Row, Table
from framework_compare.results.metrics import digits


def peak_table(measured: Sequence[Any]) -> Table:
    """One row per `peaks.MeasuredPeak`: GFLOP/s, GB/s, and what others took of a core meanwhile."""
    notes: List[str] = []
    rows = []
    for one in measured:
        if one.reason and one.reason not in notes:
            notes.append(one.reason)
        note = notes.index(one.reason) + 1 if one.reason else 0
        peak = one.peak
        values = (peak.flop_per_s * 1e-9, peak.bytes_per_s * 1e-9) if peak else (None, None)
        others = None if peak is None or peak.others is None else 100 * peak.others
        first, second = map(_shown, values)
        names = (one.device, one.precision, str(one.threads))
        rows.append(Row(names, (Figure(first, note), Figure(second), Figure(_shown(others)))))
    return Table(
        "What this machine can do: a matrix product and a copy of memory, the best of some repetitions.",
        ("device", "precision", "threads"),
        (Group("peak", ("GFLOP/s", "GB/s")), Group("others", ("% of a core",))),
        tuple(rows),
        tuple(notes),
    )


def _shown(value: Optional[float]) -> str:
    return NOTHING if value is None else digits(value)
