"""Who trains fastest, if anyone is shown to: the one answer that sentences, tables, figures and JSON give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from framework_compare.protocol import Document
from framework_compare.results import speed_verdicts
from framework_compare.results.columns import Record, grouped, values
from framework_compare.results.intervals import MIN_RUNS
from framework_compare.results.parity import FAILED
from framework_compare.results.ratios import epoch_seconds, timed
from framework_compare.results.speed_verdicts import Verdict

Key = tuple[str, tuple[object, ...]]  # model, values of the condition


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
    return one.model, speed_verdicts.condition_of()(one)


def winners(cells: Sequence[Record], verdicts: Sequence[Verdict]) -> list[Winner]:
    """One for each model and condition under which two frameworks or more have an epoch time."""
    judged = grouped(verdicts, key)
    rivals = grouped(timed(cells), key).items()
    return [_winner(several, judged.get(shared, ())) for shared, several in rivals if len(several) > 1]


def _winner(cells: Sequence[Record], verdicts: Sequence[Verdict]) -> Winner:
    failing = tuple(cell.framework for cell in cells if cell.parity_status == FAILED)
    none = Winner(cells[0].model, speed_verdicts.condition(cells[0]), excluded=failing)
    ahead = min(cells, key=epoch_seconds).framework
    if ahead in failing:
        return none._replace(reason="{} is ahead but fails parity", whose=(ahead,))
    rivals = [cell for cell in cells if cell.framework not in failing]
    if len(rivals) < 2:
        return none._replace(reason="{}: parity fails", whose=failing)
    barred = [(speed_verdicts.blocking_reason(cell), cell.framework) for cell in rivals]
    disturbed = tuple(name for bar, name in barred if bar.disturbed)
    if disturbed:
        return none._replace(reason=f"{speed_verdicts.THROUGHOUT}{{}}", whose=disturbed)
    names = {cell.framework for cell in rivals}
    among = [one for one in verdicts if {one.faster, one.slower} <= names]
    for name in names:
        if {one.slower for one in among if one.shown and one.faster == name} == names - {name}:
            return none._replace(framework=name)
    unclear = [one.reason for one in among if one.reason]
    for why in (speed_verdicts.UNKNOWN, speed_verdicts.VOID):
        whose = tuple(cell.framework for cell in rivals if why + cell.framework in unclear)
        if whose:
            return none._replace(reason=f"{why}{{}}", whose=whose)
    few = tuple(cell.framework for cell in rivals if cell.runs_ok < MIN_RUNS)
    if not among or few:
        all_of_them = "" if not few or len(few) == len(rivals) else "{}: "
        return none._replace(reason=f"{all_of_them}fewer than {MIN_RUNS} runs", whose=few)
    return none._replace(reason=unclear[0] if unclear else "no significant difference")
