"""What profilers counted, as a table: shares of time by operator, CUDA function and kernel class."""

from __future__ import annotations

from itertools import groupby
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from framework_compare.report.parts import Notes, Record
from framework_compare.report.tables import NOTHING, Figure, Group, Row, Table

LEAST = 0.01  # a row is shown where it takes this share with any framework
TITLES = {
    "operator": ("operator", "Time of the host by operator"),
    "cuda-runtime": (
        "CUDA function",
        "Time of the host in functions of the CUDA API, those in which it waits for the GPU included",
    ),
    "kernel": ("kernel class", "Time of the GPU by class of kernel"),
}
Column = Tuple[str, str, str]  # network, data set, framework


def profile_table(rows: Sequence[Record], caption: str) -> Table:
    """Of one kind: a row a name (kernels: a class), a column a framework of each network, shares in percent."""
    heading, what = TITLES[rows[0].kind]
    shares, notes = _shares(rows), Notes()
    names = [name for name in _ranked(shares) if any(found.get(name, 0) >= LEAST for found in shares.values())]
    body = [Row((name,), tuple(_percent(found.get(name)) for found in shares.values())) for name in names]
    if names:
        rest = (1 - sum(found.get(name, 0) for name in names) if found else None for found in shares.values())
        body.append(Row((f"below {LEAST:.0%} everywhere",), tuple(map(_percent, rest))))
        body[0] = Row(body[0].names, _with_notes(body[0].figures, rows, notes))
    return Table(
        f"{what}, % of all of it, in a few steps under each framework's own profiler after the measured epochs."
        f" {caption}",
        (heading,),
        _groups(list(shares)),
        tuple(body),
        tuple(notes.texts),
        sparse=True,  # operators are named differently by each framework
    )


def _shares(rows: Sequence[Record]) -> Dict[Column, Dict[str, float]]:
    """Of each column (network, framework) the share of each row; the columns of a network lie side by side."""
    found: Dict[Column, Dict[str, float]] = {column: {} for column in sorted(_cells(rows), key=_order(rows))}
    for row in rows:
        name = row.kernel_class if row.kind == "kernel" else row.name
        if isinstance(name, str):
            shares = found[_column(row)]
            shares[name] = shares.get(name, 0.0) + row.share
    return found


def _cells(rows: Sequence[Record]) -> Dict[Column, Record]:
    """Of each column a row, which says what became of its cell."""
    return {_column(row): row for row in rows}


def _column(row: Record) -> Column:
    return row.model, row.dataset, row.framework


def _order(rows: Sequence[Record]) -> Callable[[Column], int]:
    titles = list(dict.fromkeys(_column(row)[:2] for row in rows))
    return lambda column: titles.index(column[:2])


def _groups(columns: Sequence[Column]) -> Tuple[Group, ...]:
    named = 2 if len({dataset for _, dataset, _ in columns}) > 1 else 1
    networks = groupby(columns, lambda column: column[:2])
    return tuple(Group(" / ".join(title[:named]), tuple(c[2] for c in found)) for title, found in networks)


def _ranked(shares: Dict[Column, Dict[str, float]]) -> List[str]:
    """Names by the sum of their shares, the largest first."""
    sums: Dict[str, float] = {}
    for found in shares.values():
        for name, share in found.items():
            sums[name] = sums.get(name, 0.0) + share
    return sorted(sums, key=lambda name: -sums[name])


def _with_notes(figures: Sequence[Figure], rows: Sequence[Record], notes: Notes) -> Tuple[Figure, ...]:
    """The first row's figures, which have the notes of their cells: why one did not work, or its parity."""
    cells = [_cells(rows)[column] for column in _shares(rows)]
    return tuple(notes.first(cell, old.text) for old, cell in zip(figures, cells))


def _percent(share: Optional[float]) -> Figure:
    return Figure(NOTHING if share is None else f"{100 * max(share, 0.0):.1f}")
