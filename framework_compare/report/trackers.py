"""A study in the formats of other tools: JSON of pytest-benchmark and of two services, and runs of MLflow and W&B.

Bencher Metric Format: https://bencher.dev/docs/reference/bencher-metric-format.
github-action-benchmark, tool customSmallerIsBetter: https://github.com/benchmark-action/github-action-benchmark.
"""

import importlib.util
import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from framework_compare.errors import UsageError
from framework_compare.protocol import Document, Fields
from framework_compare.report.study import plain
from framework_compare.results.block_times import block_seconds
from framework_compare.results.columns import SHARED, Record

# Measures of a cell by their name in Bencher: columns of its value and of its 95 % interval.
MEASURES = {
    "epoch-seconds": ("epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high"),
    "images-per-second": ("images_per_s",),
    "peak-memory-bytes": ("pss_peak_bytes",),
}
EPOCH = ("epoch_s", "loss", "step_s_median", "data_wait_s")  # what trackers log of an epoch
EXPERIMENT = "framework_compare"
_NEEDS = "format {0} needs {1}: pip install {1}, or choose another format"
VERSION = "5.1.0"  # of pytest-benchmark


def bencher(cells: pd.DataFrame) -> Fields:
    """Bencher Metric Format: by benchmark, by measure the value and its 95 % interval."""
    found: Fields = {}
    for name, cell in _timed(cells):
        measures = {
            measure: {
                key: float(getattr(cell, column))
                for key, column in zip(("value", "lower_value", "upper_value"), columns)
                if _finite(getattr(cell, column))
            }
            for measure, columns in MEASURES.items()
        }
        found[name] = {measure: values for measure, values in measures.items() if "value" in values}
    return found


def action_benchmark(cells: pd.DataFrame) -> list[Fields]:
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
        for name, cell in _timed(cells)
    ]


def _timed(cells: pd.DataFrame) -> Iterator[tuple[str, Record]]:
    """Cells that have an epoch time, each with its name as a benchmark."""
    timed = [cell for cell in cells.itertuples() if cell.status == "ok" and _finite(cell.epoch_s_median)]
    return zip([_name(cell, own) for cell, own in zip(timed, _own_settings(timed))], timed)


