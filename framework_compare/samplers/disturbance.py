"""Load by others on the cores that a run may use, by exact counters of the kernel: during a run, or now, and who.

Others are all programs but the worker's process tree and this process: what is left of the time that the cores were not
idle. So the kernel's own threads count, and so does what other containers of the machine do on these cores.
"""

import contextlib
import os
import time
from array import array
from pathlib import Path
from typing import NamedTuple, Sequence

import numpy as np
import psutil

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CPUS = Path("/sys/devices/system/cpu")
# Counters come in ticks of 10 ms: over less than this a share of a core is not known to a few points.
LEAST_NS = 1_000_000_000
# Readings reach over an epoch when they begin or end no more than this within it.
SLACK_NS = 100_000_000
# Memory and heat change slowly, and reading them takes as long as reading the process tree.
SLOW_EVERY_NS = 1_000_000_000
# Of a look at the machine as it is now.
WATCH_S = 1.0
LEAST_SHARE = 0.02  # of a core, to be named
MOST_NAMED = 5


class Cores(NamedTuple):
    """Ticks since the machine started: of all cores busy and altogether; of those that this process may use, others."""

    busy: int
    total: int
    idle: int  # waiting for the disk included
    stolen: int  # by the hypervisor, for other machines


class Counters(NamedTuple):
    """Nanoseconds of CPU time at CLOCK_MONOTONIC t_ns, each from an origin of its own."""

    t_ns: int
    others_ns: int
    stolen_ns: int
    parent_ns: int


class Shares(NamedTuple):
    """Disturbance of an epoch, in shares of one core: 1.5 is a core and a half."""

    disturbed: float  # to others and to the hypervisor
    stolen: float
    parent: float  # to this process
    swap_in_bytes: int | None = None  # None where the system does not tell
    throttles: int | None = None  # by heat; likewise


class CoreCounter:
    """/proc/stat, kept open, of the cores that this process may use; `close()` it."""

    def __init__(self) -> None:
        self._file = os.open("/proc/stat", os.O_RDONLY)
        allowed = os.sched_getaffinity(0)
        self.count = len(allowed)
        confined = self.count < (os.cpu_count() or 1)
        self._names = {b"cpu%d" % core for core in allowed} if confined else {b"cpu"}
        self._bytes = 1 << 16 if confined else 256

    def close(self) -> None:
        os.close(self._file)

    def read(self) -> Cores:
        """OSError or ValueError where it cannot be read."""
        return parse_cores(os.pread(self._file, self._bytes, 0), self._names)

    def counters(self, worker_ns: int = 0) -> tuple[Cores, Counters]:
        """Return what `read` gives now, and what that makes others' beside a worker that has had so much CPU time."""
        t_ns, parent_ns, cores = time.monotonic_ns(), time.process_time_ns(), self.read()
        others_ns = self.count * t_ns - (cores.idle + cores.stolen) * TICK_NS - worker_ns - parent_ns
        return cores, Counters(t_ns, others_ns, cores.stolen * TICK_NS, parent_ns)


def parse_cores(text: bytes, names: set[bytes]) -> Cores:
    """/proc/stat's lines of these names: user nice system idle iowait irq softirq steal."""
    first, idle, stolen = (0, 0), 0, 0
    for number, line in enumerate(text.split(b"\n")):
        if not line.startswith(b"cpu"):
            break
        # A guest's time, ninth and tenth, is in user and nice already.
        fields = line.split(None, 9)
        ticks = [int(field) for field in fields[1:9]]
        if number == 0:
            first = (sum(ticks) - ticks[3] - ticks[4], sum(ticks))
        if fields[0] in names:
            idle += ticks[3] + ticks[4]
            stolen += ticks[7]
            if len(names) == 1:
                break
    return Cores(*first, idle, stolen)


class SlowCounters:
    """Pages read from swap and throttlings of the allowed cores, since the machine started; None if not counted."""

    def __init__(self, *, cpus: Path = CPUS, vmstat: Path = Path("/proc/vmstat")) -> None:
        self._vmstat = vmstat
        cores = sorted(os.sched_getaffinity(0))[:8]
        found = [cpus / f"cpu{core}" / "thermal_throttle" / "core_throttle_count" for core in cores]
        self._heat = [path for path in found if path.exists()]

    def read(self) -> tuple[int | None, int | None]:
        swapped = throttled = None
        with contextlib.suppress(OSError, ValueError):
            _, found, rest = self._vmstat.read_bytes().partition(b"\npswpin ")
            swapped = int(rest.split(None, 1)[0]) if found else None
        with contextlib.suppress(OSError, ValueError):
            throttled = sum(int(path.read_bytes()) for path in self._heat) if self._heat else None
        return swapped, throttled


