"""Users of a GPU: the memory of the worker's processes, and whoever else is on it."""

import os
from pathlib import Path
from typing import Collection, NamedTuple, Sequence

# An idle device without a display holds less; more before a worker starts is somebody's.
IDLE_BYTES = 512 << 20
BY_PROCESS = "process list"
BY_DIFFERENCE = "device minus baseline"
_GIB = 1 << 30


class GpuProcess(NamedTuple):
    """A line of NVML's process list."""

    pid: int
    memory_bytes: int | None  # None or 0 where the driver does not tell it


class GpuUsers:
    """Follows one device through a run: `note_baseline` before the worker starts, then `own_bytes` at each reading.

    In a container NVML may list pids of another namespace, no processes, or processes without memory. Until a
    process of the worker's tree is listed with memory, its use is the device's less the baseline. Other workers of this
    process, which wait while this one has its turn, are no strangers.
    """

    def __init__(self) -> None:
        self.baseline_bytes: int | None = None
        self.memory_source: str | None = None
        self._held_bytes: int | None = None
        self._before: set[int] = set()
        self._others: dict[int, int | None] = {}  # pid -> most memory seen
        self._ours: set[int] = set()
        self._rivals: set[int] = set()
        self._seen_ours = False
        self._unplaced = 0

    def note_baseline(self, device_bytes: int | None, reserved_bytes: int, processes: Sequence[GpuProcess]) -> None:
        """Note what is in use before the worker starts: the device's memory, the driver's part of it, and by whom."""
        self.baseline_bytes = device_bytes
        self._held_bytes = None if device_bytes is None else max(0, device_bytes - reserved_bytes)
        self._before = {process.pid for process in processes}
        for process in processes:
            if not self._is_rival(process.pid):
                self._take_other(process)

    def own_bytes(self, processes: Sequence[GpuProcess], tree: Collection[int], device_bytes: int | None) -> int | None:
        """Memory of the processes of `tree`, None where neither the list nor a baseline tells it."""
        self._ours.update(tree)
        own = [process for process in processes if process.pid in self._ours and process.pid not in self._before]
        self._seen_ours = self._seen_ours or bool(own)
        self.look_for_others(processes)
        known = [process.memory_bytes for process in own if process.memory_bytes]
        if known:
            self.memory_source = BY_PROCESS
            return sum(known)
        if self.memory_source == BY_PROCESS:  # it has let go of the device
            return 0
        if device_bytes is None or self.baseline_bytes is None:
            return None
        self.memory_source = BY_DIFFERENCE
        return max(0, device_bytes - self.baseline_bytes)

    def warnings(self) -> list[str]:
        """A sentence for each other user of the device that was seen."""
        others = sorted(self._others.items())
        found = [f"another process is on the GPU: pid {pid}, {_size(memory)}" for pid, memory in others]
        if not self._seen_ours and self._unplaced > 1:
            found.append(
                f"{self._unplaced} processes appeared on the GPU during the run, but 1 was expected; "
                "their pids belong to another namespace"
            )
        if not self._before and self._held_bytes is not None and self._held_bytes > IDLE_BYTES:
            found.append(
                f"{_size(self._held_bytes)} were in use on the GPU before the worker started, by processes that are "
                "not visible here"
            )
        return found

    def look_for_others(self, processes: Sequence[GpuProcess]) -> None:
        """Remember those on the device that are not of the worker's tree."""
        strangers = [one for one in processes if not self._is_ours(one.pid) and not self._is_rival(one.pid)]
        self._unplaced = max(self._unplaced, sum(process.pid not in self._before for process in strangers))
        for process in strangers:
            # Where no process of ours is listed, one that is new may be ours under a number of another namespace.
            if self._seen_ours or process.pid in self._before:
                self._take_other(process)

    def _is_ours(self, pid: int) -> bool:
        if pid in self._before:
            return False
        # Some drivers list the thread that made the context; in a file of its own it names the process.
        if pid not in self._ours and self._status(pid, "Tgid") in self._ours:
            self._ours.add(pid)
            self._seen_ours = True
        return pid in self._ours

    def _is_rival(self, pid: int) -> bool:
        above: int | None = pid
        while above and pid not in self._rivals:
            above = self._status(above, "PPid")
            if above == os.getpid():
                self._rivals.add(pid)
        return pid in self._rivals

    def _status(self, pid: int, name: str) -> int | None:
        """A number of /proc/PID/status; of a thread, its process's."""
        try:
            status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        except OSError:
            return None
        return next((int(line.partition(":")[2]) for line in status.splitlines() if line.startswith(f"{name}:")), None)

    def _take_other(self, process: GpuProcess) -> None:
        known = self._others.get(process.pid), process.memory_bytes
        self._others[process.pid] = max(filter(None, known), default=None)


def _size(memory_bytes: int | None) -> str:
    return "memory unknown" if memory_bytes is None else f"{memory_bytes / _GIB:.2f} GiB"
