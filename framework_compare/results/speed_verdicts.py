"""Verdicts on two cells over paired blocks of runs: which trains faster, by how much, and how sure that is.

And who trains fastest, if anyone is shown to: the one answer that sentences, tables, figures and JSON give.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from framework_compare.errors import check_name
from framework_compare.plan import settings
from framework_compare.protocol import Document, Fields
from framework_compare.results import intervals, repeats
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import SHARED, Record, grouped, values, values_of
from framework_compare.results.intervals import LEVEL, MIN_RUNS, Interval
from framework_compare.results.parity import FAILED, PROVED
from framework_compare.results.ratios import epoch_seconds, timed

GEOMETRIC_MEAN = "geometric mean"
THROUGHOUT = "other programs took CPU time in every epoch of "
UNKNOWN = "the CPU time of other programs is unknown for "
VOID = "most rounds do not count for "
# What taking turns may change (docs/records/turns.md): a slice's place in its round on a CPU, on a GPU a rival's presence. A
# smaller difference is not shown.
OF_TURNS, OF_TURNS_ON_GPU = 0.003, 0.009
# What competitors may differ in.
SUBJECTS = ("framework", *settings.of_role(settings.IDENTITY))
Key = tuple[str, tuple[object, ...]]  # model, values of the condition


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verdict on two competitors under one condition.

    model: its name, or "geometric mean" over `models`. condition: the data set and the settings that both share, by
    column. ratio: epoch time of `slower` over that of `faster`, 1 or more, over paired blocks; low and high are its 95 %
    interval. If there is no verdict, ratio is that of the epoch times, without an interval.
    shown: whether the difference is significant, and its interval beyond what turns may cause; if not, `faster` and `slower`
    only order the figures. corrected: whether `shown` is adjusted for the number of `comparisons`; the interval never is.
    p: p value of this comparison, not adjusted. reason: why there is no verdict, "" if there is one; disturbed: the
    competitor disturbed in every epoch, if that is the reason. verified: whether both are verified to train the same function.
    """

    model: str
    condition: Document
    faster: str
    slower: str
    ratio: float
    low: float | None
    high: float | None
    shown: bool = False
    corrected: bool = False
    sentence: str = ""
    models: tuple[str, ...] = ()
    blocks: int = 0
    p: float | None = None
    comparisons: int = 1
    reason: str = ""
    disturbed: str = ""
    verified: bool = False


class Bar(NamedTuple):
    """The reason that no verdict can stand, whatever the times are; "" if it can. disturbed: as in `Verdict`.

    failed: whether a competitor does not work, or fails parity.
    """

    reason: str = ""
    disturbed: str = ""
    failed: bool = False


def verdicts(cells: Sequence[Record], blocks: BlockTimes, of: str = "framework", correct: bool = True) -> list[Verdict]:
    """Compare each pair of cells that differ only in `of`, model by model, then their geometric means over models.

    correct: adjust for the number of comparisons of a kind (single models, or geometric means) by Holm's method.
    Cells without any epoch are ignored. Raises UnknownNameError for a setting that cannot have competitors.
    """
    check_name("subject of verdicts", of, SUBJECTS)
    measured = (cell for cell in cells if cell.status == "ok" and blocks.get(cell.Index))
    singles, means = [], []
    for alike in grouped(measured, condition_of(of)).values():
        for rivals in grouped(alike, lambda cell: cell.model).values():
            for a, b in itertools.combinations(rivals, 2):
                singles.append(_of_models(((a, b),), blocks.ratio(b.Index, a.Index), of))
        means += _means(alike, blocks, of)
    return [*_judged(singles, correct), *_judged(means, correct)]


@functools.cache
def condition_of(of: str = "framework") -> Callable[[Record], tuple[object, ...]]:
    """Return a function from a cell to the values of its `condition`."""
    return values_of(*(name for name in ("framework", "dataset", *SHARED) if name != of))


def condition(cell: Record, of: str = "framework") -> Fields:
    """Return what a cell shares with its competitors, without its model, by column."""
    return {name: getattr(cell, name) for name in ("framework", "dataset", *SHARED) if name != of}


