"""Figures of CPU, memory, threads and GPU over time (F4)."""

from collections.abc import Sequence

import altair as alt
import pandas as pd

from framework_compare.protocol import Document, Fields
from framework_compare.report.figures import look, marks
from framework_compare.report.figures.subject import Subject
from framework_compare.report.study import rounded

BINS = 160
LEAST_BINS = 24
MAX_BINS = 4800  # of all cells and readings
MAX_CURVES = 24  # cells whose readings are drawn
LEFT, APART, LEAST_COLUMN = 60, 14, 110.0  # points: of the axis, between columns, of a column at least
OTHERS = "others_cpu_percent"  # a grey line beside the cell's own
EPOCHS, WARM_UP = "epochs", "warm-up"  # phases of a run; all before them is its start-up
# Readings over time: column, title, divisor; a row is drawn where any cell has readings of it.
Reading = tuple[str, str, float]  # column, title, what it is divided by
READINGS: tuple[Reading, ...] = (
    ("cpu_percent", "CPU, % of a core", 1),
    ("rss_bytes", "RSS, GiB", marks.GIB),
    ("threads", "threads", 1),
    ("gpu_percent", "GPU, %", 1),
    ("gpu_process_memory_bytes", "GPU memory, GiB", marks.GIB),
    ("gpu_power_w", "GPU power, W", 1),
)


