"""The one figure for the memory of a cell: PSS of its processes on a CPU, what they hold of the device on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework_compare.registry import device_kind

if TYPE_CHECKING:
    import pandas as pd

PSS, RSS = "pss_peak_bytes", "peak_rss_bytes"
NAMES = {PSS: "memory (PSS)", RSS: "memory (RSS)"}
OWN, WHOLE = "gpu_process_memory_peak_bytes", "gpu_memory_peak_bytes"  # of the GPU
APART = (
    "PSS is the main figure: it divides shared memory among processes, and is read at the end of each phase. RSS counts shared "
    "memory once per process, so frameworks with several processes look larger."
)


def peaks(cells: pd.DataFrame) -> tuple[pd.Series, str]:
    """Peak bytes of each cell, and their name. RSS stands in for all cells where one that worked has no PSS."""
    on_gpu = cells["device"].map(device_kind) != "cpu"
    known = cells.loc[~on_gpu & (cells["status"] == "ok"), PSS].notna()
    host = PSS if known.all() else RSS
    name = "GPU memory" if on_gpu.all() else "memory" if on_gpu.any() else NAMES[host]
    return cells[OWN].fillna(cells[WHOLE]).where(on_gpu, cells[host]), name
