"""Parity in a study: the verdict on each cell is looked up, or sought where it is required, before the cell runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from framework_compare.graph import Task
from framework_compare.launch.scratch import scratch
from framework_compare.parity.verify import Climb
from framework_compare.records import Cell
from framework_compare.results import verdicts
from framework_compare.results.parity import NOT_INSTALLED, PROVED, UNSUPPORTED, UNVERIFIED, Parity


def record(
    folder: Path,
    cells: Iterable[Cell],
    ready: Mapping[str, Any],
    mode: str,
    say: Callable[[str], None] = lambda message: None,
    task_of: Callable[[Cell], Optional[Task]] = lambda cell: None,
) -> Dict[str, str]:
    """Write down the verdict on every cell; returns, by key, why a cell that was required to pass must not be run.

    "warn" looks verdicts up and takes no time; "require" checks the levels of cells without a verdict.
    """
    if mode == "off":
        return {}
    known = verdicts.read(folder)
    refused: Dict[str, str] = {}
    with scratch() as place:
        climb = Climb(place, ready, say=say)
        for cell in cells:
            name = verdicts.key(verdicts.row_of(cell))
            said = verdicts.unasked(verdicts.row_of(cell))  # tables say so without being told
            if said:
                if mode == "require" and said not in PROVED:
                    refused[name] = f"parity is required: {said}"
                continue
            verdict = _verdict(climb, cell, mode, task_of(cell))
            known[name] = _shown(verdict)
            if mode == "require" and _is_refused(verdict):
                refused[name] = f"parity is required: {known[name]['parity']}"
    verdicts.write(folder, known)
    return refused


def attach(
    folder: Path,
    cells: Iterable[Cell],
    ready: Mapping[str, Any],
    fresh: bool = False,
    say: Callable[[str], None] = lambda message: None,
    task_of: Callable[[Cell], Optional[Task]] = lambda cell: None,
) -> List[Parity]:
    """Check the cells of a finished study and write each verdict down as it comes; returns those that were sought.

    A verdict that the study has already is not sought again, unless `fresh`.
    """
    known = verdicts.read(folder)
    checks: Dict[str, Parity] = {}
    with scratch() as place:
        climb = Climb(place, ready, fresh=fresh, say=say)
        for cell in cells:
            name = verdicts.key(verdicts.row_of(cell))
            there = not fresh and known.get(name, {}).get("parity", UNVERIFIED) != UNVERIFIED
            if there or name in checks or verdicts.unasked(verdicts.row_of(cell)):
                continue
            verdict = _verdict(climb, cell, "require", task_of(cell))
            if verdict is not None:
                checks[name], known[name] = verdict, _shown(verdict)
                verdicts.write(folder, known)
    return list(checks.values())


def _is_refused(verdict: Optional[Parity]) -> bool:
    """Whether a cell that must be proved is not; what cannot be run at all ends by itself, as such a cell does."""
    return verdict is None or (verdict.status not in (UNSUPPORTED, NOT_INSTALLED) and not verdict.proves())


def _verdict(climb: Any, cell: Cell, mode: str, task: Optional[Task]) -> Optional[Parity]:
    find = climb.parity if mode == "require" else climb.cached
    return find(cell.framework, cell.model, cell.config, **({} if task is None else {"task": task}))


def _shown(verdict: Optional[Parity]) -> Dict[str, Any]:
    if verdict is None or verdict.status in (UNSUPPORTED, NOT_INSTALLED):
        return verdicts.unknown("warn")
    worst = verdict.worst
    error, where = (worst.error, worst.where) if worst else (None, None)
    return {"parity": verdict.column(), "parity_status": verdict.status, "parity_error": error, "parity_where": where}
