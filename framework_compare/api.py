"""`compare()`: the whole of the library behind one call."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from framework_compare import __version__, machine, planning
from framework_compare.comparison import Comparison
from framework_compare.installers import check_name as check_installer
from framework_compare.errors import UsageError
from framework_compare.paths import cache_dir
from framework_compare.planning import DataSets, Names, Plan
from framework_compare.progress import Watcher, default_watcher
from framework_compare.registry import framework as find_framework
from framework_compare.store import Store
from framework_compare.study import HowToRun, Study, write_pictures


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
    sampling_hz: float = 10.0,
    watcher: Optional[Watcher] = None,
    **settings: Any,
) -> Comparison:
    """Train every model with every framework on every device, each in a process of its own, and compare.

    dataset: names of the registry, or folders with one folder of pictures a class.
    out: study folder, empty or not there yet; by default one named by the time, in the cache folder.
    repeats: runs of each cell; runs of different cells take turns.
    limit: use that many pictures, drawn by class and seed.
    on_bad_picture: "fail" refuses a data set with a picture that does not decode, "skip" leaves it out and counts it.
    python: framework -> interpreter that already has it, in place of a managed environment.
    index: framework -> URL of an extra package index for its environment (such as that of PyTorch's CPU builds).
    timeout_s: wall seconds after which a run is ended as `timed-out`.
    sampling_hz: readings a second of CPU, memory, threads and GPU; 0 reads none.
    settings: fields of TrainConfig (batch_size, epochs, threads, pipeline, execution, ...); batch_size, execution,
        pipeline, precision and tuning may be lists, and then every combination is a cell.

    A cell that does not work is in the result with its status and reason; only a wrong request raises (UsageError),
    and then nothing has been written.
    """
    watcher = watcher or default_watcher()
    how = _how_to_run(python, index, installer, timeout_s, sampling_hz)
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
    _tell_of_datasets(plan, watcher)
    folder = Path(out) if out is not None else new_study_folder()
    with Store.create(
        folder, settings=_describe(plan, how), machine=machine.describe(), cells=plan.cells, repeats=repeats
    ) as store:
        write_pictures(store.folder, plan)
        with watcher:
            Study(store, how, watcher).run()
    return Comparison.load(folder)


def _how_to_run(
    python: Optional[Mapping[str, str]],
    index: Optional[Mapping[str, str]],
    installer: str,
    timeout_s: Optional[float],
    hz: float,
) -> HowToRun:
    check_installer(installer)
    if timeout_s is not None and not timeout_s > 0:
        raise UsageError(f"timeout_s is {timeout_s!r}; allowed: a number of seconds above 0, or None")
    if not 0 <= hz <= 1000:
        raise UsageError(f"sampling_hz is {hz!r}; allowed: 0 (off) to 1000")
    return HowToRun(_by_framework(python), _by_framework(index), installer, timeout_s, hz)


def _by_framework(given: Optional[Mapping[str, str]]) -> Dict[str, str]:
    return {find_framework(name).name: str(value) for name, value in (given or {}).items()}


def _tell_of_datasets(plan: Plan, watcher: Watcher) -> None:
    for name, index in plan.datasets.items():
        classes = ", ".join(
            f"{label} {index.pictures.labels.count(i)}" for i, label in enumerate(index.pictures.classes)
        )
        watcher.say(f"{name}: {len(index.pictures)} pictures ({classes})")
        for folder, label in index.found_aliases.items():
            watcher.say(f"{name}: folder {folder!r} is read as class {label!r}")
        for path, reason in index.skipped:
            watcher.say(f"{name}: skipped {path!r}: {reason}")
        for folder in index.ignored_folders:
            watcher.say(f"{name}: folder {folder!r} is not among the classes asked for and is left out")


def _describe(plan: Plan, how: HowToRun) -> Dict[str, Any]:
    return {
        "framework_compare": __version__,
        "datasets": {
            name: {
                "pictures": len(index.pictures),
                "skipped": len(index.skipped),
                "skipped_pictures": [list(pair) for pair in index.skipped],
                "classes": list(index.pictures.classes),
                "class_aliases": dict(index.found_aliases),
            }
            for name, index in plan.datasets.items()
        },
        "sampling_hz": how.hz,
        "timeout_s": how.timeout_s,
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
