"""The terminal's renderer: columns that do not fit beside each other are stacked, and nothing is cut off."""

from __future__ import annotations

import dataclasses
import functools
import io
from typing import List, Literal, Optional, Sequence, Tuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from framework_compare.report.tables import NOTHING, Figure, Group, Row, Table, clean

# A stretch of columns under one title: the title, and the places of the columns in the table.
Span = Tuple[str, Tuple[int, ...]]
Side = Literal["left", "right"]
_CONSOLE = Console(file=io.StringIO())
GAP = 2  # between columns
MARK = "*"


def render(table: Table, *, width: Optional[int] = None, bold: Optional[bool] = None) -> str:
    """The table as text of at most `width` columns, or what one column of figures needs if that is more.

    `bold` puts terminal codes round the best figures; width and bold are by default those of standard output.
    """
    if width is None or bold is None:
        out = Console()
        width = width or out.width
        bold = out.is_terminal and not out.is_dumb_terminal if bold is None else bold
    blocks = [_block(table, spans) for spans in _stacks(table, width)]
    room = max(width, *(sum(part.width + GAP for part in block) - GAP for block in blocks))
    lines = [piece for line in table.verdicts for piece in wrap(clean(line), room)]
    lines += [*([""] if lines else []), *wrap(clean(table.caption), room)]
    for block in blocks:
        lines += [*_beside(block, bold), ""]
    lines += [piece for line in table.below() for piece in wrap(line, room)]
    return "".join(line.rstrip() + "\n" for line in lines)


def wrap(text: str, room: int) -> List[str]:
    """Lines of at most `room` columns, broken between words where a word fits."""
    return [str(line).rstrip() for line in Text(text).wrap(_CONSOLE, room)]


def _stacks(table: Table, width: int) -> List[List[Span]]:
    """The columns in as few blocks as fit, one below the other; broken between titles where that is possible."""
    room = width - _names(table).width
    stacks: List[List[Span]] = [[]]
    used = 0
    for title, places in _spans(table):
        fits = GAP + _figures(table, (title, places)).width <= room
        for piece in [(title, places)] if fits else [(title, (place,)) for place in places]:
            needed = GAP + _figures(table, piece).width
            if stacks[-1] and used + needed > room:
                stacks.append([])
                used = 0
            stacks[-1].append(piece)
            used += needed
    return stacks


def stacked(table: Table, width: int) -> List[Table]:
    """The table as in a terminal so wide, a table for each block of columns, without lines that say nothing in it."""
    tables = []
    for spans in _stacks(table, width):
        headings = [heading for group in table.groups for heading in group.headings]
        places = [place for _, some in spans for place in some]
        groups = tuple(Group(title, tuple(headings[place] for place in some)) for title, some in spans)
        rows = [row for row in table.rows if not table.sparse or _says(row, spans)]
        cut = tuple(Row(row.names, tuple(row.figures[place] for place in places)) for row in rows)
        tables.append(dataclasses.replace(table, groups=groups, rows=cut))
    return tables


def _spans(table: Table) -> List[Span]:
    spans, first = [], 0
    for group in table.groups:
        last = first + len(group.headings)
        spans.append((group.title, tuple(range(first, last))))
        first = last
    return spans


@dataclasses.dataclass(frozen=True)
class Part:
    """Columns under one title; a title that is None has no line, an empty one keeps it free."""

    title: Optional[str]
    headings: Tuple[str, ...]
    rows: Tuple[Tuple[Figure, ...], ...]
    side: Side

    @functools.cached_property
    def widths(self) -> List[int]:
        """Width of each column in characters; columns are widened in turn until the title fits."""
        widths = [max(map(cell_len, texts)) for texts in zip(self.headings, *map(_texts, self.rows))]
        short = cell_len(self.title or "") - sum(widths) - GAP * (len(widths) - 1)
        for number in range(max(short, 0)):
            widths[number % len(widths)] += 1
        return widths

    @property
    def width(self) -> int:
        return sum(self.widths) + GAP * (len(self.widths) - 1)

    def lines(self, bold: bool) -> List[str]:
        title = [] if self.title is None else [_centred(self.title, self.width)]
        headings = self._line([(text, False) for text in self.headings])
        rows = [self._line([(text, bold and f.best) for text, f in zip(_texts(row), row)]) for row in self.rows]
        return [*title, headings, "─" * self.width, *rows]

    def _line(self, fields: Sequence[Tuple[str, bool]]) -> str:
        padded = []
        for (text, bold), width in zip(fields, self.widths):
            blank = " " * (width - cell_len(text))
            shown = f"\x1b[1m{text}\x1b[0m" if bold else text
            padded.append(shown + blank if self.side == "left" else blank + shown)
        return (" " * GAP).join(padded)


def _texts(row: Sequence[Figure]) -> List[str]:
    return [f"{MARK} {figure.plain}" if figure.best else figure.plain for figure in row]


def _centred(text: str, width: int) -> str:
    blank = width - cell_len(text)
    return " " * (blank // 2) + text + " " * (blank - blank // 2)


def _beside(parts: Sequence[Part], bold: bool) -> List[str]:
    return [(" " * GAP).join(line) for line in zip(*(part.lines(bold) for part in parts))]


def _block(table: Table, spans: Sequence[Span]) -> List[Part]:
    if table.sparse:
        table = dataclasses.replace(table, rows=tuple(row for row in table.rows if _says(row, spans)))
    return [_names(table), *(_figures(table, span) for span in spans)]


def _says(row: Row, spans: Sequence[Span]) -> bool:
    return any(row.figures[place].plain != NOTHING for _, places in spans for place in places)


def _names(table: Table) -> Part:
    rows = tuple(tuple(Figure(name) for name in row.names) for row in table.rows)
    return Part(" " if _titled(table) else None, tuple(map(clean, table.headings)), rows, "left")


def _figures(table: Table, span: Span) -> Part:
    title, places = span
    headings = [clean(heading) for group in table.groups for heading in group.headings]
    rows = tuple(tuple(row.figures[place] for place in places) for row in table.rows)
    shown = (clean(title) or " ") if _titled(table) else None
    return Part(shown, tuple(headings[place] for place in places), rows, "right")


def _titled(table: Table) -> bool:
    return any(group.title for group in table.groups)