def _finite(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and math.isfinite(value)


def logged_runs(cells: pd.DataFrame, epochs: pd.DataFrame, runs: pd.DataFrame) -> Iterator["LoggedRun"]:
    """Return each run of the study that has ended, as trackers log it."""
    by_cell = {cell.Index: cell for cell in cells.itertuples()}
    for run in runs.itertuples():
        if run.status not in ("planned", "running") and run.cell in by_cell:
            yield LoggedRun(by_cell[run.cell], run, epochs[epochs["run_id"] == run.run_id])


class LoggedRun:
    """One run: name, tags, parameters, metrics of the run, and metrics of each epoch by its number."""

    def __init__(self, cell: Record, run: Record, epochs: pd.DataFrame) -> None:
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
        named = ("framework", "model", "dataset", *SHARED)
        self.parameters = {name: plain(getattr(cell, name), 9) for name in named}
        self.metrics = {"wall_s": float(run.wall_s)} if _finite(run.wall_s) else {}
        self.steps: dict[int, dict[str, float]] = {
            int(epoch.epoch): {name: float(getattr(epoch, name)) for name in EPOCH if _finite(getattr(epoch, name))}
            for epoch in epochs.itertuples()
        }


def to_mlflow(logged: Iterator[LoggedRun], out: Path) -> str:
    """Log the runs to MLFLOW_TRACKING_URI, else to the folder `out`/mlruns; return the place."""
    if importlib.util.find_spec("mlflow") is None:
        raise UsageError(_NEEDS.format("mlflow", "mlflow-skinny"))
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
    if importlib.util.find_spec("wandb") is None:
        raise UsageError(_NEEDS.format("wandb", "wandb"))
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


def document(frame: pd.DataFrame, epochs: pd.DataFrame, runs: pd.DataFrame, machine: Document) -> Fields:
    """The JSON of pytest-benchmark, which `pytest-benchmark compare` and the tools around it read.

    A cell that worked is a benchmark, and each of its runs a round: the median seconds of its epochs.
    """
    seconds = block_seconds(epochs)
    cells = [cell for cell in frame.itertuples() if cell.status == "ok" and seconds.get(cell.Index)]
    started = sorted(text for text in runs["started_at"] if text)
    return {
        "machine_info": {
            "node": "",
            "machine": str(machine.get("architecture") or ""),
            "system": str(machine.get("os") or ""),
            "release": str(machine.get("kernel") or ""),
            "python_version": str(machine.get("python") or ""),
            "cpu": {"brand_raw": str(machine.get("cpu") or ""), "count": machine.get("available_cores")},
        },
        "commit_info": {"id": "unknown", "time": None, "dirty": False, "project": "framework_compare"},
        "benchmarks": [
            _benchmark(cell, list(seconds[cell.Index].values()), own) for cell, own in zip(cells, _own_settings(cells))
        ],
        "datetime": started[-1] if started else "",
        "version": VERSION,
    }


def _own_settings(cells: Sequence[Record]) -> list[str]:
    """The settings of each cell in which these cells differ."""
    asked = [name for name in ("dataset", *SHARED) if name != "device"]
    varied = [name for name in asked if len({str(getattr(cell, name)) for cell in cells}) > 1]
    return [", ".join(f"{name}={plain(getattr(cell, name), 9)}" for name in varied) for cell in cells]


def _name(cell: Record, own: str) -> str:
    """A cell's name as a benchmark; own: its own settings."""
    return f"{cell.framework}-{cell.model}-{cell.device}{f'[{own}]' if own else ''}"


def _benchmark(cell: Record, rounds: Sequence[float], own: str) -> Fields:
    settings = {name: plain(getattr(cell, name), 9) for name in ("dataset", *SHARED)}
    name = _name(cell, own)
    return {
        "group": f"{cell.model}{f' [{own}]' if own else ''} on {cell.device}",
        "name": name,
        "fullname": f"framework_compare::{name}",
        "params": {"framework": cell.framework, "model": cell.model, **settings},
        "param": None,
        "extra_info": {
            "framework_version": cell.framework_version,
            "images_per_s": plain(cell.images_per_s, 9),
            "parity": plain(cell.parity, 9),
        },
        "options": {
            "disable_gc": False,
            "timer": "perf_counter",
            "min_rounds": len(rounds),
            "max_time": 0.0,
            "min_time": 0.0,
            "warmup": True,
        },
        "stats": stats(rounds),
    }


def stats(rounds: Sequence[float]) -> Fields:
    """Statistics of the seconds of rounds, as pytest-benchmark defines and stores them; outliers beyond 1.5 times the IQR."""
    ordered = sorted(rounds)
    q1, median, q3 = (float(value) for value in np.percentile(ordered, (25, 50, 75)))
    mean, iqr = statistics.fmean(ordered), q3 - q1
    stddev = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    low, high = q1 - 1.5 * iqr, q3 + 1.5 * iqr
    inside = [value for value in ordered if low <= value <= high]
    far = sum(abs(value - mean) > stddev for value in ordered)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": len(ordered),
        "median": median,
        "iqr": iqr,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": len(ordered) - len(inside),
        "stddev_outliers": far,
        "outliers": f"{far};{len(ordered) - len(inside)}",
        "ld15iqr": inside[0],
        "hd15iqr": inside[-1],
        "ops": 1 / mean,
        "total": sum(ordered),
        "data": list(rounds),
        "iterations": 1,
    }


LOGS: Mapping[str, Callable[[Iterator[LoggedRun], Path], str]] = {"mlflow": to_mlflow, "wandb": to_wandb}