def blocking_reason(*cells: Record, of: str = "framework") -> Bar:
    """Return why no verdict can stand on these cells, which are named by their `of`."""
    for cell in cells:
        if cell.status != "ok":
            return Bar(
                f"{getattr(cell, of)} is {cell.status}" + (f": {cell.reason}" if cell.reason else ""), failed=True
            )
        if cell.parity_status == FAILED:
            return Bar(f"{getattr(cell, of)} fails parity", failed=True)
    for cell in cells:
        name = str(getattr(cell, of))
        if repeats.disturbed_throughout(cell.epochs_disturbed, cell.epochs_measured):
            if not cell.disturbed_share > 0:  # rounds may be void for what a rival did
                return Bar(f"{VOID}{name}")
            return Bar(f"{THROUGHOUT}{name}", name)
        if cell.epochs_disturbed != cell.epochs_disturbed:
            return Bar(f"{UNKNOWN}{name}")
    return Bar()


def verified(*cells: Record) -> bool:
    """Return whether parity is proved for all of these."""
    return all(cell.parity in PROVED for cell in cells)


def _means(cells: Sequence[Record], blocks: BlockTimes, of: str) -> list[Verdict]:
    """Each two competitors over the models that both have, where these are two or more."""
    by_name: dict[str, dict[str, Record]] = {}
    for cell in cells:
        by_name.setdefault(str(getattr(cell, of)), {})[cell.model] = cell
    means: dict[tuple[str, ...], BlockTimes] = {}
    drafts = []
    for first, second in itertools.combinations(by_name, 2):
        models = tuple(model for model in by_name[first] if model in by_name[second])
        if len(models) > 1:
            if models not in means:
                complete = {name: own for name, own in by_name.items() if own.keys() >= {*models}}
                means[models] = blocks.means({n: [own[model].Index for model in models] for n, own in complete.items()})
            ratio = means[models].ratio(second, first)
            if ratio is None or ratio.runs < MIN_RUNS:  # as under a budget, where models have blocks of their own
                places = [[by_name[name][model].Index for model in models] for name in (second, first)]
                ratio = blocks.ratio_over(*places) or ratio
            drafts.append(_of_models([(by_name[first][m], by_name[second][m]) for m in models], ratio, of))
    return drafts


def _of_models(both: Sequence[tuple[Record, Record]], ratio: Interval | None, of: str) -> Verdict:
    """Return the draft of a verdict on two competitors with one model, or on their geometric mean over several.

    Where no verdict can stand its ratio is that of the figures that tables show, without an interval.
    """
    a, b = both[0]
    models = tuple(first.model for first, _ in both)
    bars = [(blocking_reason(*two), f" with {model}" if len(both) > 1 else "") for two, model in zip(both, models)]
    bar, where = next((one for one in bars if one[0].reason), (Bar(), ""))
    bar = Bar(bar.reason and bar.reason + where, bar.disturbed and bar.disturbed + where)
    if ratio is None or ratio.p is None or bar.reason:
        mean = statistics.geometric_mean(epoch_seconds(second) / epoch_seconds(first) for first, second in both)
        ratio = Interval(mean, runs=0 if ratio is None else ratio.runs)
    names = str(getattr(a, of)), str(getattr(b, of))
    proved = all(verified(*two) for two in both)
    model = GEOMETRIC_MEAN if len(both) > 1 else a.model
    return _draft(names, ratio, bar, proved, {"model": model, "models": models, "condition": condition(a, of)})


def of_two(
    subject: str, names: tuple[str, str], ratio: Interval | None, bar: Bar, proved: bool, device: str = "cpu"
) -> Verdict:
    """The verdict on two competitors alone: ratio is seconds of the second over those of the first; None is unknown."""
    about: Fields = {"model": subject, "models": (subject,), "condition": {"device": device}}
    return _judged([_draft(names, ratio or intervals.UNKNOWN, bar, proved, about)], correct=False)[0]


