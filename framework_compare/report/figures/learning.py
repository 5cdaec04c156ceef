"""Figures of training and of settings: loss (F8), functions (F11), gains (F10)."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pandas as pd

from framework_compare.protocol import Fields
from framework_compare.report.figures import look, marks
from framework_compare.report.figures.subject import LABELS, Subject, disturbed_epochs
from framework_compare.report.machine_tables import TITLES
from framework_compare.report.names import title
from framework_compare.report.study import rounded
from framework_compare.report.tables import known
from framework_compare.results import ratios
from framework_compare.results.profiles import CELL_KEYS
from framework_compare.results.workloads import one_at_a_time

LEAST = 0.01  # of the time, for a function to have a name in the figure
MOST_NAMES = 9
WAITING = "Synchronize"  # CUDA functions that hold up the host until the GPU is done
QUALITIES = ("train_", "validation_", "test_")
# The ratios of each part to a baseline: of speeds, or inverted, of times.
SPEEDUPS = {"speed-up over the CPU": ratios.speedups, "speed-up over fp32 eager": ratios.ladder}
SLOWDOWNS = {"time relative to the plain framework": ratios.stacks}


def learning(subject: Subject, width: float, columns: int, *, timed: bool = False) -> Fields:
    """F8: the loss after each epoch, and every quality that the study has; the band is from run to run.

    timed: over the seconds of training, mean over runs.
    """
    epochs = subject.of(subject.study.epochs).sort_values(["run_id", "epoch"])
    epochs = epochs.assign(trained_s=epochs.groupby("run_id")["epoch_s"].cumsum())
    names = ["loss", *(name for name in epochs.columns if name.startswith(QUALITIES))]
    parts = {}
    for name in names:
        rows = epochs[epochs[name].notna()]
        if rows["epoch"].nunique() > 1:
            parts[name.replace("_", " ")] = _curve(subject, rows, name, width, columns, timed=timed)
    return parts


def _curve(
    subject: Subject, rows: pd.DataFrame, name: str, width: float, columns: int, *, timed: bool
) -> alt.FacetChart:
    cells = subject.cells
    several = cells["device"].nunique() > 1
    rows = rows.assign(device=rows["cell"].map(dict(zip(cells["cell"], cells["device"]))).map(title))
    if several:  # the curves of a CPU and of a GPU are to be compared: one panel has both
        rows = rows.assign(condition_label=rows["cell"].map(dict(zip(cells["cell"], subject.without("device")))))
    keys = [*LABELS, "device", "epoch"]
    groups = rows.groupby(keys, sort=False)
    table = groups[name].agg(["mean", "min", "max"]).assign(s=groups["trained_s"].mean()).reset_index()
    legend = alt.Legend(symbolOpacity=1)
    domain = list(dict.fromkeys(table["device"])) if several else subject.frameworks
    ranges = list(look.DEVICE_DASHES[: len(domain)]) if several else subject.marks()[2]
    dashes = alt.StrokeDash(
        "device:N" if several else "framework_label:N",
        title=None,
        scale=alt.Scale(domain=domain, range=ranges),
        legend=alt.Legend(symbolOpacity=1, symbolSize=look.LINE) if several else legend,
    )
    first, last = int(table["epoch"].min()), int(table["epoch"].max())
    ticks = list(range(first, last + 1, max(1, math.ceil((last - first) / 7))))  # at most eight
    by_epoch = alt.X("epoch:Q", title="epoch", axis=alt.Axis(values=ticks, format="d"))
    by_time = alt.X("s:Q", title="seconds of training", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6))
    base = marks.chart(table).encode(x=by_time if timed else by_epoch)
    tint = marks.colour(subject, legend)
    y = alt.Y("mean:Q", title=name.replace("_", " "), scale=alt.Scale(zero=False, padding=6))
    band = base.mark_area(opacity=0.2).encode(y=alt.Y("min:Q"), y2="max:Q", color=tint)
    line = base.mark_line(strokeWidth=1.6).encode(y=y, color=tint, strokeDash=dashes)
    tooltip = "framework_label:N", "device:N", "epoch:Q", alt.Tooltip("mean:Q", format=".5~g")
    points = marks.points(base, subject, 45, legend, *tooltip, y=y)
    chart = alt.layer(band, line, points).properties(width=marks.panel_width(width, columns, 45) - 45, height=120)
    if not several:
        return marks.panels(chart, subject.conditions, columns, y="independent", x="independent")
    facet = alt.Facet("condition_label:N", sort=list(dict.fromkeys(table["condition_label"])), title=None)
    return chart.facet(facet=facet, columns=columns).resolve_scale(x="independent", y="independent")


def functions(subject: Subject, width: float, columns: int) -> Fields:
    """F11: shares of time by function, of each kind that a profiler counted; one profile per run, so no interval."""
    named = profiled(subject)
    if named.empty:
        return {}
    parts = {}
    for kind, (_, name) in TITLES.items():
        rows = named[named["kind"] == kind]
        if len(rows):
            parts[name] = _shares(subject, rows, kind, width, columns)
        busy = rows[~rows["name"].str.contains(WAITING)]
        if kind == "cuda-runtime" and 0 < len(busy) < len(rows):
            parts[f"{name.partition(',')[0]}, without waiting calls"] = _shares(subject, busy, kind, width, columns)
    return parts


def profiled(subject: Subject) -> pd.DataFrame:
    """The functions of the profiles of these cells, with LABELS; without columns if nothing was profiled."""
    profile = subject.study.profiled
    if profile.empty or "name" not in profile:
        return profile.iloc[:0]
    named = profile[profile["name"].notna() & profile["share"].notna()]
    return named.merge(subject.cells[[*CELL_KEYS, *LABELS]], on=list(CELL_KEYS))


def shares_of_time(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The share of each function, or class of kernels, of the time of these rows in each framework and condition."""
    rows = rows.assign(name=rows["kernel_class"] if kind == "kernel" else rows["name"].str.slice(0, 60))
    shares = rows.groupby([*LABELS, "name"], sort=False)["share"].sum().reset_index()
    return shares.assign(share=shares["share"] / shares.groupby(LABELS)["share"].transform("sum"))


