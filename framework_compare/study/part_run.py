"""Runs one part of a study on this node: as a small study on the node's own disk, put into the study once it is whole.

SQLite's write-ahead log and locks need a disk of this host, and a part that is cut short leaves nothing in the study.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from framework_compare.errors import StudyError
from framework_compare.launch import disturbances, nodes
from framework_compare.paths import own_name, private_folder
from framework_compare.protocol import Document, Fields
from framework_compare.samplers import host
from framework_compare.store import schema
from framework_compare.store.folder import FILE, IMAGES, LOCK, read_json
from framework_compare.store.study_file import REQUEST, Store
from framework_compare.study import parts, strategies
from framework_compare.study.data_files import arrays_path, images_path, register_models
from framework_compare.study.parts import PartPlan, plan_path, result_path
from framework_compare.study.progress import Watcher
from framework_compare.study.resumption import other_kind
from framework_compare.study.run_options import as_planned
from framework_compare.study.study import Study
from framework_compare.study.trust import check, programs

Say = Callable[[str], None]
SUMS = ".checksums"


def run_part(folder: Path, number: int, watcher: Watcher, trust: bool = False) -> None:
    """Run what is left of a part and put its results into the study; nothing where they are there already.

    trust: execute what the study names, although this user never asked for it.

    StudyError on a machine of another kind than the other parts'. A KeyboardInterrupt leaves what is measured on this
    node, where the same part continues with it.
    """
    plan = PartPlan.read(folder, number)
    if result_path(folder, number).is_dir() or not plan.cells:
        watcher.say(f"part {number} of {folder} has nothing left to do")
        return
    nodes.check(plan.nodes)
    register_models(folder)
    options = dataclasses.replace(as_planned(plan.settings, plan_path(folder, number)), makes_environments=False)
    if (plan.settings.get(REQUEST) or {}).get("disturbance_threshold") is None:
        # that of the planning host is not this node's
        options = dataclasses.replace(options, disturbance_threshold=disturbances.threshold())
    check(folder, programs(plan.cells, options.python), trust)
    machine = {**host.describe(), "node": _node(plan), "allocated_cores": os.environ.get("SLURM_CPUS_ON_NODE")}
    _check_kind(folder, plan, machine)
    place = _place(plan)
    for done in parts.done(folder):  # attempts on this node at parts that another node has finished since
        shutil.rmtree(place.with_name(f"{place.name.rpartition('-')[0]}-{done}"), ignore_errors=True)
    strategy = strategies.of_settings(plan.settings, plan_path(folder, number))
    with _open(place, folder, plan, machine, watcher.say) as store, watcher:
        Study(store, options, watcher, strategy).run()
    _publish(place, result_path(folder, number))


def _node(plan: PartPlan) -> str:
    """A name for this node that tells nothing of the host's own, which results do not hold."""
    salted = f"{plan.study} {plan.settings.get('order_seed')} {nodes.node()}"
    return f"node-{hashlib.sha256(salted.encode()).hexdigest()[:8]}"


def _check_kind(folder: Path, plan: PartPlan, machine: Document) -> None:
    """StudyError on another kind of machine than that of the part that was the first to start."""
    path = folder / parts.PARTS / parts.MACHINE
    with schema.study_errors(path):
        if not path.exists():
            half = path.with_name(f".{plan.number}.{_node(plan)}.json")
            half.write_text(json.dumps(machine), encoding="utf-8")
            with contextlib.suppress(FileExistsError):  # another part was faster
                os.link(half, path)
            half.unlink()
    changes = other_kind(read_json(path), machine, plan.cells)
    if changes:
        raise StudyError(f"part {plan.number} cannot run on this node: {'; '.join(changes)}; {parts.ONE_KIND}")


def _place(plan: PartPlan) -> Path:
    """Return a place on the node's own disk that only this user can write; nodes that share it have their own."""
    base = Path(os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir())
    return private_folder(base / own_name()) / f"{plan.study}-{_node(plan)}-{plan.number}"


def _open(place: Path, folder: Path, plan: PartPlan, machine: Fields, say: Say) -> Store:
    """The part's own study: one that an attempt before left on this node, if it is of this plan, else a new one."""
    if (place / FILE).is_file():
        try:
            store = Store.open(place, readonly=False)
            same_part = store.settings().get(parts.PART_OF) == plan.identity
            if same_part and [cell for _, cell in store.cells()] == list(plan.cells):
                return store
            store.close()
        except schema.DamagedStudy:  # by a power cut, say
            say(f"the earlier measurements of part {plan.number} on this node are damaged; starting it again")
        shutil.rmtree(place)
    with schema.study_errors(place):
        place.mkdir(mode=0o700, exist_ok=True)

    def copy_lists(made: Path) -> None:
        (made / IMAGES).mkdir(exist_ok=True)
        for dataset in {cell.dataset for cell in plan.cells}:
            listed = images_path(folder, dataset)
            for path in (listed, listed.with_suffix(SUMS), arrays_path(folder, dataset)):
                if path.is_file():
                    shutil.copy(path, made / IMAGES)

    settings = {**plan.settings, parts.PART_OF: plan.identity}
    return Store.create(place, settings=settings, machine=machine, cells=plan.cells, repeats=1, prepare=copy_lists)


def _publish(place: Path, result: Path) -> None:
    """Put a whole part into the study under its number: by a rename, so that it is there whole or not at all."""
    half = result.with_name(f".{place.name}")
    with schema.study_errors(result):
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(place, half, ignore=_not_needed)
        try:
            half.rename(result)
        except OSError:
            if not result.is_dir():
                raise
            shutil.rmtree(half)  # another node was faster
    shutil.rmtree(place)
    with contextlib.suppress(OSError):  # other parts are at work there
        place.parent.rmdir()


def _not_needed(folder: str, names: list[str]) -> set[str]:
    """Return those of a part's files that the study has itself."""
    if Path(folder).name == IMAGES:
        return {name for name in names if not name.endswith(SUMS)}
    return {LOCK} & set(names)
