"""How the readings of a cell were had: columns of the cell frame, from what the samplers told of each run."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from framework_compare.samplers.energy import COUNTER

SAMPLES = "samples"
COLUMNS = ("gpu_name", "gpu_memory_source", "gpu_energy_source", "gpu_power_source")
Row = Dict[str, Any]


def of_cell(runs: Sequence[Row], figures: Mapping[str, Optional[float]]) -> Row:
    """COLUMNS of the runs of a cell and their figures; None for what was not told."""
    gpus = _told(runs, "gpu")
    found = {f"gpu_{name}": _first_text(gpus, name) for name in ("name", "memory_source", "energy_source")}
    return {**found, "gpu_power_source": _power_source(found["gpu_energy_source"], figures)}


def _power_source(energy_source: Optional[str], figures: Mapping[str, Optional[float]]) -> Optional[str]:
    if figures["gpu_power_w_mean"] is None:
        return None
    # Where the counter gives joules, the power is these over the time.
    return COUNTER if energy_source == COUNTER and figures["gpu_j_per_image"] is not None else SAMPLES


def _told(runs: Sequence[Row], what: str) -> List[Row]:
    documents = [run["gauges"].get(what) for run in runs]
    return [document for document in documents if isinstance(document, dict)]


def _first_text(documents: Sequence[Row], name: str) -> Optional[str]:
    texts = [document.get(name) for document in documents]
    return next((text for text in texts if text and isinstance(text, str)), None)
