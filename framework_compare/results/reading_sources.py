"""Sources of a cell's GPU and energy readings (process list, counter, ...), as columns of the cell frame."""

import math
from collections.abc import Mapping, Sequence

from framework_compare.json_types import JSON
from framework_compare.protocol import Fields
from framework_compare.samplers.energy import COUNTER

SAMPLES = "samples"
# Of each column the sampler that reports it, and what that calls it.
_REPORTED = {
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
COLUMNS = tuple(_REPORTED)
LARGEST = ("parent_cpu_percent", "parent_peak_rss_bytes")  # of all runs; of the others the first
NUMBERS = ("gpu_utilization_period_s", "load_before", *LARGEST)
Row = Fields


def of_cell(runs: Sequence[Row], figures: Mapping[str, float | None]) -> Row:
    """COLUMNS from the runs of a cell and their figures; None for what no sampler reported."""
    columns: Row = dict.fromkeys(COLUMNS)
    gauges = [run["gauges"] for run in runs if run["gauges"]]
    for column, (sampler, name) in _REPORTED.items() if gauges else ():
        reports = (own.get(sampler) for own in gauges)
        # Stored values are checked, since any program may have written them.
        values: list[JSON] = [report.get(name) for report in reports if isinstance(report, dict)]
        if column in NUMBERS:
            values = [float(one) for one in values if type(one) in (int, float) and 0 < one < math.inf]
        else:
            values = [one for one in values if isinstance(one, str) and one]
        if values:
            columns[column] = max(values) if column in LARGEST else values[0]
    if figures["gpu_power_w_mean"] is not None:
        # Where the counter gives joules, the power is these over the time.
        counted = columns["gpu_energy_source"] == COUNTER and figures["gpu_j_per_image"] is not None
        columns["gpu_power_source"] = COUNTER if counted else SAMPLES
    return columns
