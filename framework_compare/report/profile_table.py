"""The profilers' counts as a table: shares of time by operator, CUDA function and kernel class."""

from __future__ import annotations

from itertools import groupby
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from framework_compare.report.figures.look import title
from framework_compare.report.parts import Notes, Record
from framework_compare.report.tables import NOTHING, Figure, Group, Row, Table

LEAST = 0.01  # a row is shown where it takes this share with any framework
TITLES = {
    "operator": ("operator", "Host time by operator"),
    "cuda-runtime": ("CUDA function", "Host time by function of the CUDA API, waiting for the GPU included"),
    "kernel": ("kernel class", "GPU time by class of kernel"),
}
Column = Tuple[str, str, str]  # model, data set, framework


def profile_table(rows: Sequence[Record], caption: str) -> Table:
    """One row per name (kernels: per class), one column per framework and model, shares in percent."""
    heading, title = TITLES[rows[0].kind]
    shares, notes = _shares(rows), Notes()
    names = [name for name in _ranked(shares) if any(column.get(name, 0) >= LEAST for column in shares.values())]
    body = [Row((name,), tuple(_percent(column.get(name)) for column in shares.values())) for name in names]
    if names:
        rest = (1 - sum(column.get(name, 0) for name in names) if column else None for column in shares.values())
        body.append(Row((f"below {LEAST:.0%} everywhere",), tuple(map(_percent, rest))))
        body[0] = Row(body[0].names, _with_notes(body[0].figures, rows, notes))
    return Table(
        f"{title}, in % of the total, in a few steps under each framework's own profiler after the measured epochs."
        f" {caption}",
        (heading,),
        _groups(list(shares)),
        tuple(body),
        tuple(notes.texts),
        sparse=True,  # operators are named differently by each framework
    )


def _shares(rows: Sequence[Record]) -> Dict[Column, Dict[str, float]]:
    """The share of each row by column (model, data set, framework); the columns of a model are neighbours."""
    by_column: Dict[Column, Dict[str, float]] = {column: {} for column in sorted(_cells(rows), key=_order(rows))}
    for row in rows:
        name = row.kernel_class if row.kind == "kernel" else row.name
        if isinstance(name, str):
            shares = by_column[_column(row)]
            shares[name] = shares.get(name, 0.0) + row.share
    return by_column


def _cells(rows: Sequence[Record]) -> Dict[Column, Record]:
    """One row of each column, for the status of its cell."""
    return {_column(row): row for row in rows}


def _column(row: Record) -> Column:
    return row.model, row.dataset, row.framework


def _order(rows: Sequence[Record]) -> Callable[[Column], int]:
    titles = list(dict.fromkeys(_column(row)[:2] for row in rows))
    return lambda column: titles.index(column[:2])


def _groups(columns: Sequence[Column]) -> Tuple[Group, ...]:
    named = 2 if len({dataset for _, dataset, _ in columns}) > 1 else 1
    models = groupby(columns, lambda column: column[:2])
    return tuple(
        Group(" / ".join((title(of[0]), *of[1:named])), tuple(title(c[2]) for c in members)) for of, members in models
    )


def _ranked(shares: Dict[Column, Dict[str, float]]) -> List[str]:
    """Names by the sum of their shares, the largest first."""
    sums: Dict[str, float] = {}
    for column in shares.values():
        for name, share in column.items():
            sums[name] = sums.get(name, 0.0) + share
    return sorted(sums, key=lambda name: -sums[name])


def _with_notes(figures: Sequence[Figure], rows: Sequence[Record], notes: Notes) -> Tuple[Figure, ...]:
    """The first row's figures with the notes of their cells: why one did not work, or its parity."""
    cells = [_cells(rows)[column] for column in _shares(rows)]
    return tuple(notes.first(cell, old.text) for old, cell in zip(figures, cells))


def _percent(share: Optional[float]) -> Figure:
    return Figure(NOTHING if share is None else f"{100 * max(share, 0.0):.1f}")
