"""Columns of the frames: the settings in every row, the columns beside them, and what identifies a cell."""

from __future__ import annotations

from typing import Any

from framework_compare.batches.sizes import epoch_sizes
from framework_compare.plan import settings
from framework_compare.results import reading_sources, repeats, steadiness, verdicts
from framework_compare.results.metrics import METRICS

SETTINGS = settings.of_role(settings.IDENTITY)
RUN_KEYS = ("framework", "model", "dataset", *SETTINGS, "status", "run_id", "repeat", "block", "counts", "node_id")
_OUTCOME = ("status", "reason", "runs", "runs_ok", "epochs_measured")
_FIXED = ("framework", "framework_version", "model", "dataset", *SETTINGS, *_OUTCOME, *METRICS)
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
    "warnings",
    "pictures",
    "skipped_pictures",
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


def batch_sizes(cell: Record) -> list[int]:
    """Samples of each batch of an epoch, of a cell whose `pictures` are known."""
    return epoch_sizes(int(cell.pictures), cell.batch_size, cell.batch_growth, cell.batch_size_limit)
