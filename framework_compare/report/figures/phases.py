"""Figures of where the time of a run goes: phases (F5), computing and waiting (F6)."""

from __future__ import annotations

import itertools
from typing import Any

import altair as alt

from framework_compare.report.figures import look, marks
from framework_compare.report.figures.subject import LABELS, Subject
from framework_compare.report.tables import known
from framework_compare.report.time_tables import epochs_until_paid

EPOCHS = "epochs"  # the phase of a run that is measured
AFTER_EPOCHS = ("profile", "release")
BETWEEN = "between phases"
LEAST_GAP = 1e-3  # seconds


def phases(subject: Subject, width: float, columns: int, *, whole: bool = True) -> dict[str, Any]:
    """F5: the seconds of a run by phase, mean over runs; the line is from the shortest to the longest run.

    whole: with the measured epochs and what follows them, else what a run takes until it trains.
    """
    rows = _with_gaps(subject.of(subject.study.phases))
    rows = rows if whole else rows[~rows["phase"].isin((EPOCHS, *AFTER_EPOCHS))]
    if rows.empty:
        return {}
    order = list(rows.sort_values("start_s")["phase"].drop_duplicates())
    if BETWEEN in order:
        order.remove(BETWEEN)
        order.insert(order.index(EPOCHS) if EPOCHS in order else len(order), BETWEEN)
    per_run = rows.groupby([*LABELS, "run_id", "phase"], sort=False)["seconds"].sum().reset_index()
    runs = per_run.groupby(LABELS)["run_id"].transform("nunique")
    mean = per_run.assign(seconds=per_run["seconds"] / runs)
    mean = mean.groupby([*LABELS, "phase"], sort=False)["seconds"].sum().reset_index()
    mean["place"] = mean["phase"].map(order.index)
    totals = per_run.groupby([*LABELS, "run_id"])["seconds"].sum().groupby(LABELS).agg(["min", "max"])
    mean = mean.merge(totals.reset_index(), on=LABELS).merge(_start_ups(subject), on=LABELS)
    panel = marks.panel_width(width, columns, 90)
    left = (panel - marks.LETTER * mean["start"].str.len() - 8).clip(lower=panel / 4)
    base = marks.chart(mean.assign(room=mean["max"] * panel / left)).encode(y=marks.framework_axis(subject))
    others = itertools.cycle(look.STACK)
    tints = [look.EPOCHS if phase == EPOCHS else next(others) for phase in order]
    title = "seconds of a run" if whole else "seconds before the first measured epoch"
    bars = marks.stacked_bars(base).encode(
        x=alt.X("sum(seconds):Q", title=title, axis=alt.Axis(tickCount=6)),
        color=marks.parts_colour(order, tints, shorthand="phase:N", sort=order, title="phase"),
        order=alt.Order("place:Q"),
        tooltip=["framework_label:N", "phase:N", alt.Tooltip("seconds:Q", format=".3~g")],
    )
    ends = base.mark_rule(strokeWidth=2, color="black").encode(x="min(min):Q", x2="max(max):Q")
    texts = base.mark_text(align="left", dx=4).encode(x="max(max):Q", text="start:N")
    room = base.mark_point(opacity=0).encode(x="max(room):Q")
    return {"": marks.bar_panels((bars, ends, room, texts), subject, width, columns)}


def _with_gaps(phases: Any) -> Any:
    """Phases of runs with a row more for each time between two of them before the epochs, so that all add up to the start."""
    import pandas as pd

    rows = phases.sort_values(["run_id", "start_s"], kind="stable")
    first = rows[rows["phase"] == EPOCHS].set_index("run_id")["start_s"]
    ended = (rows["start_s"] + rows["seconds"]).groupby(rows["run_id"]).cummax().groupby(rows["run_id"]).shift()
    gaps = rows.assign(phase=BETWEEN, start_s=ended, seconds=rows["start_s"] - ended)
    gaps = gaps[gaps["seconds"].gt(LEAST_GAP) & rows["start_s"].le(rows["run_id"].map(first))]
    return pd.concat([rows, gaps]) if len(gaps) else rows


def _start_ups(subject: Subject) -> Any:
    """Each cell's seconds before the first measured epoch as text, and after how many epochs a start has paid."""
    cells = subject.worked
    paid = epochs_until_paid(list(cells.set_index("cell").itertuples()))
    texts = []
    for cell in cells.itertuples():
        after = f", {paid[cell.cell]}" if cell.cell in paid else ""
        texts.append(f"starts in {cell.startup_s:.3g} s{after}" if known(cell.startup_s) else "")
    return cells.assign(start=texts)[[*LABELS, "start"]]


def waiting(subject: Subject, width: float, columns: int) -> dict[str, Any]:
    """F6: the milliseconds of an image, computing and waiting for data, with the interval of both together."""
    import pandas as pd

    rows = []
    for cell in subject.worked.itertuples():
        if not (known(cell.images_per_s) and known(cell.data_wait_share)) or not cell.images_per_s:
            continue
        ms = 1000 / cell.images_per_s
        ends = [ms * end / cell.epoch_s_median for end in (cell.epoch_s_ci_low, cell.epoch_s_ci_high)]
        handed = cell.device.startswith("cuda") and not known(cell.compute_share)
        copying = ms * cell.copy_share if known(cell.copy_share) else None
        for part, share in (("computing", 1 - cell.data_wait_share), ("waiting for data", cell.data_wait_share)):
            row = {
                "framework_label": cell.framework_label,
                "condition_label": cell.condition_label,
                "part": part,
                "ms": ms * share,
                "low": ends[0],
                "high": ends[1],
            }
            rows.append({**row, "copying": copying, "handed": handed})
    if not rows:
        return {}
    frame = pd.DataFrame(rows)
    whole = frame.groupby(LABELS)["ms"].transform("sum")
    base = marks.chart(marks.cut(frame.assign(whole=whole), "whole", "low", "high"))
    base = base.encode(y=marks.framework_axis(subject))
    copied = any(row["copying"] for row in rows)
    tints = {
        "computing": look.COMPUTING,
        "waiting for data": look.WAITING,
        **({"copying": look.COPYING} if copied else {}),
    }
    tint = marks.parts_colour(tints, tints.values())
    bars = marks.stacked_bars(base).encode(
        x=alt.X("sum(ms):Q", title="ms per image", axis=alt.Axis(tickCount=6, labelOverlap=True)),
        color=tint,
        opacity=alt.condition("datum.handed", alt.value(0.5), alt.value(1)),
        tooltip=["framework_label:N", "part:N", alt.Tooltip("ms:Q", format=".3~g")],
    )
    thin = base.transform_filter("datum.copying > 0 && datum.part == 'computing'").mark_bar(size=3, yOffset=7)
    named = alt.datum("copying", scale=alt.Scale(domain=list(tints), range=list(tints.values())))
    copies = thin.encode(x="copying:Q", color=named, tooltip=["framework_label:N", "copying:Q"])
    layers = bars, *([copies] if copied else []), marks.whole_interval(base), marks.arrows(base, "high", "x")
    return {"": marks.bar_panels(layers, subject, width, columns)}
