"""Parity in a study: the verdict on each cell is looked up, or sought where it is required, before the cell runs."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from framework_compare.environments.managed import Environment
from framework_compare.graph import Task
from framework_compare.launch.scratch import scratch
from framework_compare.parity.verify import ParityChecker, Say
from framework_compare.protocol import Fields
from framework_compare.records import Cell, Run
from framework_compare.results.columns import row_of
from framework_compare.results.parity import (
    NOT_INSTALLED,
    PROVED,
    UNSUPPORTED,
    UNVERIFIED,
    Parity,
    read_verdicts,
    unknown_verdict,
    verdict_key,
    verdict_unasked,
    write_verdicts,
)

TaskOf = Callable[[Cell], "Task | None"]


def record(
    folder: Path,
    cells: Iterable[Cell],
    ready: Mapping[str, Environment | Run],
    mode: str,
    say: Say = lambda message: None,
    task_of: TaskOf = lambda cell: None,
) -> dict[str, str]:
    """Write down the verdict on every cell; return, by key, why a cell that was required to pass must not be run.

    "warn" looks verdicts up and takes no time; "require" checks the levels of cells without a verdict.
    """
    if mode == "off":
        return {}
    known = read_verdicts(folder)
    refused: dict[str, str] = {}
    with scratch() as place:
        checker = ParityChecker(place, ready, say=say)
        find = checker.parity if mode == "require" else checker.cached
        for cell in cells:
            row = row_of(cell)
            name, proof = verdict_key(row), verdict_unasked(row)  # which tables have of themselves
            proved = proof in PROVED
            if not proof:
                verdict = find(cell.framework, cell.model, cell.config, task_of(cell))
                known[name] = _shown(verdict)
                proof = known[name]["parity"]
                # what cannot be run at all ends by itself, as such a cell does
                proved = verdict is not None and (verdict.status in (UNSUPPORTED, NOT_INSTALLED) or verdict.proves())
            if mode == "require" and not proved:
                refused[name] = f"parity is required: {proof}"
    write_verdicts(folder, known)
    return refused


def attach(
    folder: Path,
    cells: Iterable[Cell],
    ready: Mapping[str, Environment | Run],
    fresh: bool = False,
    say: Say = lambda message: None,
    task_of: TaskOf = lambda cell: None,
) -> list[Parity]:
    """Check the cells of a finished study and write each verdict down as it comes; return those that were sought.

    A verdict that the study has already is not sought again, unless `fresh`.
    """
    known = read_verdicts(folder)
    checks: dict[str, Parity] = {}
    with scratch() as place:
        checker = ParityChecker(place, ready, fresh=fresh, say=say)
        for cell in cells:
            row = row_of(cell)
            name = verdict_key(row)
            there = not fresh and known.get(name, {}).get("parity", UNVERIFIED) != UNVERIFIED
            if there or name in checks or verdict_unasked(row):
                continue
            checks[name] = checker.parity(cell.framework, cell.model, cell.config, task_of(cell))
            known[name] = _shown(checks[name])
            write_verdicts(folder, known)
    return list(checks.values())


def _shown(verdict: Parity | None) -> Fields:
    if verdict is None or verdict.status in (UNSUPPORTED, NOT_INSTALLED):
        return unknown_verdict("warn")
    worst = verdict.worst
    error, where = (worst.error, worst.where) if worst else (None, None)
    return {"parity": verdict.column(), "parity_status": verdict.status, "parity_error": error, "parity_where": where}
