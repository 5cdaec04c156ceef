"""A table. Its text is untrusted (reasons, class names), so each renderer escapes it."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import unicodedata
from collections.abc import Callable

from framework_compare.results.metrics import decimals, digits

_TERMINAL_CODE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
# Control, format (which turn text round) and private characters, halves of surrogate pairs, line breaks.
_UNPRINTABLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
NOTHING = "-"  # where there is no figure
ABOUT = "≈"  # in front of an estimate
BEST = "Bold"  # how a remark calls the mark of a best figure; a terminal's text has a mark of its own


@dataclasses.dataclass(frozen=True)
class Value:
    """One field: its text, the note that explains it, whether it is the column's best, and whether it is an estimate."""

    text: str
    note: str = ""
    best: bool = False
    about: bool = False


@dataclasses.dataclass(frozen=True)
class Group:
    """Neighbouring columns under one title, which may be empty."""

    title: str
    headings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Row:
    names: tuple[str, ...]
    values: tuple[Value, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table: row names under `headings`, values under `groups`; verdicts above, numbered notes, remarks, warnings below.

    Verdicts and warnings are about the cells, no matter which of their figures the table shows.
    """

    caption: str
    headings: tuple[str, ...]
    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()
    sparse: bool = False  # where columns are stacked, a row is left out of a stack for which it has no figure

    @property
    def columns(self) -> tuple[str, ...]:
        """The heading of each column, with the title of its group before it."""
        heads = (" / ".join(filter(None, (one.title, heading))) for one in self.groups for heading in one.headings)
        return (*self.headings, *heads)

    @functools.cached_property
    def notes(self) -> tuple[str, ...]:
        """The notes of the values in their order; equal ones are one."""
        return tuple(dict.fromkeys(value.note for row in self.rows for value in row.values if value.note))

    def number(self, value: Value) -> int:
        """The number of a value's note; 0 if it has none."""
        return self.notes.index(value.note) + 1 if value.note else 0

    def text(self, value: Value) -> str:
        """A value as text, with the number of its note."""
        return clean(value.text) + (f" ({self.number(value)})" if value.note else "")

    def bare(self) -> Table:
        """Return the table without verdicts and warnings, which belong to the cells."""
        return dataclasses.replace(self, warnings=(), verdicts=())

    def without_notes(self) -> Table:
        """Return the table without texts above or below it, and without note numbers."""
        return dataclasses.replace(self, rows=with_notes(self.rows, lambda note: ""), remarks=()).bare()

    def below(self) -> list[str]:
        """Notes, numbered as the values refer to them, then remarks and warnings."""
        numbered = [f"({number}) {note}" for number, note in enumerate(self.notes, 1)]
        return [clean(line) for line in (*numbered, *self.remarks, *self.warnings)]


def estimate(text: str, about: bool, note: str = "", best: bool = False) -> Value:
    """A figure, marked where it is `about` what a whole measurement would give."""
    return Value(ABOUT * about + text, note, best, about)


def with_notes(rows: tuple[Row, ...], change: Callable[[str], str]) -> tuple[Row, ...]:
    """The rows, each note as `change` makes it."""
    return tuple(
        Row(row.names, tuple(dataclasses.replace(value, note=change(value.note)) for value in row.values))
        for row in rows
    )


def clean(text: object) -> str:
    """One printable line: no terminal codes, no control characters, no runs of blanks."""
    text = str(text)
    if text.isascii() and text.isprintable():  # nearly all: a table of 10,000 cells cleans 200,000
        return " ".join(text.split())
    line = _TERMINAL_CODE.sub("", text)
    printable = (" " if unicodedata.category(c) in _UNPRINTABLE and c != "\u200d" else c for c in line)
    return " ".join("".join(printable).split())


def known(value: object) -> bool:
    """Return whether a figure is there: neither None nor NaN."""
    return value is not None and value == value


def number(value: float | None, scale: float = 1) -> str:
    """A figure times `scale`, to three significant digits."""
    return NOTHING if value is None or not known(value) else digits(value * scale)


def count(value: float | None, otherwise: str = NOTHING) -> str:
    """A whole number."""
    return otherwise if value is None or not known(value) else str(int(value))


def with_interval(mean: float, low: float | None, high: float | None) -> str:
    """A mean and the larger half-width of its interval, with the digits that are certain, at least three.

    If the half-width reaches the mean, both ends are given instead: a time below 0 means nothing.
    """
    if low is None or high is None or not (known(mean) and known(low) and known(high)):
        return number(mean)
    arm = max(high - mean, mean - low)
    if arm >= mean > low > 0:
        return f"{digits(mean)} [{digits(low)}, {digits(high)}]"
    # Equal values leave the rounding of a logarithm.
    first = -math.floor(math.log10(arm)) if arm > 1e-9 * mean else 0
    places = min(max(decimals(mean), first), decimals(mean) + 2)
    return f"{mean:.{places}f} ±{arm:.{places}f}"
