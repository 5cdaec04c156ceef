"""The figure of a search over releases: a ratio with its interval for each that was measured."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from framework_compare.report.bisection_report import OF_METRIC
from framework_compare.report.figures import files, look
from framework_compare.report.names import title
from framework_compare.results.version_search import CHANGED

WIDTH, HEIGHT = 560.0, 260.0


def svg(search: Any) -> str:
    """Ratios over releases with their intervals, the threshold as lines, the release that changed it filled."""
    import pandas as pd

    known = [one for one in search.found.answers if one.blocks and math.isfinite(one.high)]
    rows = [{"release": search.versions[0], "ratio": 1.0, "low": 1.0, "high": 1.0, "named": False}]
    rows += [
        {
            **{"release": search.versions[one.place], "ratio": one.ratio, "low": one.low, "high": one.high},
            "named": search.outcome == CHANGED and one.place == search.found.after,
        }
        for one in known
    ]
    frame = pd.DataFrame(rows)
    x = alt.X(
        "release:N",
        sort=list(search.versions),
        title=f"release of {title(search.framework)}",
        axis=alt.Axis(labelAngle=0),
    )
    x = x.scale(domain=list(search.versions))
    y_title = f"{OF_METRIC[search.metric]} over that of {search.versions[0]}"
    y = alt.Y("ratio:Q", title=y_title, scale=alt.Scale(zero=False))
    base = alt.Chart(frame)
    colour = look.COLOURS[look.place(search.framework, [search.framework])]
    arms = base.mark_rule(color=colour, strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q", title=y_title), y2="high:Q")
    points = base.mark_point(size=70, color=colour, strokeWidth=1.5).encode(
        x=x, y=y, fill=alt.condition("datum.named", alt.value(colour), alt.value("white"))
    )
    limits = pd.DataFrame({"ratio": [1 + search.threshold, 1 / (1 + search.threshold)]})
    lines = alt.Chart(limits).mark_rule(color=look.GREY, strokeDash=[4, 3]).encode(y=y)
    chart = alt.layer(lines, arms, points).properties(width=WIDTH, height=HEIGHT)
    return files.render(chart, files.FONT).svg
