"""Parts that charts share: axes, colours, intervals that end in arrows, marks of disturbed cells, panels; what marks mean."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union

import altair as alt
import pandas as pd

from framework_compare.protocol import Document, Fields
from framework_compare.report.figures import look
from framework_compare.report.figures.subject import Subject
from framework_compare.report.study import rounded

CLIP = 1.5  # an interval longer than this times the largest figure of its panel ends in an arrow
LETTER = 6.0  # points of width that a letter of a label takes at most
GIB = 2**30
ENDS = "#444444"
Layers = Union[alt.LayerChart, alt.FacetChart]  # what alt.layer gives


class Rows(alt.InlineData):
    """Rows that all copies of a chart share: Altair copies charts at each step, and their rows are most of them."""

    _class_is_valid_at_instantiation = False  # tests hold whole figures to the schema; here each row would be

    def __deepcopy__(self, memo: object) -> Rows:
        return self


def chart(rows: pd.DataFrame | list[Fields]) -> alt.Chart:
    """A chart of the rows of a frame, or of dictionaries whose numbers are rounded already."""
    return alt.Chart(Rows(values=rows if isinstance(rows, list) else rounded(rows)))


def settled(made: alt.Chart) -> alt.Chart:
    """The chart with its parts as dictionaries, which Altair copies many times faster than its own objects."""
    bare = made.copy(deep=False)
    bare.data = alt.Undefined  # else its rows would be written for a name
    parts = bare.to_dict(validate=False, context={"top_level": False})
    return alt.Chart(**{**parts, "data": made.data, "encoding": alt.FacetedEncoding(**parts["encoding"])})


def framework_axis(subject: Subject) -> alt.Y:
    return alt.Y("framework_label:N", sort=subject.frameworks, title=None)


def colour(subject: Subject, legend: alt.Legend | None = None) -> alt.Color:
    return by_framework(alt.Color, subject.frameworks, subject.marks()[0], legend)


def shape(subject: Subject, legend: alt.Legend | None = None) -> alt.Shape:
    return by_framework(alt.Shape, subject.frameworks, subject.marks()[1], legend)


def by_framework(channel: Any, names: Sequence[str], values: Sequence[str], legend: alt.Legend | None) -> Any:
    """A colour or shape for each framework."""
    scale = alt.Scale(domain=list(names), range=list(values))
    return channel("framework_label:N", scale=scale, legend=legend, title=None)


def stacked_bars(base: alt.Chart, subject: Subject, parts: Sequence[str], **encodings: Any) -> alt.Chart:
    """Bars in the colours of their frameworks; `part` of a row decides how pale it is."""
    shades = alt.Scale(type="ordinal", domain=list(parts), range=list(look.OPACITIES[: len(parts)]))
    opacity = alt.Opacity("part:N", scale=shades, title=None, sort=list(parts), legend=alt.Legend(symbolType="square"))
    place = alt.Order("place:Q")
    return base.mark_bar().encode(color=colour(subject), opacity=opacity, order=place, **encodings)


def dot_rows(
    rows: pd.DataFrame,
    subject: Subject,
    x: alt.X,
    order: Sequence[str],
    width: float,
    columns: int,
    *tips: str | alt.Tooltip,
) -> alt.FacetChart:
    """A line for each `name` of the rows, in an order, with a point of each framework's on it; a panel per condition."""
    height = max(17, 7 * len(subject.frameworks))
    aside = alt.YOffset("framework_label:N", sort=subject.frameworks, scale=alt.Scale(padding=0.5))
    y = alt.Y("name:N", sort=list(order), title=None, axis=alt.Axis(grid=True))
    dots = points(chart(rows).encode(x=x, y=y, yOffset=aside), subject, 45, alt.Legend(), *tips)
    dots = dots.properties(width=row_width(order, width, columns), height=height * len(order))
    faceted = panels(dots, subject.conditions, columns)
    # An axis that is shared is drawn below each column, also where the last row has no panel.
    return faceted.resolve_axis(x="independent") if len(subject.conditions) % columns else faceted


def row_width(order: Sequence[str], width: float, columns: int) -> float:
    """Return the width of a panel of `dot_rows` whose lines have these names."""
    return panel_width(width, columns, min(LETTER * max(map(len, order)), 0.34 * width) + 12)


def points(
    base: alt.Chart, subject: Subject, size: int, legend: alt.Legend | None, *tooltip: str | alt.Tooltip, **places: Any
) -> alt.Chart:
    """A filled mark per row in the colour and shape of its framework."""
    tint, form = colour(subject, legend), shape(subject, legend)
    return base.mark_point(filled=True, size=size, opacity=1).encode(
        color=tint, shape=form, tooltip=list(tooltip), **places
    )


def interval(base: alt.Chart, low: str, high: str, axis: str, width: float = 1.5, **encodings: Any) -> alt.Chart:
    """A line along an axis ("x" or "y") from `low` to `high`, of rows that have an interval."""
    line = base.transform_filter(f"isValid(datum.{low})").mark_rule(strokeWidth=width)
    return line.encode(**{axis: f"{low}:Q", f"{axis}2": f"{high}:Q"}, **encodings)


def whole_interval(base: alt.Chart) -> alt.Chart:
    """The interval of all parts of a bar together."""
    ends = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, color=ENDS)
    return ends.encode(x="min(low):Q", x2="max(high):Q")


