"""How busy the whole machine is, other people's processes included."""

from __future__ import annotations

import os
from typing import Optional

from framework_compare.samplers.disturbance import Cores
from framework_compare.samplers.sampler import Column, Reading, Readings, Sampler, Watched


class MachineSampler(Sampler):
    """Percent of all cores since the reading before, percent of memory not available now; in a container, the host's."""

    columns = {"machine_cpu_percent": Column(since_before=True), "machine_ram_percent": Column()}

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._before: Optional[Cores] = None
        # Kept open: opening it at each reading would cost more than reading the process tree.
        self._meminfo = os.open("/proc/meminfo", os.O_RDONLY)

    def close(self) -> None:
        os.close(self._meminfo)

    def read(self) -> Readings:
        ram_percent = parse_meminfo(os.pread(self._meminfo, 256, 0))
        return {"machine_cpu_percent": self._cpu_percent(), "machine_ram_percent": ram_percent}

    def _cpu_percent(self) -> Reading:
        now, before = self._watched.cores, self._before
        self._before = now
        if now is None or before is None or now.total <= before.total:
            return None
        # Idle time can step back by a tick (proc_stat(5)), which would read below 0 or above 100.
        return min(100.0, max(0.0, 100.0 * (now.busy - before.busy) / (now.total - before.total)))


def parse_meminfo(text: bytes) -> Optional[float]:
    """Percent of memory not available, from /proc/meminfo's first lines: MemTotal, MemFree, MemAvailable (kB)."""
    fields = text.split(None, 8)
    if fields[6] != b"MemAvailable:":
        return None
    return 100.0 * (1 - int(fields[7]) / int(fields[1]))
