"""What a table is. Its text is untrusted (reasons, class names), so each renderer escapes it."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import List, Tuple

_TERMINAL_CODE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
# Control, format (which turn text round) and private characters, halves of surrogate pairs, line breaks.
_UNPRINTABLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
NOTHING = "-"  # where there is no figure


@dataclasses.dataclass(frozen=True)
class Figure:
    """One field: its text, the number of the note that explains it (0: none), and whether it is the column's best."""

    text: str
    note: int = 0
    best: bool = False

    @property
    def plain(self) -> str:
        return clean(self.text) + (f" ({self.note})" if self.note else "")


@dataclasses.dataclass(frozen=True)
class Group:
    """Neighbouring columns under one title, which may be empty."""

    title: str
    headings: Tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Row:
    names: Tuple[str, ...]
    figures: Tuple[Figure, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows named under `headings`, figures under `groups`; numbered notes, plain remarks and warnings stand below.

    The verdicts stand above all. They and the warnings are of the cells, whatever the table shows of them.
    """

    caption: str
    headings: Tuple[str, ...]
    groups: Tuple[Group, ...]
    rows: Tuple[Row, ...]
    notes: Tuple[str, ...] = ()
    remarks: Tuple[str, ...] = ()
    warnings: Tuple[str, ...] = ()
    verdicts: Tuple[str, ...] = ()
    sparse: bool = False  # where columns are stacked, a row is left out of a stack for which it has no figure

    @property
    def columns(self) -> Tuple[str, ...]:
        """The heading of each column, with the title of its group before it."""
        heads = (" / ".join(filter(None, (one.title, heading))) for one in self.groups for heading in one.headings)
        return (*self.headings, *heads)

    def bare(self) -> "Table":
        """The same without what is of the cells: verdicts and warnings."""
        return dataclasses.replace(self, warnings=(), verdicts=())

    def without_notes(self) -> "Table":
        """The same with nothing above or below, and no number of a note at a figure."""
        rows = (
            dataclasses.replace(row, figures=tuple(dataclasses.replace(figure, note=0) for figure in row.figures))
            for row in self.rows
        )
        return dataclasses.replace(self, rows=tuple(rows), notes=(), remarks=()).bare()

    def below(self) -> List[str]:
        """Notes, numbered as the figures refer to them, then remarks and warnings."""
        numbered = [f"({number}) {note}" for number, note in enumerate(self.notes, 1)]
        return [clean(line) for line in (*numbered, *self.remarks, *self.warnings)]


ABOUT = "≈"  # in front of an estimate


def clean(text: object) -> str:
    """One printable line: no terminal codes, no control characters, no runs of blanks."""
    line = _TERMINAL_CODE.sub("", str(text))
    printable = (" " if unicodedata.category(c) in _UNPRINTABLE and c != "\u200d" else c for c in line)
    return " ".join("".join(printable).split())
