"""Set glibc's allocator to keep freed memory, for frameworks that allocate every activation again.

By default glibc maps each large block afresh and gives it back when freed, and the kernel clears every page again:
half of the CPU time of a ResNet-50 step at batch 100 in PyTorch. PyTorch's own tuning guide says the same and
preloads jemalloc or tcmalloc; this has the effect without a library to find.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> bool:
    """Set it for this process, before the framework allocates; False where there is no glibc to tell."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(name, value) == 1 for name, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_ARENA_MAX, 1)))
