"""Figures of where the time and the energy of a run go: phases (F5), computing and waiting (F6), energy (F9)."""

import math

import altair as alt
import pandas as pd

from framework_compare.protocol import Fields
from framework_compare.report.figures import marks
from framework_compare.report.figures.subject import LABELS, Subject
from framework_compare.report.tables import known

EPOCHS = "epochs"  # the phase of a run that is measured
BETWEEN = "between phases"
START = "total start-up"
LEAST_GAP = 1e-3  # seconds
LABEL = 45  # points of width that "100 ms" takes with the space around it
DURATION = (
    "datum.value < 0.001 ? format(1e6 * datum.value, '~g') + ' µs' : datum.value < 1 ? "
    "format(1000 * datum.value, '~g') + ' ms' : format(datum.value, '~g') + ' s'"
)
METERS = {"GPU": "gpu_j_per_image", "host": "host_j_per_image"}
WH = 3600.0  # joules
_ABOVE = {part: name.replace("_j_", "_above_idle_j_") for part, name in METERS.items()}
COMPUTING, HANDING, WAITING = PARTS = ("computing", "handing work to the device", "waiting for data")


def phases(subject: Subject, width: float, columns: int) -> Fields:
    """F5: the seconds of each phase of a run, mean over runs, on a logarithmic axis; START is all before the epochs.

    Waits for turns are left out.
    """
    rows = _with_gaps(subject.of(subject.study.phases))
    if rows.empty:
        return {}
    waited = rows["run_id"].map(subject.waited_s()).fillna(0.0).where(rows["phase"] == EPOCHS, 0.0)
    rows = rows.assign(seconds=rows["seconds"] - waited)
    order = list(rows.sort_values("start_s")["phase"].drop_duplicates())
    before = order.index(EPOCHS) if EPOCHS in order else len(order)
    if BETWEEN in order:
        order.remove(BETWEEN)
        order.insert(before - 1, BETWEEN)
    order.insert(before, START)
    rows = rows.assign(name=rows["phase"])
    starting = rows[rows["phase"].isin(order[:before])].assign(name=START)
    runs = rows.groupby(LABELS)["run_id"].nunique().rename("runs")
    every = (part.groupby([*LABELS, "name"], sort=False)["seconds"].sum().reset_index() for part in (rows, starting))
    mean = pd.concat(list(every)).join(runs, on=LABELS)
    mean = mean.assign(seconds=mean["seconds"] / mean["runs"])[[*LABELS, "name", "seconds"]]
    mean = mean[mean["seconds"] > 0]
    powers = _tens(mean["seconds"], marks.row_width(order, width, columns))
    tens = alt.Axis(values=powers, labelExpr=DURATION, labelFlush=True)
    x = alt.X("seconds:Q", title="duration", scale=alt.Scale(type="log"), axis=tens)
    tips = "framework_label:N", "name:N", alt.Tooltip("seconds:Q", format=".3~g")
    return {"": marks.dot_rows(mean, subject, x, order, width, columns, *tips)}


