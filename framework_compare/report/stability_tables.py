"""The tables of a sweep of batch sizes: the largest batch that works, and the memory at each batch size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from framework_compare import registry
from framework_compare.errors import UnknownNameError
from framework_compare.report import renderers, tables
from framework_compare.report.parts import Notes, row_name, unproved, who
from framework_compare.report.tables import Figure, Group, Row, Table
from framework_compare.results.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd


def both(
    frame: "pd.DataFrame", probes: "pd.DataFrame", varying: Sequence[str], limit_bytes: Optional[int]
) -> Tuple[Table, Table]:
    """The tables of a sweep from its `frame` and `probes`; `varying` are the columns in which its cells differ."""
    remarks = (*_limit(limit_bytes), *_parity(probes), *registry.labels(probes["framework"]))
    return largest_table(frame, varying, remarks), memory_table(probes, varying, remarks)


def render(
    tables: Sequence[Table], probes: "pd.DataFrame", style: str, *, width: Optional[int], bold: Optional[bool]
) -> str:
    """Both tables in a style of `renderers`; "csv" is the frame of all probes."""
    check_style(style)
    if style == "csv":
        return renderers.csv(probes)
    if style == "terminal":
        return "\n".join(renderers.terminal(table, width=width, bold=bold) for table in tables)
    return "\n".join(map(renderers.RENDERERS[style], tables))


def check_style(style: str) -> str:
    """The style, or UnknownNameError."""
    if style not in (*renderers.RENDERERS, "csv"):
        raise UnknownNameError("style", style, (*renderers.RENDERERS, "csv"))
    return style


def largest_table(frame: "pd.DataFrame", names: Sequence[str], remarks: Sequence[str] = ()) -> Table:
    """One row per swept cell: the largest batch size that works, the next one, and how that one ended."""
    notes: List[str] = []
    rows = [_largest_row(row, names, notes) for row in frame.to_dict("records")]
    headings = ("works up to", "peak GiB", "first that fails", "ends", "peak GiB")
    groups = (Group("", headings),)
    return Table("Largest batch size that works.", tuple(names), groups, tuple(rows), tuple(notes), tuple(remarks))


def _parity(probes: "pd.DataFrame") -> List[str]:
    """The cells that worked but are not proved equal, by verdict."""
    cells_of: Dict[str, List[str]] = {}
    for cell in probes.itertuples(index=False):
        verdict = unproved(cell.parity)
        if verdict and cell.status == "ok":
            cells_of.setdefault(tables.clean(verdict), []).append(who(cell))
    return [f"Parity {verdict}: {', '.join(dict.fromkeys(cells))}." for verdict, cells in cells_of.items()]


def _limit(limit: Optional[int]) -> Tuple[str, ...]:
    if limit is None:
        return ()
    return (
        f"The memory limit of {limit / 2**30:.3f} GiB counts a page that processes share once (PSS); peak RSS counts "
        "it in each process, so it may exceed the limit.",
    )


def _largest_row(row: Dict[str, Any], names: Sequence[str], notes: List[str]) -> Row:
    figures = (
        Figure(_size(row["largest_ok"], "none")),
        Figure(_gib(row["largest_ok_peak_rss_bytes"])),
        Figure(_size(row["next_failed"], "none tried")),
        _ending(row["next_failed_status"], row["next_failed_reason"], notes),
        Figure(_gib(row["next_failed_peak_rss_bytes"])),
    )
    return Row(tuple(row_name(name, row[name]) for name in names), figures)


def _ending(status: Any, reason: Any, notes: List[str]) -> Figure:
    if not isinstance(status, str):
        return Figure("-")
    text = tables.clean(reason)[:400]
    if not text:
        return Figure(status)
    if text not in notes:
        notes.append(text)
    return Figure(status, notes.index(text) + 1)


def memory_table(probes: "pd.DataFrame", names: Sequence[str], remarks: Sequence[str] = ()) -> Table:
    """Peak RSS of the worker's process tree in GiB at each batch size tried."""
    sizes = sorted(set(probes["batch_size"]))
    notes = Notes()
    rows = []
    for values, group in probes.groupby(list(names), sort=False, dropna=False):
        by_size = {cell.batch_size: cell for cell in group.itertuples(index=False)}
        rows.append(
            Row(tuple(map(row_name, names, values)), tuple(_memory(by_size.get(size), notes) for size in sizes))
        )
    columns = (Group("batch size", tuple(map(str, sizes))),) if sizes else ()
    return Table("Peak RSS in GiB.", tuple(names), columns, tuple(rows), tuple(notes.texts), tuple(remarks))


def _memory(cell: Any, notes: Notes) -> Figure:
    if cell is None:
        return Figure("-")
    return Figure(_gib(cell.peak_rss_bytes)) if cell.status == "ok" else notes.figure(cell)


def _gib(value: Any) -> str:
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "-" if missing else METRICS["peak_rss_bytes"].show(float(value))


def _size(value: Any, otherwise: str) -> str:
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return otherwise if missing else str(int(value))
