"""Figures of CPU, memory, threads and GPU over time (F4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from framework_compare.report.figures import look, marks
from framework_compare.report.figures.subject import Subject
from framework_compare.report.study import rounded

BINS = 160
LEAST_BINS = 24
MAX_BINS = 4800  # of all cells and readings
MAX_CURVES = 24  # cells whose readings are drawn
GAP = 6.0  # points between two names at least
OTHERS = "others_cpu_percent"  # a grey line beside the cell's own
EPOCHS = "epochs"  # the phase of a run that is measured
# Readings over time: column, title, divisor; a row is drawn where any cell has readings of it.
READINGS: tuple[tuple[str, str, float], ...] = (
    ("cpu_percent", "CPU, % of a core", 1),
    ("rss_bytes", "RSS, GiB", marks.GIB),
    ("threads", "threads", 1),
    ("gpu_percent", "GPU, %", 1),
    ("gpu_process_memory_bytes", "GPU memory, GiB", marks.GIB),
    ("gpu_power_w", "GPU power, W", 1),
)


def resources(subject: Subject, width: float, columns: int, *, whole: bool = True) -> dict[str, Any]:
    """F4: CPU, RAM, threads and what a GPU reads over the time of a run; one part per model, one column per framework.

    whole: from the start of the run, else from the start of the first measured epoch to the end of the last.
    """
    chosen = subject.worked.head(MAX_CURVES)
    samples = subject.of(subject.study.samples)
    samples = samples[samples["cell"].isin(chosen["cell"])]
    first = samples.groupby("cell")["run_id"].transform("min")
    samples = samples[samples["run_id"] == first]
    if samples.empty:
        return {}
    phases = subject.of(subject.study.phases)
    phases = phases[phases["run_id"].isin(samples["run_id"])]
    if not whole:
        samples, phases = _of_epochs(samples, phases)
    drawn = sum(samples[name].notna().any() for name, _, _ in READINGS if name in samples)
    bins = max(LEAST_BINS, min(BINS, MAX_BINS // max(1, drawn * samples["cell"].nunique())))
    parts = {}
    for condition in chosen["condition_label"].drop_duplicates():
        own, their_phases = (rows[rows["condition_label"] == condition] for rows in (samples, phases))
        if len(own):
            parts[condition] = _over_time(subject, own, their_phases, width, bins)
    return parts


def _of_epochs(samples: Any, phases: Any) -> tuple[Any, Any]:
    """Samples and phases of the measured epochs, in seconds since the first of them began."""
    measured = phases[phases["phase"] == EPOCHS].set_index("run_id")
    start = samples["run_id"].map(measured["start_s"])
    end = start + samples["run_id"].map(measured["seconds"])
    samples = samples.assign(t_s=samples["t_s"] - start)[samples["t_s"].between(start, end)]
    return samples, measured.reset_index().assign(start_s=0.0)


def _over_time(subject: Subject, samples: Any, phases: Any, width: float, bins: int) -> Any:
    frameworks = [name for name in subject.frameworks if name in set(samples["framework_label"])]
    drawn = [one for one in READINGS if one[0] in samples and samples[one[0]].notna().any()]
    rows = [
        row for name in frameworks for row in _binned(samples[samples["framework_label"] == name], drawn, name, bins)
    ]
    # One table for all layers: a facet splits no layer that has data of its own.
    panel = max(36.0, (width - 60 - 14 * (len(frameworks) - 1)) / len(frameworks))
    table = alt.InlineData(values=[*rows, *rounded(_spans(phases, panel))])
    charts = []
    for place, (_, title, _) in enumerate(drawn):
        layers = _curve(subject, table, place, title, last=place == len(drawn) - 1)
        if place == 0:
            named = alt.Chart(table).transform_filter("isValid(datum.name)")
            named = named.mark_text(align="left", baseline="top", dx=2, color="#444444")
            layers.append(named.encode(x="start:Q", y=alt.value(2), text="name:N"))
        if drawn[place][0] == "cpu_percent" and OTHERS in samples:
            others = alt.Chart(table).transform_filter("isValid(datum.others)")
            layers.append(others.mark_line(strokeWidth=1, color=look.GREY).encode(x="t:Q", y="others:Q"))
        curve = alt.layer(*layers).properties(width=panel, height=80)
        header = alt.Header(labels=place == 0)
        by_framework = alt.Column("framework_label:N", sort=frameworks, title=None, header=header)
        charts.append(curve.facet(column=by_framework, spacing=14).resolve_scale(x="independent"))
    return alt.vconcat(*charts, spacing=4)


def _curve(subject: Subject, table: Any, place: int, title: str, *, last: bool) -> list[Any]:
    field = f"y{place}"
    base = alt.Chart(table)
    x = alt.X("t:Q", title="seconds" if last else None, axis=alt.Axis(labels=last, tickCount=4))
    tint = marks.colour(subject)
    bins = base.transform_filter("isValid(datum.t)")
    band = bins.mark_area(opacity=0.35).encode(x=x, y=f"{field}l:Q", y2=f"{field}h:Q", color=tint)
    line = bins.mark_line(strokeWidth=1.3).encode(
        x=x,
        y=alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=3)),
        color=tint,
        tooltip=[alt.Tooltip("t:Q", title="s"), alt.Tooltip(f"{field}:Q", title=title, format=".4~g")],
    )
    shades = (
        base.transform_filter("isValid(datum.shade)")
        .mark_rect(opacity=0.5)
        .encode(
            x="start:Q", x2="end:Q", color=alt.Color("shade:N", scale=None), tooltip=["phase:N", "start:Q", "end:Q"]
        )
    )
    return [shades, band, line]


def _binned(samples: Any, drawn: Any, name: str, bins: int) -> list[Mapping[str, Any]]:
    """At most so many bins of the time of a run: mean, least and most of each reading, as y0, y0l, y0h, y1, ..."""
    import pandas as pd

    length = max(float(samples["t_s"].max()), 0.1)
    groups = samples.groupby((samples["t_s"] / (length / bins)).astype(int).clip(upper=bins - 1))
    columns = {"t": groups["t_s"].mean()}
    for place, (column, _, divisor) in enumerate(drawn):
        values = groups[column]
        for end, value in (("", values.mean()), ("l", values.min()), ("h", values.max())):
            columns[f"y{place}{end}"] = value / divisor
    if OTHERS in samples:
        columns["others"] = groups[OTHERS].mean()
    return rounded(pd.DataFrame(columns).assign(framework_label=name), 4)


def _spans(phases: Any, panel: float) -> Any:
    """Phases as stretches of time, every second one shaded; with its name where that fits into the stretch."""
    spans = phases.sort_values(["framework_label", "start_s"])[["framework_label", "phase", "start_s", "seconds"]]
    shade = ["#F0F0F0" if n % 2 else "#D5D5D5" for n in spans.groupby("framework_label").cumcount()]
    end = spans["start_s"] + spans["seconds"]
    room = panel * spans["seconds"] / end.groupby(spans["framework_label"]).transform("max")
    name = spans["phase"].where(room > marks.LETTER * spans["phase"].str.len() + GAP, None)
    spans = spans.assign(start=spans["start_s"], end=end, shade=shade, name=name)
    return spans[["framework_label", "phase", "start", "end", "shade", "name"]]
