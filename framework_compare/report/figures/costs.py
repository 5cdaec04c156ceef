"""Figures of what a run costs: memory (F3), resources over time (F4), phases (F5), waiting (F6), energy (F11)."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

import altair as alt

from framework_compare.report.figures import look
from framework_compare.report.figures.subject import Subject, known, plain, rounded, speeds
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
from framework_compare.report.startup_table import epochs_until_paid
from framework_compare.results.energy import joules_per_run
from framework_compare.results.intervals import geometric_mean

GIB = 2**30
BINS = 160
LEAST_BINS = 24
MAX_BINS = 4800  # of all cells and readings
MAX_CURVES = 24  # cells whose readings are drawn
LETTER = 6.0  # points of width that a letter of a phase's name takes at most
GAP = 6.0  # points between two names at least
LABEL_WIDTH, LABEL_HEIGHT = 0.12, 0.12  # shares of a panel that the label of a batch size takes
OTHERS = "others_cpu_percent"  # a grey line beside the cell's own
EPOCHS = "epochs"  # the phase of a run that is measured
AFTER_EPOCHS = ("profile", "release")
JOULES = {"GPU": "#33608C", "host": "#F1C27D"}
WH = 3600.0  # joules
# Readings over time: column, title, divisor; a row is drawn where any cell has readings of it.
READINGS: Tuple[Tuple[str, str, float], ...] = (
    ("cpu_percent", "CPU, % of a core", 1),
    ("rss_bytes", "RAM, GiB", GIB),
    ("threads", "threads", 1),
    ("gpu_percent", "GPU, %", 1),
    ("gpu_process_memory_bytes", "GPU memory, GiB", GIB),
    ("gpu_power_w", "GPU power, W", 1),
)


def throughput_memory(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F3: images per second over the peak of memory; the dashed line joins what nothing beats in both, a line of a
    framework's colour its batch sizes."""
    cells = speeds(subject.worked)
    several = cells["batch_size"].nunique() > 1
    if several:
        names = dict(zip(subject.cells["cell"], subject.without("batch_size")))
        cells = cells.assign(what=cells["cell"].map(names))
    rows = cells.join(_peaks(subject, cells), on="cell").dropna(subset=["gib", "images_per_s"])
    if rows.empty:
        return {}
    named = [
        "who",
        "what",
        "batch_size",
        "gib",
        "least",
        "most",
        "images_per_s",
        "slow",
        "fast",
        "fast_cut",
        "disturbed",
    ]
    rows = cut(rows, "images_per_s", "slow", "fast")
    roof = 1.15 * rows[["images_per_s", "fast"]].max(axis=1)  # for the mark of a disturbed cell
    rows = rows[named].assign(front=_undominated(rows), room=1.1 * rows["gib"], roof=roof, place=range(len(rows)))
    tint = colour(subject, alt.Legend())
    base = alt.Chart(alt.InlineData(values=rounded(rows))).encode(
        x=alt.X("gib:Q", title="peak memory, GiB", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6)),
        y=alt.Y("images_per_s:Q", title="images/s", scale=alt.Scale(zero=True)),
    )
    front = base.transform_filter("datum.front").mark_line(interpolate="step-after", color="#999999", strokeDash=[4, 3])
    points = base.mark_point(filled=True, size=80).encode(
        color=tint,
        shape=shape(subject, alt.Legend()),
        tooltip=[
            "who:N",
            "batch_size:Q",
            alt.Tooltip("gib:Q", format=".3~g"),
            alt.Tooltip("images_per_s:Q", format=".4~g"),
        ],
    )
    upright = base.transform_filter("isValid(datum.slow)").mark_rule(strokeWidth=1.5)
    level = base.transform_filter("isValid(datum.least)").mark_rule(strokeWidth=1.5)
    layers = [
        front,
        upright.encode(y="slow:Q", y2="fast:Q", color=tint),
        level.encode(x="least:Q", x2="most:Q", color=tint),
        points,
        arrows(base, "fast", "y"),
        warned(base),
        base.mark_point(opacity=0).encode(y="roof:Q"),
    ]
    if several:
        layers[1:1] = [base.mark_line(strokeWidth=1.3).encode(color=tint, order="batch_size:Q")]
        sizes = base.transform_filter(alt.FieldOneOfPredicate("place", _apart(rows)))
        layers.append(sizes.mark_text(align="left", dx=7, dy=8).encode(text="batch_size:Q"))
        layers.append(base.mark_point(opacity=0).encode(x="room:Q"))
    chart = alt.layer(*layers).properties(width=panel_width(width, columns, 40) - 40, height=130)
    header = alt.Facet("what:N", sort=list(dict.fromkeys(rows["what"])), title=None, header=alt.Header(labelLimit=280))
    faceted = chart.facet(facet=header, columns=columns, spacing={"row": 16, "column": 16})
    return {"": faceted.resolve_scale(x="independent", y="independent")}


