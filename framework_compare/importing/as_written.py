"""A row for the user's module as it is written, beside the one that is rebuilt from its layer graph."""

import dataclasses
from typing import Iterable, List

from framework_compare import registry
from framework_compare.environments import locks
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.plan.planning import Plan
from framework_compare.protocol import devices_of
from framework_compare.records import Cell


def with_written(plan: Plan, models: Iterable[ImportedModel]) -> Plan:
    """The plan with such a cell behind each of the same framework on one device, where another process can load it."""
    known = {model.name for model in models if model.written}
    own = {entry.name: name for name, entry in registry.AS_WRITTEN.items()}
    cells: List[Cell] = []
    for cell in plan.cells:
        cells.append(cell)
        name = _pinned(cell.framework)
        if cell.model in known and name in own and len(devices_of(cell.device)) == 1:
            cells.append(dataclasses.replace(cell, framework=own[name]))
    return dataclasses.replace(plan, cells=tuple(cells))


def _pinned(competitor: str) -> str:
    """The framework of a competitor that is its pinned version, whose environment trains models as written; else ""."""
    base, _, version = competitor.partition("@")
    return base if not version or version == locks.pinned(registry.framework(base)) else ""
