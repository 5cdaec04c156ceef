"""Parts of a study, each to be run alone on a node: one turn of all cells that are compared with each other.

A part is planned as STUDY/parts/N.json, which says all that a node must know, so that nobody but the process that
absorbs opens the study's own file. It runs as a small study of its own (`part_run`), whose folder becomes STUDY/parts/N
once it is done.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from framework_compare.errors import StudyError
from framework_compare.protocol import Fields, TrainConfig
from framework_compare.records import Cell
from framework_compare.results.parity import read_verdicts, write_verdicts
from framework_compare.results.runs import refresh_figures
from framework_compare.store import schema
from framework_compare.store.absorption import Part
from framework_compare.store.folder import FILE, IMAGES, read_json, write_json
from framework_compare.store.study_file import TO_RUN, Store
from framework_compare.study import schedules, strategies
from framework_compare.study.resumption import other_kind, with_sources
from framework_compare.study.run_options import RunOptions
from framework_compare.study.strategies import with_anchor

PARTS = "parts"
PART_OF = "part_of"  # a setting of the small study of a part: whose part it is
MACHINE = "machine.json"  # the kind of machine that all parts must run on: of the first that started
Say = Callable[[str], None]
ONE_KIND = "choose nodes of one kind, such as by --slurm constraint=..., or name another folder"


@dataclasses.dataclass(frozen=True)
class PartPlan:
    """The request for one part, as a node reads it."""

    number: int
    study: str  # tells studies apart on a node's disk
    turn: int  # `repeat` of its runs in the study
    cells: tuple[Cell, ...]  # in the order of the block
    replaces: Sequence[str] = TO_RUN  # statuses of runs that its results may replace
    settings: Fields = dataclasses.field(default_factory=dict)  # of the study, with what was asked for now

    @property
    def nodes(self) -> int:
        """The number of nodes it needs: as many as its largest cell, so that ratios of cells are of the same nodes."""
        return max((cell.config.nodes for cell in self.cells), default=1)

    @property
    def identity(self) -> str:
        """The mark of its results, which its own study has as the setting PART_OF."""
        return f"{self.study} {self.number}"

    def write(self, folder: Path) -> None:
        cells = [{**vars(cell), "config": cell.config.to_dict()} for cell in self.cells]
        write_json(plan_path(folder, self.number), {**vars(self), "cells": cells})

    @classmethod
    def read(cls, folder: Path, number: int) -> PartPlan:
        """StudyError where the study has no such part."""
        path = plan_path(folder, number)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            cells = [Cell(**{**cell, "config": TrainConfig.from_dict(cell["config"])}) for cell in document["cells"]]
            if document["number"] != number or not re.fullmatch("[0-9a-f]{12}", document["study"]):
                raise ValueError(f"number {document['number']!r}, study {document['study']!r}")
            return cls(**{**document, "cells": tuple(cells)})
        except FileNotFoundError:
            planned = sorted(numbers(folder))
            known = f"{planned[0]} to {planned[-1]}" if planned else "none; `run --on parts` or `--on slurm` plans them"
            raise StudyError(f"{folder} has no part {number}; allowed: {known}") from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StudyError(f"{path} cannot be read: {error!r}; delete it and resume the study") from None


def plan_path(folder: Path, number: int) -> Path:
    return folder / PARTS / f"{number}.json"


def result_path(folder: Path, number: int) -> Path:
    """Return the folder of a part, which is there once the part is done."""
    return folder / PARTS / str(number)


def numbers(folder: Path) -> set[int]:
    """Return the numbers of all parts planned so far."""
    return {int(path.stem) for path in (folder / PARTS).glob("*.json") if path.stem.isdecimal()}


def done(folder: Path) -> set[int]:
    """Return the numbers of the parts whose results are there."""
    # Listing the folder also makes NFS look for what other hosts have put there.
    return {int(path.name) for path in (folder / PARTS).glob("*") if path.name.isdecimal() and path.is_dir()}


def plan(
    store: Store, options: RunOptions, retry: Sequence[str], live: Iterable[int], say: Say = lambda message: None
) -> list[int]:
    """Plan parts for all runs still to do or to `retry`; the numbers of those to be started now.

    live: parts that wait or run, whose runs are left to them. A part that ended without a result is planned once more
    under its number, and retries what it should: on the same node it continues where it stopped.
    """
    folder, settings = store.folder, store.settings()
    name = hashlib.sha256(f"{settings.get('order_seed')} {folder}".encode()).hexdigest()[:12]
    settings.update(limits=options.limits.to_dict(), verify=options.verify, python=dict(options.python))

    @functools.cache  # most parts replace runs of the same statuses
    def left(statuses: tuple[str, ...]) -> dict[tuple[int, Cell], int]:
        return {(turn, cell): run_id for run_id, cell, turn in store.plan(statuses)}

    wanted = dict(left((*TO_RUN, *retry)))
    results, running, to_start = done(folder), set(live), []
    known = numbers(folder)
    for number in sorted(known - store.parts()):
        before = PartPlan.read(folder, number)
        replaces = tuple(dict.fromkeys((*before.replaces, *retry)))
        cells = tuple(cell for cell in before.cells if (before.turn, cell) in left(replaces))
        for cell in cells:
            wanted.pop((before.turn, cell), None)
        if number in results or number in running:
            continue
        dataclasses.replace(before, cells=cells, replaces=replaces, settings=settings).write(folder)
        to_start += [number] if cells else []
    strategy = strategies.of_settings(settings, store.path)
    left_over = [(run_id, cell, turn) for (turn, cell), run_id in wanted.items()]
    blocks: dict[tuple[int, str, str], list[Cell]] = {}
    for group in schedules.groups(left_over, options.schedule, options.across_models):
        for _, cell, turn in with_anchor(store, group, options, strategy, say):
            blocks.setdefault((turn, "" if options.across_models else cell.model, cell.dataset), []).append(cell)
    first = max(known | store.parts(), default=0) + 1
    for number, ((turn, _, _), listed) in enumerate(blocks.items(), start=first):
        PartPlan(number, name, turn, tuple(listed), (*TO_RUN, *retry), settings).write(folder)
        to_start.append(number)
    return to_start


def absorb(store: Store, say: Say = lambda message: None, skip: Collection[int] = ()) -> dict[int, str]:
    """Take over every part that is done and not in the study yet, each whole or not at all; why others are not, by part.

    Refused is a part of another kind of machine, of other packages than finished runs had, of images that have changed,
    or whose file is damaged; the others are taken over. Each is reported. skip: parts not to look at.
    """
    store.single_file()
    refused: dict[int, str] = {}
    before = store.parts()
    for number in sorted(done(store.folder) - before - {*skip}):
        try:
            say(_absorb_one(store, PartPlan.read(store.folder, number)))
        except StudyError as error:
            refused[number] = str(error)
            say(f"part {number} is refused: {error}; delete {result_path(store.folder, number)} to run it again")
    if store.parts() != before:
        refresh_figures(store)
    return refused


def _absorb_one(store: Store, plan: PartPlan) -> str:
    """Take over one part; what came of it in a sentence."""
    place = result_path(store.folder, plan.number)
    with Store.open(place, checked=True) as part:
        machine, environments, of = part.machine(), part.environments(), part.settings().get(PART_OF)
        statuses = [status for listed in part.outcomes().values() for status in listed]
        if part.plan():
            raise StudyError(f"{place} is incomplete; delete it and resume the study")
    if of != plan.identity:
        raise StudyError(f"{place} contains results of another part or of another study")
    changes = other_kind(store.machine(), machine, plan.cells)
    if changes:
        raise StudyError(f"it ran on a different kind of machine: {'; '.join(changes)}; {ONE_KIND}")
    if not store.machine():
        store.keep_machine({name: fact for name, fact in machine.items() if name != "node"})
    _check_images(store.folder, place)
    documents = {
        label: with_sources(store, label, document, document.get("sources", []))
        for label, document in environments.items()
    }
    store.absorb(
        Part(
            plan.number,
            place / FILE,
            plan.turn,
            plan.replaces,
            str(machine.get("node")),
            json.dumps(machine),
            {label: json.dumps(document) for label, document in documents.items()},
            str(place.relative_to(store.folder)),
        )
    )
    write_verdicts(store.folder, {**read_verdicts(store.folder), **read_verdicts(place)})
    for half in place.parent.glob(f".framework-compare-*-{plan.number}"):
        shutil.rmtree(half, ignore_errors=True)  # of an attempt that was killed while it copied
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    return f"part {plan.number}: {counts}"


def _check_images(folder: Path, place: Path) -> None:
    """StudyError where a part read other images than the parts before it; the first one's checksums become the study's."""
    for path in (place / IMAGES).glob("*.checksums"):
        ours, theirs = folder / IMAGES / path.name, read_json(path)
        with schema.study_errors(ours):
            if not ours.exists():
                shutil.copy(path, ours)
            elif read_json(ours) != theirs:
                raise StudyError(f"its images of {path.stem} differ from those of the runs before it; restore them")
