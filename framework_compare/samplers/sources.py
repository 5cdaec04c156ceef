"""Where the figures of one process come from: /proc on Linux, psutil elsewhere. Both count the same things."""

from __future__ import annotations

import os
import sys
from typing import Iterable, List, NamedTuple, Optional, Sequence, Type, Union

import psutil

LINUX = sys.platform == "linux"
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK") if LINUX else 10_000_000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if LINUX else 4096


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

    __slots__ = ("pid", "_stat", "_statm", "_children", "_threads")

    def __init__(self, pid: int) -> None:
        self.pid, self._threads = pid, 1
        opened: List[int] = []
        try:
            for name in ("stat", "statm", f"task/{pid}/children"):
                opened.append(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
        except OSError:
            _close_all(opened)
            raise
        self._stat, self._statm, self._children = opened

    def usage(self) -> Optional[Usage]:
        """What the process uses now, or None when it is gone."""
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

    def children(self, *, thorough: bool) -> List[int]:
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
        _close_all((self._stat, self._statm, self._children))

    @staticmethod
    def children_of(processes: Sequence["ProcfsProcess"], *, thorough: bool) -> List[int]:
        """Pids of the children of all of `processes`."""
        return [pid for process in processes for pid in process.children(thorough=thorough)]


class PsutilProcess:
    """A process through psutil, wherever it runs. Raises psutil.Error when the process is not there.

    Away from Linux the system does not tell what reaped children have used, so those that come and go between two
    readings are lost.
    """

    __slots__ = ("pid", "_process")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process = psutil.Process(pid)

    def usage(self) -> Optional[Usage]:
        """What the process uses now, or None when it is gone or may not be read."""
        try:
            return self._read() if self._process.is_running() else None
        except psutil.Error:
            return None

    def _read(self) -> Usage:
        with self._process.oneshot():
            times = self._process.cpu_times()
            cpu_s = times.user + times.system + times.children_user + times.children_system
            if self._process.status() == psutil.STATUS_ZOMBIE:
                return Usage(round(cpu_s * 1e9), 0, 0)
            return Usage(round(cpu_s * 1e9), self._process.memory_info().rss, self._process.num_threads())

    def close(self) -> None:
        """Nothing is held open."""

    @staticmethod
    def children_of(processes: Sequence["PsutilProcess"], *, thorough: bool) -> List[int]:
        """Pids of all descendants of the first of `processes`; none unless `thorough`, as it reads the whole table."""
        if not thorough or not processes:
            return []
        try:
            return [child.pid for child in processes[0]._process.children(recursive=True)]
        except psutil.Error:
            return []


Source = Union[Type[ProcfsProcess], Type[PsutilProcess]]


def best_source() -> Source:
    """ProcfsProcess where the kernel lists a thread's children (CONFIG_PROC_CHILDREN), else PsutilProcess."""
    pid = os.getpid()
    return ProcfsProcess if LINUX and os.path.exists(f"/proc/{pid}/task/{pid}/children") else PsutilProcess


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:  # the thread has ended
        return b""


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
