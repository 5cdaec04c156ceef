"""How busy the whole machine is, other people's processes included."""

from __future__ import annotations

import os
from typing import List, Optional, Tuple

from framework_compare.samplers.sampler import Column, Reading, Readings, Sampler, Watched


class MachineSampler(Sampler):
    """Percent of all cores since the reading before, percent of memory not available now; in a container, the host's."""

    columns = {"machine_cpu_percent": Column(since_before=True), "machine_ram_percent": Column()}

    def __init__(self, watched: Optional[Watched] = None) -> None:
        self._before: Optional[Tuple[int, int]] = None
        # Kept open: opening them at each reading would cost more than reading the process tree.
        self._files: List[int] = [os.open(f"/proc/{name}", os.O_RDONLY) for name in ("stat", "meminfo")]

    def __enter__(self) -> "MachineSampler":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())

    def read(self) -> Readings:
        stat, meminfo = (os.pread(file, 256, 0) for file in self._files)
        return {"machine_cpu_percent": self._cpu_percent(stat), "machine_ram_percent": parse_meminfo(meminfo)}

    def _cpu_percent(self, stat: bytes) -> Reading:
        now = parse_stat(stat)
        before, self._before = self._before, now
        if before is None or now[1] <= before[1]:
            return None
        # Idle time can step back by a tick (proc_stat(5)), which would read below 0 or above 100.
        return min(100.0, max(0.0, 100.0 * (now[0] - before[0]) / (now[1] - before[1])))


def parse_stat(text: bytes) -> Tuple[int, int]:
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