def _shares(subject: Subject, rows: pd.DataFrame, kind: str, width: float, columns: int) -> alt.FacetChart:
    """A line per function, with its share of the time of these rows in each framework."""
    shares = shares_of_time(rows, kind)
    largest = shares.groupby("name")["share"].max()
    names = list(largest[largest >= LEAST].sort_values(ascending=False).index[:MOST_NAMES])
    shares["name"] = shares["name"].where(shares["name"].isin(names), "other")
    shares = shares.groupby([*LABELS, "name"], sort=False)["share"].sum().reset_index()
    order = [*names, *(["other"] if (shares["name"] == "other").any() else [])]
    x = alt.X("percent:Q", title="share of time, %", axis=alt.Axis(tickCount=5), scale=alt.Scale(zero=True))
    tips = "framework_label:N", "name:N", alt.Tooltip("percent:Q", title="%", format=".1f")
    return marks.dot_rows(shares.assign(percent=100 * shares["share"]), subject, x, order, width, columns, *tips)


def gains(subject: Subject, width: float, columns: int) -> Fields:
    """F10: the speed-up of a device over the CPU, of a precision or execution over fp32 eager; the time of a library over
    that of the plain framework; grey: not significant."""
    cells = list(subject.study.frame.itertuples())
    names = subject.cells.set_index("cell")[LABELS]
    disturbed = [disturbed_epochs(cell) == "all epochs" for cell in cells]
    parts = {}
    for name, compute in (SPEEDUPS | SLOWDOWNS).items():
        rows = []
        for place, ratio in subject.compared(compute).items():
            ends = [end if known(end) else None for end in (ratio.ratio_ci_low, ratio.ratio_ci_high)]
            value = ratio.ratio
            if name in SLOWDOWNS:
                value, ends = 1 / value, [end and 1 / end for end in reversed(ends)]
            low, high = ends
            shown = low is not None and high is not None and (low > 1 or high < 1)
            shown = shown and not disturbed[place] and not disturbed[ratio.base.Index]
            row = {"ratio": value, "low": low, "high": high, "shown": shown, "worse": False}
            rows.append({**dict(names.loc[place]), **row, "label": f"{value:.2f}x"})
        if rows:
            panel = marks.panel_width(width, columns, 90)
            layers = _bars(subject, rows, marks.framework_axis(subject), name, panel, "condition_label")
            parts[name] = marks.bar_panels(layers, subject, width, columns)
    gained = subject.study.gains
    faster = f"speed-up over the {'base' if one_at_a_time(gained.itertuples()) else 'previous rung'}"
    rungs = _rungs(subject, gained, faster, width, columns)
    return {**parts, **({faster: rungs} if rungs else {})}