def ranks(names: Sequence[str], among: Sequence[Verdict]) -> dict[str, int]:
    """The rank of each competitor under one condition: 1, and 1 more for each that is shown to be faster.

    So competitors without a difference between them share a rank, unless a third one parts them. One without an interval
    beside another that has a rank and is faster has none.
    """
    tested = {frozenset((one.faster, one.slower)) for one in among if one.p is not None}
    ranked: list[str] = []
    for name in sorted(names, key=lambda name: -sum(one.faster == name for one in among)):
        if all(frozenset((name, other)) in tested for other in ranked):
            ranked.append(name)
    shown = [one.slower for one in among if one.shown and one.faster in ranked]
    return {name: 1 + shown.count(name) for name in names if name in ranked} if len(ranked) > 1 else {}


def _draft(names: tuple[str, str], ratio: Interval, bar: Bar, proved: bool, about: Fields) -> Verdict:
    """Return the verdict on two competitors before p values are corrected.

    ratio: seconds of the second over the first's; about: its model, models and condition.
    """
    reason = bar.reason
    if not reason and ratio.p is None:
        there = {0: "is none", 1: "is 1"}.get(ratio.runs, f"are {ratio.runs}")
        reason = f"an interval needs {MIN_RUNS} blocks in which both ran; there {there}"
    found: Fields = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "p": ratio.p, "blocks": ratio.runs}
    why: Fields = {"reason": reason, "disturbed": bar.disturbed, "verified": proved}
    draft = Verdict(faster=names[0], slower=names[1], **about, **found, **why)
    return inverted(draft) if ratio.value < 1 else draft


def _judged(drafts: Sequence[Verdict], correct: bool) -> list[Verdict]:
    p_values = [_p_beyond_turns(one) for one in drafts if not one.reason]
    corrected = correct and len(p_values) > 1
    remaining = iter(intervals.holm(p_values) if corrected else p_values)
    judged = []
    for one in drafts:
        shown = not one.reason and next(remaining) < 1 - LEVEL
        one = dataclasses.replace(one, shown=shown, corrected=corrected, comparisons=len(p_values))
        judged.append(dataclasses.replace(one, sentence=sentence(one)))
    return judged


def _of_turns(verdict: Verdict) -> float:
    on_cpu = str(verdict.condition.get("device", "cpu")).startswith("cpu")
    return OF_TURNS if on_cpu else OF_TURNS_ON_GPU


def _p_beyond_turns(verdict: Verdict) -> float:
    """Return the p value of a difference of what taking turns may cause."""
    ratio = intervals.Interval(verdict.ratio, verdict.low, verdict.high, verdict.p, verdict.blocks)
    return intervals.p_beyond(ratio, _of_turns(verdict))


def inverted(verdict: Verdict) -> Verdict:
    """Return the same of the two the other way round."""
    low, high = (end if end is None else 1 / end if end else math.inf for end in (verdict.high, verdict.low))
    names: Fields = {"faster": verdict.slower, "slower": verdict.faster}
    return dataclasses.replace(verdict, **names, ratio=1 / verdict.ratio, low=low, high=high)


def sentence(verdict: Verdict) -> str:
    """A verdict in one sentence, headed by its model."""
    return f"{subject(verdict)}: {statement(verdict)}"


def subject(verdict: Verdict) -> str:
    """Return the subject of a verdict: a model, or how many, marked where the optimizers are not the same; its framework."""
    mark = " (native optimizers, not equal)" if verdict.condition.get("optimizer_variant") == "native" else ""
    several = f" of {len(verdict.models)} models" if len(verdict.models) > 1 else ""
    name = verdict.model.capitalize() if verdict.model == GEOMETRIC_MEAN else verdict.model
    within = verdict.condition.get("framework")  # of competitors that differ in something else
    return f"{name}{several}{mark}{f' in {within}' if within else ''}"


def statement(verdict: Verdict) -> str:
    """Return the statement of a verdict without its subject."""
    both = f"{verdict.faster} and {verdict.slower}"
    if verdict.reason:
        return f"no verdict on {both} ({verdict.ratio:.2f}x; {verdict.reason})"
    if verdict.shown:
        return f"{verdict.faster} is {times(verdict)} faster than {verdict.slower}{doubt(verdict)}"
    return f"no significant difference between {both} ({beside(verdict)})"


