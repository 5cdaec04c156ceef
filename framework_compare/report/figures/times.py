"""Figures of time: the overview of ratios (F1), epoch times (F2), the order of epochs (F7)."""

from __future__ import annotations

import math
from typing import Any, Dict, List

import altair as alt

from framework_compare.report.figures import look
from framework_compare.report.figures.subject import Subject, known, rounded

LINE = 13  # points from one line of a heading to the next
LINE_PER_STEP = 0.19  # letters of a heading for each point of its width
CLIP = 1.5  # an interval longer than this times the largest figure of its panel ends in an arrow
MAX_DOTS = 500  # single epochs in a figure
UNFINISHED = ["planned", "running"]
LABEL = 45  # points that the label of a cell takes
LOG_FROM = 20  # times the least figure of a panel: where the most is more, a logarithmic axis is offered


def framework_axis(subject: Subject, **options: Any) -> alt.Y:
    return alt.Y("who:N", sort=subject.who, title=None, **options)


def colour(subject: Subject, legend: Any = None) -> alt.Color:
    return alt.Color("who:N", scale=alt.Scale(domain=subject.who, range=subject.marks()[0]), legend=legend, title=None)


def shape(subject: Subject, legend: Any = None) -> alt.Shape:
    return alt.Shape("who:N", scale=alt.Scale(domain=subject.who, range=subject.marks()[1]), legend=legend, title=None)


def warned(base: Any, **place: Any) -> Any:
    """A red triangle over each cell that others disturbed; `base` has its rows, with `disturbed`, and `place` its axes."""
    marks = base.transform_filter("isValid(datum.disturbed) && datum.disturbed != ''")
    return marks.mark_text(text="▲", dy=-10, color=look.WARNING, fontSize=9).encode(**place)


def cut(rows: Any, value: str, low: str, high: str, panel: str = "what") -> Any:
    """Rows whose intervals from `low` to `high` end where they would set the axis of all of a panel's `value`; the column
    high_cut (of its name) says which do."""
    if rows.empty:
        return rows.assign(**{f"{high}_cut": False})
    most = CLIP * rows.groupby(panel)[value].transform("max")
    ends = {name: rows[name].astype(float) for name in (low, high)}
    kept = {name: end.where(~end.gt(most), most) for name, end in ends.items()}
    return rows.assign(**kept, **{f"{high}_cut": ends[high].gt(most)})


def arrows(base: Any, high: str, axis: str) -> Any:
    """An arrow at the end of each interval that `cut` has cut; axis: "x" or "y"."""
    towards = "triangle-right" if axis == "x" else "triangle-up"
    marks = base.transform_filter(f"datum.{high}_cut").mark_point(shape=towards, filled=True, size=45, color="#444444")
    return marks.encode(**{axis: f"{high}:Q"})


def panels(chart: Any, subject: Subject, columns: int, **independent: Any) -> Any:
    """One panel for each `what`, in the study's order."""
    header = alt.Facet("what:N", sort=subject.what, title=None, header=alt.Header(labelLimit=280))
    faceted = chart.facet(facet=header, columns=columns, spacing={"row": 16, "column": 16})
    return faceted.resolve_scale(**independent) if independent else faceted


