"""Readings of a GPU by NVIDIA's management library, whoever uses it, or of several that train one cell, read as one."""

import functools
import operator
import os
import re
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import pynvml

from framework_compare.errors import UsageError
from framework_compare.json_types import Fields
from framework_compare.samplers.gpu_users import GpuProcess, GpuUsers

UTILIZATION_WINDOW = "1/6 s to 1 s, depending on the product (NVML's documentation of nvmlUtilization_t)"
GPU = "gpu"  # its name in the energy readings; of several, each has its number
# NVML's number of a GPU, or the UUID of a MIG instance.
Gpu = int | str
# Why a GPU holds its clocks down, by bit: nvmlClocksEventReason* of nvml.h.
THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "clocks set by the user",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clock",
}
# Those that slow down work that is there: not idleness, and not what somebody asked for.
SLOWING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80


class GpuReading(NamedTuple):
    """One reading of a GPU; None for what its driver does not say."""

    percent: float | None = None  # of the time a kernel ran, over NVML's own window
    memory_bytes: int | None = None  # used by everyone
    power_w: float | None = None
    process_memory_bytes: int | None = None  # of the worker's tree
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    throttle: int | None = None  # a mask of THROTTLE_REASONS


class GpuMeter(NamedTuple):
    """The counter of a GPU, asked through its sampler; joules since an origin of its own."""

    read: Callable[[], float | None]
    device: str = GPU


class NvmlSampler:
    """Readings of GPU `index` as CUDA numbers it; `close()` it.

    CUDA_VISIBLE_DEVICES is followed. Never raises: without GPU or driver all readings are None and `reason` says
    why. A reading this GPU does not support is asked for once. `note_baseline` before the worker starts lets its
    memory be told where the driver hides processes.
    """

    def __init__(self, index: int = 0, *, nvml: ModuleType = pynvml) -> None:
        self._nvml, self._users = nvml, GpuUsers()
        self._handle: object = None
        self._refused: set[str] = set()
        self._started = False
        self.reason: str | None = None
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

    def energy_j(self) -> float | None:
        """Joules since the driver was loaded; takes milliseconds."""
        total_mj = None if self._handle is None else self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if total_mj is None else total_mj / 1000.0

    def warnings(self) -> list[str]:
        """A sentence for each other user of the GPU that was seen; those that draw are looked for now."""
        if self._handle is not None:
            self._users.look_for_others(self._processes("Graphics"))
        return self._users.warnings()

    def facts(self) -> Fields:
        """Return which GPU it is, and the sources of its readings; takes milliseconds."""
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

    def _memory_bytes(self) -> int | None:
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.used)

    def _processes(self, kind: str) -> list[GpuProcess]:
        listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses") or ()
        return [GpuProcess(process.pid, process.usedGpuMemory) for process in listed]

    def _throttle(self) -> int | None:
        # The second is its name in drivers before 535.
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return next((int(mask) for mask in map(self._ask, names) if mask is not None), None)

    def _utilization_period_s(self) -> float | None:
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


def throttle_words(mask: int) -> str:
    """ "power cap, hardware thermal slowdown" for 0x44; "none" for 0; bits that are not known by their value."""
    known = [text for bit, text in THROTTLE_REASONS.items() if mask & bit]
    rest = mask & ~sum(THROTTLE_REASONS)
    return ", ".join(known + ([f"{rest:#x}"] if rest else [])) or "none"


def gpu_indices(device: str) -> tuple[int, ...]:
    """The numbers in it: (0,) of "cuda", (0, 1) of "cuda:0,1"; none for devices NVML knows nothing of."""
    kind, _, numbers = device.partition(":")
    if kind != "cuda":
        return ()
    listed = numbers.split(",") if numbers else ["0"]
    if not all(number.isdecimal() for number in listed):
        raise UsageError(f"device {device!r}: allowed are 'cuda' and 'cuda:<number>'")
    return tuple(map(int, listed))


