"""Threads, processes and memory of a worker, read from Linux' /proc by the worker itself, and how memory is allocated.

Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

# multiprocessing's own helper: it ends with the process that it watches, not before
TRACKER = "multiprocessing.resource_tracker"
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


class ThreadTime(NamedTuple):
    """A thread's name, its nanoseconds on a CPU, and those it waited for one."""

    name: str
    cpu_ns: int
    waited_ns: int


def others() -> Dict[int, str]:
    """Command line by pid of every living process of this worker but itself, daemons included.

    The supervisor adopts orphans, so a worker's processes are all that descends from it.
    """
    found = {pid: command_of(pid) for pid in descendants(os.getppid()) if pid != os.getpid()}
    return {pid: words for pid, words in found.items() if words and TRACKER not in words}


def descendants(root: int) -> List[int]:
    try:
        listed = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []
    parents = {pid: _parent_of(pid) for pid in listed}
    found: List[int] = []
    fresh = [root]
    while fresh:
        fresh = [pid for pid, parent in parents.items() if parent in fresh]
        found += fresh
    return found


def command_of(pid: int) -> str:
    """Its command line; "" for one that has ended."""
    return _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:200]


Times = Dict[Tuple[int, int], ThreadTime]
WHOLE = 0  # in the place of a thread's number: this process, threads that have ended included


def thread_times() -> Times:
    """Return times by (process, thread), of this process and all it started."""
    found = {(os.getpid(), WHOLE): ThreadTime("", time.process_time_ns(), 0)}
    for pid in (os.getpid(), *descendants(os.getpid())):
        for thread in _threads_of(pid):
            times = _times_of(pid, thread)
            if times:
                found[pid, thread] = times
    return found


def gained(before: Times, after: Times) -> List[ThreadTime]:
    """Return what each thread used between two readings, the busiest first, without those that used nothing."""
    none = ThreadTime("", 0, 0)
    changes = {
        key: ThreadTime(t.name, t.cpu_ns - before.get(key, none).cpu_ns, t.waited_ns - before.get(key, none).waited_ns)
        for key, t in after.items()
    }
    whole = changes.pop((os.getpid(), WHOLE)).cpu_ns
    ended = whole - sum(change.cpu_ns for (pid, _), change in changes.items() if pid == os.getpid())
    used = [*changes.values(), ThreadTime("threads that have ended", max(0, ended), 0)]
    return sorted((change for change in used if change.cpu_ns), key=lambda change: -change.cpu_ns)


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


def _threads_of(pid: int) -> List[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _times_of(pid: int, thread: int) -> Optional[ThreadTime]:
    """Read times from schedstat in nanoseconds, or, if the kernel keeps none, from stat in ticks without waiting."""
    place = f"/proc/{pid}/task/{thread}"
    name, scheduled = _read(f"{place}/comm").strip(), _read(f"{place}/schedstat").split()
    if len(scheduled) == 3:
        return ThreadTime(name, int(scheduled[0]), int(scheduled[1]))
    fields = _read(f"{place}/stat").rpartition(")")[2].split()
    if not fields:
        return None
    ticks = int(fields[11]) + int(fields[12])  # utime and stime; see proc_pid_stat(5)
    return ThreadTime(name, ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK")), 0)


def _parent_of(pid: int) -> int:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
