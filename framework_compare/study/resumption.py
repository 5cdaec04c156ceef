"""Check that a study can be resumed as asked: same cells, images, request, machine and framework versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from framework_compare.errors import StudyError, UsageError, check_name
from framework_compare.protocol import Document, Fields
from framework_compare.records import STATUSES, Cell
from framework_compare.results.columns import row_of
from framework_compare.samplers import host
from framework_compare.store.study_file import TO_RUN, Store
from framework_compare.study import strategies

# A figure of another machine does not belong into the same table.
SAME_MACHINE = ("cpu", "architecture", "logical_cores", "available_cores", "quota_cores", "memory_limit_bytes")
# Kernels keep a little of it for themselves, not always the same.
SAME_MEMORY = 0.02
# Of a request, beside its cells and images: what makes runs of one study unlike. Limits, interpreters and indexes
# may be others from one resume to the next.
REQUEST = ("sampling_hz", "profile", "verify", "schedule")
FINISHED = tuple(status for status in STATUSES if status not in TO_RUN)
MAX_SHOWN = 5
_CALLED = {"memory_bytes": "memory_limit"}  # by users
_TOOLS = ("pip", "setuptools")  # those that come with an environment, whatever its requirements


def check_retry(statuses: str | Sequence[str]) -> Sequence[str]:
    """Statuses to run again, one or several; UnknownNameError for one that no run ends with."""
    if not isinstance(statuses, Iterable):
        raise UsageError(f"retry is {statuses!r}; allowed: statuses, such as ['failed', 'timed-out']")
    statuses = (statuses,) if isinstance(statuses, str) else tuple(statuses)
    for status in statuses:
        check_name("status", status, FINISHED)
    return statuses


def check_same_plan(store: Store, cells: Sequence[Cell], repeats: int, settings: Document) -> None:
    """StudyError that shows what differs between a study and the request."""
    strategy = strategies.of_settings(store.settings(), store.path)
    changes = _different_strategy(strategy, settings["strategy"])
    if changes is None:
        raise StudyError(f"{store.folder} contains {_KINDS[strategy.name]}; name another folder")
    planned = strategy.cells if isinstance(strategy, strategies.Growth) else [cell for _, cell in store.cells()]
    before, now = _values(planned), _values(cells)
    changes += _differences(before, now, [name for name in before if set(before[name]) != set(now[name])])
    if isinstance(strategy, strategies.Product) and store.repeats() != repeats:
        changes.append(f"repeats: {store.repeats()} in the study, {repeats} now")
    changes += _different_datasets(store.settings().get("datasets") or {}, settings.get("datasets") or {})
    changes += _differences(store.settings(), settings, REQUEST)
    if strategy.limits_decide:
        changes += _different_limits(store, settings.get("limits") or {})
    if not changes and set(planned) != set(cells):
        added, gone = len(set(cells) - set(planned)), len(set(planned) - set(cells))
        changes.append(
            f"cells: {added} in the request are not in the study, {gone} in the study are not in the request"
        )
    _refuse(store, changes, "name another folder, or repeat the request of the study")


def check_same_limits(store: Store, limits: Mapping[str, object]) -> None:
    """StudyError if a study whose limits decide its cells would be resumed with other limits."""
    if strategies.of_settings(store.settings(), store.path).limits_decide:
        _refuse(store, _different_limits(store, limits), "resume it without naming limits")


_KINDS = {
    "product": "a study that is neither a sweep of batch sizes nor under a budget",
    "growth": "a sweep of batch sizes",
    "budget": "a study under a budget",
}


def _different_strategy(before: strategies.Strategy, now: Document) -> list[str] | None:
    """Return what differs between two strategies of one name, cells apart; None where the names differ."""
    stored = before.to_dict()
    names = [name for name in {**stored, **now} if name != "first_cells"]
    return _differences(stored, now, names) if stored["name"] == now["name"] else None


def _different_limits(store: Store, now: Document) -> list[str]:
    before = store.settings().get("limits") or {}
    return _differences(before, now, {**before, **now})


def _differences(before: Document, now: Document, names: Iterable[str]) -> list[str]:
    """A sentence for each of `names` under which two documents differ, headed by what users call it."""
    return [
        f"{_CALLED.get(name, name)}: {_shown(before.get(name, 'none'))} in the study, {_shown(now.get(name, 'none'))} now"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _values(cells: Sequence[Cell]) -> dict[str, list[object]]:
    """The values of each setting among the cells, in order."""
    rows = list(map(row_of, cells))
    return {name: list(dict.fromkeys(row[name] for row in rows)) for name in rows[0]} if rows else {}


def _shown(values: object) -> str:
    if not isinstance(values, (list, tuple)):
        return str(values)
    shown = [str(value) for value in values[:MAX_SHOWN]]
    if len(values) > MAX_SHOWN:
        shown.append(f"{len(values) - MAX_SHOWN} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _different_datasets(before: Document, now: Document) -> list[str]:
    """Data sets of one name whose images are not the same ones."""
    return [
        f"images of {name}: {before[name].get('images')} in the study, {now[name].get('images')} now"
        + ("" if before[name].get("images") != now[name].get("images") else ", but not the same files")
        for name in before
        if name in now and any(before[name].get(k) != now[name].get(k) for k in ("images", "classes", "checksum"))
    ]


def check_same_datasets(store: Store, datasets: Document) -> None:
    """StudyError if a study has other images under the name of one of these data sets."""
    changes = _different_datasets(store.settings().get("datasets") or {}, datasets)
    _refuse(store, changes, "name another folder")


def check_same_machine(store: Store, machine: Mapping[str, object]) -> None:
    """StudyError if the study was measured on another machine than this one."""
    changes = other_kind(store.machine(), machine, [cell for _, cell in store.cells()])
    _refuse(store, changes, "all figures of a study must come from one machine: name another folder")


def check_machine(store: Store) -> None:
    """The same for this machine, which becomes the study's if that was planned for others and has no figures yet."""
    machine = host.describe()
    check_same_machine(store, machine)
    store.keep_machine(machine)


