"""Columns of the frames: the settings that every row has, what is beside them, what tells cells apart."""

from __future__ import annotations

import dataclasses
from typing import Any

from framework_compare.protocol import TrainConfig
from framework_compare.results import reading_sources, repeats, verdicts
from framework_compare.results.metrics import METRICS

SETTINGS = (
    "device",
    "batch_size",
    "execution",
    "pipeline",
    "precision",
    "tuning",
    "threads",
    "loader_workers",
)
RUN_KEYS = ("framework", "model", "dataset", *SETTINGS, "status", "run_id", "repeat", "counts")
_OUTCOME = ("status", "reason", "runs", "runs_ok", "epochs_measured")
_FIXED = ("framework", "framework_version", "model", "dataset", *SETTINGS, *_OUTCOME, *METRICS)
# What is left of the TrainConfig; `loss` there is a name, and would hide nothing but surprise beside the figures.
OTHER_SETTINGS = tuple(
    "loss_function" if field.name == "loss" else field.name
    for field in dataclasses.fields(TrainConfig)
    if field.name not in SETTINGS
)
_EVIDENCE = (*reading_sources.COLUMNS, *repeats.COLUMNS, "warnings", "pictures", "skipped_pictures", "trace_path", "log_path")
CELL_COLUMNS = (*_FIXED, *verdicts.COLUMNS, *_EVIDENCE, *OTHER_SETTINGS)
NAMES = ("framework", "model", "dataset")
# Two cells are the same when these are: all that was asked for.
IDENTITY = (*NAMES, *SETTINGS, *OTHER_SETTINGS)
# A table is of one value of each of these; num_classes goes with the data set.
SHARED = tuple(name for name in (*SETTINGS, *OTHER_SETTINGS) if name != "num_classes")
Record = Any  # a row of the cell frame, as itertuples gives it
