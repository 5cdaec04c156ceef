"""What NVIDIA's management library says of a GPU, whoever uses it."""

from __future__ import annotations

import os
from typing import Any, Dict, NamedTuple, Optional, Set

import pynvml

from framework_compare.errors import UsageError


class GpuReading(NamedTuple):
    """Percent of the time a kernel ran (NVML's own window, up to 1 s), memory used by everyone, power drawn."""

    percent: Optional[float] = None
    memory_bytes: Optional[int] = None
    power_w: Optional[float] = None
    process_memory_bytes: Optional[int] = None
    temperature_c: Optional[float] = None
    sm_clock_mhz: Optional[float] = None
    throttle: Optional[int] = None


class NvmlSampler:
    """Readings of GPU `index` as CUDA numbers it; a context manager, or `close()` it.

    CUDA_VISIBLE_DEVICES is followed. Never raises: without GPU or driver all readings are None and `reason` says
    why. A reading this GPU does not support is asked for once.
    """

    def __init__(self, index: int = 0, *, nvml: Any = pynvml) -> None:
        self._nvml = nvml
        self._handle: Any = None
        self._refused: Set[str] = set()
        self._started = False
        self.reason: Optional[str] = None
        try:
            nvml.nvmlInit()
            self._started = True
            self._handle = find_handle(index, nvml=nvml, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
        except (nvml.NVMLError, LookupError) as error:
            self.reason = f"no readings of GPU {index}: {error}"

    def __enter__(self) -> "NvmlSampler":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the library; later readings are None."""
        self._handle = None
        if self._started:
            self._started = False
            _ask_quietly(self._nvml, "nvmlShutdown")

    def read(self) -> GpuReading:
        """Read all three; what fails is None."""
        if self._handle is None:
            return GpuReading()
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        power_mw = self._ask("nvmlDeviceGetPowerUsage")
        return GpuReading(
            percent=None if rates is None else float(rates.gpu),
            memory_bytes=None if memory is None else int(memory.used),
            power_w=None if power_mw is None else power_mw / 1000.0,
        )

    def _ask(self, function: str) -> Any:
        if function in self._refused:
            return None
        try:
            return getattr(self._nvml, function)(self._handle)
        except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound):
            self._refused.add(function)
        except self._nvml.NVMLError:
            pass
        return None


def gpu_index(device: str) -> Optional[int]:
    """The number in "gpu", "cuda" (both 0), "gpu:1" or "cuda:1"; None for devices NVML knows nothing of."""
    kind, _, number = device.partition(":")
    if kind not in ("gpu", "cuda"):
        return None
    if number and not number.isdecimal():
        raise UsageError(f"device {device!r}: allowed are {kind!r} and {kind + ':<number>'!r}")
    return int(number or 0)


def find_handle(index: int, *, nvml: Any = pynvml, visible: Optional[str] = None) -> Any:
    """NVML's handle of the GPU that CUDA calls `index` under CUDA_VISIBLE_DEVICES=`visible`.

    Holds when CUDA numbers the GPUs by bus, which it does when they are alike or CUDA_DEVICE_ORDER=PCI_BUS_ID.
    Raises LookupError when `visible` hides it, pynvml.NVMLError when there is none.
    """
    if visible is None:
        return nvml.nvmlDeviceGetHandleByIndex(index)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if index >= len(names):
        raise LookupError(f"CUDA_VISIBLE_DEVICES={visible!r} hides it")
    if names[index].lstrip("-").isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(names[index]))
    return nvml.nvmlDeviceGetHandleByUUID(names[index])


def describe_gpus(*, nvml: Any = pynvml) -> Optional[Dict[str, Any]]:
    """Driver version, and name and memory in bytes of every GPU of the machine; None without a driver."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        devices = [_describe_gpu(nvml, number) for number in range(nvml.nvmlDeviceGetCount())]
        return {"driver": _ask_quietly(nvml, "nvmlSystemGetDriverVersion"), "devices": devices}
    except nvml.NVMLError:
        return None
    finally:
        _ask_quietly(nvml, "nvmlShutdown")


def _describe_gpu(nvml: Any, number: int) -> Dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    memory = _ask_quietly(nvml, "nvmlDeviceGetMemoryInfo", handle)
    return {
        "name": _ask_quietly(nvml, "nvmlDeviceGetName", handle),
        "memory_bytes": None if memory is None else int(memory.total),
    }


def _ask_quietly(nvml: Any, function: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None