def overview(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F1: the ratio of each cell to the fastest of its column, with its interval."""
    rows = [_overview_row(subject, cell) for cell in subject.judged.itertuples()] + _geometric_means(subject)
    what = [*subject.what, *(["geometric mean"] if len(subject.what) > 1 else [])]
    step = max(60.0, min(130.0, (width - 90) / len(what)))
    flat = step * LINE_PER_STEP > max(len(line) for name in what for line in name.split(", "))
    # Lines after the first would grow down into the tiles.
    lines = max(name.count(", ") for name in what)
    axis = alt.Axis(
        orient="top",
        labelAngle=0 if flat else -30,
        labelExpr="split(datum.label, ', ')",
        labelOverlap=False,
        labelPadding=(4 if flat else 10) + LINE * lines,
        ticks=flat,
    )
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("what:N", sort=what, title=None, axis=axis),
        y=alt.Y("who:N", sort=_by_mean(rows, subject.who), title=None),
    )
    scale = alt.Scale(type="log", domain=[1, 4], range=["#F3F8FC", "#6FA8D6"], clamp=True)
    empty = base.mark_rect(stroke="white", strokeWidth=2, color="#EEEEEE")
    tiles = (
        base.transform_filter("isValid(datum.ratio)")
        .mark_rect(stroke="white", strokeWidth=2)
        .encode(
            color=alt.Color("ratio:Q", scale=scale, legend=None),
            tooltip=[
                alt.Tooltip("who:N", title="framework"),
                alt.Tooltip("what:N", title="model"),
                alt.Tooltip("full:N", title=" "),
            ],
        )
    )
    ratio = base.mark_text(dy=-5).encode(
        text="text:N", color=alt.condition("datum.bad", alt.value(look.WARNING), alt.value("#111111"))
    )
    first = ratio.transform_filter("datum.fastest").mark_text(dy=-5, fontWeight="bold")
    interval = base.mark_text(dy=8, color="#444444").encode(text="interval:N")
    chart = alt.layer(empty, tiles, ratio.transform_filter("!datum.fastest"), first, interval)
    return {"": chart.properties(width=step * len(what), height=36 * len(subject.who))}


def _overview_row(subject: Subject, cell: Any) -> Dict[str, Any]:
    row = {"who": cell.who, "what": cell.what, "interval": "", "fastest": False, "bad": False, "ratio": None}
    if not cell.worked:
        return {**row, "text": cell.status, "full": str(cell.status), "bad": cell.status not in UNFINISHED}
    verdict = cell.verdict
    shown = verdict is None or verdict.shown or cell.best == 1
    text = f"{'' if shown else '~ '}{cell.best:.2f}x{' !' if cell.disturbed == 'all epochs' else ''}"
    interval = "" if verdict is None or verdict.low is None else f"[{verdict.low:.2f}, {verdict.high:.2f}]"
    full = f"{cell.about}{cell.epoch_s_median:.3g} s, {text} {interval}"
    return {
        **row,
        "ratio": float(cell.best),
        "text": text,
        "interval": interval,
        "full": full,
        "fastest": bool(cell.fastest),
    }


def _geometric_means(subject: Subject) -> List[Dict[str, Any]]:
    """The geometric mean of the ratios, of frameworks that have all the columns that any of them has."""
    if len(subject.what) < 2:
        return []
    rows = []
    for who in subject.who:
        ratios = subject.judged[subject.judged["worked"] & (subject.judged["who"] == who)]["best"]
        mean = math.exp(ratios.map(math.log).mean()) if len(ratios) else None
        count = f"{len(ratios)} of {len(subject.what)}"
        whole = len(ratios) == len(subject.what)
        text = f"{mean:.2f}x" if mean and whole else "-"
        row = {"who": who, "what": "geometric mean", "ratio": mean if whole else None, "text": text}
        rows.append({**row, "interval": f"{count} cells", "full": text, "fastest": False, "bad": False})
    return rows


def _by_mean(rows: List[Dict[str, Any]], who: List[str]) -> List[str]:
    means = {row["who"]: row["ratio"] for row in rows if row["what"] == "geometric mean" and row["ratio"]}
    return sorted(who, key=lambda name: means.get(name, math.inf))


def epoch_time(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F2: the epoch time of each framework with its interval over runs, and the single epochs as dots."""
    return _epochs(subject, width, columns, speed=False)


def epoch_time_log(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F2 on a logarithmic axis; none where a linear one tells all figures of a panel apart."""
    seconds = subject.worked.groupby("what")["epoch_s_median"].agg(["min", "max"])
    apart = (seconds["max"] / seconds["min"]).gt(LOG_FROM).any()
    return _epochs(subject, width, columns, speed=False, log=True) if apart else {}


def epoch_speed(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F2 as images per second."""
    return _epochs(subject, width, columns, speed=True)


def _epochs(subject: Subject, width: float, columns: int, *, speed: bool, log: bool = False) -> Dict[str, Any]:
    title = "images per second" if speed else "seconds per epoch"
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=True)
    cells = _clipped(subject, speed)
    dots = _dots(subject, cells, speed)
    # Where the axis begins, and the status of a failed cell.
    least = cells.groupby("what")["x"].transform("min").fillna(cells["x"].min())
    cells["start"] = least / 2 if log else 0.0
    # One table for all layers: a facet splits no layer that has data of its own.
    rows = [*rounded(cells.assign(kind="cell")), *rounded(dots)]
    every = alt.Chart(alt.InlineData(values=rows)).encode(y=framework_axis(subject))
    base = every.transform_filter("datum.kind == 'cell'")
    tint = colour(subject)
    dots = every.transform_filter("datum.kind == 'epoch'").mark_circle(size=9, opacity=0.55)
    offset = alt.YOffset("offset:Q", scale=alt.Scale(domain=[-12, 12], range=[4, 20]))
    interval = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=3)
    points = base.transform_filter("isValid(datum.x)").mark_point(size=80, strokeWidth=2, fillOpacity=1)
    # Outside of the panel: beside an epoch they would read as its label.
    labels = base.transform_filter("isValid(datum.x)").mark_text(align="left", dx=5)
    panel = panel_width(width, columns, 90 + LABEL * columns)
    arrows = base.transform_filter("datum.cut").mark_point(
        shape="triangle-right", filled=True, size=60, color="#444444"
    )
    failed = base.transform_filter("!datum.worked").mark_text(align="left", dx=3)
    ink = alt.condition(alt.FieldOneOfPredicate("status", UNFINISHED), alt.value(look.GREY), alt.value(look.WARNING))
    layers = [
        dots.encode(x="x:Q", yOffset=offset, color=alt.Color("tint:N", scale=None)),
        *([base.mark_point(opacity=0).encode(x="start:Q")] if log else []),
        interval.encode(x="low:Q", x2="high:Q", color=tint),
        points.encode(
            x=alt.X("x:Q", title=title, scale=scale, axis=alt.Axis(tickCount=10)),
            stroke=tint,
            shape=shape(subject),
            fill=alt.condition("isValid(datum.low)", tint, alt.value("white")),
            tooltip=_epoch_tooltip(),
        ),
        arrows.encode(x="high:Q"),
        warned(base, x="x:Q"),
        labels.encode(x=alt.value(panel), text="label:N"),
        failed.encode(x="start:Q", text="status:N", color=ink),
    ]
    chart = alt.layer(*layers).properties(width=panel, height=alt.Step(24))
    return {"": panels(chart, subject, columns, x="independent")}


