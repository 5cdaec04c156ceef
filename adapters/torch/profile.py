"""Counts of torch.profiler, as rows."""

from __future__ import annotations

from typing import Any

from framework_compare.protocol import ProfileRow
from framework_compare.worker.profiling import cuda_function


def profile_row(event: Any) -> ProfileRow:
    """A row of an average over events of one name; ranges that only annotate others count nothing."""
    if event.is_user_annotation:
        return ProfileRow("operator", event.key, event.count, 0)
    if event.device_type.name != "CPU":
        return ProfileRow("kernel", event.key, event.count, round(event.self_device_time_total * 1e3))
    self_ns = round(event.self_cpu_time_total * 1e3)
    if event.key == "INVALID":  # Kineto's name for a function of CUDA's runtime that is newer than its list of them
        return ProfileRow("cuda-runtime", "(of no known name)", event.count, self_ns)
    kind = "cuda-runtime" if cuda_function(event.key) else "operator"
    return ProfileRow(kind, event.key, event.count, self_ns)
