"""A study in the formats of other trackers: two JSON documents of benchmark services, and runs of MLflow and W&B.

Bencher Metric Format: https://bencher.dev/docs/reference/bencher-metric-format.
github-action-benchmark, tool customSmallerIsBetter: https://github.com/benchmark-action/github-action-benchmark.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.json_types import JSON
from framework_compare.protocol import Fields
from framework_compare.report import pytest_benchmark
from framework_compare.report.study import plain
from framework_compare.results.columns import Record

if TYPE_CHECKING:
    import pandas as pd

# Measures of a cell by their name in Bencher: columns of its value and of its 95 % interval.
MEASURES = {
    "epoch-seconds": ("epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high"),
    "images-per-second": ("images_per_s", None, None),
    "peak-memory-bytes": ("pss_peak_bytes", None, None),
}
EXPERIMENT = "framework_compare"


def bencher(cells: "pd.DataFrame") -> Fields:
    """Bencher Metric Format: by benchmark, by measure the value and its 95 % interval."""
    return {name: _measures(cell) for name, cell in _named(cells)}


def _measures(cell: Record) -> dict[str, dict[str, float]]:
    found = {}
    for measure, columns in MEASURES.items():
        known = {
            key: float(getattr(cell, column))
            for key, column in zip(("value", "lower_value", "upper_value"), columns)
            if column and _finite(getattr(cell, column))
        }
        if "value" in known:
            found[measure] = known
    return found


def action_benchmark(cells: "pd.DataFrame") -> list[Fields]:
    """The list that github-action-benchmark reads as customSmallerIsBetter: seconds per epoch."""
    return [
        {
            "name": name,
            "unit": "s/epoch",
            "value": float(cell.epoch_s_median),
            "range": f"{cell.epoch_s_ci_low:.4g} to {cell.epoch_s_ci_high:.4g}"
            if _finite(cell.epoch_s_ci_low)
            else "one run",
            "extra": f"{cell.framework} {cell.framework_version}, parity {cell.parity}",
        }
        for name, cell in _named(cells)
    ]


def _named(cells: "pd.DataFrame") -> Iterator[tuple[str, Record]]:
    """Cells that have an epoch time, each with its name as a benchmark."""
    timed = [cell for cell in cells.itertuples() if cell.status == "ok" and _finite(cell.epoch_s_median)]
    return zip(pytest_benchmark.names(timed), timed)


def _finite(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and math.isfinite(value)


def logged_runs(cells: "pd.DataFrame", runs: "pd.DataFrame", epochs: "pd.DataFrame") -> Iterator["LoggedRun"]:
    """Return each run of the study that has ended, as trackers log it."""
    by_cell = {cell.Index: cell for cell in cells.itertuples()}
    for run in runs.itertuples():
        if run.status not in ("planned", "running") and run.cell in by_cell:
            yield LoggedRun(by_cell[run.cell], run, epochs[epochs["run_id"] == run.run_id])


class LoggedRun:
    """One run: name, tags, parameters, metrics of the run, and metrics of each epoch by its number."""

    def __init__(self, cell: Record, run: Record, epochs: "pd.DataFrame") -> None:
        self.name = f"{cell.framework}-{cell.model}-{run.repeat}"
        self.ok = run.status == "ok"
        self.tags = {
            "framework": cell.framework,
            "framework_version": cell.framework_version or "",
            "model": cell.model,
            "dataset": cell.dataset,
            "status": run.status,
            "reason": run.reason,
            "parity": cell.parity or "",
            "counts": str(bool(run.counts)).lower(),  # false: another run replaced it, so no figure includes it
        }
        named = ("framework", "model", "dataset", *pytest_benchmark.SHARED)
        self.parameters = {name: plain(getattr(cell, name), 9) for name in named}
        self.metrics = {"wall_s": float(run.wall_s)} if _finite(run.wall_s) else {}
        self.steps: dict[int, dict[str, float]] = {int(epoch.epoch): self._step(epoch) for epoch in epochs.itertuples()}

    @staticmethod
    def _step(epoch: Record) -> dict[str, float]:
        names = ("epoch_s", "loss", "step_s_median", "data_wait_s")
        return {name: float(getattr(epoch, name)) for name in names if _finite(getattr(epoch, name, None))}


def to_mlflow(logged: Iterator[LoggedRun], out: Path) -> str:
    """Log the runs to MLFLOW_TRACKING_URI, else to the folder `out`/mlruns; return the place."""
    _needs("mlflow", "mlflow-skinny")
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 asks for consent to a store of plain files
    from mlflow import MlflowClient

    place = os.environ.get("MLFLOW_TRACKING_URI") or (out / "mlruns").resolve().as_uri()
    client = MlflowClient(place)
    known = client.get_experiment_by_name(EXPERIMENT)
    experiment = known.experiment_id if known else client.create_experiment(EXPERIMENT)
    for one in logged:
        run = client.create_run(experiment, run_name=one.name, tags=one.tags).info.run_id
        for name, value in one.parameters.items():
            client.log_param(run, name, value)
        for name, value in one.metrics.items():
            client.log_metric(run, name, value)
        for step, metrics in one.steps.items():
            for name, value in metrics.items():
                client.log_metric(run, name, value, step=step)
        client.set_terminated(run, "FINISHED" if one.ok else "FAILED")
    return place


def to_wandb(logged: Iterator[LoggedRun], out: Path) -> str:
    """Write the runs as offline runs of Weights & Biases into `out`; `wandb sync` uploads them. Return the folder."""
    _needs("wandb", "wandb")
    import wandb

    online = os.environ.get("WANDB_MODE") == "online"
    quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True)
    for one in logged:
        run = wandb.init(
            project=EXPERIMENT,
            name=one.name,
            dir=str(out),
            mode="online" if online else "offline",
            config={**one.parameters, **one.tags},
            reinit="finish_previous",
            settings=quiet,
        )
        for step, metrics in one.steps.items():
            run.log(metrics, step=step)
        run.summary.update(one.metrics)
        run.finish(exit_code=0 if one.ok else 1)
    return str(out / "wandb")


def _needs(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"format {module} needs {package}: pip install {package}, or choose another format")


DOCUMENTS: Mapping[str, Callable[["pd.DataFrame"], JSON]] = {
    "bencher": bencher,
    "github-action-benchmark": action_benchmark,
}
LOGS: Mapping[str, Callable[[Iterator[LoggedRun], Path], str]] = {"mlflow": to_mlflow, "wandb": to_wandb}
