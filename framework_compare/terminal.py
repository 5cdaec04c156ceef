"""The terminal's renderer: columns that do not fit beside each other are stacked, and nothing is cut off."""

from __future__ import annotations

import io
from typing import List, Literal, Optional, Sequence, Tuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from framework_compare.tables import Figure, Table, clean

# A stretch of columns under one title: the title, and the places of the columns in the table.
Span = Tuple[str, Tuple[int, ...]]
Side = Literal["left", "right"]
_WIDE = 1_000_000
GAP = 2  # between columns, one of them the box's own
MARK = "*"


def render(table: Table, *, width: Optional[int] = None, bold: Optional[bool] = None) -> str:
    """The table as text of at most `width` columns, or what one column of figures needs if that is more.

    `bold` puts terminal codes round the best figures; width and bold are by default those of standard output.
    """
    out = Console()
    width = width or out.width
    bold = out.is_terminal and not out.is_dumb_terminal if bold is None else bold
    blocks = [_block(table, spans) for spans in _stacks(table, width)]
    file = io.StringIO()
    console = Console(
        file=file,
        width=max(width, *map(_width, blocks)),
        force_terminal=bold,
        color_system="standard" if bold else None,
        no_color=True,
        highlight=False,
        legacy_windows=False,
    )
    for block in [Text(clean(table.caption)), *blocks]:
        console.print(block, Text())
    console.print(*map(Text, table.below()), sep="\n", end="")
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())


def _stacks(table: Table, width: int) -> List[List[Span]]:
    """The columns in as few blocks as fit, one below the other; broken between titles where that is possible."""
    room = width - _width(_names(table))
    stacks: List[List[Span]] = [[]]
    used = 0
    for title, places in _spans(table):
        fits = GAP + _width(_figures(table, (title, places))) <= room
        for piece in [(title, places)] if fits else [(title, (place,)) for place in places]:
            needed = GAP + _width(_figures(table, piece))
            if stacks[-1] and used + needed > room:
                stacks.append([])
                used = 0
            stacks[-1].append(piece)
            used += needed
    return stacks


def _spans(table: Table) -> List[Span]:
    spans, first = [], 0
    for group in table.groups:
        last = first + len(group.headings)
        spans.append((group.title, tuple(range(first, last))))
        first = last
    return spans


def _width(block: RenderableType) -> int:
    console = Console(file=io.StringIO(), width=_WIDE)
    return Measurement.get(console, console.options, block).maximum


def _block(table: Table, spans: Sequence[Span]) -> Grid:
    """One grid of tables side by side, a table a title: rich has no headings that span columns."""
    parts = [_names(table), *(_figures(table, span) for span in spans)]
    grid = Grid.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    for _ in parts:
        grid.add_column(no_wrap=True)
    grid.add_row(*parts)
    return grid


def _names(table: Table) -> Grid:
    rows = [[Text(clean(name)) for name in row.names] for row in table.rows]
    return _part("", table.headings, rows, _titled(table), "left")


def _figures(table: Table, span: Span) -> Grid:
    title, places = span
    headings = [heading for group in table.groups for heading in group.headings]
    rows = [[_figure(row.figures[place]) for place in places] for row in table.rows]
    return _part(title, [headings[place] for place in places], rows, _titled(table), "right")


def _titled(table: Table) -> bool:
    return any(group.title for group in table.groups)


def _part(title: str, headings: Sequence[str], rows: Sequence[Sequence[Text]], titled: bool, justify: Side) -> Grid:
    part = Grid(
        title=Text(clean(title) or " ", style="") if titled else None,
        title_style="",
        header_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, GAP - 1, 0, 0),
        min_width=cell_len(clean(title)),
    )
    for heading in headings:
        part.add_column(Text(clean(heading)), justify=justify, no_wrap=True)
    for row in rows:
        part.add_row(*row)
    return part


def _figure(figure: Figure) -> Text:
    return Text(f"{MARK} {figure.plain}", style="bold") if figure.best else Text(figure.plain)
