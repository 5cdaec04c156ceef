"""Findings of each view of a figure, as a sentence that is computed from the data of one study."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from framework_compare.report.figures.learning import profiled, shares_of_time
from framework_compare.report.figures.subject import LABELS, Subject
from framework_compare.report.names import listed
from framework_compare.report.resource_tables import peak_memory
from framework_compare.report.tables import known
from framework_compare.results import ratios
from framework_compare.results.columns import Record
from framework_compare.results.metrics import digits
from framework_compare.results.parity import FAILED, PROVED

SAME = 1.005  # the ratio of two figures that are equal to three digits
QUALITIES = ("validation_", "test_", "train_")  # kinds of columns, of which the first with values is told
TIMES = {"operator": "the host time", "cuda-runtime": "the host time in CUDA calls", "kernel": "the GPU time"}


def overview(subject: Subject) -> str:
    cells = subject.judged[subject.judged["worked"]]
    rivals = cells.groupby("condition_label")["framework_label"].transform("nunique")
    cells = cells[rivals > 1]
    cases = cells["condition_label"].nunique()
    if not cases:
        return "No two frameworks ran the same model."
    won = cells.loc[cells["fastest"].astype(bool), "framework_label"].value_counts()
    slowest = cells.loc[cells["best"].idxmax()]
    most = f"the largest slowdown is {slowest['best']:.2f}x ({_who(subject, slowest)})"
    if not len(won):
        return f"No framework is significantly faster than all others; {most}."
    counted = [f"{name}{f' ({count} of {cases})' if cases > 1 else ''}" for name, count in won.items()]
    are = "are" if len(counted) > 1 else "is"
    decided = cells[cells.groupby("condition_label")["fastest"].transform("any") & cells["parity_status"].ne(FAILED)]
    doubt = "" if decided["parity"].isin(PROVED).all() else " (not verified)"
    return f"{listed(counted)} {are} significantly faster than all others{doubt}; {most}."


def _spread_of(*figure: str) -> Callable[[Subject], str]:
    return lambda subject: _spread(subject.worked, *figure)


epoch_time = _spread_of("epoch_s_median", "Epochs take", "s", "")
throughput = _spread_of("images_per_s", "Throughput", "images/s")
measured = _spread_of("cpu_percent_mean", "Mean CPU use during the measured epochs", "% of a core")
phases = _spread_of("startup_s", "Start-up takes", "s", "")


def throughput_memory(subject: Subject) -> str:
    peaks, name = peak_memory(subject.worked)
    cells = subject.worked.assign(gib=peaks / 2**30)
    return " ".join(filter(None, [_fastest_is_largest(cells), _spread(cells, "gib", f"Peak {name}", "GiB")]))


def _fastest_is_largest(cells: pd.DataFrame) -> str:
    """Return whether the framework with the highest throughput needs the most memory, over all conditions with rivals."""
    cells = cells.dropna(subset=["gib", "images_per_s"])
    groups = [own for _, own in cells.groupby("condition_label") if len(own) > 1]
    groups = [own for own in groups if own["gib"].max() >= SAME * own["gib"].min()]
    both = sum(own["images_per_s"].idxmax() == own["gib"].idxmax() for own in groups)
    subject = "the framework with the highest throughput"
    if len(groups) > 1:
        if not both:
            return f"In none of {len(groups)} cases does {subject} need the most memory."
        return f"In {both} of {len(groups)} cases, {subject} also needs the most memory."
    if not groups:
        return ""
    name = groups[0].loc[groups[0]["images_per_s"].idxmax(), "framework_label"]
    return f"The{subject[3:]} ({name}) {'also needs' if both else 'does not need'} the most memory."


def whole_run(subject: Subject) -> str:
    """The share of measured epochs in the wall time of a run, both without waits for turns."""
    epochs = subject.of(subject.study.epochs).groupby([*LABELS, "run_id"])["epoch_s"].sum().reset_index("run_id")
    wall = epochs["run_id"].map(subject.study.runs.set_index("run_id")["wall_s"])
    shares = (100 * epochs["epoch_s"] / wall).groupby(LABELS).mean().rename("share").reset_index()
    return _spread(shares, "share", "Measured epochs take", "% of a run", "")


def waiting(subject: Subject) -> str:
    cells = subject.worked.dropna(subset=["data_wait_share"])
    if not len(cells):
        return ""
    most = cells.loc[cells["data_wait_share"].idxmax()]
    return f"Waiting for data takes at most {100 * most['data_wait_share']:.1f} % of an epoch ({_who(subject, most)})."


def machine(subject: Subject) -> str:
    epochs = subject.whole_epochs()
    relative = epochs["epoch_s"] / epochs.groupby("cell")["epoch_s"].transform("median")
    marked = int(epochs["disturbed"].eq(1).sum())
    seen = (
        f"{marked} of {len(epochs)} epochs {'was' if marked == 1 else 'were'} disturbed"
        if marked
        else f"None of {len(epochs)} epochs was disturbed"
    )
    if not epochs["disturbed"].notna().any():
        seen = "Disturbances were not sampled"
    return f"{seen}; epochs take {relative.min():.2f} to {relative.max():.2f} times the median of their cell."


def learning(subject: Subject) -> str:
    epochs = subject.of(subject.study.epochs)
    last = epochs[epochs["epoch"] == epochs.groupby("cell")["epoch"].transform("max")]
    known_qualities = [
        name for name in last if not name.endswith("_loss") and name.startswith(QUALITIES) and last[name].any()
    ]
    first = next((kind for kind in QUALITIES if any(name.startswith(kind) for name in known_qualities)), "")
    qualities = [name for name in known_qualities if name.startswith(first)]
    ends = [_end(subject, last, name) for name in ("loss", *qualities)]
    return _sentence([end for end in ends if end])


def learning_by_time(subject: Subject) -> str:
    epochs = subject.of(subject.study.epochs)
    runs = epochs.groupby([*LABELS, "run_id"])["epoch_s"].sum().groupby(LABELS).mean().rename("s").reset_index()
    return _spread(runs, "s", "All epochs together take", "s", "")


def _end(subject: Subject, last: pd.DataFrame, name: str) -> str:
    """Return where a quality ends, under the condition in which the frameworks differ most; "" without values."""
    values = last.groupby(LABELS)[name].mean().dropna()
    if values.empty:
        return ""
    ends = values.groupby("condition_label").agg(["min", "max"])
    widest = (ends["max"] - ends["min"]).idxmax()
    low, high = ends.loc[widest]
    where = f" ({widest})" if len(ends) > 1 else ""
    what = f"the {name.replace('_', ' ')}"
    if subject.worked["framework_label"].nunique() < 2:
        return f"{what} ends at {digits(high)}{where}"
    if high - low < (SAME - 1) * abs(high):
        return f"{what} ends at {digits(high)} in every framework{where}"
    return f"{what} ends between {digits(low)} and {digits(high)}{where}"


def energy(subject: Subject) -> str:
    cells = subject.worked
    joules = cells[["gpu_j_per_image", "host_j_per_image"]].sum(axis=1, min_count=1)
    ends = {"low": cells["j_per_image_ci_low"], "high": cells["j_per_image_ci_high"]}
    rows = cells[["framework_label", "condition_label"]].assign(j=joules, **ends)
    return _spread(rows, "j", "Energy per image", "J")


def gains(subject: Subject) -> str:
    seen = []
    for base, compute in (("the CPU", ratios.speedups), ("fp32 eager", ratios.ladder)):
        if found := subject.compared(compute):
            place, most = max(found.items(), key=lambda one: (one[1].ratio, one[0]))
            who = _who(subject, subject.cells.loc[place])
            seen.append(f"the largest speed-up over {base} is {most.ratio:.2f}x ({who})")
    if found := subject.compared(ratios.stacks):
        place, least = min(found.items(), key=lambda one: (one[1].ratio, one[0]))
        who = _who(subject, subject.cells.loc[place])
        seen.append(f"the slowest library takes {1 / least.ratio:.2f} times as long as its plain framework ({who})")
    gained = subject.study.gains
    gained = gained if gained.empty else gained[gained["gain"].notna()]
    if not gained.empty:
        best = gained.loc[gained["gain"].idxmax()]
        seen.append(f"the rung with the largest speed-up is {best['rung']}, at {best['gain']:.2f}x")
    return _sentence(seen)


def functions(subject: Subject) -> str:
    named = profiled(subject)
    seen = []
    for kind, time in TIMES.items():
        rows = named[named["kind"] == kind] if len(named) else named
        if len(rows):
            shares = shares_of_time(rows, kind)
            most = shares.loc[shares["share"].idxmax()]
            seen.append(f"{time} is {100 * most['share']:.0f} % ({most['name']}; {_who(subject, most)})")
    return _sentence([f"the largest share of {'; of '.join(seen)}"] if seen else [])


def batch_sizes(subject: Subject) -> str:
    cells = subject.worked.dropna(subset=["images_per_s"])
    if not len(cells):
        return ""
    best = cells.loc[cells["images_per_s"].idxmax()]
    rate = f"{digits(best['images_per_s'])} images/s"
    seen = [f"the highest throughput is {rate} ({best['framework_label']}, batch size {best['batch_size']})"]
    peaks, name = peak_memory(subject.worked)
    if peaks.notna().any():
        most = subject.worked.loc[peaks.idxmax()]
        who = f"{most['framework_label']}, batch size {most['batch_size']}"
        seen.append(f"the largest peak {name} is {digits(peaks.max() / 2**30)} GiB ({who})")
    return _sentence(seen)


def _spread(cells: pd.DataFrame, column: str, what: str, unit: str, verb: str = " is") -> str:
    """The range of a figure, under the condition in which they are farthest apart; verb: "" if `what` ends in one."""
    cells = cells.dropna(subset=[column])
    cells = cells[cells[column] > 0]
    if not len(cells):
        return ""
    ends = cells.groupby("condition_label")[column].agg(["min", "max"])
    farthest = (ends["max"] / ends["min"]).idxmax()
    own = cells[cells["condition_label"] == farthest].sort_values(column, kind="stable")
    low, high = own.iloc[0], own.iloc[-1]
    several, inner = len(ends) > 1, f"{what[0].lower()}{what[1:]}"
    if high[column] < SAME * low[column]:
        where = f"In {farthest}, {inner}" if several else what
        return f"{where}{verb} {digits(low[column])} {unit}{' in every framework' if len(own) > 1 else ''}."
    where = f"The gap is widest in {farthest}: {inner}" if several else what
    apart = f", a factor of {high[column] / low[column]:.2f}."
    if "high" in cells and not low["high"] < high["low"]:  # NaN of single runs shows no difference
        known_ends = known(low["high"]) and known(high["low"])
        apart = f"; {'their 95 % confidence intervals overlap' if known_ends else 'no interval is known'}."
    return (
        f"{where}{verb and ' ranges'} from {digits(low[column])} {unit} ({low['framework_label']}) to "
        f"{digits(high[column])} {unit} ({high['framework_label']}){apart}"
    )


def _sentence(seen: Sequence[str]) -> str:
    """Clauses as one sentence, "" for none."""
    text = "; ".join(seen)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _who(subject: Subject, cell: Record) -> str:
    several = len(subject.conditions) > 1
    return f"{cell['framework_label']}, {cell['condition_label']}" if several else str(cell["framework_label"])
