"""A study in the JSON of pytest-benchmark, which `pytest-benchmark compare` and the tools around it read.

A cell that worked is a benchmark, and each of its runs a round: the median seconds of its epochs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from framework_compare.protocol import Document, Fields
from framework_compare.report.study import plain
from framework_compare.results.block_times import block_seconds
from framework_compare.results.columns import SHARED, Record

if TYPE_CHECKING:
    import pandas as pd

VERSION = "5.1.0"  # of pytest-benchmark, whose fields these are


def document(frame: "pd.DataFrame", epochs: "pd.DataFrame", runs: "pd.DataFrame", machine: Document) -> Fields:
    """The document of a study, from its frames; cells without an epoch have no place in it."""
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


def names(cells: Sequence[Record]) -> list[str]:
    """Return a name per cell: framework, model, device, and the settings in which these cells differ."""
    return [_name(cell, own) for cell, own in zip(cells, _own_settings(cells))]


def _own_settings(cells: Sequence[Record]) -> list[str]:
    asked = [name for name in ("dataset", *SHARED) if name != "device"]
    varied = [name for name in asked if len({str(getattr(cell, name)) for cell in cells}) > 1]
    return [", ".join(f"{name}={plain(getattr(cell, name), 9)}" for name in varied) for cell in cells]


def _name(cell: Record, own: str) -> str:
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
    listed: list[float] = list(rounds)
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
        "data": listed,
        "iterations": 1,
    }
