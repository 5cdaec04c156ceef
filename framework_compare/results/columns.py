"""Columns of the frames: settings, figures, what samplers report; what identifies a cell; rows as records."""

from __future__ import annotations

import collections
import math
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from framework_compare.batches.order import epoch_sizes
from framework_compare.json_types import JSON
from framework_compare.plan import settings
from framework_compare.protocol import Document, Fields
from framework_compare.records import Cell
from framework_compare.results import repeats, steadiness
from framework_compare.results.metrics import METRICS
from framework_compare.results.parity import VERDICT_COLUMNS
from framework_compare.samplers.energy import COUNTER

SETTINGS = settings.of_role(settings.IDENTITY)
RUN_KEYS = ("framework", "model", "dataset", *SETTINGS, "status", "run_id", "repeat", "block", "counts", "node_id")
if TYPE_CHECKING:
    import pandas as pd

_OUTCOME = ("status", "reason", "runs", "runs_ok", "epochs_measured")
_FIXED = ("framework", "framework_version", "backend", "model", "dataset", *SETTINGS, *_OUTCOME, *METRICS)
OTHER_SETTINGS = tuple(map(settings.column, settings.of_role(settings.QUIET, settings.OF_DATASET)))
# Of the study, and of the ratio to the fastest competitor: its larger half-width, over so many blocks; None without a budget.
BUDGET = ("precision_target", "budget_s", "ratio_half_width", "ratio_blocks")
# Of each column the sampler that reports it, and what that calls it.
_REPORTS = {
    "gpu_name": ("gpu", "name"),
    "gpu_memory_source": ("gpu", "memory_source"),
    "gpu_energy_source": ("gpu", "energy_source"),
    "gpu_power_source": ("", ""),  # by that of the energy
    "gpu_utilization_window": ("gpu", "utilization_window"),
    "gpu_utilization_period_s": ("gpu", "utilization_period_s"),
    "gpu_reason": ("gpu", "reason"),
    "host_energy_reason": ("host_energy", "reason"),
    "load_before": ("load", "before"),
    "parent_cpu_percent": ("parent", "cpu_percent"),
    "parent_peak_rss_bytes": ("parent", "peak_rss_bytes"),
}
REPORTED = tuple(_REPORTS)
_LARGEST = ("parent_cpu_percent", "parent_peak_rss_bytes")  # of all runs; of the others the first
REPORTED_NUMBERS = ("gpu_utilization_period_s", "load_before", *_LARGEST)
_EVIDENCE = (
    *REPORTED,
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
CELL_COLUMNS = (*_FIXED, *VERDICT_COLUMNS, *_EVIDENCE, *OTHER_SETTINGS)
NAMES = ("framework", "model", "dataset")
# Two cells are the same when these are: all that was asked for.
IDENTITY = (*NAMES, *SETTINGS, *OTHER_SETTINGS)
# A table is of one value of each of these.
SHARED = tuple(name for name in (*SETTINGS, *OTHER_SETTINGS) if name not in settings.of_role(settings.OF_DATASET))
Record = Any  # a row of the cell frame, as itertuples gives it
_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)


def row_of(cell: Cell) -> Fields:
    """A cell as its row in the cell frame has it."""
    names = {"framework": cell.framework, "model": cell.model, "dataset": cell.dataset}
    own = {settings.column(name): value for name, value in cell.config.to_dict().items()}
    return {**names, **own, "device": cell.device}


def reported(runs: Sequence[Document], figures: Mapping[str, float | None]) -> Fields:
    """REPORTED from the runs of a cell and their figures; None for what no sampler reported."""
    columns: Fields = dict.fromkeys(REPORTED)
    gauges = [run["gauges"] for run in runs if run["gauges"]]
    for column, (sampler, name) in _REPORTS.items() if gauges else ():
        reports = (own.get(sampler) for own in gauges)
        # Stored values are checked, since any program may have written them.
        values: list[JSON] = [report.get(name) for report in reports if isinstance(report, dict)]
        if column in REPORTED_NUMBERS:
            values = [float(one) for one in values if type(one) in (int, float) and 0 < one < math.inf]
        else:
            values = [one for one in values if isinstance(one, str) and one]
        if values:
            columns[column] = max(values) if column in _LARGEST else values[0]
    if figures["gpu_power_w_mean"] is not None:
        # Where the counter gives joules, the power is these over the time.
        counted = columns["gpu_energy_source"] == COUNTER and figures["gpu_j_per_image"] is not None
        columns["gpu_power_source"] = COUNTER if counted else "samples"
    return columns


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
