"""Figures of training and of settings: loss (F8), batch sizes (F12), functions (F11), gains (F10), published ratios (F13)."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Tuple

import altair as alt

from framework_compare.report.figures import look
from framework_compare.report.figures.subject import Subject, known, rounded, speeds
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
from framework_compare.results import memory, ratios
from framework_compare.results import published as published_figures
from framework_compare.results.gains import one_at_a_time
from framework_compare.results.profiles import CELL_KEYS
from framework_compare.results.published import SETS

GIB = 2**30
LEAST = 0.01  # of the time, for a function to have a name in the figure
MOST_NAMES = 9
WAITING = "Synchronize"  # CUDA functions that hold up the host until the GPU is done
LETTER = 6.0  # points of width that a letter of a label takes at most
LEEWAY = 1.5  # how far the axes of published ratios go beyond the ratios, for their intervals
LEAST_SQUARE = 150.0  # points that a panel of published ratios takes at least
QUALITIES = ("train_", "validation_", "test_")
BASELINES = {"the CPU": ratios.speedups, "fp32 eager": ratios.ladder}
# The published tables: mean epoch seconds on a CPU and on a GPU (Lerat 2021, tables 1 and 2).
PUBLISHED = {"cpu": "lerat_table1_cpu.csv", "cuda": "lerat_table2_gpu.csv"}


def learning(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F8: the loss after each epoch, and every quality that the study has; the band is from run to run."""
    return _learning(subject, width, columns, timed=False)