def _rungs(subject: Subject, gained: pd.DataFrame, faster: str, width: float, columns: int) -> alt.FacetChart | None:
    """The gain of each rung of a ladder on the one that it changes, a panel per framework; None for other studies."""
    names = dict(zip(subject.cells["framework"], subject.cells["framework_label"]))
    if gained.empty or not gained["gain"].notna().any():
        return None
    rows = gained[gained["framework"].isin(list(names)) & gained["gain"].notna()]
    worse = rows["worse"].fillna(False).astype(bool)
    labels = [
        # Beside a gain that on the ladder's base, where that is another number.
        f"{gain:.2f}x{f', {whole:.2f}x so far' if known(whole) and f'{whole:.2f}' != f'{gain:.2f}' else ''}{' worse' * bad}"
        for gain, whole, bad in zip(rows["gain"], rows["gain_in_all"], worse)
    ]
    bars = {"ratio": rows["gain"], "low": rows["gain_low"], "high": rows["gain_high"], "label": labels, "worse": worse}
    rows = rows[["rung"]].assign(framework_label=rows["framework"].map(names), **bars)
    rows = rows.assign(shown=rows["low"].gt(1) | rows["high"].lt(1))
    order = list(gained["rung"].drop_duplicates())
    panel = marks.panel_width(width, columns, 110)
    y = alt.Y("rung:N", sort=order, title=None)
    layers = _bars(subject, rounded(rows), y, faster, panel, "framework_label")
    chart = alt.layer(*layers).properties(width=panel, height=20 * len(order) + 6)
    facet = alt.Facet("framework_label:N", sort=subject.frameworks, title=None)
    return chart.facet(facet=facet, columns=columns).resolve_scale(x="independent")


def _bars(subject: Subject, rows: pd.DataFrame, y: alt.Y, title: str, panel: float, by: str) -> list[Any]:
    """Ratios as bars with their intervals and labels, and a line where both are as fast; grey: no difference shown.

    by: the column of the panels.
    """
    rows = rounded(marks.cut(pd.DataFrame(rows), "ratio", "low", "high", by))
    farthest = [max(one for one in (row["ratio"], row["high"]) if known(one)) for row in rows]
    letters = [min(marks.LETTER * len(row["label"]) + 8, 0.75 * panel) for row in rows]
    rows = [{**row, "room": end * panel / (panel - taken)} for row, end, taken in zip(rows, farthest, letters)]
    every = marks.chart(rows)
    chart = every.encode(y=y)
    bars = chart.mark_bar(size=12).encode(
        x=alt.X("ratio:Q", title=title),
        color=alt.condition("datum.shown", marks.colour(subject), alt.value("#BBBBBB")),
        tooltip=["framework_label:N", "ratio:Q", "low:Q", "high:Q"],
    )
    texts = chart.transform_calculate(end="max(datum.ratio, datum.high)").mark_text(align="left", dx=4)
    ink = alt.condition("datum.worse", alt.value(look.WARNING), alt.value("#222222"))
    one = every.mark_rule(strokeDash=[3, 3], color="#555555").encode(x=alt.XDatum(1))
    room = chart.mark_point(opacity=0).encode(x="room:Q")
    ends = marks.interval(chart, "low", "high", "x", 2), marks.arrows(chart, "high", "x")
    return [bars, *ends, one, room, texts.encode(x="end:Q", text="label:N", color=ink)]
