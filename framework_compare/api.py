"""`compare()`: the whole of the library behind one call."""

from __future__ import annotations

import dataclasses
import datetime
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from framework_compare import __version__, limits, machine, planning, schema
from framework_compare.comparison import Comparison
from framework_compare.errors import UsageError
from framework_compare.installers import check_name as check_installer
from framework_compare.interrupts import terminate_as_interrupt
from framework_compare.limits import Limits, PhaseTimeout
from framework_compare.parity.in_study import check_mode
from framework_compare.paths import cache_dir
from framework_compare.picture_lists import checksum, write_pictures
from framework_compare.planning import DataSets, Names, Plan
from framework_compare.progress import Watcher, default_watcher
from framework_compare.records import oversize
from framework_compare.registry import framework as find_framework
from framework_compare.resumption import check_retry, check_same_machine, check_same_plan, of_sweep
from framework_compare.store import FILE, Store
from framework_compare.study import HowToRun, Study


@terminate_as_interrupt()
def compare(
    frameworks: Names,
    models: Names,
    device: Names = "cpu",
    *,
    dataset: DataSets = "fire-smoke-small",
    out: Union[str, "os.PathLike[str]", None] = None,
    repeats: int = 1,
    limit: Optional[int] = None,
    classes: Optional[Sequence[str]] = None,
    on_bad_picture: str = "fail",
    python: Optional[Mapping[str, str]] = None,
    index: Optional[Mapping[str, str]] = None,
    installer: str = "pip",
    timeout_s: Optional[float] = None,
    phase_timeout_s: PhaseTimeout = None,
    silence_timeout_s: Optional[float] = None,
    memory_limit: Union[None, int, str] = None,
    retry: Names = (),
    sampling_hz: float = 10.0,
    verify: str = "warn",
    profile: bool = False,
    watcher: Optional[Watcher] = None,
    **settings: Any,
) -> Comparison:
    """Train every model with every framework on every device, each in a process of its own, and compare.

    dataset: names of the registry, or folders with one folder of pictures a class.
    out: study folder, empty or not there yet; by default one named by the time, in the cache folder. A study that is
        there already is resumed if it was planned the same (StudyError shows the difference if not): finished runs
        stay, the rest is run, with the limits, interpreters, index and installer given now.
    repeats: runs of each cell; runs of different cells take turns.
    limit: use that many pictures, drawn by class and seed.
    on_bad_picture: "fail" refuses a data set with a picture that does not decode, "skip" leaves it out and counts it.
    python: framework -> interpreter that already has it, in place of a managed environment.
    index: framework -> URL of an extra package index for its environment (such as that of PyTorch's CPU builds).
    timeout_s: wall seconds after which a run is ended as `timed-out`.
    phase_timeout_s: the same for a phase, by name; one number stands for every phase but `epochs`.
    silence_timeout_s: the same for a worker that sends no event and prints nothing.
    memory_limit: of a run with all its processes, bytes or text such as "4GiB"; more ends it as `out-of-memory`.
    retry: statuses of a resumed study whose runs are run again, such as ["failed", "timed-out"].
    sampling_hz: readings a second of CPU, memory, threads and GPU; 0 reads none.
    verify: parity with the reference, as `framework-compare verify` proves it. "require" proves it first and does not
        run a cell that fails; "warn" shows what is known of each cell; "off" leaves it out.
    profile: after the measured epochs, run a few more steps under the framework's own profiler, untimed: the share of
        time of each operator, CUDA function and kernel (`Comparison.profile`), and a trace to open in Perfetto.
    settings: fields of TrainConfig (batch_size, epochs, threads, pipeline, execution, ...); batch_size, execution,
        pipeline, precision and tuning may be lists, and then every combination is a cell.

    A cell that does not work is in the result with its status and reason; only a wrong request raises (UsageError),
    and then nothing has been written.
    """
    watcher = watcher or default_watcher()
    retry = check_retry(retry)
    planning.check_count("repeats", repeats, 1)
    held = limits.check(timeout_s, phase_timeout_s, silence_timeout_s, memory_limit)
    how = how_to_run(python, index, installer, held, sampling_hz)
    how = dataclasses.replace(how, verify=check_mode(verify), profile=check_flag("profile", profile))
    folder = check_folder("out", new_study_folder() if out is None else out)
    plan = planning.plan(
        frameworks,
        models,
        device,
        dataset,
        settings,
        limit=limit,
        classes=classes,
        on_bad_picture=on_bad_picture,
        progress=watcher.count,
    )
    tell_of_datasets(plan, watcher)
    with open_or_create(folder, plan, how, repeats) as store, watcher:
        Study(store, how, watcher).run(retry)
    return Comparison.load(folder)


def open_or_create(folder: Path, plan: Plan, how: HowToRun, repeats: int) -> Store:
    """The study in a folder, open for writing: made now, or found and planned the same, on this same machine."""
    settings = describe(plan, how)
    if not (folder / FILE).exists():
        return Store.create(
            folder,
            settings=settings,
            machine=machine.describe(),
            cells=plan.cells,
            repeats=repeats,
            prepare=lambda made: write_pictures(made, plan),
        )
    store = Store.open(folder, readonly=False)
    try:
        check_same_plan(store, plan.cells, repeats, settings)
        check_same_machine(store, machine.describe())
        write_pictures(store.folder, plan)
    except BaseException:
        store.close()
        raise
    return store