def _apart(rows: Any) -> List[int]:
    """The places of points whose labels lie upon no earlier one of their panel."""
    kept: List[int] = []
    across = rows["gib"] / rows.groupby("what")["gib"].transform("max")
    upwards = rows["images_per_s"] / rows.groupby("what")["images_per_s"].transform("max")
    spots = list(zip(rows["what"], across, upwards))
    for place, (what, x, y) in enumerate(spots):
        others = (spots[one] for one in kept if spots[one][0] == what)
        if all(abs(x - other[1]) > LABEL_WIDTH or abs(y - other[2]) > LABEL_HEIGHT for other in others):
            kept.append(place)
    return kept


def _peaks(subject: Subject, cells: Any) -> Any:
    """By cell the peak of memory in GiB: of its own on a GPU, else of its processes (PSS, or RSS); of the peaks of its
    runs the least and the most, missing where one run has readings."""
    import pandas as pd

    on_gpu = cells["gpu_process_memory_peak_bytes"].notna()
    host = cells["pss_peak_bytes"].fillna(cells["peak_rss_bytes"])
    peaks = pd.DataFrame(
        {"gib": cells["gpu_process_memory_peak_bytes"].where(on_gpu, host) / GIB, "least": None, "most": None}
    ).set_axis(cells["cell"])
    samples, phases = subject.of(subject.study.samples), subject.of(subject.study.phases)
    of_gpu = set(cells.loc[on_gpu, "cell"])
    for frame, column, mine in (
        (samples, "gpu_process_memory_bytes", of_gpu),
        (phases, "pss_bytes", set(cells["cell"]) - of_gpu),
    ):
        rows = frame[frame["cell"].isin(mine) & frame[column].notna()]
        of_runs = rows.groupby(["cell", "run_id"])[column].max().groupby("cell").agg(["min", "max", "count"]) / GIB
        of_runs = of_runs[of_runs["count"] * GIB > 1]
        peaks.loc[of_runs.index, ["least", "most"]] = of_runs[["min", "max"]].to_numpy()
    return peaks


def _undominated(rows: Any) -> List[bool]:
    """Whether no other cell of the same panel is as fast with as little memory."""

    def beaten(cell: Any) -> bool:
        others = rows[rows["what"] == cell.what]
        return bool(
            (
                (others["gib"] <= cell.gib)
                & (others["images_per_s"] >= cell.images_per_s)
                & ((others["gib"] < cell.gib) | (others["images_per_s"] > cell.images_per_s))
            ).any()
        )

    return [not beaten(cell) for cell in rows.itertuples()]


