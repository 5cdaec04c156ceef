"""The first lines of a table: what its times show of the frameworks, model by model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from framework_compare.protocol import Fields
from framework_compare.report.names import listed, title
from framework_compare.results import speed_verdicts
from framework_compare.results.columns import Record, grouped
from framework_compare.results.intervals import MIN_RUNS
from framework_compare.results.runs import Modes
from framework_compare.results.speed_verdicts import GEOMETRIC_MEAN, Verdict, key, winners

MAX_LINES, MIN_LINES = 8, 2
_UNKNOWN: Mapping[str, Modes] = {}
_ONE_RUN = f"No verdict: an interval needs at least {MIN_RUNS} runs per cell (more `repeats`, or a larger `budget`)."


def verdicts_for(cells: Sequence[Record], verdicts: Mapping[tuple[object, ...], Sequence[Verdict]]) -> list[Verdict]:
    """Return the verdicts on cells of one table from those by condition; means only where it has all their models."""
    if not verdicts:
        return []
    conditions = dict.fromkeys(map(speed_verdicts.condition_of(), cells))
    models = {cell.model for cell in cells}
    under = [one for condition in conditions for one in verdicts.get(condition, ())]
    return sorted((one for one in under if models.issuperset(one.models)), key=lambda one: len(one.models) > 1)


def with_display_names(verdict: Verdict) -> Verdict:
    """A verdict with the names that people write."""
    changed: Fields = {field: title(getattr(verdict, field)) for field in ("model", "faster", "slower")}
    names = {name: title(name) for name in (verdict.faster, verdict.slower, *verdict.models)}
    known = re.compile(rf"(?<![\w-])(?:{_any_of(names)})(?![\w@-])")
    for field in ("reason", "disturbed"):
        changed[field] = known.sub(lambda found: names[found[0]], getattr(verdict, field))
    named = dataclasses.replace(verdict, **changed)
    return dataclasses.replace(named, sentence=speed_verdicts.sentence(named))


def lines(cells: Sequence[Record], verdicts: Sequence[Verdict], modes: Mapping[str, Modes] = _UNKNOWN) -> list[str]:
    """The answers, and what their intervals are; none where nothing competes."""
    return [*answers(cells, verdicts, modes), *remarks(verdicts)]


def answers(cells: Sequence[Record], verdicts: Sequence[Verdict], modes: Mapping[str, Modes] = _UNKNOWN) -> list[str]:
    """A line per geometric mean over models, then one per model and condition; none where nothing competes.

    The first mention of each framework names the execution mode in which it ran.
    """
    if not verdicts:
        worked = [key(cell) for cell in cells if cell.status == "ok"]
        return [_ONE_RUN] if len(set(worked)) < len(worked) else []  # some differ in nothing but their framework
    fastest = {one.key: one.framework for one in winners(cells, verdicts)}
    conditions = [one.condition for one in verdicts]
    varied = [name for name in conditions[0] if len({str(one[name]) for one in conditions}) > 1]
    groups = grouped(verdicts, lambda one: (one.models, *key(one)))
    lines = {names: _line(group, varied, fastest.get(key(group[0]))) for names, group in groups.items()}
    of_models = [line for names, line in lines.items() if names[1] != GEOMETRIC_MEAN]
    over_all = [line for names, line in lines.items() if names[1] == GEOMETRIC_MEAN][:MAX_LINES]
    room = max(MAX_LINES - len(over_all), MIN_LINES)  # the answer over all models is not what is cut
    if len(of_models) > room:
        left = len(of_models) - room
        of_models[room:] = [f"{left} more: `Comparison.verdicts()` lists all."]
    # Where others disturbed so much that no framework can be named, a line tells what to do.
    void = any(one.disturbed for one in verdicts) and all(one.reason for one in verdicts)
    notice = "No verdict: other programs took CPU time. Run again when `doctor` finds the machine quiet."
    return with_modes("\n".join([*([notice] if void else []), *over_all, *of_models]), modes).split("\n")


def _line(group: Sequence[Verdict], varied: Sequence[str], fastest: str | None) -> str:
    """The fastest framework, or the one most often ahead, beside each other; then ranks where they add something."""
    group = [with_display_names(one) for one in group]
    names = list(dict.fromkeys(name for one in group for name in (one.faster, one.slower)))
    leader = title(fastest) if fastest else max(names, key=lambda name: sum(one.faster == name for one in group))
    own = sorted((one for one in group if one.faster == leader), key=lambda one: one.ratio)
    differences = [one for one in own if one.shown]
    parts, doubted = [], speed_verdicts.doubt(*differences)
    if differences:
        first, *others = differences
        more = (f", {speed_verdicts.times(one)} than {one.slower}" for one in others)
        head = f"{leader} is {speed_verdicts.times(first)} faster than {first.slower}"
        parts.append(f"{head}{''.join(more)}{doubted}")
    unclear = (one for one in own if not one.shown)
    alike = grouped(unclear, lambda one: speed_verdicts.THROUGHOUT if one.disturbed else one.reason)
    parts += [_undecided(leader, several) for several in alike.values()]
    if len(names) > 2 and any(one.shown for one in group):
        ranks = speed_verdicts.ranks(names, group)
        by_rank = sorted(grouped(ranks, lambda name: ranks[name]).items())
        words = ", ".join(f"{rank} {' = '.join(same)}" for rank, same in by_rank)
        doubt = "" if doubted else speed_verdicts.doubt(*(one for one in group if one.shown))
        parts += [f"ranks {words}{doubt}"] if words else []
    where = ", ".join(str(group[0].condition[name]) for name in varied)
    return f"{speed_verdicts.subject(group[0])}{f', {where}' if where else ''}: {'; '.join(parts)}"


def _undecided(leader: str, several: Sequence[Verdict]) -> str:
    """The frameworks that the leader is not shown to be faster than, for the same reason."""
    if len(several) == 1:
        return speed_verdicts.statement(several[0])
    if several[0].reason:
        others = ", ".join(f"{one.slower} ({one.ratio:.2f}x)" for one in several)
        disturbed = dict.fromkeys(one.disturbed for one in several if one.disturbed)
        reason = speed_verdicts.THROUGHOUT + ", ".join(disturbed) if disturbed else several[0].reason
        return f"no verdict on {leader} and {others}: {reason}"
    others = ", ".join(f"{one.slower} ({speed_verdicts.beside(one)})" for one in several)
    return f"no significant difference between {leader} and {others}"


def remarks(verdicts: Sequence[Verdict]) -> list[str]:
    """The kind of the intervals, and for how many comparisons the verdicts are corrected."""
    if all(one.low is None for one in verdicts):
        return []
    counts = sorted({one.comparisons for one in verdicts if one.corrected})
    if not counts:
        return ["95 % confidence intervals over paired runs."]
    words = " and ".join(map(str, counts))
    return [f"95 % confidence intervals over paired runs; significance Holm-corrected for {words} comparisons."]


def with_modes(text: str, modes: Mapping[str, Modes]) -> str:
    """A sentence with the execution mode behind the first mention of each framework: "PyTorch (eager)"."""
    left = {title(framework): f" ({mode.ran})" if mode.ran else "" for framework, mode in modes.items()}
    known = re.compile(rf"(?<!\w)(?:{_any_of(left)})(?!\w)")
    return known.sub(lambda found: found[0] + left.pop(found[0], ""), text)


def _any_of(names: Iterable[str]) -> str:
    """A pattern of these names; the longest first, as one may hold another: "Keras (PyTorch)"."""
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)"


def other_modes(modes: Mapping[str, Modes]) -> list[str]:
    """Name the frameworks that have a compiled mode that did not run, and how to measure it."""
    names = [title(framework) for framework, mode in modes.items() if "compiled" in mode.others]
    if not names:
        return []
    have = "have" if len(names) > 1 else "has"
    return [
        f"{listed(names)} also {have} a compiled mode, which may be faster: `--execution default,compiled` compares them."
    ]
