"""Figures of energy per image and per epoch (F9)."""

import altair as alt
import pandas as pd

from framework_compare.protocol import Fields
from framework_compare.report.figures import marks
from framework_compare.report.figures.subject import LABELS, Subject

METERS = {"GPU": "gpu_j_per_image", "host": "host_j_per_image"}
WH = 3600.0  # joules
_ABOVE = {part: name.replace("_j_", "_above_idle_j_") for part, name in METERS.items()}
_DRAWN = ("disturbed", "low", "high", "high_cut", "wh")


def energy(subject: Subject, width: float, columns: int) -> Fields:
    """F9: joules per image of GPU and host, idle power apart, with the interval of all together over runs."""
    cells = subject.worked.rename(columns={"j_per_image_ci_low": "low", "j_per_image_ci_high": "high"})
    whole = cells[list(METERS.values())].sum(axis=1, min_count=1)
    cells = cells.assign(whole=whole, wh=whole * cells["images_per_s"] * cells["epoch_s_median"] / WH)
    cells = marks.cut(cells, "whole", "low", "high")[[*LABELS, *METERS.values(), *_ABOVE.values(), *_DRAWN]]
    parts: dict[str, pd.Series] = {}
    for part, name in METERS.items():  # joules of an idle device apart where its idle power is known
        above = cells[_ABOVE[part]]
        parts.update({part: above.fillna(cells[name]), f"{part}, idle": cells[name] - above})
    listed = [cells.assign(part=part, place=place, j=joules) for place, (part, joules) in enumerate(parts.items())]
    rows = pd.concat(listed).dropna(subset="j").drop(columns=[*METERS.values(), *_ABOVE.values()])
    if rows.empty:
        return {}
    base = marks.chart(rows).encode(y=marks.framework_axis(subject))
    total = alt.X("sum(j):Q", title="joules per image", axis=alt.Axis(tickCount=6))
    watt_hours = alt.Tooltip("wh:Q", title="Wh of an epoch", format=".3~g")
    tips = ["framework_label:N", "part:N", alt.Tooltip("j:Q", format=".3~g"), watt_hours]
    measured = list(rows["part"].drop_duplicates())
    bars = marks.stacked_bars(base, subject, measured, x=total, tooltip=tips)
    layers = bars, marks.whole_interval(base), marks.arrows(base, "high", "x"), marks.warned(base, x=total)
    return {"": marks.bar_panels(layers, subject, width, columns)}
