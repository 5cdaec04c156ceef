"""Checks of what a study's file gives: damage, or another program, may have changed it.

A reader leaves a row out that is not sound, and says so; see `Store.left_out`.
"""

import difflib
import functools
import math
import operator
import types
from collections.abc import Mapping, Sequence
from typing import Any

from framework_compare.events import parse
from framework_compare.protocol import Document, Fields, TrainConfig
from framework_compare.records import PROFILE_KINDS, STATUSES, Cell, Epoch, Phase, ProfileRow, Run, Slice, types_of

_NONE = type(None)
_KINDS: dict[str, frozenset[type]] = {
    "str": frozenset({str}),
    "int": frozenset({int}),
    "float": frozenset({float, int}),
    "str | None": frozenset({str, _NONE}),
    "int | None": frozenset({int, _NONE}),
    "float | None": frozenset({float, int, _NONE}),
}
_MACHINE = {
    **dict.fromkeys(("cpu", "cpu_governor", "architecture", "kernel", "os", "python"), _KINDS["str | None"]),
    **dict.fromkeys(("available_cores", "memory_bytes", "memory_limit_bytes"), _KINDS["float | None"]),
}
_INFINITE = (math.inf, -math.inf)
# Of a span in time, how its end must stand to its start.
_SPANS = {Phase: operator.ge, Epoch: operator.gt, Slice: operator.ge}
Columns = Mapping[str, Sequence[Any]]


class InvalidRow(ValueError):
    """A row or a document is not what was stored; the message says what of it."""


def _kinds(record: Any) -> dict[str, frozenset[type]]:
    return {name: _KINDS[kind] for name, kind in types_of(record).items() if kind in _KINDS}


class Kinds:
    """The allowed types of the fields of a row."""

    def __init__(self, kinds: dict[str, frozenset[type]]) -> None:
        self.of = kinds
        self.floats = [name for name, allowed in kinds.items() if float in allowed]


_DEFAULTS = TrainConfig().to_dict()
_CONFIG = Kinds(_kinds(TrainConfig))
_RUN = Kinds(
    {
        **_kinds(Cell),
        **_kinds(Run),
        **dict.fromkeys(("cell_id", "run_id", "repeat"), _KINDS["int"]),
        **dict.fromkeys(("retry_of", "part_id", "node_id"), _KINDS["int | None"]),
    }
)


def run_row(row: Document) -> Fields:
    """A row of a run and its cell, with `config`, `gauges` and `warnings` read; InvalidRow where it was not stored so."""
    _check(row, _RUN)
    if row["status"] not in STATUSES:
        raise InvalidRow(f"its status is {_shown(row['status'])}")
    warnings = document(row.get("warnings"), list, "warnings")
    if not all(isinstance(text, str) for text in warnings):
        raise InvalidRow("its warnings are not text")
    gauges = document(row.get("gauges"), dict, "gauges")
    return {**row, "config": config(row.get("config")), "gauges": gauges, "warnings": warnings}


@functools.lru_cache(maxsize=1024)  # cells of several frameworks and models share a text
def config(text: object) -> Document:
    """Return the stored fields of a TrainConfig; those that were not stored get their defaults."""
    stored = document(text, dict, "config")
    missing, unknown = _DEFAULTS.keys() - stored.keys(), stored.keys() - _DEFAULTS.keys()
    if unknown:
        name = min(unknown)
        if not missing:
            raise InvalidRow(f"its config has {_shown(name)}, which this version of framework_compare does not know")
        (nearest,) = difflib.get_close_matches(str(name), sorted(missing), 1) or (min(missing),)
        raise InvalidRow(f"its config has {_shown(name)} in place of {nearest}")
    fields = {**_DEFAULTS, **stored}
    _check(fields, _CONFIG)
    return types.MappingProxyType(fields)


