"""Figure of what a run keeps in memory (F3)."""

import altair as alt
import pandas as pd

from framework_compare.protocol import Fields
from framework_compare.registry import device_kind
from framework_compare.report.figures import marks
from framework_compare.report.figures.subject import LABELS, Subject, speeds
from framework_compare.results import memory

LABEL_WIDTH, LABEL_HEIGHT = 0.12, 0.12  # shares of a panel that the label of a batch size takes
_DRAWN = LABELS + "batch_size gib least most images_per_s slow fast fast_cut disturbed".split()


def throughput_memory(subject: Subject, width: float, columns: int) -> Fields:
    """F3: images per second over peak memory; a line joins the batch sizes of a framework."""
    cells = speeds(subject.worked)
    several = cells["batch_size"].nunique() > 1
    if several:
        names = dict(zip(subject.cells["cell"], subject.without("batch_size")))
        cells = cells.assign(condition_label=cells["cell"].map(names))
    peaks, name = memory.peaks(cells)
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
    return {"": marks.panels_of(layered, conditions, columns, x="independent", y="independent")}


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
    pss = name == memory.NAMES[memory.PSS]
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