def learning_over_time(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F8 over the seconds of training, mean over runs."""
    return _learning(subject, width, columns, timed=True)


def _learning(subject: Subject, width: float, columns: int, *, timed: bool) -> Dict[str, Any]:
    epochs = subject.of(subject.study.epochs).sort_values(["run_id", "epoch"])
    epochs = epochs.assign(trained_s=epochs.groupby("run_id")["epoch_s"].cumsum())
    names = ["loss", *(name for name in epochs.columns if name.startswith(QUALITIES))]
    parts = {}
    for name in names:
        rows = epochs[epochs[name].notna()]
        if rows["epoch"].nunique() > 1:
            parts[name.replace("_", " ")] = _curve(subject, rows, name, width, columns, timed=timed)
    return parts


def _curve(subject: Subject, rows: Any, name: str, width: float, columns: int, *, timed: bool) -> Any:
    cells = subject.cells
    several = cells["device"].nunique() > 1
    rows = rows.assign(device=rows["cell"].map(dict(zip(cells["cell"], cells["device"]))).map(look.title))
    if several:  # the curves of a CPU and of a GPU are to be compared: one panel has both
        rows = rows.assign(what=rows["cell"].map(dict(zip(cells["cell"], subject.without("device")))))
    keys = ["who", "what", "device", "epoch"]
    groups = rows.groupby(keys, sort=False)
    table = groups[name].agg(["mean", "min", "max"]).assign(s=groups["trained_s"].mean()).reset_index()
    legend = alt.Legend(symbolOpacity=1)
    domain = list(dict.fromkeys(table["device"])) if several else subject.who
    ranges = list(look.DASHES[: len(domain)]) if several else subject.marks()[2]
    dashes = alt.StrokeDash(
        "device:N" if several else "who:N", title=None, scale=alt.Scale(domain=domain, range=ranges), legend=legend
    )
    by_epoch = alt.X("epoch:Q", title="epoch", axis=alt.Axis(values=_ticks(table["epoch"]), format="d"))
    by_time = alt.X("s:Q", title="seconds of training", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6))
    base = alt.Chart(alt.InlineData(values=rounded(table))).encode(x=by_time if timed else by_epoch)
    tint = colour(subject, legend)
    y = alt.Y("mean:Q", title=name.replace("_", " "), scale=alt.Scale(zero=False))
    band = base.mark_area(opacity=0.2).encode(y=alt.Y("min:Q"), y2="max:Q", color=tint)
    line = base.mark_line(strokeWidth=1.6).encode(y=y, color=tint, strokeDash=dashes)
    points = base.mark_point(filled=True, size=45).encode(
        y=y,
        color=tint,
        shape=shape(subject, legend),
        tooltip=["who:N", "device:N", "epoch:Q", alt.Tooltip("mean:Q", format=".5~g")],
    )
    chart = alt.layer(band, line, points).properties(width=panel_width(width, columns, 45) - 45, height=120)
    if not several:
        return panels(chart, subject, columns, y="independent", x="independent")
    facet = alt.Facet("what:N", sort=list(dict.fromkeys(table["what"])), title=None)
    return chart.facet(facet=facet, columns=columns).resolve_scale(x="independent", y="independent")


def _ticks(epochs: Any) -> List[int]:
    """At most eight whole numbers from the first epoch to the last."""
    first, last = int(epochs.min()), int(epochs.max())
    return list(range(first, last + 1, max(1, math.ceil((last - first) / 7))))


def batch_sizes(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F12: a tile per batch size with its peak of memory or its status; images per second and memory over the size."""
    cells = speeds(subject.cells)
    if cells["batch_size"].nunique() < 2:
        return {}
    peaks, memory_name = memory.peaks(cells)
    rows = cells.assign(gib=peaks / GIB, model=subject.without("batch_size"))
    rows = rows[["who", "model", "batch_size", "status", "worked", "images_per_s", "gib", "slow", "fast", "disturbed"]]
    rows = cut(rows, "images_per_s", "slow", "fast", "model")
    told = [f"{gib:.2f}" if known(gib) else "ok" for gib in rows["gib"]]
    rows = rows.assign(told=[text if ok else status for text, ok, status in zip(told, rows["worked"], rows["status"])])
    every = alt.Chart(alt.InlineData(values=rounded(rows)))
    axis = alt.Axis(values=sorted(rows["batch_size"].unique().tolist()), format="d", labelOverlap=True)
    base = every.encode(x=alt.X("batch_size:Q", title="batch size", scale=alt.Scale(type="log", base=2), axis=axis))
    by_model = alt.Facet("model:N", sort=list(rows["model"].drop_duplicates()), title=None)
    parts = [_tiles(subject, every, width, columns).facet(facet=by_model, columns=columns)]
    limit = (subject.study.settings.get("limits") or {}).get("memory_bytes")
    for field, title in (("images_per_s", "images/s"), ("gib", f"peak {memory_name}, GiB")):
        legend = alt.Legend() if field == "gib" else None
        y, tint = alt.Y(f"{field}:Q", title=title), colour(subject, legend)
        drawn = base.transform_filter(f"datum.worked && isValid(datum.{field})").encode(y=y)
        marks = drawn.mark_point(filled=True, size=45).encode(
            color=tint,
            shape=shape(subject, legend),
            tooltip=["who:N", "batch_size:Q", f"{field}:Q"],
        )
        ends = drawn.transform_filter("isValid(datum.slow)").mark_rule(strokeWidth=1.5)
        ends = ends.encode(y="slow:Q", y2="fast:Q", color=tint)
        layers = [drawn.mark_line(strokeWidth=1.3).encode(color=tint), marks]
        if field == "images_per_s":
            layers += [ends, arrows(drawn, "fast", "y"), warned(drawn)]
        elif limit:
            layers.append(base.mark_rule(strokeDash=[4, 3], color=look.WARNING).encode(y=alt.YDatum(limit / GIB)))
        chart = alt.layer(*layers).properties(width=panel_width(width, columns, 45) - 45, height=120)
        parts.append(chart.facet(facet=by_model, columns=columns).resolve_scale(y="independent"))
    return {"": alt.vconcat(*parts).resolve_scale(color="independent", shape="independent")}


def _tiles(subject: Subject, base: Any, width: float, columns: int) -> Any:
    """One tile per framework and batch size: its peak of memory in GiB, darker for more, or its status."""
    base = base.encode(
        x=alt.X("batch_size:O", title="batch size", axis=alt.Axis(labelAngle=0)), y=framework_axis(subject)
    )
    empty = base.mark_rect(stroke="white", strokeWidth=2, color="#EEEEEE")
    scale = alt.Scale(range=["#F3F8FC", "#6FA8D6"], zero=True)
    full = base.transform_filter("datum.worked && isValid(datum.gib)").mark_rect(stroke="white", strokeWidth=2)
    full = full.encode(color=alt.Color("gib:Q", scale=scale, legend=None), tooltip=["who:N", "batch_size:O", "told:N"])
    ink = alt.condition("datum.worked", alt.value("#111111"), alt.value(look.WARNING))
    chart = alt.layer(empty, full, base.mark_text().encode(text="told:N", color=ink))
    return chart.properties(width=panel_width(width, columns, 90), height=22 * len(subject.who))


def functions(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F11: shares of time by function, of each kind that a profiler counted; one profile per run, so no interval."""
    from framework_compare.report.profile_table import TITLES

    profile = subject.study.profiled
    if profile.empty or "name" not in profile:
        return {}
    named = profile[profile["name"].notna() & profile["share"].notna()]
    named = named.merge(subject.cells[[*CELL_KEYS, "who", "what"]], on=list(CELL_KEYS))
    parts = {}
    for kind, (_, title) in TITLES.items():
        rows = named[named["kind"] == kind]
        if len(rows):
            parts[title] = _shares(subject, rows, kind, width, columns)
        busy = rows[~rows["name"].str.contains(WAITING)]
        if kind == "cuda-runtime" and 0 < len(busy) < len(rows):
            parts[f"{title.partition(',')[0]}, without waiting calls"] = _shares(subject, busy, kind, width, columns)
    return parts


def _shares(subject: Subject, rows: Any, kind: str, width: float, columns: int) -> Any:
    """One bar per framework, of its shares of the time of these rows."""
    rows = rows.assign(name=rows["kernel_class"] if kind == "kernel" else rows["name"].str.slice(0, 60))
    shares = rows.groupby(["who", "what", "name"], sort=False)["share"].sum().reset_index()
    shares["share"] /= shares.groupby(["who", "what"])["share"].transform("sum")
    largest = shares.groupby("name")["share"].max()
    names = list(largest[largest >= LEAST].sort_values(ascending=False).index[:MOST_NAMES])
    shares["name"] = shares["name"].where(shares["name"].isin(names), "other")
    shares = shares.groupby(["who", "what", "name"], sort=False)["share"].sum().reset_index()
    order = [*names, "other"]
    shares["place"] = shares["name"].map(order.index)
    bars = (
        alt.Chart(alt.InlineData(values=rounded(shares)))
        .mark_bar(stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X("share:Q", title="share of time", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            y=framework_axis(subject),
            order=alt.Order("place:Q"),
            color=alt.Color(
                "name:N",
                sort=order,
                scale=alt.Scale(domain=order, range=list(look.STACK)),
                title=None,
                legend=alt.Legend(columns=2),
            ),
            tooltip=["who:N", "name:N", alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(width=panel_width(width, columns, 90), height=20 * len(subject.who) + 6)
    )
    return panels(bars, subject, columns)


def gains(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F10: how many times faster a device is than the CPU, a precision or execution than fp32 eager; grey: not shown."""
    cells = list(subject.study.frame.itertuples())
    blocks = subject.study.block_times
    names = subject.cells.set_index("cell")[["who", "what"]]
    parts = {}
    for base, compute in BASELINES.items():
        rows = []
        for place, ratio in compute(cells, blocks).items():
            if ratio.base.Index == place or not known(ratio.ratio) or place not in names.index:
                continue
            low, high = (end if known(end) else None for end in (ratio.ratio_ci_low, ratio.ratio_ci_high))
            who, what = names.loc[place]
            shown = low is not None and high is not None and (low > 1 or high < 1)
            rows.append({"who": who, "what": what, "ratio": ratio.ratio, "low": low, "high": high, "shown": shown})
        if rows:
            parts[f"times faster than {base}"] = _gain(subject, rows, base, width, columns)
    gained = subject.study.gains
    faster = f"times faster than the {'base' if one_at_a_time(gained.itertuples()) else 'rung before'}"
    rungs = _rungs(subject, gained, faster, width, columns)
    return {**parts, **({faster: rungs} if rungs else {})}


def _rungs(subject: Subject, gained: Any, faster: str, width: float, columns: int) -> Any:
    """Of a ladder the gain of each rung on the one that it changes, a panel per framework; None of other studies."""
    names = dict(zip(subject.cells["framework"], subject.cells["who"]))
    if gained.empty or not gained["gain"].notna().any():
        return None
    rows = gained[gained["framework"].isin(list(names)) & gained["gain"].notna()]
    low, high = rows["gain_low"], rows["gain_high"]
    worse = rows["worse"].fillna(False).astype(bool)
    rows = rows.assign(
        who=rows["framework"].map(names),
        ratio=rows["gain"],
        low=low,
        high=high,
        shown=low.gt(1) | high.lt(1),
        label=[
            f"{gain:.2f}x{_so_far(gain, whole)}{' worse' if bad else ''}"
            for gain, whole, bad in zip(rows["gain"], rows["gain_in_all"], worse)
        ],
        worse=worse,
    )[["who", "rung", "ratio", "low", "high", "shown", "label", "worse"]]
    order = list(gained["rung"].drop_duplicates())
    panel = panel_width(width, columns, 110)
    y = alt.Y("rung:N", sort=order, title=None)
    layers = _bars(subject, rounded(rows), y, faster, panel, "who")
    chart = alt.layer(*layers).properties(width=panel, height=20 * len(order) + 6)
    facet = alt.Facet("who:N", sort=subject.who, title=None)
    return chart.facet(facet=facet, columns=columns).resolve_scale(x="independent")


def _so_far(gain: float, whole: float) -> str:
    """The gain on the ladder's base, of rungs after the second, where it is another number."""
    return f", {whole:.2f}x so far" if known(whole) and f"{whole:.2f}" != f"{gain:.2f}" else ""


def _gain(subject: Subject, rows: List[Dict[str, Any]], base: str, width: float, columns: int) -> Any:
    rows = [{**row, "label": f"{row['ratio']:.2f}x", "worse": False} for row in rows]
    panel = panel_width(width, columns, 90)
    layered = alt.layer(*_bars(subject, rows, framework_axis(subject), f"times faster than {base}", panel, "what"))
    layered = layered.properties(width=panel, height=20 * len(subject.who) + 6)
    return panels(layered, subject, columns, x="independent")


def _bars(subject: Subject, rows: Any, y: alt.Y, title: str, panel: float, by: str) -> List[Any]:
    """Ratios as bars with their intervals and labels, and a line where both are as fast; grey: no difference shown.

    by: the column of the panels.
    """
    import pandas as pd

    rows = rounded(cut(pd.DataFrame(rows), "ratio", "low", "high", by))
    ends = [max(one for one in (row["ratio"], row["high"]) if known(one)) for row in rows]
    letters = [min(LETTER * len(row["label"]) + 8, 0.75 * panel) for row in rows]
    rows = [{**row, "room": end * panel / (panel - taken)} for row, end, taken in zip(rows, ends, letters)]
    every = alt.Chart(alt.InlineData(values=rows))
    chart = every.encode(y=y)
    bars = chart.mark_bar(size=12).encode(
        x=alt.X("ratio:Q", title=title),
        color=alt.condition("datum.shown", colour(subject), alt.value("#BBBBBB")),
        tooltip=["who:N", "ratio:Q", "low:Q", "high:Q"],
    )
    intervals = chart.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    texts = chart.transform_calculate(end="max(datum.ratio, datum.high)").mark_text(align="left", dx=4)
    ink = alt.condition("datum.worse", alt.value(look.WARNING), alt.value("#222222"))
    one = every.mark_rule(strokeDash=[3, 3], color="#555555").encode(x=alt.XDatum(1))
    room = chart.mark_point(opacity=0).encode(x="room:Q")
    return [bars, intervals, arrows(chart, "high", "x"), one, room, texts.encode(x="end:Q", text="label:N", color=ink)]


def published(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F13: the ratio to PyTorch in the published tables, and in this study; on the line both are equal."""
    rows = []
    for cell in subject.worked.itertuples():
        pair = _published_pair(subject, cell)
        if pair:
            rows.append({"who": cell.who, "what": cell.what, **pair, "disturbed": cell.disturbed})
    if not rows:
        return {}
    values = [row[name] for row in rows for name in ("published", "here")]
    domain = [min(min(values) / LEEWAY, 0.8), max(max(values) * LEEWAY, 1.25)]
    rows = [{**row, **_within(row, domain)} for row in rows]
    scale = alt.Scale(type="log", domain=domain, nice=False)
    x = alt.X("published:Q", scale=scale, title="published", axis=alt.Axis(tickCount=5))
    y = alt.Y("here:Q", scale=scale, title="here", axis=alt.Axis(tickCount=5))
    # One table for all layers: a facet splits no layer that has data of its own.
    who = [name for name in subject.who if name in {row["who"] for row in rows}]
    diagonal = [{"who": name, "published": end, "here": end, "line": True} for name in who for end in domain]
    every = alt.Chart(alt.InlineData(values=[*rows, *diagonal])).encode(x=x, y=y)
    base = every.transform_filter("!datum.line")
    tint, kind = colour(subject), alt.Scale(domain=subject.what, range=_shapes(len(subject.what)))
    points = base.mark_point(filled=True, size=80).encode(
        color=tint,
        shape=alt.Shape(
            "what:N", sort=subject.what, title=None, scale=kind, legend=alt.Legend(symbolFillColor="#444444")
        ),
        tooltip=["who:N", "what:N", alt.Tooltip("published:Q", format=".3~g"), alt.Tooltip("here:Q", format=".3~g")],
    )
    ends = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.5)
    ends = ends.encode(y=alt.Y("low:Q", scale=scale), y2="high:Q", color=tint)
    line = every.transform_filter("datum.line").mark_line(color="#999999", strokeDash=[4, 3])
    across = max(1, min(len(who), int(width / LEAST_SQUARE)))
    size = min(panel_width(width, across, 60) - 30, 260)
    above = arrows(base, "high", "y")
    below = base.transform_filter("datum.low_cut").mark_point(
        shape="triangle-down", filled=True, size=45, color="#444444"
    )
    layers = line, ends, points, above, below.encode(y=alt.Y("low:Q", scale=scale)), warned(base)
    chart = alt.layer(*layers).properties(width=size, height=size)
    facet = alt.Facet("who:N", sort=who, title="epoch time over PyTorch's, published and here")
    return {"": chart.facet(facet=facet, columns=across)}


def _within(row: Dict[str, Any], domain: List[float]) -> Dict[str, Any]:
    """The interval of a row within the axis, and which of its ends are cut."""
    if row["low"] is None:
        return {"low_cut": False, "high_cut": False}
    cut_ends = {"low_cut": row["low"] < domain[0], "high_cut": row["high"] > domain[1]}
    return {"low": max(row["low"], domain[0]), "high": min(row["high"], domain[1]), **cut_ends}


def _shapes(count: int) -> List[str]:
    return [look.SHAPES[place % len(look.SHAPES)] for place in range(count)]


def _published_pair(subject: Subject, cell: Any) -> Dict[str, Any]:
    """The epoch time of a cell over that of PyTorch, published and here, with its interval; {} where one is not known."""
    table = published_seconds(cell.device.partition(":")[0])
    dataset = SETS.get(cell.dataset)
    ours = subject.worked[(subject.worked["what"] == cell.what) & (subject.worked["framework"] == "torch")]
    keys = [(name, cell.model, str(dataset)) for name in (cell.framework, "torch")]
    if cell.framework == "torch" or not len(ours) or not all(key in table for key in keys):
        return {}
    verdict = subject.against(cell, "torch")
    here = cell.epoch_s_median / ours["epoch_s_median"].iloc[0] if verdict is None else verdict.ratio
    ends = {"low": verdict and verdict.low, "high": verdict and verdict.high}
    return {"published": table[keys[0]] / table[keys[1]], "here": here, **ends}


def published_seconds(device: str) -> Dict[Tuple[str, str, str], float]:
    """Published mean epoch seconds by framework, model and data set; empty for another device."""
    return published_figures.epoch_seconds(PUBLISHED[device]) if device in PUBLISHED else {}