def doubt(*verdicts: Verdict) -> str:
    """Return what a sentence that names the faster one must add."""
    return "" if all(one.verified for one in verdicts) else " (not verified)"


def beside(verdict: Verdict) -> str:
    """The figures of a difference that is not shown, and why it is not where its interval leaves 1 out."""
    why = ""
    if verdict.p is not None and verdict.p < 1 - LEVEL:
        within = f"; taking turns may cause {100 * _of_turns(verdict):g} %"
        beyond = _p_beyond_turns(verdict) < 1 - LEVEL
        why = f"; corrected for {verdict.comparisons} comparisons" if beyond else within
    return f"{times(verdict)}{why}"


def times(verdict: Verdict) -> str:
    """The ratio and its interval, to two decimals, or as many as keep the nearer end apart from 1."""
    low, high = verdict.low or 0.0, math.inf if verdict.high is None else verdict.high
    places = next((n for n in (2, 3, 4) if not verdict.shown or round(low, n) > 1), 5)
    ends = f"{low:.{places}f}, {high:.{places}f}" if high < 1000 else f"{low:.2g}, {high:.2g}"
    return f"{verdict.ratio:.{places}f}x [{ends}]"


class Winner(NamedTuple):
    """The answer for one model under one condition.

    framework: the one that is shown to be faster than each rival; None where no one is. excluded: frameworks that are
    no rivals, as they fail parity. reason: why no one is named, with {} in place of the frameworks `whose` it is.
    """

    model: str
    condition: Document
    framework: str | None = None
    excluded: tuple[str, ...] = ()
    reason: str = ""
    whose: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return key(self)

    def why(self, named: Callable[[str], str] = str) -> str:
        """Return why no one is named, with frameworks as `named` writes them; "" where one is."""
        return self.reason.format(", ".join(map(named, self.whose)))


def key(one: Record | Verdict | Winner) -> Key:
    """Return what rivals share, from a cell, a verdict or a winner."""
    if hasattr(one, "condition"):
        return one.model, values(one.condition)
    return one.model, condition_of()(one)


def winners(cells: Sequence[Record], verdicts: Sequence[Verdict]) -> list[Winner]:
    """One for each model and condition under which two frameworks or more have an epoch time."""
    judged = grouped(verdicts, key)
    rivals = grouped(timed(cells), key).items()
    return [_winner(several, judged.get(shared, ())) for shared, several in rivals if len(several) > 1]


def _winner(cells: Sequence[Record], verdicts: Sequence[Verdict]) -> Winner:
    failing = tuple(cell.framework for cell in cells if cell.parity_status == FAILED)
    none = Winner(cells[0].model, condition(cells[0]), excluded=failing)
    ahead = min(cells, key=epoch_seconds).framework
    if ahead in failing:
        return none._replace(reason="{} is ahead but fails parity", whose=(ahead,))
    rivals = [cell for cell in cells if cell.framework not in failing]
    if len(rivals) < 2:
        return none._replace(reason="{}: parity fails", whose=failing)
    barred = [(blocking_reason(cell), cell.framework) for cell in rivals]
    disturbed = tuple(name for bar, name in barred if bar.disturbed)
    if disturbed:
        return none._replace(reason=f"{THROUGHOUT}{{}}", whose=disturbed)
    names = {cell.framework for cell in rivals}
    among = [one for one in verdicts if {one.faster, one.slower} <= names]
    for name in names:
        if {one.slower for one in among if one.shown and one.faster == name} == names - {name}:
            return none._replace(framework=name)
    unclear = [one.reason for one in among if one.reason]
    for why in (UNKNOWN, VOID):
        whose = tuple(cell.framework for cell in rivals if why + cell.framework in unclear)
        if whose:
            return none._replace(reason=f"{why}{{}}", whose=whose)
    few = tuple(cell.framework for cell in rivals if cell.runs_ok < MIN_RUNS)
    if not among or few:
        all_of_them = "" if not few or len(few) == len(rivals) else "{}: "
        return none._replace(reason=f"{all_of_them}fewer than {MIN_RUNS} runs", whose=few)
    return none._replace(reason=unclear[0] if unclear else "no significant difference")
