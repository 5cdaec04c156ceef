"""Figures of energy per image and per epoch (F9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from framework_compare.report.figures import marks
from framework_compare.report.figures.subject import LABELS, Subject, speeds
from framework_compare.report.study import plain
from framework_compare.report.tables import known

METERS = {"GPU": "gpu_j_per_image", "host": "host_j_per_image"}
PARTS = ("GPU", "GPU, idle", "host", "host, idle")
WH = 3600.0  # joules


def energy(subject: Subject, width: float, columns: int) -> dict[str, Any]:
    """F9: joules per image of GPU and host, idle power apart, with the interval of all together over runs."""
    cells = _with_energy(subject)
    cells = marks.cut(cells.assign(whole=_joules(cells)), "whole", "j_low", "j_high")
    rows = [
        {
            "framework_label": cell.framework_label,
            "condition_label": cell.condition_label,
            "part": part,
            "place": PARTS.index(part),
            "j": float(value),
            "disturbed": cell.disturbed,
        }
        | {"low": cell.j_low, "high": cell.j_high, "high_cut": cell.j_high_cut, "wh": cell.wh}
        for cell in cells.itertuples()
        for part, value in _parts(cell)
        if known(value)
    ]
    if not rows:
        return {}
    base = marks.chart([{name: plain(one, 5) for name, one in row.items()} for row in rows])
    base = base.encode(y=marks.framework_axis(subject))
    total = alt.X("sum(j):Q", title="joules per image", axis=alt.Axis(tickCount=6))
    measured = [part for part in PARTS if any(row["part"] == part for row in rows)]
    watt_hours = alt.Tooltip("wh:Q", title="Wh of an epoch", format=".3~g")
    tips = ["framework_label:N", "part:N", alt.Tooltip("j:Q", format=".3~g"), watt_hours]
    bars = marks.stacked_bars(base, subject, measured, x=total, tooltip=tips)
    layers = bars, marks.whole_interval(base), marks.arrows(base, "high", "x"), marks.warned(base, x=total)
    return {"": marks.bar_panels(layers, subject, width, columns)}


def frugality(subject: Subject, width: float, columns: int) -> dict[str, Any]:
    """F9 as images per joule over images per second, with the intervals of both over runs."""
    cells = speeds(_with_energy(subject))
    rows = cells[[*LABELS, "images_per_s", "slow", "fast", "disturbed"]]
    rows = rows.assign(per_j=1 / _joules(cells), few=1 / cells["j_high"], many=1 / cells["j_low"])
    rows = rows.dropna(subset=["images_per_s", "per_j"])
    rows = marks.cut(marks.cut(rows, "images_per_s", "slow", "fast"), "per_j", "few", "many")
    if rows.empty:
        return {}
    base = marks.chart(rows).encode(
        x=alt.X("images_per_s:Q", title="images/s", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6)),
        y=alt.Y("per_j:Q", title="images per joule", scale=alt.Scale(zero=True)),
    )
    tint = marks.colour(subject, alt.Legend())
    tooltip = "framework_label:N", alt.Tooltip("images_per_s:Q", format=".4~g"), alt.Tooltip("per_j:Q", format=".3~g")
    layered = alt.layer(
        marks.interval(base, "slow", "fast", "x", color=tint),
        marks.interval(base, "few", "many", "y", color=tint),
        marks.points(base, subject, 80, alt.Legend(), *tooltip),
        marks.arrows(base, "fast", "x"),
        marks.arrows(base, "many", "y"),
        marks.warned(base),
    )
    layered = layered.properties(width=marks.panel_width(width, columns, 40) - 40, height=130)
    return {"": marks.panels(layered, subject, columns, x="independent", y="independent")}


def _with_energy(subject: Subject) -> Any:
    """The cells that worked with the ends of the interval of their joules per image over runs, and Wh of an epoch."""
    cells = subject.worked
    cells = cells.assign(j_low=cells["j_per_image_ci_low"], j_high=cells["j_per_image_ci_high"])
    return cells.assign(wh=_joules(cells) * cells["images_per_s"] * cells["epoch_s_median"] / WH)


def _parts(cell: Any) -> Iterator[tuple[str, float]]:
    """Joules of each part of a bar; those of an idle device apart where its idle power is known."""
    for part, name in METERS.items():
        value, above = getattr(cell, name), getattr(cell, name.replace("_j_", "_above_idle_j_"))
        yield part, above if known(above) else value
        yield f"{part}, idle", value - above


def _joules(cells: Any) -> Any:
    """Joules per image, of all that was measured."""
    return cells[list(METERS.values())].sum(axis=1, min_count=1)
