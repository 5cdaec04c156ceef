"""Figures of memory and speed: each cell (F3), by batch size (F12)."""

import altair as alt
import pandas as pd

from framework_compare.protocol import Fields
from framework_compare.registry import device_kind
from framework_compare.report.figures import look, marks
from framework_compare.report.figures.subject import LABELS, Subject, speeds
from framework_compare.report.resource_tables import MEMORY, PSS, peak_memory
from framework_compare.report.tables import known

LABEL_WIDTH, LABEL_HEIGHT = 0.12, 0.12  # shares of a panel that the label of a batch size takes
_DRAWN = LABELS + "batch_size gib least most images_per_s slow fast fast_cut disturbed".split()


def throughput_memory(subject: Subject, width: float, columns: int) -> Fields:
    """F3: images per second over peak memory; a line joins the batch sizes of a framework."""
    cells = speeds(subject.worked)
    several = cells["batch_size"].nunique() > 1
    if several:
        names = dict(zip(subject.cells["cell"], subject.without("batch_size")))
        cells = cells.assign(condition_label=cells["cell"].map(names))
    peaks, name = peak_memory(cells)
    rows = cells.assign(gib=peaks / marks.GIB).dropna(subset=["gib", "images_per_s"])
    if rows.empty:
        return {}
    rows = rows.join(_ranges(subject, rows, name), on="cell")
    rows = marks.cut(rows, "images_per_s", "slow", "fast")
    roof = 1.15 * rows[["images_per_s", "fast"]].max(axis=1)  # for the mark of a disturbed cell
    rows = rows[_DRAWN].assign(room=1.1 * rows["gib"], roof=roof, place=range(len(rows)), joined=several)
    tint = marks.colour(subject, alt.Legend())
    base = marks.chart(rows).encode(
        x=alt.X("gib:Q", title=f"peak {name}, GiB", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6)),
        y=alt.Y("images_per_s:Q", title="images/s", scale=alt.Scale(zero=True), axis=alt.Axis(labelFlush=True)),
    )
    sizes = [base.mark_line(strokeWidth=1.3).encode(color=tint, order="batch_size:Q")]
    tooltip = (
        "framework_label:N",
        "batch_size:Q",
        alt.Tooltip("gib:Q", format=".3~g"),
        alt.Tooltip("images_per_s:Q", format=".4~g"),
    )
    layers = [
        *(sizes if several else []),
        marks.interval(base, "slow", "fast", "y", color=tint),
        marks.interval(base, "least", "most", "x", color=tint),
        marks.points(base, subject, 80, alt.Legend(), *tooltip),
        marks.arrows(base, "fast", "y"),
        marks.warned(base),
        base.mark_point(opacity=0).encode(x="room:Q", y="roof:Q"),
    ]
    if several:
        labels = base.transform_filter(alt.FieldOneOfPredicate("place", _apart(rows)))
        layers.append(labels.mark_text(align="left", dx=7, dy=8).encode(text="batch_size:Q"))
    layered = alt.layer(*layers).properties(width=marks.panel_width(width, columns, 40) - 40, height=130)
    conditions = rows["condition_label"].drop_duplicates()
    return {"": marks.panels(layered, conditions, columns, x="independent", y="independent")}


def _apart(rows: pd.DataFrame) -> list[int]:
    """The places of points whose labels lie upon no earlier one of their panel."""
    kept: list[int] = []
    across = rows["gib"] / rows.groupby("condition_label")["gib"].transform("max")
    upwards = rows["images_per_s"] / rows.groupby("condition_label")["images_per_s"].transform("max")
    spots = list(zip(rows["condition_label"], across, upwards))
    for place, (panel, x, y) in enumerate(spots):
        others = (spots[one] for one in kept if spots[one][0] == panel)
        if all(abs(x - other[1]) > LABEL_WIDTH or abs(y - other[2]) > LABEL_HEIGHT for other in others):
            kept.append(place)
    return kept


