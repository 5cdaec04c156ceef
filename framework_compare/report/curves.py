"""Loss curves as files: a table in Markdown, the numbers in JSON, a chart with a column per model.

Losses stand above, their distances from float64 below.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import altair as alt
import pandas as pd

from framework_compare.parity.training.curves import Curves
from framework_compare.protocol import Document
from framework_compare.report import renderers
from framework_compare.report.figures import files, look, marks
from framework_compare.report.names import in_order, title
from framework_compare.report.parity_tables import curves_table
from framework_compare.report.study import rounded

SMALLEST = 1e-9  # a distance of zero has no place on a logarithmic axis
WIDTH, HEIGHT = 210, 190  # of a panel
LARGEST, SMALLER = 120, 18  # marks shrink from framework to framework, as the curves lie on each other


def write(curves: Sequence[Curves], folder: Path) -> None:
    """Write curves.md, curves.json and curves.svg; the folder is made if absent."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "curves.md").write_text(renderers.markdown(curves_table(curves)), encoding="utf-8")
    documents = [dataclasses.asdict(one) for one in curves]
    (folder / "curves.json").write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
    draw(curves, folder / "curves.svg")


def draw(curves: Sequence[Curves], path: Path) -> None:
    """Write the chart as SVG."""
    names = in_order([name for one in curves for name in one.losses])
    chart = alt.hconcat(*(_column(one, names) for one in curves)).resolve_scale(color="shared", shape="shared")
    path.write_text(files.render(chart, files.FONT).svg, encoding="utf-8")


def _column(one: Curves, names: Sequence[str]) -> alt.VConcatChart:
    def line(values: Sequence[float], of: str) -> alt.Chart:
        return alt.Chart(alt.InlineData(values=_rows({"": values}))).encode(x="step:Q", y=_axis(of))

    losses = _points(_rows({name: one.losses[name] for name in names if name in one.losses}), "loss", names)
    exact = line(one.exact, "loss").mark_line(color="black", strokeWidth=0.9)
    distances = {name: [max(value, SMALLEST) for value in one.off(name)] for name in names if name in one.losses}
    apart = _points(_rows(distances), "distance", names)
    allowed = line(one.yardstick, "distance").mark_line(color="black", strokeWidth=1.4, strokeDash=[5, 4])
    above = alt.layer(losses, exact).properties(title=title(one.model), width=WIDTH, height=HEIGHT)
    below = alt.layer(apart, allowed).properties(width=WIDTH, height=HEIGHT)
    return alt.vconcat(above, below)


def _rows(series: Mapping[str, Sequence[float]]) -> list[Document]:
    """A row for each framework and step, with the size of its mark; a value that is not a number will have none."""
    steps = [
        (title(name), step, value, max(LARGEST - SMALLER * number, SMALLER))
        for number, (name, values) in enumerate(series.items())
        for step, value in enumerate(values, 1)
    ]
    return rounded(pd.DataFrame(steps, columns=["framework_label", "step", "value", "size"]))


def _points(rows: list[Document], of: str, names: Sequence[str]) -> alt.Chart:
    labels, places = [title(name) for name in names], [look.place(name, names) for name in names]
    colours, shapes = ([of_all[place] for place in places] for of_all in (look.COLOURS, look.SHAPES))
    points = alt.Chart(alt.InlineData(values=rows)).mark_point(filled=True, opacity=1)
    return points.encode(
        x=alt.X("step:Q", axis=alt.Axis(tickMinStep=1, format="d")),
        y=_axis(of),
        color=marks.by_framework(alt.Color, labels, colours, alt.Legend()),
        shape=marks.by_framework(alt.Shape, labels, shapes, alt.Legend()),
        size=alt.Size("size:Q", scale=None, legend=None),
    )


def _axis(of: str) -> alt.Y:
    if of == "loss":
        return alt.Y("value:Q", title="loss (line: float64)", scale=alt.Scale(zero=False))
    name = "distance from float64 (dashed: yardstick)"
    return alt.Y("value:Q", title=name, scale=alt.Scale(type="log"), axis=alt.Axis(format="~e", tickCount=6))
