"""What NVIDIA's management library says of a GPU, whoever uses it."""

import os
import statistics
from types import ModuleType
from typing import Any, Collection, List, NamedTuple, Optional, Set, Tuple

import pynvml

from framework_compare.errors import UsageError
from framework_compare.json_types import Fields
from framework_compare.samplers.gpu_users import GpuProcess, GpuUsers
from framework_compare.samplers.visible import visible_handle

UTILIZATION_WINDOW = "between 1/6 s and 1 s, by product (NVML's documentation of nvmlUtilization_t)"


class GpuReading(NamedTuple):
    """Percent of the time a kernel ran (over NVML's own window), memory used by everyone, power drawn.

    process_memory_bytes is that of the worker's tree; throttle a mask of `throttle.REASONS`.
    """

    percent: Optional[float] = None
    memory_bytes: Optional[int] = None
    power_w: Optional[float] = None
    process_memory_bytes: Optional[int] = None
    temperature_c: Optional[float] = None
    sm_clock_mhz: Optional[float] = None
    throttle: Optional[int] = None


class NvmlSampler:
    """Readings of GPU `index` as CUDA numbers it; `close()` it.

    CUDA_VISIBLE_DEVICES is followed. Never raises: without GPU or driver all readings are None and `reason` says
    why. A reading this GPU does not support is asked for once. `note_baseline` before the worker starts lets its
    memory be told where the driver hides processes.
    """

    def __init__(self, index: int = 0, *, nvml: ModuleType = pynvml) -> None:
        self._nvml = nvml
        self._handle: object = None
        self._refused: Set[str] = set()
        self._started = False
        self._users = GpuUsers()
        self.reason: Optional[str] = None
        try:
            nvml.nvmlInit()
            self._started = True
            self._handle = find_handle(index, nvml=nvml, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
        except (nvml.NVMLError, LookupError) as error:
            self.reason = f"no readings of GPU {index}: {error}"

    def close(self) -> None:
        """Leave the library; later readings are None."""
        self._handle = None
        if self._started:
            self._started = False
            ask(self._nvml, "nvmlShutdown")

    def read(self, pids: Collection[int] = ()) -> GpuReading:
        """Read all; `pids` are the worker's processes. What fails is None."""
        if self._handle is None:
            return GpuReading()
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        power_mw = self._ask("nvmlDeviceGetPowerUsage")
        memory_bytes = self._memory_bytes()
        celsius = self._ask("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)
        clock_mhz = self._ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM)
        return GpuReading(
            percent=None if rates is None else float(rates.gpu),
            memory_bytes=memory_bytes,
            power_w=None if power_mw is None else power_mw / 1000.0,
            process_memory_bytes=self._users.own_bytes(self._processes("Compute"), pids, memory_bytes),
            temperature_c=None if celsius is None else float(celsius),
            sm_clock_mhz=None if clock_mhz is None else float(clock_mhz),
            throttle=self._throttle(),
        )

    def note_baseline(self) -> None:
        """Read what is on the GPU before the worker starts."""
        if self._handle is not None:
            parts = self._ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
            processes = [*self._processes("Compute"), *self._processes("Graphics")]
            self._users.note_baseline(self._memory_bytes(), 0 if parts is None else int(parts.reserved), processes)

    def energy_j(self) -> Optional[float]:
        """Joules since the driver was loaded; takes milliseconds."""
        total_mj = None if self._handle is None else self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if total_mj is None else total_mj / 1000.0

    def warnings(self) -> List[str]:
        """A sentence for each other user of the GPU that was seen; those that draw are looked for now."""
        if self._handle is not None:
            self._users.look_for_others(self._processes("Graphics"))
        return self._users.warnings()

    def facts(self) -> Fields:
        """Which GPU it is, and the sources of its readings; takes milliseconds."""
        if self._handle is None:
            return {"reason": self.reason or "the readings are closed"}
        return {
            "name": self._ask("nvmlDeviceGetName"),
            "driver": ask(self._nvml, "nvmlSystemGetDriverVersion"),
            "baseline_bytes": self._users.baseline_bytes,
            "memory_source": self._users.memory_source,
            "utilization_window": UTILIZATION_WINDOW,
            "utilization_period_s": self._utilization_period_s(),
        }

    def _memory_bytes(self) -> Optional[int]:
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.used)

    def _processes(self, kind: str) -> List[GpuProcess]:
        listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses") or ()
        return [GpuProcess(process.pid, process.usedGpuMemory) for process in listed]

    def _throttle(self) -> Optional[int]:
        # The second is its name in drivers before 535.
        for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            mask = self._ask(function)
            if mask is not None:
                return int(mask)
        return None

    def _utilization_period_s(self) -> Optional[float]:
        """Median time between the utilisations that the driver keeps."""
        found = self._ask("nvmlDeviceGetSamples", pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
        times_us = sorted({sample.timeStamp for sample in found[1]} - {0}) if found else []
        gaps = [after - before for before, after in zip(times_us, times_us[1:])]
        return statistics.median(gaps) / 1e6 if gaps else None

    def _ask(self, function: str, *arguments: object) -> Any:
        # The same function refuses one question and answers another.
        question = f"{function}{arguments}" if arguments else function
        if question in self._refused:
            return None
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound, AttributeError):
            self._refused.add(question)
        except self._nvml.NVMLError:
            pass
        return None


def gpu_index(device: str) -> Optional[int]:
    """The number in "gpu", "cuda" (both 0), "gpu:1" or "cuda:1"; None for devices NVML knows nothing of."""
    return next(iter(gpu_indices(device)), None)


def gpu_indices(device: str) -> Tuple[int, ...]:
    """All numbers in it: (0, 1) of "cuda:0,1"; none for devices NVML knows nothing of."""
    kind, _, numbers = device.partition(":")
    if kind not in ("gpu", "cuda"):
        return ()
    listed = numbers.split(",") if numbers else ["0"]
    if not all(number.isdecimal() for number in listed):
        raise UsageError(f"device {device!r}: allowed are {kind!r} and {kind + ':<number>'!r}")
    return tuple(map(int, listed))


def find_handle(index: int, *, nvml: ModuleType = pynvml, visible: Optional[str] = None) -> object:
    """NVML's handle of the GPU that CUDA calls `index` under CUDA_VISIBLE_DEVICES=`visible`.

    Holds when CUDA numbers the GPUs by bus, which it does when they are alike or CUDA_DEVICE_ORDER=PCI_BUS_ID.
    Raises LookupError when `visible` hides it, pynvml.NVMLError when there is none.
    """
    if visible is None:
        return nvml.nvmlDeviceGetHandleByIndex(index)
    return visible_handle(index, visible, nvml=nvml)


def describe_gpus(*, nvml: ModuleType = pynvml) -> Optional[Fields]:
    """Driver version, and name, memory in bytes and compute capability ("9.0") of every GPU; None without a driver."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        devices = [_describe_gpu(nvml, number) for number in range(nvml.nvmlDeviceGetCount())]
        return {"driver": ask(nvml, "nvmlSystemGetDriverVersion"), "devices": devices}
    except nvml.NVMLError:
        return None
    finally:
        ask(nvml, "nvmlShutdown")


def _describe_gpu(nvml: ModuleType, number: int) -> Fields:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    capability = ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    return {
        "name": ask(nvml, "nvmlDeviceGetName", handle),
        "memory_bytes": None if memory is None else int(memory.total),
        "compute_capability": None if capability is None else "{}.{}".format(*capability),
    }


def ask(nvml: ModuleType, function: str, *arguments: object) -> Any:
    """What NVML answers; None where it cannot."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None
