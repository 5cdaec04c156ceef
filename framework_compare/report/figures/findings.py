"""What each figure shows of the data of one study, as a sentence that is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from framework_compare.report.figures.subject import Subject
from framework_compare.report.names import listed
from framework_compare.report.tables import known
from framework_compare.results import memory, ratios
from framework_compare.results.columns import Record
from framework_compare.results.metrics import digits
from framework_compare.results.parity import FAILED, PROVED
from framework_compare.results.ratios import Ratio

if TYPE_CHECKING:
    import pandas as pd

SAME = 1.005  # the ratio of two figures that are equal to three digits


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


def epoch_time(subject: Subject) -> str:
    return _spread(subject, subject.worked, "epoch_s_median", "Epochs take", "s", "")


def throughput_memory(subject: Subject) -> str:
    peaks, name = memory.peaks(subject.worked)
    cells = subject.worked.assign(gib=peaks / 2**30)
    return _spread(subject, cells, "gib", f"Peak {name}", "GiB")


def resources(subject: Subject) -> str:
    return _spread(subject, subject.worked, "cpu_percent_mean", "Mean CPU use", "% of a core")


def phases(subject: Subject) -> str:
    return _spread(subject, subject.worked, "startup_s", "Start-up takes", "s", "")


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
        f"{marked} of {len(epochs)} epochs were disturbed" if marked else f"None of {len(epochs)} epochs was disturbed"
    )
    if not epochs["disturbed"].notna().any():
        seen = "Disturbances were not sampled"
    return f"{seen}; the slowest took {relative.max():.2f} times the median of its cell."


def learning(subject: Subject) -> str:
    epochs = subject.of(subject.study.epochs)
    last = epochs[epochs["epoch"] == epochs.groupby("cell")["epoch"].transform("max")]
    losses = last.groupby(["condition_label", "framework_label"])["loss"].mean().dropna()
    if losses.empty:
        return ""
    ends = losses.groupby("condition_label").agg(["min", "max"])
    widest = (ends["max"] - ends["min"]).idxmax()
    low, high = ends.loc[widest]
    several = subject.worked["framework_label"].nunique() > 1
    where = f" ({widest})" if len(ends) > 1 else ""
    if not several:
        return f"The loss ends at {digits(high)}{where}."
    if high - low < (SAME - 1) * abs(high):
        return f"The losses of all frameworks end at {digits(high)}{where}."
    return f"The losses of the frameworks end between {digits(low)} and {digits(high)}{where}."


def energy(subject: Subject) -> str:
    cells = subject.worked
    joules = cells[["gpu_j_per_image", "host_j_per_image"]].sum(axis=1, min_count=1)
    return _spread(
        subject, cells[["framework_label", "condition_label"]].assign(j=joules), "j", "Energy per image", "J"
    )


def gains(subject: Subject) -> str:
    found = _beside(subject, ratios.speedups, ratios.ladder)
    if found:
        most, place = max(found)
        return f"The largest speed-up over a baseline is {most:.2f}x ({_who(subject, subject.cells.loc[place])})."
    if found := _beside(subject, ratios.stacks):
        least, place = min(found)
        cell = subject.cells.loc[place]
        return (
            f"The slowest library takes {1 / least:.2f} times as long as its plain framework ({_who(subject, cell)})."
        )
    gained = subject.study.gains
    gained = gained if gained.empty else gained[gained["gain"].notna()]
    if gained.empty:
        return ""
    most_gained = gained.loc[gained["gain"].idxmax()]
    return f"The rung with the largest speed-up is {most_gained['rung']}, at {most_gained['gain']:.2f}x."


def _beside(subject: Subject, *computes: Callable[..., Mapping[int, Ratio]]) -> list[tuple[float, int]]:
    """Ratios of speeds to other cells, each with the place of its cell."""
    cells = list(subject.study.frame.itertuples())
    return [
        (ratio.ratio, place)
        for compute in computes
        for place, ratio in compute(cells, subject.study.block_times).items()
        if ratio.base.Index != place and known(ratio.ratio) and place in subject.cells.index
    ]


def functions(subject: Subject) -> str:
    profile = subject.study.profiled
    named = profile[profile["name"].notna() & profile["share"].notna()]
    first = named[named["kind"] == named["kind"].iloc[0]] if len(named) else named
    if first.empty:
        return ""
    shares = first.groupby(["framework", "name"])["share"].max()
    framework, name = shares.idxmax()
    labels = dict(zip(subject.cells["framework"], subject.cells["framework_label"]))
    return f"The largest share is {100 * shares.max():.0f} %: {str(name)[:60]} in {labels.get(framework, framework)}."


def batch_sizes(subject: Subject) -> str:
    cells = subject.worked.dropna(subset=["images_per_s"])
    if not len(cells):
        return ""
    best = cells.loc[cells["images_per_s"].idxmax()]
    rate = f"{digits(best['images_per_s'])} images/s"
    return f"The highest throughput is {rate}, by {best['framework_label']} with batch size {best['batch_size']}."


def _spread(subject: Subject, cells: pd.DataFrame, column: str, what: str, unit: str, verb: str = " is") -> str:
    """The range of a figure, under the condition in which they are farthest apart; verb: "" if `what` ends in one."""
    cells = cells.dropna(subset=[column])
    cells = cells[cells[column] > 0]
    if not len(cells):
        return ""
    ends = cells.groupby("condition_label")[column].agg(["min", "max"])
    farthest = (ends["max"] / ends["min"]).idxmax()
    own = cells[cells["condition_label"] == farthest].sort_values(column, kind="stable")
    low, high = own.iloc[0], own.iloc[-1]
    where = f"In {farthest}, {what[0].lower()}{what[1:]}" if len(ends) > 1 else what
    if high[column] < SAME * low[column]:
        return f"{where}{verb} {digits(low[column])} {unit}{' in every framework' if len(own) > 1 else ''}."
    return (
        f"{where}{verb and ' ranges'} from {digits(low[column])} {unit} ({low['framework_label']}) to "
        f"{digits(high[column])} {unit} ({high['framework_label']}), a factor of {high[column] / low[column]:.2f}."
    )


def _who(subject: Subject, cell: Record) -> str:
    several = len(subject.conditions) > 1
    return f"{cell['framework_label']}, {cell['condition_label']}" if several else str(cell["framework_label"])