def resources(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F4: CPU, RAM, threads and what a GPU reads over the time of a run; one part per model, one column per framework."""
    return _resources(subject, width, columns, whole=True)


def resources_of_epochs(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F4 from the start of the first measured epoch to the end of the last."""
    return _resources(subject, width, columns, whole=False)


def _resources(subject: Subject, width: float, columns: int, *, whole: bool) -> Dict[str, Any]:
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
    for what in chosen["what"].drop_duplicates():
        mine = samples[samples["what"] == what]
        if len(mine):
            parts[what] = _over_time(subject, mine, phases[phases["what"] == what], width, bins)
    return parts


def _of_epochs(samples: Any, phases: Any) -> Tuple[Any, Any]:
    """Samples and phases of the measured epochs, in seconds since the first of them began."""
    measured = phases[phases["phase"] == EPOCHS].set_index("run_id")
    start = samples["run_id"].map(measured["start_s"])
    end = start + samples["run_id"].map(measured["seconds"])
    samples = samples.assign(t_s=samples["t_s"] - start)[samples["t_s"].between(start, end)]
    return samples, measured.reset_index().assign(start_s=0.0)


def _over_time(subject: Subject, samples: Any, phases: Any, width: float, bins: int) -> Any:
    who = [name for name in subject.who if name in set(samples["who"])]
    drawn = [one for one in READINGS if one[0] in samples and samples[one[0]].notna().any()]
    rows = [row for name in who for row in _binned(samples[samples["who"] == name], drawn, name, bins)]
    # One table for all layers: a facet splits no layer that has data of its own.
    panel = max(36.0, (width - 60 - 14 * (len(who) - 1)) / len(who))
    table = alt.InlineData(values=[*rows, *rounded(_spans(phases, panel))])
    charts = []
    for place, (_, title, _) in enumerate(drawn):
        layers = _curve(subject, table, place, title, last=place == len(drawn) - 1)
        if place == 0:
            named = alt.Chart(table).transform_filter("isValid(datum.name)")
            named = named.mark_text(align="left", baseline="top", dx=2, color="#444444")
            layers.append(named.encode(x="start:Q", y=alt.value(2), text="name:N"))
        if drawn[place][0] == "cpu_percent" and OTHERS in samples:
            others = (
                alt.Chart(table).transform_filter("isValid(datum.others)").mark_line(strokeWidth=1, color=look.GREY)
            )
            layers.append(others.encode(x="t:Q", y="others:Q"))
        curve = alt.layer(*layers).properties(width=panel, height=80)
        header = alt.Header(labels=place == 0)
        faceted = curve.facet(column=alt.Column("who:N", sort=who, title=None, header=header), spacing=14)
        charts.append(faceted.resolve_scale(x="independent"))
    return alt.vconcat(*charts, spacing=4)


def _curve(subject: Subject, table: Any, place: int, title: str, *, last: bool) -> List[Any]:
    field = f"y{place}"
    base = alt.Chart(table)
    x = alt.X("t:Q", title="seconds" if last else None, axis=alt.Axis(labels=last, tickCount=4))
    shade = base.transform_filter("isValid(datum.shade)").mark_rect(opacity=0.5)
    bins = base.transform_filter("isValid(datum.t)")
    band = bins.mark_area(opacity=0.35).encode(x=x, y=f"{field}l:Q", y2=f"{field}h:Q", color=colour(subject))
    line = bins.mark_line(strokeWidth=1.3).encode(
        x=x,
        y=alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=3)),
        color=colour(subject),
        tooltip=[alt.Tooltip("t:Q", title="s"), alt.Tooltip(f"{field}:Q", title=title, format=".4~g")],
    )
    shades = shade.encode(
        x="start:Q", x2="end:Q", color=alt.Color("shade:N", scale=None), tooltip=["phase:N", "start:Q", "end:Q"]
    )
    return [shades, band, line]


def _binned(samples: Any, drawn: Any, name: str, bins: int) -> List[Mapping[str, Any]]:
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
    return rounded(pd.DataFrame(columns).assign(who=name), 4)


