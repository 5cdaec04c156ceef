"""Use of CPU, memory and threads by a process and all its descendants, from files of /proc."""

import contextlib
import os
import time
from typing import Collection, NamedTuple

from framework_compare.samplers.disturbance import PAGE_BYTES, TICK_NS

SCAN_NS = 1_000_000_000  # a thorough search for children costs about 8 us a thread
MAX_READS = 3
RUNS, STOPPED = b"R", b"T"  # states of a thread: it runs or waits for a core; a signal has stopped it


class Usage(NamedTuple):
    """One process at one moment: CPU time it and the children it has reaped have had, and what it holds now."""

    cpu_ns: int
    rss_bytes: int
    threads: int  # 0 for a zombie: its time still counts, it no longer runs


class ProcfsProcess:
    """A process through files of /proc that stay open, so that a reused pid is never taken for it.

    A `pread` of an open file costs a third of opening it anew. Three descriptors a process. Raises OSError when
    the process is not there.
    """

    __slots__ = ("pid", "_opened", "_stat", "_statm", "_children", "_threads")

    def __init__(self, pid: int) -> None:
        self.pid, self._threads = pid, 1
        self._opened: list[int] = []
        try:
            for name in ("stat", "statm", f"task/{pid}/children"):
                self._opened.append(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
        except OSError:
            self.close()
            raise
        self._stat, self._statm, self._children = self._opened

    def usage(self) -> Usage | None:
        """Return what the process uses now, or None when it is gone."""
        try:
            stat, statm = os.pread(self._stat, 1024, 0), os.pread(self._statm, 128, 0)
        except OSError:
            return None
        # The name, in brackets, may itself hold brackets and blanks; see proc_pid_stat(5), field 3 onwards.
        fields = stat[stat.rindex(b")") + 2 :].split(None, 18)
        self._threads = threads = int(fields[17])
        ticks = int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
        if fields[0] in b"ZXx" and threads <= 1:
            return Usage(ticks * TICK_NS, 0, 0)
        # Not the rss of `stat`: it lags by megabytes on machines with many cores, `statm` is exact since Linux 6.16.
        return Usage(ticks * TICK_NS, int(statm.split(None, 2)[1]) * PAGE_BYTES, threads)

    def children(self, *, thorough: bool) -> list[int]:
        """Pids of the children its main thread started, or that any of its threads did if `thorough`."""
        try:
            pids = os.pread(self._children, 65536, 0).split()
            if thorough and self._threads > 1:
                for thread in os.listdir(f"/proc/{self.pid}/task"):
                    pids += _read_bytes(f"/proc/{self.pid}/task/{thread}/children").split()
        except OSError:
            return []
        return [int(pid) for pid in pids]

    def close(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)

    def pss_bytes(self) -> int | None:
        """Its memory, shared pages divided among their users; None where it is gone or may not be read."""
        lines = _read_bytes(f"/proc/{self.pid}/smaps_rollup").splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:")), None)


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:  # it has ended, or may not be read
        return b""


class TreeReading(NamedTuple):
    """A process tree at CLOCK_MONOTONIC `t_ns`."""

    t_ns: int
    cpu_percent: float | None  # of one core, since the reading before
    rss_bytes: int
    threads: int
    processes: int
    spent_ns: int = 0  # CPU time since the first reading


class ProcessTreeSampler:
    """Readings of process `pid` and its descendants; `close()` it.

    `others` are processes that work with it (ranks): read with their descendants for as long as `pid` is there.

    CPU time comes in kernel ticks (10 ms as a rule) and includes children that came and went between two readings,
    credited when their parent reaps them. Descendants once seen are followed until they end, also when their
    parent ends before them. RSS counts memory shared between processes once for each of them; `pss_bytes` does not.
    """

    def __init__(self, pid: int, *others: int, source: type[ProcfsProcess] = ProcfsProcess) -> None:
        self._pid, self._source = pid, source
        self._processes: dict[int, ProcfsProcess] = {}  # parents before their children
        self._scanned_ns: int | None = None
        self._total_ns: int | None = None
        self._spent_ns = 0
        self._before: tuple[int, int] | None = None
        for root in (pid, *others):
            self._open(root)

    def close(self) -> None:
        """Let go of all processes; later readings are None."""
        while self._processes:
            self._processes.popitem()[1].close()

    def read(self) -> TreeReading | None:
        """Read the whole tree once, or None when its root has ended (a zombie has)."""
        t_ns = time.monotonic_ns()
        usages = self._read_usages(t_ns)
        if usages is None:
            return None
        before_ns, spent_ns = self._before or (t_ns, self._spent_ns)
        self._before = (t_ns, self._spent_ns)
        cpu_percent = None if t_ns == before_ns else 100.0 * (self._spent_ns - spent_ns) / (t_ns - before_ns)
        living = [usage for usage in usages.values() if usage.threads]
        rss_bytes, threads = sum(usage.rss_bytes for usage in living), sum(usage.threads for usage in living)
        return TreeReading(t_ns, cpu_percent, rss_bytes, threads, len(living), self._spent_ns)

    def spent_ns(self) -> int | None:
        """CPU time since the first reading, read now; None when the root has ended. It leaves `cpu_percent` alone."""
        return None if self._read_usages(time.monotonic_ns()) is None else self._spent_ns

    def _read_usages(self, t_ns: int) -> dict[int, Usage] | None:
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

    def pss_bytes(self, *, without_root: bool = False) -> int | None:
        """Memory of the processes last read, shared pages divided among their users; None when all of them ended.

        A process whose PSS may not be read counts with its RSS. Costs milliseconds a gigabyte and holds up the
        processes' own memory calls: not for every tick.
        """
        processes = [process for pid, process in self._processes.items() if not (without_root and pid == self._pid)]
        return sum(one.pss_bytes() or getattr(one.usage(), "rss_bytes", 0) for one in processes) or None

    def _read_known(self) -> tuple[dict[int, Usage], bool]:
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

    def _read_new(self, t_ns: int) -> dict[int, Usage]:
        """Usages of descendants not known yet, which are from now on."""
        thorough = self._scanned_ns is None or t_ns - self._scanned_ns >= SCAN_NS
        if thorough:
            self._scanned_ns = t_ns
        usages: dict[int, Usage] = {}
        fresh = list(self._processes.values())
        while fresh:
            pids = [pid for process in fresh for pid in process.children(thorough=thorough)]
            fresh = [process for process in map(self._open, pids) if process]
            usages.update((process.pid, usage) for process in fresh if (usage := process.usage()))
        return usages

    def _open(self, pid: int) -> ProcfsProcess | None:
        """Start following `pid`; None when it is followed already, gone, or not ours to read."""
        if pid in self._processes:
            return None
        with contextlib.suppress(OSError):
            self._processes[pid] = self._source(pid)
        return self._processes.get(pid)

    def _drop(self, pids: list[int]) -> None:
        for pid in pids:
            self._processes.pop(pid).close()
        self._scanned_ns = None

    def _spend(self, total_ns: int, settled: bool) -> None:
        before_ns = total_ns if self._total_ns is None else self._total_ns
        # A settled total falls only when a child was reaped by nobody of the tree: go on from what is left. An
        # unsettled one may lack what a parent is about to report: wait for it.
        self._total_ns = total_ns if settled else max(total_ns, before_ns)
        self._spent_ns += max(0, total_ns - before_ns)


def any_thread(pids: Collection[int], state: bytes) -> bool:
    """Return whether a thread of these processes is in a state, a letter of proc_pid_stat(5)."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                    if file.read().rpartition(b")")[2][1:2] == state:
                        return True
    return False
