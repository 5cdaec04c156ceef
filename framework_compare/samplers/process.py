"""What a process and all its descendants use: CPU, memory, threads."""

from __future__ import annotations

import os
import time
from typing import Collection, Dict, List, NamedTuple, Optional, Tuple, Type

from framework_compare.samplers.sources import ProcfsProcess, Usage

SCAN_NS = 1_000_000_000  # a thorough search for children costs about 8 us a thread
MAX_READS = 3
RUNS, STOPPED = b"R", b"T"  # states of a thread: it runs or waits for a core; a signal has stopped it


class TreeReading(NamedTuple):
    """A process tree at CLOCK_MONOTONIC `t_ns`; CPU is percent of one core since the reading before.

    spent_ns is its CPU time since the first reading.
    """

    t_ns: int
    cpu_percent: Optional[float]
    rss_bytes: int
    threads: int
    processes: int
    spent_ns: int = 0


class ProcessTreeSampler:
    """Readings of process `pid` and its descendants; a context manager, or `close()` it.

    `others` are processes that work with it (ranks): read with their descendants for as long as `pid` is there.

    CPU time comes in kernel ticks (10 ms as a rule) and includes children that came and went between two readings,
    credited when their parent reaps them. Descendants once seen are followed until they end, also when their
    parent ends before them. RSS counts memory shared between processes once for each of them; `pss_bytes` does not.
    """

    def __init__(self, pid: int, *others: int, source: Type[ProcfsProcess] = ProcfsProcess) -> None:
        self._pid = pid
        self._source = source
        self._processes: Dict[int, ProcfsProcess] = {}  # parents before their children
        self._scanned_ns: Optional[int] = None
        self._total_ns: Optional[int] = None
        self._spent_ns = 0
        self._before: Optional[Tuple[int, int]] = None
        for root in (pid, *others):
            self._open(root)

    def __enter__(self) -> "ProcessTreeSampler":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all processes; later readings are None."""
        while self._processes:
            self._processes.popitem()[1].close()

    def read(self) -> Optional[TreeReading]:
        """Read the whole tree once, or None when its root has ended (a zombie has)."""
        t_ns = time.monotonic_ns()
        usages = self._read_usages(t_ns)
        if usages is None:
            return None
        cpu_percent = self._cpu_percent(t_ns)
        living = [usage for usage in usages.values() if usage.threads]
        rss_bytes, threads = sum(usage.rss_bytes for usage in living), sum(usage.threads for usage in living)
        return TreeReading(t_ns, cpu_percent, rss_bytes, threads, len(living), self._spent_ns)

    def spent_ns(self) -> Optional[int]:
        """CPU time since the first reading, read now; None when the root has ended.

        It leaves `cpu_percent` of the next reading as it would be.
        """
        return None if self._read_usages(time.monotonic_ns()) is None else self._spent_ns

    def _read_usages(self, t_ns: int) -> Optional[Dict[int, Usage]]:
        """Read usage of every process of the tree and add up their CPU time; None when the root has ended."""
        usages, settled = self._read_known()
        if self._pid not in usages or not usages[self._pid].threads:
            return None
        usages.update(self._read_new(t_ns))
        self._spend(sum(usage.cpu_ns for usage in usages.values()), settled)
        return usages

    def pids(self) -> Collection[int]:
        """Return the ids of all processes of the tree, as last read."""
        return self._processes.keys()

    def pss_bytes(self, *, without_root: bool = False) -> Optional[int]:
        """Memory of the processes last read, shared pages divided among their users; None when all of them ended.

        A process whose PSS may not be read counts with its RSS. Costs milliseconds a gigabyte and holds up the
        processes' own memory calls: not for every tick.
        """
        processes = [process for pid, process in self._processes.items() if not (without_root and pid == self._pid)]
        return sum(process.pss_bytes() or _rss_bytes(process) for process in processes) or None

    def _read_known(self) -> Tuple[Dict[int, Usage], bool]:
        """Usages by pid, and whether no process ended during the reading.

        Parents are read before their children. When all answer, no parent can have reaped a child that is counted
        as well. When one does not, its parent may have been read too early to have its time, so all are read again.
        """
        for _ in range(MAX_READS):
            usages = {pid: process.usage() for pid, process in self._processes.items()}
            gone = [pid for pid, usage in usages.items() if usage is None]
            if not gone:
                break
            self._drop(gone)
        return {pid: usage for pid, usage in usages.items() if usage is not None}, not gone

    def _read_new(self, t_ns: int) -> Dict[int, Usage]:
        """Usages of descendants not known yet, which are from now on."""
        thorough = self._scanned_ns is None or t_ns - self._scanned_ns >= SCAN_NS
        if thorough:
            self._scanned_ns = t_ns
        usages: Dict[int, Usage] = {}
        fresh = list(self._processes.values())
        while fresh:
            pids = self._source.children_of(fresh, thorough=thorough)
            fresh = [process for process in map(self._open, pids) if process]
            usages.update((process.pid, usage) for process in fresh if (usage := process.usage()))
        return usages

    def _open(self, pid: int) -> Optional[ProcfsProcess]:
        """Start following `pid`; None when it is followed already, gone, or not ours to read."""
        if pid in self._processes:
            return None
        try:
            process = self._processes[pid] = self._source(pid)
        except OSError:
            return None
        return process

    def _drop(self, pids: List[int]) -> None:
        for pid in pids:
            self._processes.pop(pid).close()
        self._scanned_ns = None

    def _spend(self, total_ns: int, settled: bool) -> None:
        before_ns = total_ns if self._total_ns is None else self._total_ns
        # A settled total falls only when a child was reaped by nobody of the tree: go on from what is left. An
        # unsettled one may lack what a parent is about to report: wait for it.
        self._total_ns = total_ns if settled else max(total_ns, before_ns)
        self._spent_ns += max(0, total_ns - before_ns)

    def _cpu_percent(self, t_ns: int) -> Optional[float]:
        before_ns, spent_ns = self._before or (t_ns, self._spent_ns)
        self._before = (t_ns, self._spent_ns)
        return None if t_ns == before_ns else 100.0 * (self._spent_ns - spent_ns) / (t_ns - before_ns)


def _rss_bytes(process: ProcfsProcess) -> int:
    usage = process.usage()
    return 0 if usage is None else usage.rss_bytes


def any_thread(pids: Collection[int], state: bytes) -> bool:
    """Return whether a thread of these processes is in a state."""
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                    if file.read().rpartition(b")")[2][1:2] == state:
                        return True
        except OSError:
            continue
    return False
