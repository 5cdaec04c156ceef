"""Runs a study in parts: plans them, has an executor start them, waits, and takes over what is done."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.errors import EnvironmentUnavailable, UsageError
from framework_compare.plan.settings import SETTINGS
from framework_compare.protocol import Document
from framework_compare.records import Cell
from framework_compare.store.folder import write_json
from framework_compare.store.study_file import TO_RUN, Store
from framework_compare.study import executors, parts
from framework_compare.study.executors import Executor
from framework_compare.study.parts import absorb
from framework_compare.study.progress import Watcher
from framework_compare.study.run_options import RunOptions

POLL_S = (1.0, 10.0)  # from the first to all later looks at the queue, which clusters ask not to be asked often
LAG_S = 5.0  # a shared disk may show a part's folder later than the queue loses its job


def check_cores(settings: Document) -> None:
    """UsageError where a setting would be the cores of this host, which nodes need not have."""
    lacking = [name for name, setting in SETTINGS.items() if setting.all_cores and settings.get(name) is None]
    if lacking:
        raise UsageError(
            f"{' and '.join(lacking)} would default to the cores of this host, not of the nodes; give a number for each"
        )


def run_parts(
    store: Store, options: RunOptions, executor: Executor, watcher: Watcher, retry: Sequence[str] = ()
) -> None:
    """Do all that is planned in a study, and again what ended with a status of `retry`, in parts.

    A KeyboardInterrupt ends the executor's jobs, then is raised again; nodes keep what they have measured. UsageError
    where the executor can start nothing from here.
    """
    executor.check()
    refused = set(absorb(store, watcher.say))
    live = executor.live(store.folder)
    numbers = parts.plan(store, options, retry, live, watcher.say)
    if numbers:
        plans = (parts.PartPlan.read(store.folder, number) for number in numbers)
        _make_environments([cell for plan in plans for cell in plan.cells], options, watcher)
        _keep_kind(store, live)
    try:
        executor.submit(store.folder, numbers)
        if not executor.waits:
            watcher.say(_how_to_start(store.folder, numbers))
            return
        lost = _wait(store, executor, {*numbers, *live}, refused, watcher)
    except KeyboardInterrupt:
        executor.cancel(store.folder)
        raise
    for number in sorted(lost):
        log = executors.log_of(store.folder, number)
        watcher.say(
            f"part {number} ended without a result{f', see {log}' if log else ''}; resume the study to start it again"
        )


def _wait(store: Store, executor: Executor, waiting: set[int], refused: set[int], watcher: Watcher) -> set[int]:
    """Take over each part as it is done, until none is live; the numbers of those that left no result."""
    began, total = time.monotonic(), len(waiting)
    lost: set[int] = set()
    gone_since: dict[int, float] = {}
    while waiting:
        refused = refused | absorb(store, watcher.say, refused).keys()
        waiting -= store.parts() | refused
        watcher.count("parts", total - len(waiting), total)
        live, now = executor.live(store.folder), time.monotonic()
        gone_since = {number: gone_since.get(number, now) for number in waiting - live}
        lost |= {number for number, since in gone_since.items() if now - since > LAG_S}
        waiting -= lost
        if waiting:
            time.sleep(min(POLL_S[1], POLL_S[0] + (now - began) / 60))
    return lost


def _make_environments(cells: Iterable[Cell], options: RunOptions, watcher: Watcher) -> None:
    """Made here, as nodes often reach no package index; whether their GPUs can use them is asked there."""
    for framework, device in dict.fromkeys((cell.framework, cell.device) for cell in cells):
        spec = registry.framework(framework)
        framework, python = spec.name, options.python.get(spec.name)
        if managed.is_given(spec, python) or not spec.requirements_on(device):
            continue
        try:
            index = options.index.get(framework)
            managed.ensure(framework, device=device, index=index, report=watcher.say)
        except EnvironmentUnavailable as error:
            watcher.say(str(error))


def _keep_kind(store: Store, live: set[int]) -> None:
    """Nodes must be of the kind of machine that the study has figures of, if it has any."""
    finished = any(status not in TO_RUN for statuses in store.outcomes().values() for status in statuses)
    path = store.folder / parts.PARTS / parts.MACHINE
    if not finished and not live:
        path.unlink(missing_ok=True)  # of a node that nothing was measured on
    elif finished and not path.exists():
        write_json(path, store.machine())


def _how_to_start(folder: Path, numbers: Sequence[int]) -> str:
    if not numbers:
        return "no part is left to start"
    listed = ",".join(map(str, numbers))
    return (
        f"{len(numbers)} parts are planned; start each alone on a node: `framework-compare part {folder} N` "
        f"for N of {listed}; then run `framework-compare absorb {folder}`"
    )