def _spans(phases: Any, panel: float) -> Any:
    """Phases as stretches of time, every second one shaded; with its name where that fits into the stretch."""
    spans = phases.sort_values(["who", "start_s"])[["who", "phase", "start_s", "seconds"]]
    shade = ["#F0F0F0" if n % 2 else "#D5D5D5" for n in spans.groupby("who").cumcount()]
    end = spans["start_s"] + spans["seconds"]
    room = panel * spans["seconds"] / end.groupby(spans["who"]).transform("max")
    name = spans["phase"].where(room > LETTER * spans["phase"].str.len() + GAP, None)
    return spans.assign(start=spans["start_s"], end=end, shade=shade, name=name)[
        ["who", "phase", "start", "end", "shade", "name"]
    ]


def phases(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F5: the seconds of a run by phase, mean over runs; the line is from the shortest to the longest run."""
    return _phases(subject, width, columns, whole=True)


def phases_before_epochs(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F5 without the measured epochs and what follows them: what a run takes until it trains."""
    return _phases(subject, width, columns, whole=False)


def _phases(subject: Subject, width: float, columns: int, *, whole: bool) -> Dict[str, Any]:
    rows = subject.of(subject.study.phases)
    rows = rows if whole else rows[~rows["phase"].isin((EPOCHS, *AFTER_EPOCHS))]
    if rows.empty:
        return {}
    order = list(rows.sort_values("start_s")["phase"].drop_duplicates())
    per_run = rows.groupby(["who", "what", "run_id", "phase"], sort=False)["seconds"].sum().reset_index()
    runs = per_run.groupby(["who", "what"])["run_id"].transform("nunique")
    mean = per_run.assign(seconds=per_run["seconds"] / runs)
    mean = mean.groupby(["who", "what", "phase"], sort=False)["seconds"].sum().reset_index()
    mean["place"] = mean["phase"].map(order.index)
    totals = per_run.groupby(["who", "what", "run_id"])["seconds"].sum().groupby(["who", "what"]).agg(["min", "max"])
    mean = mean.merge(totals.reset_index(), on=["who", "what"]).merge(_start_ups(subject), on=["who", "what"])
    panel = panel_width(width, columns, 90)
    left = (panel - LETTER * mean["start"].str.len() - 8).clip(lower=panel / 4)
    mean = mean.assign(room=mean["max"] * panel / left)
    base = alt.Chart(alt.InlineData(values=rounded(mean))).encode(y=framework_axis(subject))
    scale = alt.Scale(domain=order, range=[look.STACK[n % len(look.STACK)] for n in range(len(order))])
    bars = base.mark_bar(stroke="white", strokeWidth=0.5).encode(
        x=alt.X(
            "sum(seconds):Q",
            title="seconds of a run" if whole else "seconds before the first measured epoch",
            axis=alt.Axis(tickCount=6),
        ),
        color=alt.Color("phase:N", sort=order, scale=scale, title="phase"),
        order=alt.Order("place:Q"),
        tooltip=["who:N", "phase:N", alt.Tooltip("seconds:Q", format=".3~g")],
    )
    ends = base.mark_rule(strokeWidth=2, color="black").encode(x="min(min):Q", x2="max(max):Q")
    texts = base.mark_text(align="left", dx=4).encode(x="max(max):Q", text="start:N")
    room = base.mark_point(opacity=0).encode(x="max(room):Q")
    height = 20 * len(subject.who) + 6
    chart = alt.layer(bars, ends, room, texts).properties(width=panel, height=height)
    return {"": panels(chart, subject, columns, x="independent")}


def _start_ups(subject: Subject) -> Any:
    """Of each cell its seconds before the first measured epoch as text, and after how many epochs a start has paid."""
    cells = subject.worked
    paid = epochs_until_paid(list(cells.set_index("cell").itertuples()))
    texts = []
    for cell in cells.itertuples():
        after = f", {paid[cell.cell]}" if cell.cell in paid else ""
        texts.append(f"{cell.startup_s:.3g} s{after}" if known(cell.startup_s) else "")
    return cells.assign(start=texts)[["who", "what", "start"]]


def waiting(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F6: the milliseconds of an image, computing and waiting for data, with the interval of both together."""
    import pandas as pd

    rows = []
    for cell in subject.worked.itertuples():
        if not (known(cell.images_per_s) and known(cell.data_wait_share)) or not cell.images_per_s:
            continue
        ms = 1000 / cell.images_per_s
        ends = [ms * end / cell.epoch_s_median for end in (cell.epoch_s_ci_low, cell.epoch_s_ci_high)]
        shares = (("computing", 1 - cell.data_wait_share), ("waiting for data", cell.data_wait_share))
        handed = cell.device.startswith("cuda") and not known(cell.compute_share)
        copying = ms * cell.copy_share if known(cell.copy_share) else None
        for part, share in shares:
            row = {"who": cell.who, "what": cell.what, "part": part, "ms": ms * share, "low": ends[0], "high": ends[1]}
            rows.append({**row, "copying": copying, "handed": handed})
    if not rows:
        return {}
    frame = pd.DataFrame(rows)
    whole = frame.groupby(["who", "what"])["ms"].transform("sum")
    values = rounded(cut(frame.assign(whole=whole), "whole", "low", "high"))
    base = alt.Chart(alt.InlineData(values=values)).encode(y=framework_axis(subject))
    copied = any(row["copying"] for row in rows)
    names = ["computing", "waiting for data", *(["copying"] if copied else [])]
    scale = alt.Scale(domain=names, range=["#4C78A8", "#F1C27D", "#222222"][: len(names)])
    bars = base.mark_bar(stroke="white", strokeWidth=0.5).encode(
        x=alt.X("sum(ms):Q", title="ms per image", axis=alt.Axis(tickCount=6)),
        color=alt.Color("part:N", scale=scale, title=None),
        opacity=alt.condition("datum.handed", alt.value(0.5), alt.value(1)),
        tooltip=["who:N", "part:N", alt.Tooltip("ms:Q", format=".3~g")],
    )
    thin = base.transform_filter("datum.copying > 0 && datum.part == 'computing'").mark_bar(size=3, yOffset=7)
    copies = thin.encode(x="copying:Q", color=alt.datum("copying", scale=scale), tooltip=["who:N", "copying:Q"])
    ends_ = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, color="black")
    ends_ = ends_.encode(x="min(low):Q", x2="max(high):Q")
    chart = alt.layer(bars, *([copies] if copied else []), ends_, arrows(base, "high", "x"))
    chart = chart.properties(width=panel_width(width, columns, 90), height=20 * len(subject.who) + 6)
    return {"": panels(chart, subject, columns, x="independent")}


def energy(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F11: joules per image, of the GPU and of the host's processors, with the interval of both together over runs."""
    cells = _with_energy(subject)
    cells = cut(cells.assign(whole=_joules(cells)), "whole", "j_low", "j_high")
    rows = [
        {"who": cell.who, "what": cell.what, "part": part, "j": float(value), "disturbed": cell.disturbed}
        | {"low": cell.j_low, "high": cell.j_high, "high_cut": cell.j_high_cut, "wh": cell.wh}
        for cell in cells.itertuples()
        for part, value in (("GPU", cell.gpu_j_per_image), ("host", cell.host_j_per_image))
        if known(value)
    ]
    if not rows:
        return {}
    base = alt.Chart(alt.InlineData(values=[{name: plain(one, 5) for name, one in row.items()} for row in rows]))
    base = base.encode(y=framework_axis(subject))
    total = alt.X("sum(j):Q", title="joules per image", axis=alt.Axis(tickCount=6))
    measured = [part for part in JOULES if any(row["part"] == part for row in rows)]
    scale = alt.Scale(domain=measured, range=[JOULES[part] for part in measured])
    bars = base.mark_bar(stroke="white", strokeWidth=0.5).encode(
        x=total,
        color=alt.Color("part:N", scale=scale, title=None),
        tooltip=[
            "who:N",
            "part:N",
            alt.Tooltip("j:Q", format=".3~g"),
            alt.Tooltip("wh:Q", title="Wh of an epoch", format=".3~g"),
        ],
    )
    ends = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, color="black")
    height = 20 * len(subject.who) + 6
    chart = alt.layer(
        bars, ends.encode(x="min(low):Q", x2="max(high):Q"), arrows(base, "high", "x"), warned(base, x=total)
    )
    chart = chart.properties(width=panel_width(width, columns, 90), height=height)
    return {"": panels(chart, subject, columns, x="independent")}


def frugality(subject: Subject, width: float, columns: int) -> Dict[str, Any]:
    """F11 as images per joule over images per second, with the intervals of both over runs."""
    cells = speeds(_with_energy(subject))
    rows = cells.assign(per_j=1 / _joules(cells), few=1 / cells["j_high"], many=1 / cells["j_low"])
    rows = rows[["who", "what", "images_per_s", "slow", "fast", "per_j", "few", "many", "disturbed"]]
    rows = rows.dropna(subset=["images_per_s", "per_j"])
    rows = cut(cut(rows, "images_per_s", "slow", "fast"), "per_j", "few", "many")
    if rows.empty:
        return {}
    base = alt.Chart(alt.InlineData(values=rounded(rows))).encode(
        x=alt.X("images_per_s:Q", title="images/s", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6)),
        y=alt.Y("per_j:Q", title="images per joule", scale=alt.Scale(zero=True)),
    )
    tint = colour(subject, alt.Legend())
    points = base.mark_point(filled=True, size=80).encode(
        color=tint,
        shape=shape(subject, alt.Legend()),
        tooltip=["who:N", alt.Tooltip("images_per_s:Q", format=".4~g"), alt.Tooltip("per_j:Q", format=".3~g")],
    )
    across = base.transform_filter("isValid(datum.slow)").mark_rule(strokeWidth=1.5)
    upwards = base.transform_filter("isValid(datum.few)").mark_rule(strokeWidth=1.5)
    across = across.encode(x="slow:Q", x2="fast:Q", color=tint)
    upwards = upwards.encode(y="few:Q", y2="many:Q", color=tint)
    ends = arrows(base, "fast", "x"), arrows(base, "many", "y")
    chart = alt.layer(across, upwards, points, *ends, warned(base))
    chart = chart.properties(width=panel_width(width, columns, 40) - 40, height=130)
    return {"": panels(chart, subject, columns, x="independent", y="independent")}


