"""Records as rows of the study file: which table has which record, and values as SQLite takes them."""

from __future__ import annotations

import dataclasses
import json
import operator
import sqlite3
from collections.abc import Iterable

from framework_compare.records import Epoch, Phase, ProfileRow, Quality, Run, Slice
from framework_compare.samplers.energy import Energy
from framework_compare.samplers.samplers import Sample

# table -> the record of a run that each row of it is
CHILDREN = {
    "phase": Phase,
    "epoch": Epoch,
    "slice": Slice,
    "quality": Quality,
    "sample": Sample,
    "energy": Energy,
    "profile": ProfileRow,
}
# field of a Run -> its table
LISTS = {
    "phases": "phase",
    "epochs": "epoch",
    "slices": "slice",
    "quality": "quality",
    "samples": "sample",
    "energy": "energy",
    "profile": "profile",
}
RUN_FIELDS = [f.name for f in dataclasses.fields(Run) if f.name not in LISTS]


def insert(connection: sqlite3.Connection, table: str, run_id: int, items: Iterable[object]) -> None:
    """Add records to a table of CHILDREN; the transaction is the caller's."""
    names = fields_of(table)
    fields = operator.attrgetter(*names)
    marks = ", ".join("?" * (len(names) + 1))
    query = f"INSERT INTO {table} (run_id, {', '.join(names)}) VALUES ({marks})"
    connection.executemany(query, ((run_id, *fields(item)) for item in items))


def fields_of(table: str) -> list[str]:
    """Return the fields of a table of CHILDREN, without run_id."""
    return [field.name for field in dataclasses.fields(CHILDREN[table])]


def column(value: object) -> object:
    """A field of a Run as SQLite takes it; text of a worker may hold halves of surrogate pairs, which it does not."""
    if isinstance(value, (dict, list, tuple)):
        return as_json(value)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def as_json(value: object) -> str:
    """A document of the file; what JSON does not know is stored as text."""
    return json.dumps(value, default=str)
