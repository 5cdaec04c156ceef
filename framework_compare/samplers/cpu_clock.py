"""How fast the cores run, where the kernel tells it; virtual machines mostly do not."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Optional

from framework_compare.samplers.sampler import Column, Readings, Sampler, Watched

CPUS = Path("/sys/devices/system/cpu")
# To read a core's frequency may interrupt it: few cores, seldom.
MOST_CORES = 8
EVERY_S = 1.0


class CpuClockSampler(Sampler):
    """Mean frequency of the cores that this process may use, at most MOST_CORES of them, once a second."""

    columns = {"cpu_mhz": Column()}

    def __init__(self, watched: Optional[Watched] = None, *, cpus: Path = CPUS) -> None:
        cores = sorted(os.sched_getaffinity(0))[:MOST_CORES]
        paths = [cpus / f"cpu{core}" / "cpufreq" / "scaling_cur_freq" for core in cores]
        self._paths = [path for path in paths if path.exists()]
        self._due = 0.0

    def read(self) -> Readings:
        now = time.monotonic()
        if not self._paths or now < self._due:
            return {}
        self._due = now + EVERY_S
        return {"cpu_mhz": sum(int(path.read_bytes()) for path in self._paths) / len(self._paths) / 1000}