def panel_width(width: float, columns: int, left: float) -> float:
    return max(70.0, (width - left - 16 * (columns - 1)) / columns)


def _epoch_tooltip() -> List[alt.Tooltip]:
    return [
        alt.Tooltip("who:N", title="framework"),
        alt.Tooltip("s:Q", title="s per epoch", format=".4~g"),
        alt.Tooltip("interval:N", title="95 % interval"),
        alt.Tooltip("label:N", title="ratio to the fastest"),
        alt.Tooltip("images_per_s:Q", title="images/s", format=".4~g"),
        alt.Tooltip("runs_ok:Q", title="runs"),
        alt.Tooltip("disturbed:N", title="disturbed"),
    ]


def _clipped(subject: Subject, speed: bool) -> Any:
    """Cells with x (seconds, or images per second), low, high and the right end of each, cut where one interval would
    set the axis of all."""
    columns = ["cell", "who", "what", "status", "worked", "disturbed", "runs_ok", "images_per_s", "best", "about"]
    cells = subject.judged[[*columns, "epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high"]]
    cells = cells.rename(columns={"epoch_s_median": "s", "epoch_s_ci_low": "low", "epoch_s_ci_high": "high"})
    for name in ("s", "low", "high"):  # a cell that lacks a run has an interval of the others, and no figure
        cells[name] = cells[name].where(cells["worked"])
    cells["interval"] = [
        f"{low:.4g} to {high:.4g} s" if known(low) else "none" for low, high in zip(cells["low"], cells["high"])
    ]
    cells["x"] = cells["s"]
    if speed:
        images = cells["images_per_s"] * cells["s"]
        cells = cells.assign(x=cells["images_per_s"], low=images / cells["high"], high=images / cells["low"])
    most = CLIP * cells.groupby("what")["x"].transform("max")
    cells["cut"] = cells["high"].gt(most)
    cells["most"], cells["high"] = most, cells["high"].where(~cells["cut"], most)
    cells["label"] = [
        f"{mark}{ratio:.2f}x" if known(ratio) else "" for mark, ratio in zip(cells["about"], cells["best"])
    ]
    return cells


def _dots(subject: Subject, cells: Any, speed: bool) -> Any:
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
    return dots[["kind", "who", "what", "x", "offset", "tint"]]


def machine(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F7: every epoch in the order of time, over the median of its cell; below, what others took of the CPU."""
    epochs = subject.whole_epochs()
    if epochs.empty:
        return {}
    started = epochs["run_id"].map(subject.study.runs.set_index("run_id")["started_s"])
    median = epochs.groupby("cell")["epoch_s"].transform("median")
    minutes = (started - started.min() + epochs["start_s"]) / 60
    rows = epochs.assign(minute=minutes, relative=epochs["epoch_s"] / median, marked=epochs["disturbed"].eq(1))
    rows = rows[["who", "what", "minute", "relative", "marked", "disturbed_share", "repeat", "epoch"]].dropna(
        subset="minute"
    )
    base = alt.Chart(alt.InlineData(values=rounded(rows))).encode(
        x=alt.X(
            "minute:Q",
            title="minutes since the first of these runs began",
            scale=alt.Scale(domainMin=0),
            axis=alt.Axis(tickCount=10),
        )
    )
    tint = colour(subject, alt.Legend())
    points = base.mark_point(size=40, strokeWidth=1.4, fillOpacity=1).encode(
        y=alt.Y("relative:Q", title="epoch / cell's median", scale=alt.Scale(zero=False, nice=True)),
        color=tint,
        fill=alt.condition("datum.marked", alt.value("white"), tint),
        shape=shape(subject, alt.Legend()),
        tooltip=["who:N", "what:N", "repeat:Q", "epoch:Q", alt.Tooltip("relative:Q", format=".3f")],
    )
    chart = points.properties(width=width - 80, height=150)
    if not rows["disturbed_share"].notna().any():
        return {"": chart}
    others = (
        base.transform_filter("isValid(datum.disturbed_share)")
        .mark_bar(size=3, color=look.GREY)
        .encode(y=alt.Y("disturbed_share:Q", title="taken by others", axis=alt.Axis(format="%", tickCount=4)))
    )
    return {"": alt.vconcat(chart, others.properties(width=width - 80, height=60)).resolve_scale(x="shared")}