def resources(subject: Subject, width: float, columns: int, *, whole: bool = True) -> Fields:
    """F4: CPU, memory, threads and what a GPU reads over the time of a run; one part per model, one column per framework.

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
        phases = phases[phases["phase"] == EPOCHS].set_index("run_id")
        start, length = (samples["run_id"].map(phases[name]) for name in ("start_s", "seconds"))
        samples = samples.assign(t_s=samples["t_s"] - start)[samples["t_s"].between(start, start + length)]
        phases = phases.reset_index().assign(start_s=0.0)
    drawn = sum(samples[name].notna().any() for name, _, _ in READINGS if name in samples)
    bins = max(LEAST_BINS, min(BINS, MAX_BINS // max(1, drawn * samples["cell"].nunique())))
    waited = subject.waited_s()
    phases = phases.assign(waits=phases["run_id"].map(waited).fillna(0.0).gt(0))
    parts = {}
    for condition in chosen["condition_label"].drop_duplicates():
        own, their_phases = (rows[rows["condition_label"] == condition] for rows in (samples, phases))
        if len(own):
            parts[condition] = _over_time(subject, own, their_phases, width, bins)
    return parts


def _over_time(
    subject: Subject, samples: pd.DataFrame, phases: pd.DataFrame, width: float, bins: int
) -> alt.VConcatChart:
    """Rows of curves, one per reading; as many frameworks side by side as fit, then the next ones below."""
    frameworks = [name for name in subject.frameworks if name in set(samples["framework_label"])]
    drawn = [one for one in READINGS if one[0] in samples and samples[one[0]].notna().any()]
    rows = [
        row for name in frameworks for row in _binned(samples[samples["framework_label"] == name], drawn, name, bins)
    ]
    stages = _stages(phases).assign(left_out=len(subject.worked) > MAX_CURVES)
    shown = [name for name in look.STAGES if name in set(stages["stage"])]
    fitting = max(1, min(len(frameworks), int((width - LEFT + APART) / (LEAST_COLUMN + APART))))
    panel = max(36.0, (width - LEFT - APART * (fitting - 1)) / fitting)
    # One table for all layers: a facet splits no layer that has data of its own.
    table = marks.chart([*rows, *rounded(stages)])
    seconds = max(float(samples["t_s"].max()), float(stages["end"].max()) if len(stages) else 0.0)
    bands = []
    for start in range(0, len(frameworks), fitting):
        charts = []
        some = frameworks[start : start + fitting]
        those = alt.FieldOneOfPredicate("framework_label", some)
        for place, reading in enumerate(drawn):
            most = max((row[f"y{place}h"] or 0 for row in rows), default=0)
            last = place == len(drawn) - 1
            layers = _curve(subject, table, place, reading, (seconds, most), shown, last=last)
            curve = alt.layer(*layers).properties(width=panel, height=90)
            header = alt.Header(labels=place == 0)
            by_framework = alt.Column("framework_label:N", sort=some, title=None, header=header)
            charts.append(curve.facet(column=by_framework, spacing=APART).transform_filter(those))
        bands.append(alt.vconcat(*charts, spacing=4))
    return bands[0] if len(bands) == 1 else alt.vconcat(*bands, spacing=16)


def _curve(
    subject: Subject,
    base: alt.Chart,
    place: int,
    reading: tuple[str, str, float],
    ends: tuple[float, float],
    shown: Sequence[str],
    *,
    last: bool,
) -> list[alt.Chart]:
    """A reading as line and band on the stages `shown`; ends: those of the axes, which are the same in all panels."""
    field, (column, title, _) = f"y{place}", reading
    scale, axis = alt.Scale(domain=[0, ends[0]], nice=False), alt.Axis(labels=last, tickCount=4, labelFlush=True)
    x = alt.X("t:Q", title="seconds" if last else None, scale=scale, axis=axis)
    tint = marks.colour(subject)
    names = alt.Legend(symbolStrokeColor=look.GREY, symbolStrokeWidth=0.5) if len(shown) > 1 else None
    stages = alt.Scale(domain=list(shown), range=[look.STAGES[name] for name in shown])
    shades = alt.Fill("stage:N", title=None, scale=stages, legend=names)
    behind = base.transform_filter("isValid(datum.stage)").mark_rect()
    tips = [alt.Tooltip(name) for name in ("stage:N", "start:Q", "end:Q")]
    behind = behind.encode(x=alt.X("start:Q", scale=scale), x2=alt.X2("end:Q"), fill=shades, tooltip=tips)
    bins = base.transform_filter("isValid(datum.t)")
    y = alt.Y(f"{field}:Q", title=title, scale=alt.Scale(domain=[0, 1.06 * ends[1] or 1]), axis=alt.Axis(tickCount=3))
    band = bins.mark_area(opacity=0.35).encode(x=x, y=alt.Y(f"{field}l:Q"), y2=alt.Y2(f"{field}h:Q"), color=tint)
    tips = [alt.Tooltip("t:Q", title="s"), alt.Tooltip(f"{field}:Q", title=title, format=".4~g")]
    layers = [behind, band, bins.mark_line(strokeWidth=1.3).encode(x=x, y=y, color=tint, tooltip=tips)]
    if column == "cpu_percent":
        others = base.transform_filter("isValid(datum.others)").mark_line(strokeWidth=1, clip=True, color=look.GREY)
        layers.append(others.encode(x=alt.X("t:Q"), y=alt.Y("others:Q")))
    return [marks.settled(layer) for layer in layers]


def _binned(samples: pd.DataFrame, drawn: Sequence[Reading], name: str, bins: int) -> list[Document]:
    """At most so many bins of the time of a run: mean, least and most of each reading, as y0, y0l, y0h, y1, ..."""
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


def _stages(phases: pd.DataFrame) -> pd.DataFrame:
    """The stages of each run as stretches of time, neighbours of the same stage as one."""
    spans = phases.sort_values(["framework_label", "start_s"])
    begun = spans["start_s"].ge(spans["run_id"].map(spans[spans["phase"] == EPOCHS].groupby("run_id")["start_s"].min()))
    startup, warm_up, measured, after = look.STAGES
    stage = begun.map({True: after, False: startup}).mask(spans["phase"] == EPOCHS, measured)
    spans = spans.assign(stage=stage.mask(spans["phase"] == WARM_UP, warm_up), end=spans["start_s"] + spans["seconds"])
    part = spans.groupby("framework_label")["stage"].transform(lambda stages: (stages != stages.shift()).cumsum())
    whole = spans.groupby(["framework_label", "stage", part.rename("part")], sort=False)
    return (
        whole.agg(start=("start_s", "min"), end=("end", "max"), waits=("waits", "max"))
        .reset_index()
        .drop(columns="part")
    )
