"""The terminal's renderer: columns that do not fit beside each other are stacked, and nothing is cut off."""

import dataclasses
import functools
import io
from collections.abc import Sequence
from typing import Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from framework_compare.report.tables import BEST, NOTHING, Row, Table, clean

# A stretch of columns under one title: the title, and the places of the columns in the table.
Span = tuple[str, tuple[int, ...]]
_CONSOLE = Console(file=io.StringIO())
GAP = 2  # between columns
MARK = "*"


def render(table: Table, *, width: int | None = None, bold: bool | None = None) -> str:
    """The table as text of at most `width` columns, or what one column of figures needs if that is more.

    `bold` puts terminal codes round the best figures; width and bold are by default those of standard output.
    """
    if width is None or bold is None:
        out = Console()
        width = width or out.width
        bold = out.is_terminal and not out.is_dumb_terminal if bold is None else bold
    blocks = [
        [_names(table, rows), *(_values(table, span, rows) for span in spans)] for spans, rows in stacks(table, width)
    ]
    room = max(width, *(sum(part.width + GAP for part in block) - GAP for block in blocks))
    lines = [piece for line in table.verdicts for piece in wrap(clean(line), room)]
    lines += [*([""] if lines else []), *wrap(clean(table.caption), room)]
    for block in blocks:
        lines += [*((" " * GAP).join(line) for line in zip(*(part.lines(bold) for part in block))), ""]
    below = (MARK + line[len(BEST) :] if line.startswith(f"{BEST}:") else line for line in table.below())
    lines += [piece for line in below for piece in wrap(line, room)]
    return "".join(line.rstrip() + "\n" for line in lines)


def wrap(text: str, room: int) -> list[str]:
    """Lines of at most `room` columns, broken between words where a word fits."""
    return [str(line).rstrip() for line in Text(text).wrap(_CONSOLE, room)]


def stacks(table: Table, width: int) -> list[tuple[list[Span], list[Row]]]:
    """The columns in as few blocks as fit, one below the other, broken between titles where that is possible.

    Each block has the rows that it shows: of a sparse table those that have a figure in it.
    """
    room = width - _names(table, table.rows).width
    blocks: list[list[Span]] = [[]]
    used = first = 0
    for group in table.groups:
        title, places = group.title, tuple(range(first, first + len(group.headings)))
        first += len(places)
        fits = GAP + _values(table, (title, places), table.rows).width <= room
        for piece in [(title, places)] if fits else [(title, (place,)) for place in places]:
            needed = GAP + _values(table, piece, table.rows).width
            if blocks[-1] and used + needed > room:
                blocks.append([])
                used = 0
            blocks[-1].append(piece)
            used += needed

    def says(row: Row, spans: Sequence[Span]) -> bool:
        return any(table.text(row.values[place]) != NOTHING for _, places in spans for place in places)

    return [(spans, [row for row in table.rows if not table.sparse or says(row, spans)]) for spans in blocks]


@dataclasses.dataclass(frozen=True)
class ColumnGroup:
    """Columns under one title; a title that is None has no line, an empty one keeps it free. best: the bold fields."""

    title: str | None
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    side: Literal["left", "right"]
    best: Sequence[Sequence[bool]]

    @functools.cached_property
    def widths(self) -> list[int]:
        """Width of each column in characters; columns are widened in turn until the title fits."""
        widths = [max(map(cell_len, texts)) for texts in zip(self.headings, *self.rows)]
        short = cell_len(self.title or "") - sum(widths) - GAP * (len(widths) - 1)
        for number in range(max(short, 0)):
            widths[number % len(widths)] += 1
        return widths

    @property
    def width(self) -> int:
        return sum(self.widths) + GAP * (len(self.widths) - 1)

    def lines(self, bold: bool) -> list[str]:
        title = []
        if self.title is not None:
            left = " " * ((self.width - cell_len(self.title)) // 2)
            title = [set_cell_size(left + self.title, self.width)]
        headings = self._line(self.headings, [False] * len(self.headings))
        rows = [self._line(row, [bold and one for one in best]) for row, best in zip(self.rows, self.best)]
        return [*title, headings, "─" * self.width, *rows]

    def _line(self, texts: Sequence[str], bold: Sequence[bool]) -> str:
        padded = []
        for text, is_bold, width in zip(texts, bold, self.widths):
            blank = " " * (width - cell_len(text))
            shown = f"\x1b[1m{text}\x1b[0m" if is_bold else text
            padded.append(shown + blank if self.side == "left" else blank + shown)
        return (" " * GAP).join(padded)


def _names(table: Table, rows: Sequence[Row]) -> ColumnGroup:
    names = [list(map(clean, row.names)) for row in rows]
    return ColumnGroup(
        _title(table, ""), [*map(clean, table.headings)], names, "left", [[False] * len(row) for row in names]
    )


def _values(table: Table, span: Span, rows: Sequence[Row]) -> ColumnGroup:
    title, places = span
    headings = [clean(heading) for group in table.groups for heading in group.headings]
    values = [[row.values[place] for place in places] for row in rows]
    texts = [[f"{MARK} {table.text(one)}" if one.best else table.text(one) for one in row] for row in values]
    best = [[one.best for one in row] for row in values]
    return ColumnGroup(_title(table, title), [headings[place] for place in places], texts, "right", best)


def _title(table: Table, title: str) -> str | None:
    return (clean(title) or " ") if any(group.title for group in table.groups) else None
