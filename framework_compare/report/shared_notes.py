"""A verdict on parity that all cells of a table share stands once below it, instead of beside each figure."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Sequence

from framework_compare.report.parts import HOW_TO_PROVE, unproved
from framework_compare.report.tables import Row, Table, clean
from framework_compare.results.columns import Record
from framework_compare.results.parity import UNVERIFIED


def once(table: Table, cells: Sequence[Record]) -> Table:
    """The table with its notes on parity as one remark, where they say the same of two cells or more, and of all."""
    verdicts = [unproved(cell.parity) for cell in cells if cell.status == "ok"]
    if len(verdicts) < 2 or not verdicts[0] or len(set(verdicts)) > 1:
        return table
    verdict, advice = verdicts[0], f"; {HOW_TO_PROVE}" if verdicts[0] == UNVERIFIED else ""
    shared = [clean(text) for text in (f"its baseline has parity {verdict}", f"parity {verdict}", HOW_TO_PROVE)]
    texts = [_without(note, shared) for note in table.notes]
    notes: List[str] = list(dict.fromkeys(filter(None, texts)))
    numbers = {place: notes.index(text) + 1 if text else 0 for place, text in enumerate(texts, 1)}
    rows = tuple(_renumbered(row, {0: 0, **numbers}) for row in table.rows)
    remark = f"All cells: parity {verdict}{advice}."
    return dataclasses.replace(table, notes=tuple(notes), rows=rows, remarks=(remark, *table.remarks))


def _without(note: str, shared: Sequence[str]) -> str:
    for text in shared:
        note = note.replace(text, "")
    return "; ".join(part for part in note.split("; ") if part.strip("; "))


def _renumbered(row: Row, numbers: Dict[int, int]) -> Row:
    return Row(row.names, tuple(dataclasses.replace(figure, note=numbers[figure.note]) for figure in row.figures))
