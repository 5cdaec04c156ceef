"""The GPUs that train one cell, read as one: what adds up is added, of the rest the mean or the worst is told."""

from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence

from framework_compare.json_types import Fields
from framework_compare.samplers.nvml import GpuReading, NvmlSampler


class GpuGroup:
    """Readings of one GPU or several, at one tick: the mean of their shares of time, the sum of memory and power.

    The hottest temperature, the slowest clock and all reasons for which any is throttled. A reading that one of them
    does not give is None. `reason` is that of the first that cannot be read. `close()` it.
    """

    def __init__(self, gpus: Mapping[int, NvmlSampler]) -> None:
        self._gpus, self._several = gpus, len(gpus) > 1
        self.reason = next((gpu.reason for gpu in gpus.values() if gpu.reason), None)

    def close(self) -> None:
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
        """What reads the energy of each device, by the name that it has in the energy readings."""
        return {f"gpu-{number}" if self._several else "gpu": gpu.energy_j for number, gpu in self._gpus.items()}

    def warnings(self) -> List[str]:
        found = [(number, text) for number, gpu in self._gpus.items() for text in gpu.warnings()]
        return [f"GPU {number}: {text}" if self._several else text for number, text in found]

    def facts(self) -> Fields:
        """Of the first, and what each of them is."""
        each = {str(number): gpu.facts() for number, gpu in self._gpus.items()}
        return {**next(iter(each.values())), **({"devices": each} if self._several else {})}


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
