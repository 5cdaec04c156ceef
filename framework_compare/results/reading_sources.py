"""Sources of a cell's GPU and energy readings (process list, counter, ...), as columns of the cell frame."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from framework_compare.json_types import JSON
from framework_compare.protocol import Fields
from framework_compare.samplers.energy import COUNTER

SAMPLES = "samples"
_TEXTS = ("name", "memory_source", "energy_source", "utilization_window", "reason")
COLUMNS = tuple(
    """
gpu_name gpu_memory_source gpu_energy_source gpu_power_source gpu_utilization_window gpu_utilization_period_s
gpu_reason host_energy_reason load_before parent_cpu_percent parent_peak_rss_bytes
""".split()
)
NUMBERS = ("gpu_utilization_period_s", "load_before", "parent_cpu_percent", "parent_peak_rss_bytes")
_UNKNOWN = dict.fromkeys(COLUMNS)
Row = Fields
_T = TypeVar("_T")


def of_cell(runs: Sequence[Row], figures: Mapping[str, float | None]) -> Row:
    """COLUMNS from the runs of a cell and their figures; None for what no sampler reported."""
    if not any(run["gauges"] for run in runs):
        return {**_UNKNOWN, "gpu_power_source": _power_source(None, figures)}
    gpus = _reports(runs, "gpu")
    columns: Row = {f"gpu_{name}": _first(gpus, name, _text) for name in _TEXTS}
    return {
        **columns,
        "gpu_power_source": _power_source(columns["gpu_energy_source"], figures),
        "gpu_utilization_period_s": _first(gpus, "utilization_period_s", _seconds),
        "load_before": _first(_reports(runs, "load"), "before", _seconds),
        "parent_cpu_percent": _largest(_reports(runs, "parent"), "cpu_percent"),
        "parent_peak_rss_bytes": _largest(_reports(runs, "parent"), "peak_rss_bytes"),
        "host_energy_reason": _first(_reports(runs, "host_energy"), "reason", _text),
    }


def _power_source(energy_source: str | None, figures: Mapping[str, float | None]) -> str | None:
    if figures["gpu_power_w_mean"] is None:
        return None
    # Where the counter gives joules, the power is these over the time.
    return COUNTER if energy_source == COUNTER and figures["gpu_j_per_image"] is not None else SAMPLES


def _reports(runs: Sequence[Row], sampler: str) -> list[Row]:
    documents = [run["gauges"].get(sampler) for run in runs]
    return [document for document in documents if isinstance(document, dict)]


def _first(documents: Sequence[Row], name: str, sound: Callable[[object], _T | None]) -> _T | None:
    """The first sound value; stored values are checked, since any program may have written them."""
    return next(filter(None, (sound(document.get(name)) for document in documents)), None)


def _largest(documents: Sequence[Row], name: str) -> float | None:
    return max(filter(None, (_seconds(document.get(name)) for document in documents)), default=None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _seconds(value: JSON) -> float | None:
    return float(value) if type(value) in (int, float) and 0 < value < math.inf else None