def warned(base: alt.Chart, **place: Any) -> alt.Chart:
    """A red triangle over each cell that others disturbed; `base` has its rows, with `disturbed`, and `place` its axes."""
    marks = base.transform_filter("isValid(datum.disturbed) && datum.disturbed != ''")
    return marks.mark_text(text="▲", dy=-10, color=look.WARNING, fontSize=9).encode(**place)


def cut(rows: pd.DataFrame, value: str, low: str, high: str, panel: str = "condition_label") -> pd.DataFrame:
    """Rows whose intervals from `low` to `high` end where they would set the axis of all of a panel's `value`; the column
    high_cut (of its name) says which do."""
    if rows.empty:
        return rows.assign(**{f"{high}_cut": False})
    most = CLIP * rows.groupby(panel)[value].transform("max")
    ends = {name: rows[name].astype(float) for name in (low, high)}
    kept = {name: end.where(~end.gt(most), most) for name, end in ends.items()}
    return rows.assign(**kept, **{f"{high}_cut": ends[high].gt(most)})


def arrows(base: alt.Chart, high: str, axis: str) -> alt.Chart:
    """An arrow at the end of each interval that `cut` has cut; axis: "x" or "y"."""
    towards = "triangle-right" if axis == "x" else "triangle-up"
    marks = base.transform_filter(f"datum.{high}_cut").mark_point(shape=towards, filled=True, size=45, color=ENDS)
    return marks.encode(**{axis: f"{high}:Q"})


def panel_width(width: float, columns: int, left: float) -> float:
    return max(70.0, (width - left - 16 * (columns - 1)) / columns)


def bar_panels(layers: Iterable[alt.Chart], subject: Subject, width: float, columns: int) -> alt.FacetChart:
    """Horizontal bars, one per framework, in panels with x axes of their own."""
    sized = alt.layer(*layers).properties(
        width=panel_width(width, columns, 90), height=20 * len(subject.frameworks) + 6
    )
    return panels(sized, subject.conditions, columns, x="independent")


def panels(layered: Any, conditions: Iterable[str], columns: int, **independent: Any) -> alt.FacetChart:
    """One panel for each condition, in this order."""
    header = alt.Facet("condition_label:N", sort=list(conditions), title=None)
    faceted = layered.facet(facet=header, columns=columns, spacing={"row": 16, "column": 16})
    return faceted.resolve_scale(**independent) if independent else faceted


def _has_band(row: Document) -> bool:
    """Return whether a bin of F4 holds different readings."""
    ends = ((row[key], row.get(f"{key[:-1]}h")) for key in row if re.fullmatch(r"y\d+l", key))
    return any(low != high for low, high in ends)


# What a mark means, and which rows of data have it: those with a value of this name, or by a function.
MEANINGS: tuple[tuple[str, str | Callable[[Document], object]], ...] = (
    ("Bold: significantly faster than every other framework that does not fail parity.", "fastest"),
    ("~: not significant after Holm's correction.", lambda row: row.get("unsure") and row.get("interval")),
    (
        "~ without an interval: one run, so nothing is tested.",
        lambda row: row.get("unsure") and not row.get("interval") and not row.get("throughout"),
    ),
    ("!: all epochs were disturbed.", "throughout"),
    (
        "Hollow mark: fewer than two runs count, so there is no interval.",
        lambda row: row.get("kind") == "cell" and row.get("x") is not None and row.get("low") is None,
    ),
    ("≈: estimated from the steps that were measured.", "about"),
    ("Hollow mark: disturbed epoch.", "marked"),
    ("Line: mean of neighbouring readings; band: their minimum to maximum.", _has_band),
    ("The time axis includes waiting for turns.", "waits"),
    ("Grey bars: CPU time of other programs; 100 % is one core.", lambda row: (row.get("disturbed_share") or 0) > 0),
    ("Grey backgrounds: stages of the run.", lambda row: row.get("stage") not in (None, "measured epochs")),
    ("Grey line: CPU time of other programs.", lambda row: row.get("others") is not None),
    ("Thin bar: copying to the device, which overlaps with the rest.", lambda row: (row.get("copying") or 0) > 0),
    ("Idle: power that the device draws before the first run.", lambda row: str(row.get("part")).endswith("idle")),
    ("Grey bar: not significant, or all epochs disturbed.", lambda row: row.get("shown") is False and "ratio" in row),
    ("So far: speed-up over the first rung.", lambda row: "so far" in str(row.get("label"))),
    (
        "Waiting calls (Synchronize) block the host until the GPU is done.",
        lambda row: "Synchronize" in str(row.get("name")),
    ),
    ("Red: quality is worse than that of the baseline.", "worse"),
    ("Dashed line: the memory limit of the study.", lambda row: row.get("limit") is not None),
    ("Red triangle: other programs took CPU time.", "disturbed"),
    ("Red dot: disturbed epoch.", lambda row: row.get("tint") == look.WARNING),
    (
        "Arrow: interval truncated.",
        lambda row: any(value is True for key, value in row.items() if key.endswith("_cut")),
    ),
    ("A line joins the batch sizes of a framework.", "joined"),
    ("Only the first cells are drawn; `framework-compare figure resources --models NAME` draws others.", "left_out"),
    ("A failed cell shows its status.", lambda row: row.get("worked") is False),
)


def caption(text: str, specs: Iterable[Document]) -> str:
    """Return how to read a figure, and what each mark in the specifications of its parts means."""
    rows = [row for spec in specs for values in spec.get("datasets", {}).values() for row in values]
    tests = ((words, operator.methodcaller("get", of) if isinstance(of, str) else of) for words, of in MEANINGS)
    return " ".join([text, *(words for words, has in tests if any(map(has, rows)))])