class DisturbanceLog:
    """Counters of one run, from which the shares of its epochs are computed. `add` one at each tick and edge."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._columns: dict[str, "array[int]"] = {name: array("q") for name in Counters._fields}
        self._slow: list[tuple[int, int | None, int | None]] = []

    def add(self, counters: Counters) -> None:
        for column, value in zip(self._columns.values(), counters):
            column.append(value)
        if len(self._columns["t_ns"]) > self._most:  # sums lose nothing but density
            for column in self._columns.values():
                del column[1:-1:2]

    def add_slow(self, t_ns: int, swapped: int | None, throttled: int | None) -> None:
        self._slow.append((t_ns, swapped, throttled))
        if len(self._slow) > self._most:
            del self._slow[1:-1:2]

    def last_ns(self, *, slow: bool = False) -> int:
        """Return the time of the last reading; 0 where there is none."""
        times = [row[0] for row in self._slow[-1:]] if slow else self._columns["t_ns"][-1:]
        return times[0] if times else 0

    def shares(self, epoch: tuple[int, int], within: tuple[int, int]) -> Shares | None:
        """Return the shares of an epoch; a short one is widened `within` the measured epochs to LEAST_NS, or None."""
        start_ns, end_ns = _widened(*epoch, within)
        times = self._columns["t_ns"]
        if end_ns - start_ns < LEAST_NS or len(times) < 2:
            return None
        if times[0] > start_ns + SLACK_NS or times[-1] < end_ns - SLACK_NS:
            return None
        others, stolen, parent = (
            max(0.0, self._gained(name, start_ns, end_ns)) / (end_ns - start_ns)
            for name in ("others_ns", "stolen_ns", "parent_ns")
        )
        return Shares(others + stolen, stolen, parent, *self._slowly(start_ns, end_ns))

    def _gained(self, name: str, start_ns: int, end_ns: int) -> float:
        # Subtracted as integers: a clock of many days in nanoseconds does not fit a float.
        times = self._columns["t_ns"]
        first = max(0, int(np.searchsorted(times, start_ns, side="right")) - 1)
        last = int(np.searchsorted(times, end_ns, side="left")) + 1
        at = [t_ns - start_ns for t_ns in times[first:last]]
        values = [value - self._columns[name][first] for value in self._columns[name][first:last]]
        before, after = np.interp([0, end_ns - start_ns], at, values)
        return float(after - before)

    def _slowly(self, start_ns: int, end_ns: int) -> tuple[int | None, int | None]:
        """Return the last readings before, or at, each end."""
        found = []
        for place in (1, 2):
            before = [row[place] for row in self._slow if row[0] <= start_ns + SLACK_NS][-1:]
            after = [row[place] for row in self._slow if row[0] <= end_ns + SLACK_NS][-1:]
            known = before and after and before[0] is not None and after[0] is not None
            found.append(after[0] - before[0] if known else None)  # type: ignore[operator]
        pages, throttled = found
        return None if pages is None else pages * PAGE_BYTES, throttled


def _widened(start_ns: int, end_ns: int, within: tuple[int, int]) -> tuple[int, int]:
    """At least LEAST_NS about a span, if there is so much `within`."""
    lacking = LEAST_NS - (end_ns - start_ns)
    if lacking <= 0:
        return start_ns, end_ns
    start_ns = max(within[0], start_ns - lacking // 2)
    end_ns = min(within[1], start_ns + LEAST_NS)
    return max(within[0], end_ns - LEAST_NS), end_ns


def mean_share(shares: Sequence[tuple[float, float]]) -> float | None:
    """Return the mean of (share, seconds), weighted by time."""
    whole = sum(seconds for _, seconds in shares)
    return sum(share * seconds for share, seconds in shares) / whole if whole else None


# By pid and start of every other process its name, which may change, and its CPU seconds.
Spent = dict[tuple[int, float], tuple[str, float]]


class BusyProcess(NamedTuple):
    pid: int
    name: str
    share: float  # of one core


class Load(NamedTuple):
    """Load by others on the cores that a run may use: shares of one core."""

    others: float
    stolen: float  # by the hypervisor, for other machines
    cores: int
    busiest: tuple[BusyProcess, ...]


def watch(seconds: float = WATCH_S) -> Load:
    """Return who is busy now, by looking on for so long. OSError or ValueError where /proc/stat cannot be read."""
    with contextlib.closing(CoreCounter()) as cores:
        spent = _spent_s()
        _, before = cores.counters()
        time.sleep(seconds)
        _, after = cores.counters()
        whole_ns, *gained_ns = (end - start for end, start in zip(after, before))
        gained = _gained(spent, _spent_s(), whole_ns / 1e9)
    others, stolen = (max(0.0, ns / whole_ns) for ns in gained_ns[:2])
    return Load(others, stolen, cores.count, gained)


def _spent_s() -> Spent:
    spent = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error), process.oneshot():
            if process.pid != os.getpid():
                times = process.cpu_times()
                spent[process.pid, process.create_time()] = (process.name(), times.user + times.system)
    return spent


def _gained(before: Spent, after: Spent, seconds: float) -> tuple[BusyProcess, ...]:
    shares = [
        BusyProcess(key[0], name, (spent_s - before.get(key, ("", 0.0))[1]) / seconds)
        for key, (name, spent_s) in after.items()
    ]
    busy = sorted((one for one in shares if one.share >= LEAST_SHARE), key=lambda one: -one.share)
    return tuple(busy[:MOST_NAMED])