def other_kind(before: Mapping[str, object], machine: Mapping[str, object], cells: Sequence[Cell]) -> list[str]:
    """A sentence for each fact in which two machines differ, so that figures of these cells are not of one kind."""
    gpus = ("gpus",) if any(cell.device.startswith("cuda") for cell in cells) else ()
    return [
        f"{name}: {_words(before[name])} in the study, {_words(machine.get(name))} now"
        for name in (*SAME_MACHINE, "memory_bytes", *gpus)
        if name in before and not _same(name, before[name], machine.get(name))
    ]


def _same(name: str, before: object, now: object) -> bool:
    if name == "memory_bytes" and isinstance(before, int) and isinstance(now, int):
        return abs(before - now) <= SAME_MEMORY * before
    if name == "cpu":
        return host.same_processor(before, now)
    return bool(_models(before) == _models(now)) if name == "gpus" else bool(before == now)


def _models(gpus: object) -> object:
    """Return the models of GPUs; their driver may be another."""
    return gpus.get("devices") if isinstance(gpus, Mapping) else gpus


def _words(value: object) -> str:
    """A fact as a message shows it: of GPUs their names."""
    devices = _models(value) if isinstance(value, Mapping) else value
    if isinstance(devices, list):
        return _shown([device.get("name") if isinstance(device, Mapping) else device for device in devices])
    return "none" if devices is None else str(devices)


def check_same_environment(store: Store, label: str, now: Document) -> None:
    """StudyError where a framework with finished runs has other packages now than they ran with.

    label: the environment's name in the study: the framework's, or "torch (cuda)".
    """
    before, framework = store.environments().get(label), label.partition(" (")[0]
    # one that serves GPUs only has no word in runs on others, nor they in it
    devices = "device LIKE 'cuda%'" if label.endswith(" (cuda)") else "TRUE"
    finished = f"SELECT count(*) FROM run JOIN cell USING (cell_id) WHERE framework = ? AND status = 'ok' AND {devices}"
    if before is None or not store.select(finished, (framework,))[0][0]:
        return
    packages = _named(before, framework), _named(now, framework)
    changes = _differences(*packages, sorted({**packages[0], **packages[1]}))
    _refuse(store, changes, f"restore the environment of {label}, or name another folder")


def with_sources(store: Store, label: str, now: Document, sources: Sequence[str]) -> Fields:
    """An environment as a study stores it, with every state of the source that ran: a resumed study may have several."""
    check_same_environment(store, label, now)
    before = (store.environments().get(label) or {}).get("sources") or []
    return {**now, "sources": list(dict.fromkeys([*before, *sources]))}


def _named(document: Document, framework: str) -> Fields:
    packages = {name: version for name, version in (document.get("packages") or {}).items() if name not in _TOOLS}
    return {**packages, framework: document.get("version"), "interpreter": document.get("interpreter")}


def _refuse(store: Store, changes: Sequence[str], remedy: str) -> None:
    if changes:
        more = f"; and {len(changes) - MAX_SHOWN} more" if len(changes) > MAX_SHOWN else ""
        raise StudyError(f"{store.folder} cannot be resumed: {'; '.join(changes[:MAX_SHOWN])}{more}; {remedy}")
