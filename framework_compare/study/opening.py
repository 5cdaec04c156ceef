"""Open the folder of a study, new or existing, and store its settings there."""

import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from framework_compare import __version__
from framework_compare.errors import StudyError, UsageError
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.paths import cache_dir, fault
from framework_compare.plan.planning import Plan
from framework_compare.plan.settings import beyond_cores
from framework_compare.protocol import Fields
from framework_compare.records import oversize
from framework_compare.samplers import host
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import REQUEST, Store
from framework_compare.study import schedules, trust
from framework_compare.study.data_files import write_data, write_models
from framework_compare.study.parts import absorb
from framework_compare.study.resumption import check_machine, check_same_datasets, check_same_plan
from framework_compare.study.run_options import STORED, RunOptions
from framework_compare.study.strategies import Strategy


def open_study(
    folder: Path,
    plan: Plan,
    options: RunOptions,
    strategy: Strategy,
    repeats: int | None = 1,
    kept: Mapping[str, object] | None = None,
    *,
    extend: bool = False,
    here: bool = True,
) -> Store:
    """The study in a folder, open for writing: a new one, or one that is there and has the same plan and machine.

    repeats: runs of each cell; None is REPEATS, or what a study has that is there.
    kept: what a new study stores beside its settings: the request, the rungs of a ladder; not what is empty.
    extend: whether a study that is there may have another plan, whose cells are added then.
    here: whether this machine runs it; otherwise its machine is the kind of node that runs its first part.
    StudyError where a study differs, was measured on another machine, or has other images under the same name.
    """
    settings = {**describe(plan, options), "strategy": strategy.to_dict()}
    settings.update({name: value for name, value in (kept or {}).items() if value})
    if not (folder / FILE).exists():
        cells, repeats, seed = strategy.first(plan.cells), repeats or schedules.REPEATS, schedules.new_seed()
        return Store.create(
            folder,
            settings={**settings, "order_seed": seed},
            machine=host.describe() if here else {},
            cells=cells,
            repeats=repeats,
            # one block is as planned, unless others come
            orders=schedules.orders(len(cells), max(repeats, 1 + strategy.adds_blocks), seed)[:repeats],
            prepare=lambda made: _write_data(made, plan, options),
        )
    store = Store.open(folder, readonly=False)
    try:
        if extend:
            _extend(store, plan, options, repeats)
            return store
        check_same_plan(store, plan.cells, store.repeats() if repeats is None else repeats, settings)
        if here:
            absorb(store)
            check_machine(store)
        _write_data(store.folder, plan, options)
    except BaseException:
        store.close()
        raise
    return store


def _extend(store: Store, plan: Plan, options: RunOptions, repeats: int | None) -> None:
    """Add the cells of a plan that a study does not have."""
    absorb(store)
    check_machine(store)
    described = describe(plan, options)["datasets"]
    check_same_datasets(store, described)
    there, settings = {cell for _, cell in store.cells()}, store.settings()
    trust.check(store.folder, trust.programs(there, {}), False)  # what it has not finished is run, too
    settings["datasets"] = {**described, **(settings.get("datasets") or {})}
    settings.pop(REQUEST, None)  # no request alone makes this study any more
    store.replace_settings(settings)
    _write_data(store.folder, plan, options)
    cells = [cell for cell in plan.cells if cell not in there]
    store.add(cells, schedules.orders(len(cells), repeats or schedules.REPEATS, schedules.new_seed()))


def _write_data(folder: Path, plan: Plan, options: RunOptions) -> None:
    """Write what only this folder can give a resume: lists of images, arrays, imported models, what may be executed."""
    trust.note(trust.programs(plan.cells, options.python))
    write_data(folder, plan.datasets)
    write_models(folder, (cell.model for cell in plan.cells))


def check_folder(name: str, folder: object) -> Path:
    """A folder that a user names, there or not; UsageError for what is not a path."""
    if not isinstance(folder, (str, os.PathLike)):
        raise UsageError(f"{name} is {folder!r}; allowed: the path of a folder")
    return Path(folder)


def check_writable(folder: Path, what: str = "a study") -> Path:
    """The folder as it is; StudyError where nothing could be written there, before images are read for it."""
    if why := fault(folder):
        raise StudyError(f"{folder} cannot be used for {what}, because {why}; name another folder")
    return folder


def remarks(plan: Plan, imported: Sequence[ImportedModel], here: bool) -> Iterator[str]:
    """Everything that a user may not expect of data sets, imported models and, of what runs here, numbers of threads."""
    for name, data in plan.datasets.items():
        yield from data.remarks()
        sizes = dict.fromkeys(cell.config.batch_size for cell in plan.cells if cell.dataset == name)
        unit = data.task.unit if data.task else "image"
        yield from filter(None, (oversize(size, len(data), name, unit) for size in sizes))
    for model in imported:
        level = model.level
        proof = f"as in {level.judge} to {level.error:.0e} in float64" if level else "not compared with its source"
        yield f"{model.source} is {model.name}: {model().parameter_count():,} parameters, {proof}"
        yield from model.notes
        classes = dict.fromkeys(cell.config.num_classes for cell in plan.cells if cell.model == model.name)
        yield from filter(None, map(model.replaced_head, classes))
    if here:
        yield from beyond_cores([cell.config for cell in plan.cells])


def describe(plan: Plan, options: RunOptions) -> Fields:
    """The settings that are stored with a study."""
    return {
        "framework_compare": __version__,
        "datasets": {name: data.describe() for name, data in plan.datasets.items()},
        **{name: getattr(options, name) for name in STORED},
        "limits": options.limits.to_dict(),
        "python": dict(options.python),
    }


def study_folder(out: object) -> Path:
    """The folder for a study: the one that a user names, if it could hold one, else a new one in the cache folder."""
    return check_writable(new_study_folder() if out is None else check_folder("out", out))


def new_study_folder() -> Path:
    """Path of a new folder in the cache, named by the time."""
    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    folder = studies_dir() / stamp
    number = 2
    while folder.exists():
        folder = studies_dir() / f"{stamp}-{number}"
        number += 1
    return folder


def studies_dir() -> Path:
    """The folder of studies that were not given one."""
    return cache_dir() / "studies"
