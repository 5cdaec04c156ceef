"""The tables of a sweep of batch sizes: the largest batch that works, and the memory at each batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from framework_compare import registry
from framework_compare.report.study_table import StudyTable
from framework_compare.report.table_notes import cells_by, shorten, status_value, unproved
from framework_compare.report.table_spec import Column, named, tabulate
from framework_compare.report.tables import Table, Value, clean, count
from framework_compare.results.columns import Record
from framework_compare.results.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd


def both(frame: "pd.DataFrame", probes: "pd.DataFrame", varying: Sequence[str], limit_bytes: int | None) -> StudyTable:
    """The tables of a sweep from its `frame` and `probes`; `varying` are the columns in which its cells differ."""
    limit = []
    if limit_bytes is not None:
        limit.append(
            f"The limit of {limit_bytes / 2**30:.3f} GiB counts shared pages once (PSS); RSS counts them once per process, so it "
            "may exceed the limit."
        )
    verdicts = cells_by(probes.itertuples(), lambda cell: unproved(cell.parity) if cell.status == "ok" else "")
    parity = (f"Parity {verdict}: {', '.join(cells)}." for verdict, cells in verdicts.items())
    remarks = (*limit, *parity, *registry.labels(probes["framework"]))
    parts = largest_table(frame, varying, remarks), memory_table(probes, varying, remarks)
    return StudyTable("sweep", parts, (), lambda: probes)


def largest_table(frame: "pd.DataFrame", names: Sequence[str], remarks: Sequence[str] = ()) -> Table:
    """One row per swept cell: the largest batch size that works, the next one, and how that one ended."""

    def ending(row: Record) -> Value | str:
        status: object = row.next_failed_status
        return Value(status, shorten(clean(row.next_failed_reason))) if isinstance(status, str) else "-"

    return tabulate(
        "Largest batch size that works.",
        [named(name, always=True) for name in names],
        (
            Column("works up to", lambda row: count(row.largest_ok, "none")),
            Column("peak GiB", _gib("largest_ok_peak_rss_bytes")),
            Column("first that fails", lambda row: count(row.next_failed, "none tried")),
            Column("ends", ending),
            Column("peak GiB", _gib("next_failed_peak_rss_bytes")),
        ),
        frame.itertuples(),
        remarks=tuple(remarks),
    )


def memory_table(probes: "pd.DataFrame", names: Sequence[str], remarks: Sequence[str] = ()) -> Table:
    """Peak RSS of the worker's process tree in GiB at each batch size tried."""

    def peak(cell: Record) -> str | Value:
        return _gib("peak_rss_bytes")(cell) if cell.status == "ok" else status_value(cell)

    return tabulate(
        "Peak RSS in GiB.",
        [named(name, always=True) for name in names],
        [Column(str(size), peak, "batch size", size) for size in sorted(set(probes["batch_size"]))],
        probes.itertuples(),
        spread=lambda cell: cell.batch_size,
        remarks=tuple(remarks),
    )


def _gib(name: str) -> Callable[[Record], str]:
    return lambda row: METRICS["peak_rss_bytes"].show(getattr(row, name))
