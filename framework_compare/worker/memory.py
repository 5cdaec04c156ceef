"""A worker's memory: how it is allocated, and what it reads of it at the end of a phase, where nothing is being timed."""

from __future__ import annotations

import ctypes
import os
from typing import Optional

from framework_compare.worker.processes import descendants

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> bool:
    """Have glibc keep freed memory, for frameworks that allocate every activation again; False where there is no glibc.

    By default it maps each large block afresh and gives it back when freed, and the kernel clears every page again: half
    of the CPU time of a ResNet-50 step at batch 100 in PyTorch. PyTorch's own tuning guide says the same and preloads
    jemalloc or tcmalloc; this has the effect without a library to find. To be called before the framework allocates.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(name, value) == 1 for name, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_ARENA_MAX, 1)))


def pss_bytes() -> Optional[int]:
    """Proportional set size of this process and its descendants, in bytes; None where the kernel does not say.

    Pages shared by forked loader workers count once, which a sum of RSS cannot do.
    """
    try:
        return sum(_pss_bytes(pid) for pid in (os.getpid(), *descendants(os.getpid())))
    except (OSError, ValueError):
        return None


def _pss_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    raise ValueError(f"no Pss in smaps_rollup of {pid}")
