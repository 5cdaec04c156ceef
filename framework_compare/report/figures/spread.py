"""Charts of an archive: ratios within studies beside each other, and over the versions of a framework."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from framework_compare.protocol import Document, Fields
from framework_compare.report.figures import files, look, marks

ROWS = "rows"
# Each chart has a layout for pages of these widths, and is drawn in the widest that fits; in pixels, with that of its
# plot and the most of a label.
WIDTHS = (660, 0)
_LAYOUTS = ((560, 300), (165, 140))
ROW_HEIGHT, TREND_HEIGHT = 26, 240
_SHOWN = ("significant", "not significant")
_LOG = alt.Scale(type="log", nice=False, padding=12)
Rows = Sequence[Document]


def ratios(rows: Rows) -> Fields:
    """The specifications of ratios with their intervals, a line per `label`; rows have ratio, low, high, shown, where, href."""
    return _responsive([_ratios(*layout) for layout in _LAYOUTS], rows)


def _ratios(width: int, label: int) -> marks.Layers:
    axis = alt.Axis(labelLimit=label, title=None)
    base = alt.Chart(alt.NamedData(ROWS)).encode(y=alt.Y("label:N", sort=None, axis=axis))
    equal = alt.Chart(alt.NamedData(ROWS)).mark_rule(color=look.GREY, strokeDash=[4, 4]).encode(x=alt.datum(1))
    shown = alt.Scale(domain=list(_SHOWN), range=[look.COLOURS[2], look.GREY])
    colour = alt.Color("shown:N", scale=shown, legend=alt.Legend(title=None))
    ends = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.5)
    ends = ends.encode(x="low:Q", x2="high:Q", color=colour)
    x = alt.X("ratio:Q", scale=_LOG, title=["ratio of epoch times within a study", "(right of 1: the first is faster)"])
    points = base.mark_point(filled=True, size=70, opacity=1)
    points = points.encode(x=x, color=colour, tooltip=_tips("label:N"), href="href:N")
    return alt.layer(equal, ends, points).properties(width=width, height=alt.Step(ROW_HEIGHT))


def trend(rows: Rows, versions: Sequence[str]) -> Fields:
    """The specifications of ratios over versions in their order, a line per rival and machine; rows have rival, too."""
    place = alt.X("version:N", sort=list(versions), title="version", axis=alt.Axis(labelAngle=-30))
    rivals = list(dict.fromkeys(str(row["rival"]) for row in rows))
    colours = [look.COLOURS[number % len(look.COLOURS)] for number in range(len(rivals))]
    base = alt.Chart(alt.NamedData(ROWS)).encode(
        x=place,
        y=alt.Y("ratio:Q", scale=_LOG, title="rival's epoch time / its own"),
        color=alt.Color("rival:N", scale=alt.Scale(domain=rivals, range=colours), legend=alt.Legend(title=None)),
    )
    lines = base.mark_line(strokeWidth=1).encode(detail="where:N")
    points = base.mark_point(filled=True, size=60).encode(tooltip=_tips("version:N", "rival:N"), href="href:N")
    chart = alt.layer(lines, points)
    sizes = [chart.properties(width=max(width, 250), height=TREND_HEIGHT) for width, _ in _LAYOUTS]
    return _responsive(sizes, rows)


def _tips(*names: str) -> list[alt.Tooltip]:
    more: tuple[tuple[str, Fields], ...] = (
        ("ratio:Q", {"format": ".3~f"}),
        ("interval:N", {}),
        ("where:N", {"title": "machine"}),
    )
    return [*map(alt.Tooltip, names), *(alt.Tooltip(name, **options) for name, options in more)]


def _responsive(charts: Sequence[marks.Layers], rows: Rows) -> Fields:
    specs = [files.render(one, files.FONT, width or 340, still=False).spec for one, width in zip(charts, WIDTHS)]
    return with_rows(files.responsive(specs), rows)


def with_rows(spec: Document, rows: Rows) -> Fields:
    """The same chart of other rows."""
    return {**spec, "datasets": {ROWS: list(rows)}}


def label_of(shown: bool) -> str:
    """The words that colours stand for: whether a difference is significant."""
    return _SHOWN[0] if shown else _SHOWN[1]
