"""Figures of time: the overview of ratios (F1), epoch times (F2), the order of epochs (F7)."""

import math

import altair as alt
import pandas as pd

from framework_compare.protocol import Fields
from framework_compare.report.figures import look, marks
from framework_compare.report.figures.subject import LABELS, Subject
from framework_compare.report.study import rounded
from framework_compare.report.tables import ABOUT, known
from framework_compare.results.columns import Record
from framework_compare.results.repeats import disturbed_throughout

LINE = 13  # points from one line of a heading to the next
LINE_PER_STEP = 0.19  # letters of a heading for each point of its width
MAX_DOTS = 500  # single epochs in a figure
UNFINISHED = ["planned", "running"]
LABEL = 51  # points that the label of a cell takes, with the gap before it
GAP = 11  # points from the edge of a panel to its labels: half a mark reaches over the edge
MEAN = "geometric mean"
TOOLTIP: tuple[tuple[str, str, Fields], ...] = (
    ("framework_label:N", "framework", {}),
    ("s:Q", "s per epoch", {"format": ".4~g"}),
    ("interval:N", "95 % interval", {}),
    ("label:N", "ratio to the fastest", {}),
    ("images_per_s:Q", "images/s", {"format": ".4~g"}),
    ("runs_ok:Q", "runs", {}),
    ("disturbed:N", "disturbed", {}),
)


def overview(subject: Subject, width: float, columns: int) -> Fields:
    """F1: the ratio of each cell to the fastest of its column, with its interval."""
    rows = [_overview_row(subject, cell) for cell in subject.judged.itertuples()] + _geometric_means(subject)
    conditions = [*subject.conditions, *([MEAN] if len(subject.conditions) > 1 else [])]
    step = max(60.0, min(130.0, (width - 90) / len(conditions)))
    if len(conditions) > 1 and 90 + step * len(conditions) > width:
        # They do not fit beside each other: as many as fit, then the next ones below.
        tiles = tiles_of(marks.chart(rows).encode(y=marks.framework_axis(subject)))
        tiles = tiles.properties(width=72, height=36 * len(subject.frameworks))
        return {"": marks.panels(tiles, conditions, max(1, int((width - 90) / 84)))}
    flat = step * LINE_PER_STEP > max(len(line) for name in conditions for line in name.split(", "))
    means = {row["framework_label"]: row["ratio"] for row in rows if row["condition_label"] == MEAN and row["ratio"]}
    by_mean = sorted(subject.frameworks, key=lambda name: means.get(name, math.inf))
    # Lines after the first would grow down into the tiles.
    lines = max(name.count(", ") for name in conditions)
    axis = alt.Axis(
        orient="top",
        labelAngle=0 if flat else -30,
        labelExpr="split(datum.label, ', ')",
        labelOverlap=False,
        labelPadding=(4 if flat else 10) + LINE * lines,
        ticks=flat,
    )
    base = marks.chart(rows).encode(
        x=alt.X("condition_label:N", sort=conditions, title=None, axis=axis),
        y=alt.Y("framework_label:N", sort=by_mean, title=None),
    )
    return {"": tiles_of(base).properties(width=step * len(conditions), height=36 * len(subject.frameworks))}


def tiles_of(base: alt.Chart) -> marks.Layers:
    """A tile for each row: its ratio with its interval, on a grey that is darker for a slower cell."""
    shades = alt.Scale(type="log", domain=[1, 4], range=list(look.TILES), clamp=True)
    named = "datum.value == 4 ? '≥ 4x' : datum.value + 'x'"
    legend = alt.Legend(title="slowdown", values=[1, 2, 4], labelExpr=named, gradientLength=120, titleLimit=80)
    empty = base.mark_rect(stroke="white", strokeWidth=2, color="#EEEEEE")
    tips = (("framework_label:N", "framework"), ("condition_label:N", "model"), ("full:N", " "))
    tiles = base.transform_filter("isValid(datum.ratio)").mark_rect(stroke="white", strokeWidth=2)
    tiles = tiles.encode(
        color=alt.Color("ratio:Q", scale=shades, legend=legend),
        tooltip=[alt.Tooltip(field, title=title) for field, title in tips],
    )
    ratio = base.mark_text(dy=-5).encode(
        text="text:N", color=alt.condition("datum.bad", alt.value(look.WARNING), alt.value("#111111"))
    )
    first = ratio.transform_filter("datum.fastest").mark_text(dy=-5, fontWeight="bold")
    interval = base.mark_text(dy=8, color="#444444").encode(text="interval:N")
    return alt.layer(empty, tiles, ratio.transform_filter("!datum.fastest"), first, interval)


