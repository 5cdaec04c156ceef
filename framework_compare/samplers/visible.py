"""Which GPUs CUDA_VISIBLE_DEVICES shows and in which order, as CUDA's driver reads it."""

import re
from types import ModuleType
from typing import Callable, Iterator, List, Optional, Tuple, Union

# NVML's number of a GPU, or the UUID of a MIG instance.
Gpu = Union[int, str]
Reader = Callable[[str], Optional[Gpu]]


def visible_handle(index: int, visible: str, *, nvml: ModuleType) -> object:
    """NVML's handle of the GPU that CUDA calls `index` under CUDA_VISIBLE_DEVICES=`visible`.

    Raises LookupError, with the reason, where CUDA does not show that many.
    """
    shown: List[Gpu] = []
    for entry, gpu in _read(visible, nvml):  # noqa: B007 - the last entry read is named below
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


def _read(visible: str, nvml: ModuleType) -> Iterator[Tuple[str, Optional[Gpu]]]:
    entries = visible.split(",")
    kind = entries[0][:4]  # the first entry's; one of another kind names nothing (seen of driver 580.159)
    read = {"GPU-": _uuids, "MIG-": _instances}.get(kind, _numbers)(nvml)
    return ((entry, read(entry)) for entry in entries)


def _numbers(nvml: ModuleType) -> Reader:
    count = nvml.nvmlDeviceGetCount()

    def read(entry: str) -> Optional[Gpu]:
        digits = re.match(r"\s*\+?(\d+)", entry)  # as C's strtol does: what follows the digits is not read
        return int(digits[1]) if digits and int(digits[1]) < count else None

    return read


def _uuids(nvml: ModuleType) -> Reader:
    handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
    known = [nvml.nvmlDeviceGetUUID(handle) for handle in handles]

    def read(entry: str) -> Optional[Gpu]:
        """The only GPU whose UUID begins so; its hexadecimal digits may be capitals, "GPU-" may not be small."""
        begun = [n for n, uuid in enumerate(known) if uuid.lower().startswith(entry.lower())]
        return begun[0] if entry.startswith("GPU-") and len(begun) == 1 else None

    return read


def _instances(nvml: ModuleType) -> Reader:
    def read(entry: str) -> Optional[Gpu]:
        try:
            nvml.nvmlDeviceGetHandleByUUID(entry)
        except nvml.NVMLError:
            return None
        return entry

    return read
