"""How busy the whole machine is, other people's processes included."""

from __future__ import annotations

import os
from typing import List, NamedTuple, Optional, Tuple

import psutil

from framework_compare.samplers.sources import LINUX


class MachineReading(NamedTuple):
    """Percent of all cores since the reading before (None at the first), percent of memory not available now."""

    cpu_percent: Optional[float]
    ram_percent: Optional[float]


class MachineSampler:
    """Readings of the machine's CPU and memory, 0 to 100; in a container, of the host. `close()` it."""

    def __init__(self, *, procfs: bool = LINUX) -> None:
        self._files: List[int] = []
        self._before: Optional[Tuple[float, float]] = None
        try:
            # Kept open: with psutil, which opens them anew, these two would cost more than the process tree.
            for name in ("stat", "meminfo") if procfs else ():
                self._files.append(os.open(f"/proc/{name}", os.O_RDONLY))
        except OSError:
            self.close()

    def __enter__(self) -> "MachineSampler":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what is held open; the sampler can still be read."""
        while self._files:
            os.close(self._files.pop())

    def read(self) -> MachineReading:
        """Read both; what the system does not tell is None."""
        try:
            return MachineReading(self._cpu_percent(), self._ram_percent())
        except (OSError, ValueError, IndexError, psutil.Error):
            return MachineReading(None, None)

    def _cpu_percent(self) -> Optional[float]:
        now = parse_stat(os.pread(self._files[0], 256, 0)) if self._files else _ask_psutil()
        before, self._before = self._before, now
        if before is None or now[1] <= before[1]:
            return None
        # Idle time can step back by a tick on Linux (proc_stat(5)), which would read below 0 or above 100.
        return min(100.0, max(0.0, 100.0 * (now[0] - before[0]) / (now[1] - before[1])))

    def _ram_percent(self) -> Optional[float]:
        return parse_meminfo(os.pread(self._files[1], 256, 0)) if self._files else psutil.virtual_memory().percent


def parse_stat(text: bytes) -> Tuple[float, float]:
    """Busy and total time, in ticks, from /proc/stat's first line: user nice system idle iowait irq softirq steal."""
    # A guest's time, ninth and tenth, is in user and nice already.
    ticks = [int(field) for field in text.split(None, 9)[1:9]]
    total = sum(ticks)
    return total - ticks[3] - ticks[4], total


def parse_meminfo(text: bytes) -> Optional[float]:
    """Percent of memory not available, from /proc/meminfo's first lines: MemTotal, MemFree, MemAvailable (kB)."""
    fields = text.split(None, 8)
    if fields[6] != b"MemAvailable:":
        return None
    return 100.0 * (1 - int(fields[7]) / int(fields[1]))


def _ask_psutil() -> Tuple[float, float]:
    times = psutil.cpu_times()._asdict()
    total_s = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
    return total_s - times["idle"] - times.get("iowait", 0.0), total_s