def _overview_row(subject: Subject, cell: Record) -> Fields:
    row = {name: getattr(cell, name) for name in LABELS}
    row.update(interval="", fastest=False, bad=False, ratio=None)
    if not cell.worked:
        return {**row, "text": cell.status, "full": str(cell.status), "bad": cell.status not in UNFINISHED}
    verdict = cell.verdict
    shown = verdict is None or verdict.shown or cell.best == 1
    throughout = disturbed_throughout(cell.epochs_disturbed, cell.epochs_measured)
    text = f"{'' if shown else '~ '}{cell.best:.2f}x{' !' if throughout else ''}"
    interval = "" if verdict is None or verdict.low is None else f"[{verdict.low:.2f}, {verdict.high:.2f}]"
    full = f"{ABOUT * cell.about}{cell.epoch_s_median:.3g} s, {text} {interval}"
    shown_as = {"text": text, "interval": interval, "full": full, "unsure": not shown, "throughout": throughout}
    return {**row, **shown_as, "ratio": float(cell.best), "fastest": bool(cell.fastest)}


def _geometric_means(subject: Subject) -> list[Fields]:
    """The geometric mean of the ratios, of frameworks that have all the columns that any of them has."""
    if len(subject.conditions) < 2:
        return []
    rows = []
    for framework in subject.frameworks:
        ratios = subject.judged[subject.judged["worked"] & (subject.judged["framework_label"] == framework)]["best"]
        mean = math.exp(ratios.map(math.log).mean()) if len(ratios) else None
        count = f"{len(ratios)} of {len(subject.conditions)}"
        whole = len(ratios) == len(subject.conditions)
        text = f"{mean:.2f}x" if mean and whole else "-"
        row = {"framework_label": framework, "condition_label": MEAN, "ratio": mean if whole else None, "text": text}
        rows.append({**row, "interval": f"{count} cells", "full": text, "fastest": False, "bad": False})
    return rows


