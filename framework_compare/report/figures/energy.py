"""Figures of energy per image and per epoch (F9)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import altair as alt

from framework_compare.report.figures import look
from framework_compare.report.figures.subject import Subject, known, plain, rounded, speeds
from framework_compare.report.figures.times import (
    arrows,
    colour,
    cut,
    framework_axis,
    panel_width,
    panels,
    shape,
    warned,
)
from framework_compare.results.energy import joules_per_run
from framework_compare.results.intervals import geometric_mean

JOULES = {"GPU": look.GPU, "host": look.HOST}
WH = 3600.0  # joules


def energy(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F9: joules per image, of the GPU and of the host's processors, with the interval of both together over runs."""
    cells = _with_energy(subject)
    cells = cut(cells.assign(whole=_joules(cells)), "whole", "j_low", "j_high")
    rows = [
        {"who": cell.who, "what": cell.what, "part": part, "j": float(value), "disturbed": cell.disturbed}
        | {"low": cell.j_low, "high": cell.j_high, "high_cut": cell.j_high_cut, "wh": cell.wh}
        for cell in cells.itertuples()
        for part, value in (("GPU", cell.gpu_j_per_image), ("host", cell.host_j_per_image))
        if known(value)
    ]
    if not rows:
        return {}
    base = alt.Chart(alt.InlineData(values=[{name: plain(one, 5) for name, one in row.items()} for row in rows]))
    base = base.encode(y=framework_axis(subject))
    total = alt.X("sum(j):Q", title="joules per image", axis=alt.Axis(tickCount=6))
    measured = [part for part in JOULES if any(row["part"] == part for row in rows)]
    scale = alt.Scale(domain=measured, range=[JOULES[part] for part in measured])
    bars = base.mark_bar(stroke="white", strokeWidth=0.5).encode(
        x=total,
        color=alt.Color("part:N", scale=scale, title=None),
        tooltip=[
            "who:N",
            "part:N",
            alt.Tooltip("j:Q", format=".3~g"),
            alt.Tooltip("wh:Q", title="Wh of an epoch", format=".3~g"),
        ],
    )
    ends = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, color="black")
    height = 20 * len(subject.who) + 6
    chart = alt.layer(
        bars, ends.encode(x="min(low):Q", x2="max(high):Q"), arrows(base, "high", "x"), warned(base, x=total)
    )
    chart = chart.properties(width=panel_width(width, columns, 90), height=height)
    return {"": panels(chart, subject, columns, x="independent")}


def frugality(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F9 as images per joule over images per second, with the intervals of both over runs."""
    cells = speeds(_with_energy(subject))
    rows = cells.assign(per_j=1 / _joules(cells), few=1 / cells["j_high"], many=1 / cells["j_low"])
    rows = rows[["who", "what", "images_per_s", "slow", "fast", "per_j", "few", "many", "disturbed"]]
    rows = rows.dropna(subset=["images_per_s", "per_j"])
    rows = cut(cut(rows, "images_per_s", "slow", "fast"), "per_j", "few", "many")
    if rows.empty:
        return {}
    base = alt.Chart(alt.InlineData(values=rounded(rows))).encode(
        x=alt.X("images_per_s:Q", title="images/s", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6)),
        y=alt.Y("per_j:Q", title="images per joule", scale=alt.Scale(zero=True)),
    )
    tint = colour(subject, alt.Legend())
    points = base.mark_point(filled=True, size=80).encode(
        color=tint,
        shape=shape(subject, alt.Legend()),
        tooltip=["who:N", alt.Tooltip("images_per_s:Q", format=".4~g"), alt.Tooltip("per_j:Q", format=".3~g")],
    )
    across = base.transform_filter("isValid(datum.slow)").mark_rule(strokeWidth=1.5)
    upwards = base.transform_filter("isValid(datum.few)").mark_rule(strokeWidth=1.5)
    across = across.encode(x="slow:Q", x2="fast:Q", color=tint)
    upwards = upwards.encode(y="few:Q", y2="many:Q", color=tint)
    ends = arrows(base, "fast", "x"), arrows(base, "many", "y")
    chart = alt.layer(across, upwards, points, *ends, warned(base))
    chart = chart.properties(width=panel_width(width, columns, 40) - 40, height=130)
    return {"": panels(chart, subject, columns, x="independent", y="independent")}


def _with_energy(subject: Subject) -> Any:
    """The cells that worked with the ends of the interval of their joules per image over runs, and Wh of an epoch."""
    cells, epochs = subject.worked, subject.of(subject.study.epochs)
    readings = subject.study.energy
    if readings.empty:
        return cells.assign(j_low=None, j_high=None, wh=None)
    found = joules_per_run(epochs, readings, ("gpu", "host-"), subject.study.slices)
    images = epochs.groupby("run_id")["images"].sum()
    cell_of = epochs.drop_duplicates("run_id").set_index("run_id")["cell"]
    rates: Dict[int, List[float]] = {}
    for run_id, joules in found.items():
        if joules is not None and images[run_id] > 0:
            rates.setdefault(int(cell_of[run_id]), []).append(joules / float(images[run_id]))
    spread = {cell: geometric_mean(values) for cell, values in rates.items()}

    def end(cell: int, name: str) -> Optional[float]:
        return getattr(spread[cell], name) if cell in spread else None

    return cells.assign(
        j_low=[end(cell, "low") for cell in cells["cell"]],
        j_high=[end(cell, "high") for cell in cells["cell"]],
        wh=_joules(cells) * cells["images_per_s"] * cells["epoch_s_median"] / WH,
    )


def _joules(cells: Any) -> Any:
    """Joules per image, of all that was measured."""
    return cells[["gpu_j_per_image", "host_j_per_image"]].sum(axis=1, min_count=1)