def _with_energy(subject: Subject) -> Any:
    """The cells that worked with the ends of the interval of their joules per image over runs, and Wh of an epoch."""
    cells, epochs = subject.worked, subject.of(subject.study.epochs)
    readings = subject.study.energy
    if readings.empty:
        return cells.assign(j_low=None, j_high=None, wh=None)
    found = joules_per_run(epochs, readings, ("gpu", "host-"))
    images = epochs.groupby("run_id")["images"].sum()
    cell_of = epochs.drop_duplicates("run_id").set_index("run_id")["cell"]
    rates: Dict[int, List[float]] = {}
    for run_id, joules in found.items():
        if joules is not None and images[run_id] > 0:
            rates.setdefault(int(cell_of[run_id]), []).append(joules / float(images[run_id]))
    spread = {cell: geometric_mean(values) for cell, values in rates.items()}

    def end(cell: int, name: str) -> Optional[float]:
        return getattr(spread[cell], name) if cell in spread else None

    return cells.assign(
        j_low=[end(cell, "low") for cell in cells["cell"]],
        j_high=[end(cell, "high") for cell in cells["cell"]],
        wh=_joules(cells) * cells["images_per_s"] * cells["epoch_s_median"] / WH,
    )


def _joules(cells: Any) -> Any:
    """Joules per image, of all that was measured."""
    return cells[["gpu_j_per_image", "host_j_per_image"]].sum(axis=1, min_count=1)
