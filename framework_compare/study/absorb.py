"""Takes the parts of a study that are done into the study's own file; what does not belong there is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from framework_compare.errors import StudyError
from framework_compare.protocol import Fields
from framework_compare.results import verdicts
from framework_compare.results.runs import refresh_figures
from framework_compare.store import schema
from framework_compare.store.absorption import Part
from framework_compare.store.folder import FILE, IMAGES, read_json
from framework_compare.store.study_file import Store
from framework_compare.study import parts
from framework_compare.study.parts import PartPlan, result_path
from framework_compare.study.resumption import check_same_environment, other_kind

Say = Callable[[str], None]


class Absorbed(NamedTuple):
    """The number of parts that were taken over now, and the reasons why others were not, by part."""

    parts: int
    refused: dict[int, str]


def absorb(store: Store, say: Say = lambda message: None, skip: Collection[int] = ()) -> Absorbed:
    """Take over every part that is done and not in the study yet, each whole or not at all.

    Refused is a part of another kind of machine, of other packages than finished runs had, of images that have changed,
    or whose file is damaged; the others are taken over. Each is reported. skip: parts not to look at.
    """
    store.single_file()
    refused: dict[int, str] = {}
    count = 0
    for number in sorted(parts.done(store.folder) - store.parts() - {*skip}):
        try:
            say(_absorb_one(store, PartPlan.read(store.folder, number)))
            count += 1
        except StudyError as error:
            refused[number] = str(error)
            say(f"part {number} is refused: {error}; delete {result_path(store.folder, number)} to run it again")
    if count:
        refresh_figures(store)
    return Absorbed(count, refused)


def _absorb_one(store: Store, plan: PartPlan) -> str:
    """Take over one part; what came of it in a sentence."""
    place = result_path(store.folder, plan.number)
    with Store.open(place, checked=True) as part:
        machine, environments, of = part.machine(), part.environments(), part.settings().get(parts.PART_OF)
        statuses = [status for listed in part.outcomes().values() for status in listed]
        if part.plan():
            raise StudyError(f"{place} is incomplete; delete it and resume the study")
    if of != plan.identity:
        raise StudyError(f"{place} contains results of another part or of another study")
    changes = other_kind(store.machine(), machine, plan.cells)
    if changes:
        raise StudyError(f"it ran on a different kind of machine: {'; '.join(changes)}; {parts.ONE_KIND}")
    if not store.machine():
        store.keep_machine({name: fact for name, fact in machine.items() if name != "node"})
    _check_images(store.folder, place)
    documents = {label: _merged(store, label, document) for label, document in environments.items()}
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
    verdicts.write(store.folder, {**verdicts.read(store.folder), **verdicts.read(place)})
    for half in place.parent.glob(f".framework-compare-*-{plan.number}"):
        shutil.rmtree(half, ignore_errors=True)  # of an attempt that was killed while it copied
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    return f"part {plan.number}: {counts}"


def _merged(store: Store, label: str, document: Fields) -> Fields:
    """An environment of a part as the study stores it, with every state of the source that ran; StudyError for another."""
    check_same_environment(store, label.partition(" (")[0], document, label=label)
    before = (store.environments().get(label) or {}).get("sources") or []
    return {**document, "sources": list(dict.fromkeys([*before, *document.get("sources", [])]))}


def _check_images(folder: Path, place: Path) -> None:
    """StudyError where a part read other images than the parts before it; the first one's checksums become the study's."""
    for path in (place / IMAGES).glob("*.checksums"):
        ours, theirs = folder / IMAGES / path.name, read_json(path)
        with schema.study_errors(ours):
            if not ours.exists():
                shutil.copy(path, ours)
            elif read_json(ours) != theirs:
                raise StudyError(f"its images of {path.stem} differ from those of the runs before it; restore them")
