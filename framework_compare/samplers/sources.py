"""Where the figures of one process come from: files of /proc."""

import os
from typing import Iterable, List, NamedTuple, Optional, Sequence

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


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

    def pss_bytes(self) -> Optional[int]:
        """Its memory, shared pages divided among their users; None where it is gone or may not be read."""
        for line in _read_bytes(f"/proc/{self.pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
        return None

    @staticmethod
    def children_of(processes: Sequence["ProcfsProcess"], *, thorough: bool) -> List[int]:
        """Pids of the children of all of `processes`."""
        return [pid for process in processes for pid in process.children(thorough=thorough)]


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:  # it has ended, or may not be read
        return b""


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
