"""What the worker's GPU does, by NVML."""

from __future__ import annotations

from framework_compare.samplers.nvml import GpuReading
from framework_compare.samplers.sampler import Column, Readings, Sampler

_NAMES = tuple(f"gpu_{name}" for name in GpuReading._fields)


class GpuSampler(Sampler):
    """gpu_memory_bytes is everyone's, gpu_process_memory_bytes the worker's tree's; gpu_throttle is NVML's mask of the
    reasons for which clocks are held down, 0 where there are none."""

    columns = {
        "gpu_percent": Column(),
        "gpu_memory_bytes": Column(whole=True),
        "gpu_power_w": Column(),
        "gpu_process_memory_bytes": Column(whole=True),
        "gpu_temperature_c": Column(),
        "gpu_sm_clock_mhz": Column(),
        "gpu_throttle": Column(whole=True),
    }

    def read(self) -> Readings:
        gpu = self._watched.gpu
        return {} if gpu is None else dict(zip(_NAMES, gpu.read(self._watched.tree.pids())))
