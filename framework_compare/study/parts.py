"""Parts of a study, each to be run alone on a node: one turn of all cells that are compared with each other.

A part is planned as STUDY/parts/N.json, which says all that a node must know, so that nobody but the process that
absorbs opens the study's own file. It runs as a small study of its own (`part_run`), whose folder becomes STUDY/parts/N
once it is done.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from framework_compare.errors import StudyError
from framework_compare.protocol import Fields, TrainConfig
from framework_compare.records import Cell
from framework_compare.store.folder import write_json
from framework_compare.store.study_file import TO_RUN, Store
from framework_compare.study.run_options import RunOptions

PARTS = "parts"
PART_OF = "part_of"  # a setting of the small study of a part: whose part it is
MACHINE = "machine.json"  # the kind of machine that all parts must run on: of the first that started
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


def plan(store: Store, options: RunOptions, retry: Sequence[str], live: Iterable[int]) -> list[int]:
    """Plan parts for all runs still to do or to `retry`; the numbers of those to be started now.

    live: parts that wait or run, whose runs are left to them. A part that ended without a result is planned once more
    under its number: on the same node it continues where it stopped.
    """
    folder, settings = store.folder, store.settings()
    name = hashlib.sha256(f"{settings.get('order_seed')} {folder}".encode()).hexdigest()[:12]
    settings.update(limits=options.limits.to_dict(), verify=options.verify, python=dict(options.python))
    wanted = dict.fromkeys((turn, cell) for _, cell, turn in store.plan(retry))
    replaces = (*TO_RUN, *retry)
    results, running, to_start = done(folder), set(live), []
    known = numbers(folder)
    for number in sorted(known - store.parts()):
        before = PartPlan.read(folder, number)
        cells = tuple(cell for cell in before.cells if wanted.pop((before.turn, cell), wanted) is None)
        if number in results or number in running:
            continue
        dataclasses.replace(before, cells=cells, replaces=replaces, settings=settings).write(folder)
        to_start += [number] if cells else []
    blocks: dict[tuple[int, str, str], list[Cell]] = {}
    for turn, cell in wanted:
        blocks.setdefault((turn, cell.model, cell.dataset), []).append(cell)
    first = max(known | store.parts(), default=0) + 1
    for number, ((turn, _, _), listed) in enumerate(blocks.items(), start=first):
        PartPlan(number, name, turn, tuple(listed), replaces, settings).write(folder)
        to_start.append(number)
    return to_start
