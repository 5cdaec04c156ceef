"""The first lines of a table: what its times show of the frameworks, model by model."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from framework_compare.report.figures.look import title
from framework_compare.results import speed_verdicts
from framework_compare.results.columns import Record
from framework_compare.results.intervals import MIN_RUNS
from framework_compare.results.speed_verdicts import GEOMETRIC_MEAN, Verdict

MAX_LINES, MIN_LINES = 8, 2
_ONE_RUN = f"No verdict: an interval needs {MIN_RUNS} runs per cell or more (`repeats`)."


def by_condition(verdicts: Sequence[Verdict]) -> Dict[str, List[Verdict]]:
    """Verdicts under each condition, for `among`: a study may have thousands of tables."""
    sorted_out: Dict[str, List[Verdict]] = {}
    for one in verdicts:
        sorted_out.setdefault(str(one.condition), []).append(one)
    return sorted_out


def among(cells: Sequence[Record], verdicts: Mapping[str, Sequence[Verdict]]) -> List[Verdict]:
    """The verdicts on cells of one table; geometric means only where the table has all their models."""
    if not verdicts:
        return []
    conditions = dict.fromkeys(str(speed_verdicts.condition(cell)) for cell in cells)
    models = {cell.model for cell in cells}
    under = [one for condition in conditions for one in verdicts.get(condition, ())]
    return sorted((one for one in under if models.issuperset(one.models)), key=lambda one: len(one.models) > 1)


def titled(verdict: Verdict) -> Verdict:
    """A verdict with the names that people write."""
    reason = verdict.reason
    for name in (verdict.faster, verdict.slower, *verdict.models):
        reason = re.sub(rf"\b{re.escape(name)}\b", lambda _, name=name: title(name), reason)  # type: ignore[misc]
    names: Dict[str, Any] = {field: title(getattr(verdict, field)) for field in ("model", "faster", "slower")}
    changed = dataclasses.replace(verdict, reason=reason, **names)
    return dataclasses.replace(changed, sentence=speed_verdicts.sentence(changed))


def lines(cells: Sequence[Record], verdicts: Sequence[Verdict]) -> List[str]:
    """The answers, and what their intervals are; none where nothing competes."""
    return [*answers(cells, verdicts), *remarks(verdicts)]


def answers(cells: Sequence[Record], verdicts: Sequence[Verdict]) -> List[str]:
    """One line per model and condition, then a line per geometric mean; none where nothing competes."""
    if not verdicts:
        return [_ONE_RUN] if _compete(cells) else []
    verdicts = [titled(one) for one in verdicts]
    varied = _varied([one.condition for one in verdicts])
    groups: Dict[Tuple[Any, ...], List[Verdict]] = {}
    for one in verdicts:
        groups.setdefault((one.model == GEOMETRIC_MEAN, one.model, one.models, str(one.condition)), []).append(one)
    of_models = [_line(group, varied) for key, group in groups.items() if not key[0]]
    over_all = [_line(group, varied) for key, group in groups.items() if key[0]][:MAX_LINES]
    room = max(MAX_LINES - len(over_all), MIN_LINES)  # the answer over all models is not what is cut
    if len(of_models) > room:
        left = len(of_models) - room
        of_models[room:] = [f"{left} more: `Comparison.verdicts()` has all."]
    return [*_nobody(verdicts), *of_models, *over_all]


def _nobody(verdicts: Sequence[Verdict]) -> List[str]:
    """Where others disturbed so much that nothing can be said, that alone, and what to do."""
    if not any(one.reason.startswith(speed_verdicts.THROUGHOUT) for one in verdicts) or not all(
        one.reason for one in verdicts
    ):
        return []
    return ["No framework is named: other programs took CPU time. Run again when `doctor` finds the machine quiet."]


def _compete(cells: Sequence[Record]) -> bool:
    """Whether any two cells that worked differ in nothing but their framework."""
    worked = [(cell.model, str(speed_verdicts.condition(cell))) for cell in cells if cell.status == "ok"]
    return len(set(worked)) < len(worked)


def _varied(conditions: Sequence[Mapping[str, Any]]) -> List[str]:
    return [name for name in conditions[0] if len({str(one[name]) for one in conditions}) > 1]


def _line(group: Sequence[Verdict], varied: Sequence[str]) -> str:
    """What is shown of the leader beside each other, then the ranks where these say more."""
    first = group[0]
    names = list(dict.fromkeys(name for one in group for name in (one.faster, one.slower)))
    leader = max(names, key=lambda name: sum(one.faster == name for one in group))
    own = sorted((one for one in group if one.faster == leader), key=lambda one: one.ratio)
    differences = [one for one in own if one.shown]
    parts = [f"{leader} is {_list(differences)}"] if differences else []
    alike: Dict[str, List[Verdict]] = {}
    for one in own:
        if not one.shown:
            throughout = one.reason.startswith(speed_verdicts.THROUGHOUT)
            alike.setdefault(speed_verdicts.THROUGHOUT if throughout else one.reason, []).append(one)
    parts += [_undecided(leader, several) for several in alike.values()]
    if len(names) > 2 and any(one.shown for one in group):
        parts.append(f"ranks {_ranks(names, group)}")
    where = ", ".join(str(first.condition[name]) for name in varied)
    return f"{speed_verdicts.subject(first)}{f', {where}' if where else ''}: {'; '.join(parts)}"


def _undecided(leader: str, several: Sequence[Verdict]) -> str:
    """What is not shown of the leader, said once of all that it is not shown of for the same reason."""
    if len(several) == 1:
        return speed_verdicts.statement(several[0])
    if several[0].reason:
        others = ", ".join(f"{one.slower} ({one.ratio:.2f}x)" for one in several)
        return f"no verdict on {leader} beside {others}: {_reason(several)}"
    others = ", ".join(f"{one.slower} ({speed_verdicts.beside(one)})" for one in several)
    return f"no difference shown between {leader} and {others}"


def _reason(several: Sequence[Verdict]) -> str:
    """The reason that several share, but for the cells that others disturbed, which are listed."""
    head = speed_verdicts.THROUGHOUT
    if not several[0].reason.startswith(head):
        return several[0].reason
    names = dict.fromkeys(one.reason[len(head) :] for one in several)
    return head + ", ".join(names)


def _list(differences: Sequence[Verdict]) -> str:
    one, *others = differences
    head = f"{speed_verdicts.times(one)} faster than {one.slower}"
    return ", ".join([head, *(f"{speed_verdicts.times(other)} than {other.slower}" for other in others)])


def _ranks(names: Sequence[str], group: Sequence[Verdict]) -> str:
    by_rank: Dict[int, List[str]] = {}
    for name, rank in speed_verdicts.ranks(names, group).items():
        by_rank.setdefault(rank, []).append(name)
    return ", ".join(f"{rank} {' = '.join(by_rank[rank])}" for rank in sorted(by_rank))


def remarks(verdicts: Sequence[Verdict]) -> List[str]:
    """What the intervals are of, and for how many comparisons the verdicts are corrected."""
    if not verdicts:
        return []
    counts = sorted({one.comparisons for one in verdicts if one.corrected})
    if not counts:
        return ["Intervals are of 95 % over paired runs."]
    words = " and ".join(map(str, counts))
    return [f"Intervals are of 95 % each, over paired runs; what is shown is corrected for {words} comparisons (Holm)."]
