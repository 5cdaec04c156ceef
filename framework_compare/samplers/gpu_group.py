"""Several GPUs that train one cell, read as one: what adds up is added, of the rest the mean or the worst is told."""

from __future__ import annotations

from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Protocol, Sequence

from framework_compare.json_types import Fields
from framework_compare.samplers.nvml import GpuReading, NvmlSampler


class GpuReadings(Protocol):
    """What a Recorder asks of the GPUs of a cell; NvmlSampler is one GPU's, GpuGroup that of several."""

    reason: Optional[str]

    def __enter__(self) -> "GpuReadings": ...

    def __exit__(self, *exc_info: object) -> None: ...

    def read(self, pids: Collection[int] = ()) -> GpuReading: ...

    def note_baseline(self) -> None: ...

    def meters(self) -> Mapping[str, Callable[[], Optional[float]]]: ...

    def warnings(self) -> List[str]: ...

    def facts(self) -> Fields: ...


class GpuGroup:
    """Readings of several GPUs, at one tick: the mean of their shares of time, the sum of memory and power.

    The hottest temperature, the slowest clock and all reasons for which any is throttled. A reading that one of them
    does not give is None. `reason` is that of the first that cannot be read.
    """

    def __init__(self, gpus: Mapping[int, NvmlSampler]) -> None:
        self._gpus = gpus
        self.reason = next((gpu.reason for gpu in gpus.values() if gpu.reason), None)

    def __enter__(self) -> "GpuGroup":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for gpu in self._gpus.values():
            gpu.close()

    def read(self, pids: Collection[int] = ()) -> GpuReading:
        columns = zip(*(gpu.read(pids) for gpu in self._gpus.values()))
        together = zip(GpuReading._fields, columns)
        return GpuReading(**{name: None if None in values else _TOGETHER[name](values) for name, values in together})

    def note_baseline(self) -> None:
        for gpu in self._gpus.values():
            gpu.note_baseline()

    def meters(self) -> Dict[str, Callable[[], Optional[float]]]:
        return {f"gpu-{number}": gpu.energy_j for number, gpu in self._gpus.items()}

    def warnings(self) -> List[str]:
        return [f"GPU {number}: {text}" for number, gpu in self._gpus.items() for text in gpu.warnings()]

    def facts(self) -> Fields:
        """Of the first, and what each of them is."""
        each = {str(number): gpu.facts() for number, gpu in self._gpus.items()}
        return {**next(iter(each.values())), "devices": each}


def _any_reason(masks: Sequence[int]) -> int:
    together = 0
    for mask in masks:
        together |= mask
    return together


# By field of GpuReading: how the readings of several devices become one.
_TOGETHER: Dict[str, Callable[[Any], Any]] = {
    "percent": lambda values: sum(values) / len(values),
    "memory_bytes": sum,
    "power_w": sum,
    "process_memory_bytes": sum,
    "temperature_c": max,
    "sm_clock_mhz": min,
    "throttle": _any_reason,
}


def open_readings(indices: Sequence[int]) -> GpuReadings:
    """The readings of these GPUs, as CUDA numbers them."""
    if len(indices) == 1:
        return NvmlSampler(indices[0])
    return GpuGroup({index: NvmlSampler(index) for index in indices})