@terminate_as_interrupt()
def resume(
    study: Union[str, "os.PathLike[str]"],
    *,
    retry: Names = (),
    index: Optional[Mapping[str, str]] = None,
    timeout_s: Optional[float] = None,
    phase_timeout_s: PhaseTimeout = None,
    silence_timeout_s: Optional[float] = None,
    memory_limit: Union[None, int, str] = None,
    verify: Optional[str] = None,
    watcher: Optional[Watcher] = None,
) -> Comparison:
    """Run what a study planned and has not finished, on the machine it was begun on; finished runs stay.

    retry: statuses whose runs are run again as well. Limits and verify given here take the place of the study's own
    for what is run now; each run's record says which limits it had. StudyError where the study cannot be gone on with.
    """
    watcher = watcher or default_watcher()
    retry = check_retry(retry)
    given = limits.check(timeout_s, phase_timeout_s, silence_timeout_s, memory_limit)
    mode = None if verify is None else check_mode(verify)
    folder = check_folder("study", study)
    with Store.open(folder, readonly=False) as store, watcher:
        if "stability" in store.settings():
            raise UsageError(of_sweep(store.folder, store.settings()))
        check_same_machine(store, machine.describe())
        how = _as_planned(store, given, index)
        Study(store, dataclasses.replace(how, verify=mode or how.verify), watcher).run(retry)
    return Comparison.load(folder)


def _as_planned(store: Store, given: Limits, index: Optional[Mapping[str, str]]) -> HowToRun:
    """How a study said that it is run, with the limits and the index given now."""
    settings = store.settings()
    try:
        held = Limits(**{**(settings.get("limits") or {}), **given.to_dict()})
        hz, installer = settings.get("sampling_hz", 10.0), settings.get("installer", "pip")
        how = how_to_run(settings.get("python"), index, installer, held, hz)
        mode = check_mode(settings.get("verify", "warn"))
    except TypeError as error:
        raise schema.damaged(store.path, f"its settings: {error}") from None
    return dataclasses.replace(how, profile=bool(settings.get("profile")), verify=mode)


def how_to_run(
    python: Optional[Mapping[str, str]],
    index: Optional[Mapping[str, str]],
    installer: str,
    held: Limits,
    hz: float,
) -> HowToRun:
    """HowToRun of what a user gives; UsageError says what is allowed."""
    check_installer(installer)
    if not isinstance(hz, (int, float)) or isinstance(hz, bool) or not 0 <= hz <= 100:
        raise UsageError(f"sampling_hz is {hz!r}; allowed: 0 (off) to 100")
    interpreters = _by_framework("python", python, "an interpreter")
    for name, path in interpreters.items():
        if shutil.which(path) is None and not Path(path).expanduser().exists():
            raise UsageError(f"python of {name} is {path!r}, which is not there; allowed: an interpreter or its folder")
    return HowToRun(interpreters, _by_framework("index", index, "a URL"), installer, held, hz)


def check_folder(name: str, folder: Any) -> Path:
    """A folder that a user names, there or not; UsageError for what is no path."""
    if not isinstance(folder, (str, os.PathLike)):
        raise UsageError(f"{name} is {folder!r}; allowed: the path of a folder")
    return Path(folder)


def check_flag(name: str, value: Any) -> bool:
    """UsageError for anything but True and False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}; allowed: True or False")
    return value


def _by_framework(option: str, given: Optional[Mapping[str, str]], what: str) -> Dict[str, str]:
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"{option} is {given!r}; allowed: {what} by framework, such as {{'torch': ...}}")
    return {find_framework(name).name: str(value) for name, value in (given or {}).items()}


def tell_of_datasets(plan: Plan, watcher: Watcher) -> None:
    """Say what was read, and everything about it that a user may not expect."""
    for name, index in plan.datasets.items():
        classes = ", ".join(
            f"{label} {index.pictures.labels.count(i)}" for i, label in enumerate(index.pictures.classes)
        )
        watcher.say(f"{name}: {len(index.pictures)} pictures ({classes})")
        for folder, label in index.found_aliases.items():
            watcher.say(f"{name}: folder {folder!r} is read as class {label!r}")
        for path, reason in index.skipped:
            watcher.say(f"{name}: skipped {path!r}: {reason}")
        sizes = dict.fromkeys(cell.config.batch_size for cell in plan.cells if cell.dataset == name)
        for remark in filter(None, (oversize(size, len(index.pictures), name) for size in sizes)):
            watcher.say(remark)
        for folder in index.ignored_folders:
            watcher.say(f"{name}: folder {folder!r} is not among the classes asked for and is left out")


def describe(plan: Plan, how: HowToRun) -> Dict[str, Any]:
    """The settings that are stored with a study."""
    return {
        "framework_compare": __version__,
        "datasets": {
            name: {
                "pictures": len(index.pictures),
                "skipped": len(index.skipped),
                "skipped_pictures": [list(pair) for pair in index.skipped],
                "classes": list(index.pictures.classes),
                "class_aliases": dict(index.found_aliases),
                "checksum": checksum(index.pictures),
            }
            for name, index in plan.datasets.items()
        },
        "sampling_hz": how.hz,
        "profile": how.profile,
        "verify": how.verify,
        "limits": how.limits.to_dict(),
        "python": dict(how.python),
        "installer": how.installer,
    }


def new_study_folder() -> Path:
    """A folder in the cache that is not there yet, named by the time."""
    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    folder = studies_dir() / stamp
    number = 2
    while folder.exists():
        folder = studies_dir() / f"{stamp}-{number}"
        number += 1
    return folder


def studies_dir() -> Path:
    """Where studies go that were not given a folder."""
    return cache_dir() / "studies"