def document(text: Any, kind: type, what: str) -> Any:
    """A stored JSON document, a dict or a list; InvalidRow for anything else."""
    try:
        parsed = parse(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRow(f"its {what} is not JSON: {error}") from None
    if not isinstance(parsed, kind):
        raise InvalidRow(f"its {what} is {_shown(parsed)}")
    return parsed


def settings(text: object) -> Fields:
    """Return what a study was created with; InvalidRow where a part of it is not of its kind."""
    parsed = document(text, dict, "settings")
    for name in ("datasets", "limits", "python", "strategy"):
        if not isinstance(parsed.get(name) or {}, dict):
            raise InvalidRow(f"{name} of its settings is {_shown(parsed[name])}")
    for name, dataset in (parsed.get("datasets") or {}).items():
        if not isinstance(dataset, dict):
            raise InvalidRow(f"the data set {name} of its settings is {_shown(dataset)}")
    memory = (parsed.get("limits") or {}).get("memory_bytes")
    if type(memory) not in _KINDS["int | None"]:
        raise InvalidRow(f"the memory limit of its settings is {_shown(memory)}")
    return parsed


def machine(facts: Document) -> Document:
    """Return what `samplers.host.describe` found; InvalidRow where a fact is not of its kind."""
    for name, kinds in _MACHINE.items():
        if type(facts.get(name)) not in kinds:
            raise InvalidRow(f"{name} of its machine is {_shown(facts[name])}")
    gpus = facts.get("gpus")
    if not isinstance(gpus.get("devices") if isinstance(gpus, dict) else gpus, (list, _NONE)):
        raise InvalidRow(f"gpus of its machine is {_shown(gpus)}")
    return facts


def rows(record: Any, columns: Columns) -> tuple[list[int], str]:
    """The numbers of the invalid rows among a record's stored columns, and the fault of the first."""
    faults: dict[int, str] = {}
    for name, allowed in _kinds(record).items():
        values = columns[name]
        if float in allowed:
            allowed = allowed | {_NONE}  # SQLite has no NaN
        if not set(map(type, values)) <= allowed or (float in allowed and any(x in values for x in _INFINITE)):
            wrong = {n: value for n, value in enumerate(values) if type(value) not in allowed or value in _INFINITE}
            faults.update({n: f"its {name} is {_shown(value)}" for n, value in wrong.items() if n not in faults})
    if record in _SPANS:
        for n, (start, end) in enumerate(zip(columns["start_ns"], columns["end_ns"])):
            if n not in faults and start < 0:  # what is subtracted from it may not fit 64 bits
                faults[n] = f"its start_ns is {start}"
            elif n not in faults and not _SPANS[record](end, start):
                faults[n] = "its end is before its start"
    for n, kind in enumerate(columns["kind"] if record is ProfileRow else ()):
        if kind not in PROFILE_KINDS:
            faults.setdefault(n, f"its kind is {_shown(kind)}")
    return sorted(faults), faults[min(faults)] if faults else ""


def numbers(figures: Any, names: Sequence[str]) -> Fields | None:
    """A document of numbers under these names, each perhaps None; None for anything else."""
    kinds = _KINDS["float | None"]
    whole = isinstance(figures, dict) and figures.keys() == set(names) and kinds.issuperset(map(type, figures.values()))
    return figures if whole else None


def _check(row: Document, kinds: Kinds) -> None:
    name = _unlike(tuple(row), tuple(map(type, row.values())), kinds)
    if name is not None and name not in row:
        raise InvalidRow(f"it has no {name}")
    name = name or next((number for number in kinds.floats if row[number] in _INFINITE), None)
    if name:
        raise InvalidRow(f"its {name} is {_shown(row[name])}")


# Thousands of rows are of one kind.
@functools.lru_cache(maxsize=64)
def _unlike(names: tuple[str, ...], types: tuple[type, ...], kinds: Kinds) -> str | None:
    """The first field that a row lacks, or has of another kind."""
    type_of = dict(zip(names, types))
    return next((name for name, allowed in kinds.of.items() if type_of.get(name) not in allowed), None)


def _shown(value: object) -> str:
    return repr(value)[:60]
