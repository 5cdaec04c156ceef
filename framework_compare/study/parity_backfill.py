"""Verdicts on parity for a study that has run: sought where what ran then is what would be asked now."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from framework_compare.environments import managed, support
from framework_compare.environments.managed import Environment
from framework_compare.errors import StudyError
from framework_compare.launch import staging
from framework_compare.parity import in_study, verify
from framework_compare.parity.asked import CheckForecast
from framework_compare.protocol import Fields
from framework_compare.records import Cell, Run
from framework_compare.registry import framework as find_framework
from framework_compare.results.columns import row_of
from framework_compare.results.parity import UNVERIFIED, Parity, read_verdicts, verdict_key, verdict_unasked
from framework_compare.samplers import host
from framework_compare.store.study_file import Store
from framework_compare.study.data_files import task_of
from framework_compare.study.readiness import describe
from framework_compare.study.resumption import check_same_environment, check_same_machine
from framework_compare.study.run_options import RunOptions

Say = Callable[[str], None]


class Backfill(NamedTuple):
    """The verdicts that were made now and are in the study, and why cells of a framework got none."""

    verdicts: list[Parity]
    reasons: tuple[str, ...]


def attach(folder: Path, options: RunOptions, fresh: bool, say: Say) -> Backfill:
    """Check the cells of a study that ended well, whose environment and source are those they ran with.

    StudyError on another machine than the study's, or while another process writes the study.
    """
    with Store.open(folder, readonly=False) as store:
        check_same_machine(store, host.describe())
        trained_cells = _trained(store)
        checks: list[Parity] = []
        reasons: dict[str, None] = {}
        for device in dict.fromkeys(cell.device for cell in trained_cells):
            cells = [cell for cell in trained_cells if cell.device == device]
            ready: dict[str, Environment] = {}
            for framework in dict.fromkeys(cell.framework for cell in cells):
                try:
                    ready[framework] = _same(store, framework, device, options, say)
                except StudyError as error:
                    reasons[f"{framework}: no verdict: {error}"] = None
            same = [cell for cell in cells if cell.framework in ready]
            tasks = functools.partial(task_of, store)
            checks += in_study.attach(store.folder, same, ready, fresh, say, task_of=tasks)
    return Backfill(checks, tuple(reasons))


def forecast(store: Store, fresh: bool) -> CheckForecast:
    """Return what `attach` would take, if no cell lacks its environment; interpreters of the study are not started."""
    known = {} if fresh else read_verdicts(store.folder)
    asked = {}
    for cell in _trained(store):
        row = row_of(cell)
        name = verdict_key(row)
        if known.get(name, {}).get("parity", UNVERIFIED) == UNVERIFIED and not verdict_unasked(row):
            asked[name] = verify.Combination(cell.framework, cell.model, cell.config, task_of(store, cell))
    return verify.forecast(list(asked.values()), fresh=fresh)


def _trained(store: Store) -> list[Cell]:
    return [cell for cell, statuses in store.outcomes().items() if "ok" in statuses]


def _same(store: Store, framework: str, device: str, options: RunOptions, say: Say) -> Environment:
    """Return the environment that a framework's cells ran in; StudyError where it, or their source, has changed."""
    python = options.python.get(framework)
    label = managed.label(framework, device, python)
    environment = support.ready(framework, device, python=python, index=options.index.get(framework), say=say)
    if isinstance(environment, Run):
        raise StudyError(environment.reason)
    check_same_environment(store, label, describe(environment))
    stored: Fields = store.environments().get(label) or {}
    if stored.get("sources") != [staging.checksum(find_framework(framework))]:
        raise StudyError(
            f"the source that its cells ran has {'changed since' if stored.get('sources') else 'no checksum in the study'}"
            ", so a verdict on today's source would not apply to them; run the study again in another folder"
        )
    return environment
