"""Figures of energy per image and per epoch (F9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import altair as alt

from framework_compare.protocol import Fields
from framework_compare.report.figures import marks
from framework_compare.report.figures.subject import Subject
from framework_compare.report.study import plain
from framework_compare.report.tables import known
from framework_compare.results.columns import Record

if TYPE_CHECKING:
    import pandas as pd

METERS = {"GPU": "gpu_j_per_image", "host": "host_j_per_image"}
PARTS = ("GPU", "GPU, idle", "host", "host, idle")
WH = 3600.0  # joules


def energy(subject: Subject, width: float, columns: int) -> Fields:
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


def _with_energy(subject: Subject) -> pd.DataFrame:
    """The cells that worked with the ends of the interval of their joules per image over runs, and Wh of an epoch."""
    cells = subject.worked
    cells = cells.assign(j_low=cells["j_per_image_ci_low"], j_high=cells["j_per_image_ci_high"])
    return cells.assign(wh=_joules(cells) * cells["images_per_s"] * cells["epoch_s_median"] / WH)


def _parts(cell: Record) -> Iterator[tuple[str, float]]:
    """Joules of each part of a bar; those of an idle device apart where its idle power is known."""
    for part, name in METERS.items():
        value, above = getattr(cell, name), getattr(cell, name.replace("_j_", "_above_idle_j_"))
        yield part, above if known(above) else value
        yield f"{part}, idle", value - above


def _joules(cells: pd.DataFrame) -> pd.Series:
    """Joules per image, of all that was measured."""
    return cells[list(METERS.values())].sum(axis=1, min_count=1)