def find_handle(index: int, *, nvml: ModuleType = pynvml, visible: str | None = None) -> object:
    """NVML's handle of the GPU that CUDA calls `index` under CUDA_VISIBLE_DEVICES=`visible`.

    Holds when CUDA numbers the GPUs by bus, which it does when they are alike or CUDA_DEVICE_ORDER=PCI_BUS_ID.
    Raises LookupError, with the reason, when `visible` hides it, pynvml.NVMLError when there is none.
    """
    if visible is None:
        return nvml.nvmlDeviceGetHandleByIndex(index)
    shown: list[Gpu] = []
    for entry, gpu in _entries(visible, nvml):  # noqa: B007 - the last entry read is named below
        if gpu is None:
            break
        if gpu in shown:  # CUDA's guide does not say so: cuInit of driver 580.159 then ends with an error
            raise LookupError(f"CUDA_VISIBLE_DEVICES={visible!r} names a GPU twice, and CUDA then shows none")
        shown.append(gpu)
    else:
        entry = ""
    if index >= len(shown):
        end = f": CUDA reads it up to {entry!r}, which names no GPU here" if entry else ""
        raise LookupError(f"CUDA_VISIBLE_DEVICES={visible!r} hides it{end}")
    gpu = shown[index]
    return nvml.nvmlDeviceGetHandleByUUID(gpu) if isinstance(gpu, str) else nvml.nvmlDeviceGetHandleByIndex(gpu)


def describe_gpus(*, nvml: ModuleType = pynvml) -> Fields | None:
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
    """Return what NVML answers; None where it cannot."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None


def _entries(visible: str, nvml: ModuleType) -> Iterator[tuple[str, Gpu | None]]:
    """Each entry of CUDA_VISIBLE_DEVICES with the GPU that it names."""
    entries, numbers = visible.split(","), range(nvml.nvmlDeviceGetCount())
    kind = entries[0][:4]  # the first entry's; one of another kind names nothing (seen of driver 580.159)
    handles = map(nvml.nvmlDeviceGetHandleByIndex, numbers if kind == "GPU-" else ())
    uuids = [nvml.nvmlDeviceGetUUID(handle) for handle in handles]
    for entry in entries:
        gpu: Gpu | None
        if kind == "MIG-":
            gpu = None if ask(nvml, "nvmlDeviceGetHandleByUUID", entry) is None else entry
        elif kind == "GPU-":  # the only one whose UUID begins so; its digits may be capitals, "GPU-" may not be small
            begun = [n for n, uuid in enumerate(uuids) if uuid.lower().startswith(entry.lower())]
            gpu = begun[0] if entry.startswith("GPU-") and len(begun) == 1 else None
        else:
            digits = re.match(r"\s*\+?(\d+)", entry)  # as C's strtol does: what follows the digits is not read
            gpu = int(digits[1]) if digits and int(digits[1]) in numbers else None
        yield entry, gpu


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

    def meters(self) -> list[GpuMeter]:
        """Return what reads the energy of each device."""
        names = (f"{GPU}-{number}" if self._several else GPU for number in self._gpus)
        return [GpuMeter(gpu.energy_j, name) for name, gpu in zip(names, self._gpus.values())]

    def warnings(self) -> list[str]:
        found = [(number, text) for number, gpu in self._gpus.items() for text in gpu.warnings()]
        return [f"GPU {number}: {text}" if self._several else text for number, text in found]

    def facts(self) -> Fields:
        """Return the facts of the first GPU, and what each of them is."""
        each = {str(number): gpu.facts() for number, gpu in self._gpus.items()}
        return {**next(iter(each.values())), **({"devices": each} if self._several else {})}


# By field of GpuReading: how the readings of several devices become one.
_TOGETHER: dict[str, Callable[[Any], Any]] = {
    "percent": lambda values: sum(values) / len(values),
    "memory_bytes": sum,
    "power_w": sum,
    "process_memory_bytes": sum,
    "temperature_c": max,
    "sm_clock_mhz": min,
    "throttle": lambda masks: functools.reduce(operator.or_, masks),
}
