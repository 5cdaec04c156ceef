"""Which cells a study runs: all of a product, or each next one by the outcomes before it.

A strategy is stored with its study, so that any study is resumed the same way.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, ClassVar, Dict, Mapping, Optional, Protocol, Sequence, Tuple

from framework_compare.errors import StudyError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell

SEARCHES = ("steps", "doubling")
# Statuses of its runs by cell.
Outcomes = Mapping[Cell, Sequence[str]]


class Strategy(Protocol):
    """Picks cells. `name` and `to_dict` say in the study file how they were picked."""

    name: ClassVar[str]
    limits_decide: ClassVar[bool]  # whether other limits would pick other cells

    def first(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """Of the planned cells those that the study starts with."""

    def next(self, outcomes: Outcomes) -> Sequence[Cell]:
        """Cells to add now that these have ended; none when the study is complete."""

    def to_dict(self) -> Dict[str, Any]:
        """JSON for the study file, with the name under "name"."""


class Product:
    """Every combination of the listed values, known from the start."""

    name: ClassVar[str] = "product"
    limits_decide: ClassVar[bool] = False

    def first(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        return cells

    def next(self, outcomes: Outcomes) -> Sequence[Cell]:
        return ()

    def to_dict(self) -> Dict[str, Any]:
        return {"name": self.name}


@dataclasses.dataclass(frozen=True)
class Growth:
    """Every cell with a growing batch size until one fails, cell after cell.

    search "steps" tries `sizes` in turn; "doubling" doubles from the smallest, then halves the gap until it is no
    wider than the smallest.
    """

    cells: Tuple[Cell, ...]
    sizes: Tuple[int, ...]
    search: str

    name: ClassVar[str] = "growth"
    limits_decide: ClassVar[bool] = True

    def first(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        return ()

    def next(self, outcomes: Outcomes) -> Sequence[Cell]:
        for cell in self.cells:
            size = next_size(self._of(cell, outcomes), self.sizes, self.search)
            if size is not None:
                return (_sized(cell, size),)
        return ()

    def _of(self, cell: Cell, outcomes: Outcomes) -> Dict[int, bool]:
        """By batch size whether the cell worked with it."""
        return {
            other.config.batch_size: all(status == "ok" for status in statuses)
            for other, statuses in outcomes.items()
            if _sized(other, cell.config.batch_size) == cell
        }

    def to_dict(self) -> Dict[str, Any]:
        return {
            "name": self.name,
            "batch_sizes": list(self.sizes),
            "search": self.search,
            "first_cells": [dataclasses.asdict(cell) for cell in self.cells],
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Growth":
        cells = (Cell(**{**cell, "config": TrainConfig.from_dict(cell["config"])}) for cell in document["first_cells"])
        return cls(tuple(cells), tuple(document["batch_sizes"]), document["search"])


def of_settings(settings: Mapping[str, Any], path: Any = "the study") -> Strategy:
    """The strategy that a study began with; StudyError if its settings do not name one."""
    # Version 0.1 stored a sweep under "stability", and nothing for a product.
    document = settings.get("strategy") or settings.get("stability") or {"name": Product.name}
    made: Dict[str, Callable[[Mapping[str, Any]], Strategy]] = {
        Product.name: lambda _: Product(),
        Growth.name: Growth.from_dict,
    }
    try:
        return made[document.get("name", Growth.name)](document)
    except (AttributeError, KeyError, TypeError) as error:
        raise StudyError(f"{path} is damaged: its strategy cannot be read: {error!r}; name another folder") from None


def grows(settings: Mapping[str, Any]) -> bool:
    """Whether a study with these settings is a sweep of growing batch sizes."""
    return "stability" in settings or (settings.get("strategy") or {}).get("name") == Growth.name


def next_size(outcomes: Mapping[int, bool], sizes: Sequence[int], search: str) -> Optional[int]:
    """The batch size to try after these outcomes (True: ok); None when enough is known."""
    failed = min((size for size, ok in outcomes.items() if not ok), default=None)
    worked = max((size for size, ok in outcomes.items() if ok), default=None)
    if search == "steps":
        return next((size for size in sizes if size not in outcomes), None) if failed is None else None
    first, last = sizes[0], sizes[-1]
    if failed is None:
        following = first if worked is None else min(2 * worked, last)
        return None if worked == last else following
    if worked is None or failed - worked <= first:
        return None
    return (worked + failed) // 2


def _sized(cell: Cell, size: int) -> Cell:
    return dataclasses.replace(cell, config=dataclasses.replace(cell.config, batch_size=size))