def _ranges(subject: Subject, cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the smallest and the largest GiB of the peaks of a cell's runs, where two or more have readings."""
    on_gpu = set(cells.loc[cells["device"].map(device_kind) != "cpu", "cell"])
    pss = name == MEMORY[PSS]
    host = (subject.study.phases, "pss_bytes") if pss else (subject.study.samples, "rss_bytes")
    parts = []
    for frame, column, own in (
        (subject.study.samples, "gpu_process_memory_bytes", on_gpu),
        (*host, set(cells["cell"]) - on_gpu),
    ):
        rows = subject.of(frame)
        of_runs = rows[rows["cell"].isin(own)].groupby(["cell", "run_id"])[column].max().dropna() / marks.GIB
        ends = of_runs.groupby("cell").agg(["min", "max", "count"])
        parts.append(ends[ends["count"] > 1].rename(columns={"min": "least", "max": "most"})[["least", "most"]])
    return pd.concat(parts)


def batch_sizes(subject: Subject, width: float, columns: int) -> Fields:
    """F12: a tile per batch size with its peak of memory or its status; images per second and memory over the size."""
    cells = speeds(subject.cells)
    if cells["batch_size"].nunique() < 2:
        return {}
    peaks, memory_name = peak_memory(cells)
    rows = cells.assign(gib=peaks / marks.GIB, model=subject.without("batch_size"))
    rows = rows["framework_label model batch_size status worked images_per_s gib slow fast disturbed".split()]
    rows = marks.cut(rows, "images_per_s", "slow", "fast", "model")
    told = [f"{gib:.2f}" if known(gib) else "ok" for gib in rows["gib"]]
    rows = rows.assign(told=[text if ok else status for text, ok, status in zip(told, rows["worked"], rows["status"])])
    limit = (subject.study.settings.get("limits") or {}).get("memory_bytes")
    rows = rows.assign(limit=limit / marks.GIB if limit else None)
    every = marks.chart(rows)
    axis = alt.Axis(values=sorted(rows["batch_size"].unique().tolist()), format="d", labelOverlap=True)
    base = every.encode(x=alt.X("batch_size:Q", title="batch size", scale=alt.Scale(type="log", base=2), axis=axis))
    by_model = alt.Facet("model:N", sort=list(rows["model"].drop_duplicates()), title=None)
    parts = [_tiles(subject, every, width, columns).facet(facet=by_model, columns=columns)]
    for field, name in (("images_per_s", "images/s"), ("gib", f"peak {memory_name}, GiB")):
        legend = alt.Legend() if field == "gib" else None
        tint = marks.colour(subject, legend)
        drawn = base.transform_filter(f"datum.worked && isValid(datum.{field})")
        drawn = drawn.encode(y=alt.Y(f"{field}:Q", title=name))
        points = marks.points(drawn, subject, 45, legend, "framework_label:N", "batch_size:Q", f"{field}:Q")
        layers = [drawn.mark_line(strokeWidth=1.3).encode(color=tint), points]
        if field == "images_per_s":
            ends = marks.interval(drawn, "slow", "fast", "y", color=tint)
            layers += [ends, marks.arrows(drawn, "fast", "y"), marks.warned(drawn)]
        elif limit:
            layers.append(
                base.mark_rule(strokeDash=[4, 3], color=look.WARNING).encode(y="mean(limit):Q", x=alt.value(0))
            )
        chart = alt.layer(*layers).properties(width=marks.panel_width(width, columns, 45) - 45, height=120)
        parts.append(chart.facet(facet=by_model, columns=columns).resolve_scale(y="independent"))
    return {"": alt.vconcat(*parts).resolve_scale(color="independent", shape="independent")}


def _tiles(subject: Subject, base: alt.Chart, width: float, columns: int) -> marks.Layers:
    """One tile per framework and batch size: its peak memory in GiB, or its status."""
    base = base.encode(
        x=alt.X("batch_size:O", title="batch size", axis=alt.Axis(labelAngle=0)), y=marks.framework_axis(subject)
    )
    empty = base.mark_rect(stroke="white", strokeWidth=2, color="#EEEEEE")
    full = base.transform_filter("datum.worked && isValid(datum.gib)").mark_rect(stroke="white", strokeWidth=2)
    full = full.encode(color=alt.value(look.TILES[0]), tooltip=["framework_label:N", "batch_size:O", "told:N"])
    ink = alt.condition("datum.worked", alt.value("#111111"), alt.value(look.WARNING))
    chart = alt.layer(empty, full, base.mark_text().encode(text="told:N", color=ink))
    return chart.properties(width=marks.panel_width(width, columns, 90), height=22 * len(subject.frameworks))