def _tens(seconds: pd.Series, width: float) -> list[float]:
    """Return powers of ten over the whole range, as many as a panel of this width has room to label."""
    low, high = math.floor(math.log10(seconds.min())), math.ceil(math.log10(seconds.max()))
    step = math.ceil((high - low) / max(1, width // LABEL))
    return [10.0**power for power in range(low, high + 1, max(1, step))]


def _with_gaps(phases: pd.DataFrame) -> pd.DataFrame:
    """Phases of runs with a row more for each time between two of them before the epochs, so that all add up to the start."""
    rows = phases.sort_values(["run_id", "start_s"], kind="stable")
    first = rows[rows["phase"] == EPOCHS].set_index("run_id")["start_s"]
    ended = (rows["start_s"] + rows["seconds"]).groupby(rows["run_id"]).cummax().groupby(rows["run_id"]).shift()
    gaps = rows.assign(phase=BETWEEN, start_s=ended, seconds=rows["start_s"] - ended)
    gaps = gaps[gaps["seconds"].gt(LEAST_GAP) & rows["start_s"].le(rows["run_id"].map(first))]
    return pd.concat([rows, gaps]) if len(gaps) else rows


def waiting(subject: Subject, width: float, columns: int) -> Fields:
    """F6: the milliseconds of an image, computing and waiting for data, with the interval of both together."""
    rows = []
    for cell in subject.worked.itertuples():
        if not (known(cell.images_per_s) and known(cell.data_wait_share)) or not cell.images_per_s:
            continue
        ms = 1000 / cell.images_per_s
        low, high = (ms * end / cell.epoch_s_median for end in (cell.epoch_s_ci_low, cell.epoch_s_ci_high))
        handed = cell.device.startswith("cuda") and not known(cell.compute_share)
        copying = ms * cell.copy_share if known(cell.copy_share) else None
        names = {"framework_label": cell.framework_label, "condition_label": cell.condition_label}
        shares = {HANDING if handed else COMPUTING: 1 - cell.data_wait_share, WAITING: cell.data_wait_share}
        for part, share in shares.items():
            own = {"part": part, "place": PARTS.index(part), "ms": ms * share, "low": low, "high": high}
            rows.append({**names, **own, "copying": copying if part == COMPUTING else None})
    if not rows:
        return {}
    frame = pd.DataFrame(rows)
    base = marks.chart(
        marks.cut(frame.assign(whole=frame.groupby(LABELS)["ms"].transform("sum")), "whole", "low", "high")
    )
    base = base.encode(y=marks.framework_axis(subject))
    x = alt.X("sum(ms):Q", title="ms per image", axis=alt.Axis(tickCount=6, labelOverlap=True))
    tips = ["framework_label:N", "part:N", alt.Tooltip("ms:Q", format=".3~g")]
    bars = marks.stacked_bars(base, subject, [one for one in PARTS if one in set(frame["part"])], x=x, tooltip=tips)
    thin = base.transform_filter("datum.copying > 0").mark_bar(size=3, yOffset=9, color=marks.ENDS)
    copies = thin.encode(x="copying:Q", tooltip=["framework_label:N", "copying:Q"])
    layers = bars, copies, marks.whole_interval(base), marks.arrows(base, "high", "x")
    return {"": marks.bar_panels(layers, subject, width, columns)}


def energy(subject: Subject, width: float, columns: int) -> Fields:
    """F9: joules per image of GPU and host, idle power apart, with the interval of all together over runs."""
    cells = subject.worked.rename(columns={"j_per_image_ci_low": "low", "j_per_image_ci_high": "high"})
    whole = cells[list(METERS.values())].sum(axis=1, min_count=1)
    cells = cells.assign(whole=whole, wh=whole * cells["images_per_s"] * cells["epoch_s_median"] / WH)
    drawn = [*LABELS, *METERS.values(), *_ABOVE.values(), "disturbed", "low", "high", "high_cut", "wh"]
    cells = marks.cut(cells, "whole", "low", "high")[drawn]
    parts: dict[str, pd.Series] = {}
    for part, name in METERS.items():  # joules of an idle device apart where its idle power is known
        above = cells[_ABOVE[part]]
        parts.update({part: above.fillna(cells[name]), f"{part}, idle": cells[name] - above})
    listed = [cells.assign(part=part, place=place, j=joules) for place, (part, joules) in enumerate(parts.items())]
    rows = pd.concat(listed).dropna(subset="j").drop(columns=[*METERS.values(), *_ABOVE.values()])
    if rows.empty:
        return {}
    base = marks.chart(rows).encode(y=marks.framework_axis(subject))
    total = alt.X("sum(j):Q", title="joules per image", axis=alt.Axis(tickCount=6))
    watt_hours = alt.Tooltip("wh:Q", title="Wh of an epoch", format=".3~g")
    tips = ["framework_label:N", "part:N", alt.Tooltip("j:Q", format=".3~g"), watt_hours]
    measured = list(rows["part"].drop_duplicates())
    bars = marks.stacked_bars(base, subject, measured, x=total, tooltip=tips)
    layers = bars, marks.whole_interval(base), marks.arrows(base, "high", "x"), marks.warned(base, x=total)
    return {"": marks.bar_panels(layers, subject, width, columns)}