def epoch_time(subject: Subject, width: float, columns: int, *, speed: bool = False) -> Fields:
    """F2: the epoch time of each framework with its interval over runs, and the single epochs as dots.

    speed: images per second instead.
    """
    title = "images per second" if speed else "seconds per epoch"
    cells = _clipped(subject, speed)
    dots = _dots(subject, cells, speed)
    cells["start"] = 0.0  # where the axis begins, and the status of a failed cell
    # One table for all layers: a facet splits no layer that has data of its own.
    rows = [*rounded(cells.assign(kind="cell")), *rounded(dots)]
    every = marks.chart(rows).encode(y=marks.framework_axis(subject))
    base = every.transform_filter("datum.kind == 'cell'")
    tint = marks.colour(subject)
    dots = every.transform_filter("datum.kind == 'epoch'").mark_circle(size=9, opacity=0.55)
    offset = alt.YOffset("offset:Q", scale=alt.Scale(domain=[-12, 12], range=[4, 20]))
    points = base.transform_filter("isValid(datum.x)").mark_point(size=80, strokeWidth=2, fillOpacity=1)
    # Outside of the panel: beside an epoch they would read as its label.
    labels = base.transform_filter("isValid(datum.x)").mark_text(align="left", dx=GAP)
    panel = marks.panel_width(width, columns, 90 + LABEL * columns)
    failed = base.transform_filter("!datum.worked").mark_text(align="left", dx=3)
    ink = alt.condition(alt.FieldOneOfPredicate("status", UNFINISHED), alt.value(look.GREY), alt.value(look.WARNING))
    layers = [
        dots.encode(x="x:Q", yOffset=offset, color=alt.Color("tint:N", scale=None)),
        marks.interval(base, "low", "high", "x", 3, color=tint),
        points.encode(
            x=alt.X("x:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=10)),
            stroke=tint,
            shape=marks.shape(subject),
            fill=alt.condition("isValid(datum.low)", tint, alt.value("white")),
            tooltip=[alt.Tooltip(field, title=name, **form) for field, name, form in TOOLTIP],
        ),
        marks.arrows(base, "high", "x"),
        marks.warned(base, x="x:Q"),
        labels.encode(x=alt.value(panel), text="label:N"),
        failed.encode(x="start:Q", text="status:N", color=ink),
    ]
    chart = alt.layer(*layers).properties(width=panel, height=alt.Step(24))
    return {"": marks.panels(chart, subject.conditions, columns, x="independent")}


def _clipped(subject: Subject, speed: bool) -> pd.DataFrame:
    """Cells with x (seconds, or images per second), low, high and the right end of each, cut where one interval would
    set the axis of all."""
    seconds = {"epoch_s_median": "s", "epoch_s_ci_low": "low", "epoch_s_ci_high": "high"}
    others = ("cell", *LABELS, "status", "worked", "disturbed", "runs_ok", "images_per_s", "best", "about")
    cells = subject.judged[[*others, *seconds]].rename(columns=seconds)
    for name in ("s", "low", "high"):  # a cell that lacks a run has an interval of the others, and no figure
        cells[name] = cells[name].where(cells["worked"])
    cells["interval"] = [
        f"{low:.4g} to {high:.4g} s" if known(low) else "none" for low, high in zip(cells["low"], cells["high"])
    ]
    cells["x"] = cells["s"]
    if speed:
        images = cells["images_per_s"] * cells["s"]
        cells = cells.assign(x=cells["images_per_s"], low=images / cells["high"], high=images / cells["low"])
    cells = marks.cut(cells, "x", "low", "high")
    cells["most"] = marks.CLIP * cells.groupby("condition_label")["x"].transform("max")
    cells["label"] = [
        f"{ABOUT * about}{ratio:.2f}x" if known(ratio) else "" for about, ratio in zip(cells["about"], cells["best"])
    ]
    return cells


def _dots(subject: Subject, cells: pd.DataFrame, speed: bool) -> alt.Chart:
    """Single epochs, none beyond the axis that the cells set; offsets by their order, so that they are the same."""
    epochs = subject.whole_epochs()
    epochs = epochs.join(
        cells.assign(of_epoch=cells["s"] * cells["images_per_s"]).set_index("cell")[["most", "of_epoch"]], on="cell"
    )
    epochs = epochs.assign(x=epochs["of_epoch"] / epochs["epoch_s"] if speed else epochs["epoch_s"])
    epochs = epochs[epochs["x"] <= epochs["most"]].groupby("cell").head(max(4, MAX_DOTS // max(1, len(cells))))
    order = epochs.groupby("cell").cumcount()
    tint = epochs["disturbed"].eq(1).map({True: look.WARNING, False: "#555555"})
    dots = epochs.assign(kind="epoch", offset=((order * 0.618034) % 1 - 0.5) * 16, tint=tint)
    return dots[["kind", *LABELS, "x", "offset", "tint"]]


def machine(subject: Subject, width: float, columns: int) -> Fields:
    """F7: every epoch in the order of time, over the median of its cell; below, what others took of the CPU."""
    epochs = subject.whole_epochs()
    if epochs.empty:
        return {}
    started = epochs["run_id"].map(subject.study.runs.set_index("run_id")["started_s"])
    median = epochs.groupby("cell")["epoch_s"].transform("median")
    minutes = (started - started.min() + epochs["start_s"]) / 60
    rows = epochs.assign(minute=minutes, relative=epochs["epoch_s"] / median, marked=epochs["disturbed"].eq(1))
    rows = rows[[*LABELS, "minute", "relative", "marked", "disturbed_share", "repeat", "epoch"]].dropna(subset="minute")
    title = "minutes since the first run began"
    last = rows["minute"].max()
    scale = alt.Scale(domain=[0, 1.02 * last]) if last > 0 else alt.Scale(domainMin=0)  # NaN if no run has a start
    x = alt.X("minute:Q", title=title, scale=scale, axis=alt.Axis(tickCount=10))
    base = marks.chart(rows).encode(x=x)
    tint = marks.colour(subject, alt.Legend())
    points = base.mark_point(size=40, strokeWidth=1.4, fillOpacity=1).encode(
        y=alt.Y("relative:Q", title="relative to median", scale=alt.Scale(zero=False, nice=True, padding=8)),
        color=tint,
        fill=alt.condition("datum.marked", alt.value("white"), tint),
        shape=marks.shape(subject, alt.Legend()),
        tooltip=[
            *"framework_label:N condition_label:N repeat:Q epoch:Q".split(),
            alt.Tooltip("relative:Q", format=".3f"),
        ],
    )
    chart = points.properties(width=width - 80, height=150)
    if not rows["disturbed_share"].notna().any():
        return {"": chart}
    chart = chart.encode(x=x.axis(None))  # it has that of the chart below
    taken = alt.Y("percent:Q", title="other CPU, %", axis=alt.Axis(tickCount=4))
    others = base.transform_filter("isValid(datum.disturbed_share)").mark_bar(size=3, color=look.GREY).encode(y=taken)
    others = others.transform_calculate(percent="100 * datum.disturbed_share")
    return {"": alt.vconcat(chart, others.properties(width=width - 80, height=60)).resolve_scale(x="shared")}
