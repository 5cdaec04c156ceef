"""Columns of the frames: the settings in every row, the columns beside them, and what identifies a cell."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from framework_compare.batches.order import epoch_sizes
from framework_compare.plan import settings
from framework_compare.protocol import Document
from framework_compare.results import reading_sources, repeats, steadiness, verdicts
from framework_compare.results.metrics import METRICS

SETTINGS = settings.of_role(settings.IDENTITY)
RUN_KEYS = ("framework", "model", "dataset", *SETTINGS, "status", "run_id", "repeat", "block", "counts", "node_id")
if TYPE_CHECKING:
    import pandas as pd

_OUTCOME = ("status", "reason", "runs", "runs_ok", "epochs_measured")
_FIXED = ("framework", "framework_version", "backend", "model", "dataset", *SETTINGS, *_OUTCOME, *METRICS)
OTHER_SETTINGS = tuple(map(settings.column, settings.of_role(settings.QUIET, settings.OF_DATASET)))
# Of the study, and of the ratio to the fastest competitor: its larger half-width, over so many blocks; None without a budget.
BUDGET = ("precision_target", "budget_s", "ratio_half_width", "ratio_blocks")
_EVIDENCE = (
    *reading_sources.COLUMNS,
    *repeats.COLUMNS,
    *steadiness.COLUMNS,
    *BUDGET,
    "schedule",
    "alone_why",
    "runs_alone",
    "warnings",
    "images",
    "skipped_images",
    "generated",
    "trace_path",
    "log_path",
)
CELL_COLUMNS = (*_FIXED, *verdicts.COLUMNS, *_EVIDENCE, *OTHER_SETTINGS)
NAMES = ("framework", "model", "dataset")
# Two cells are the same when these are: all that was asked for.
IDENTITY = (*NAMES, *SETTINGS, *OTHER_SETTINGS)
# A table is of one value of each of these.
SHARED = tuple(name for name in (*SETTINGS, *OTHER_SETTINGS) if name not in settings.of_role(settings.OF_DATASET))
Record = Any  # a row of the cell frame, as itertuples gives it
_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)


def records(frame: pd.DataFrame) -> list[Record]:
    """The rows of a frame as `itertuples` gives them, which takes strings out of Arrow one by one."""
    row = collections.namedtuple("Pandas", ("Index", *frame.columns), rename=True)  # type: ignore[misc]
    columns = (
        column.to_numpy(dtype=None if column.dtype.kind in "biuf" else object).tolist() for _, column in frame.items()
    )
    return list(map(row._make, zip(frame.index.tolist(), *columns)))


def values(condition: Document) -> tuple[object, ...]:
    """Return the values of a condition, None for NaN."""
    return tuple(None if value != value else value for value in condition.values())


def values_of(*names: str) -> Callable[[Record], tuple[object, ...]]:
    """Return a function from a record to these columns, None for NaN: what cells are grouped by."""
    if len(names) < 2:  # of which attrgetter makes no tuple
        return lambda cell: values({name: getattr(cell, name) for name in names})
    read = operator.attrgetter(*names)
    return lambda cell: tuple(None if value != value else value for value in read(cell))


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Return the items by key, both in the order in which they come."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def batch_sizes(cell: Record) -> list[int]:
    """Samples of each batch of an epoch, of a cell whose `images` are known."""
    return epoch_sizes(int(cell.images), cell.batch_size, cell.batch_growth, cell.batch_size_limit)
