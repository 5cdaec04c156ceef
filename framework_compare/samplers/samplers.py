"""The samplers of a run: each has columns of the samples, and reads them at each tick while a worker runs.

A class here that SAMPLERS lists adds one: Sample, the store's table and the recorder's log are made from it.
"""

import abc
import dataclasses
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Dict, Mapping, NamedTuple, Optional, Tuple, Type, Union

from framework_compare.samplers.disturbance import CPUS, Cores, Counters
from framework_compare.samplers.nvml import GpuGroup
from framework_compare.samplers.process import ProcessTreeSampler, TreeReading

Readings = Mapping[str, Optional[Union[int, float]]]  # by column
# To read a core's frequency may interrupt it: few cores, seldom.
MOST_CORES = 8
EVERY_S = 1.0


class Column(NamedTuple):
    """Storage format of a column's values."""

    whole: bool = False  # integers
    # A value stands for the time since the reading before, so two become their mean where every second row is left out;
    # of other columns the later value stays.
    since_before: bool = False


@dataclasses.dataclass
class Watched:
    """The worker that is sampled: its process tree and the cores, read anew at each tick, and its GPU if it has one."""

    tree: ProcessTreeSampler
    gpu: Optional[GpuGroup] = None
    reading: Optional[TreeReading] = None
    cores: Optional[Cores] = None  # None where /proc/stat cannot be read
    counters: Optional[Counters] = None


class Sampler(abc.ABC):
    """Reads the columns it names, at each tick, in the parent; one object per run. Listed in `samplers.SAMPLERS`.

    What `read` leaves out or gives as None is stored as missing, never as 0; so is all of a reading that raises OSError
    or ValueError.
    """

    columns: ClassVar[Mapping[str, Column]] = {}

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    @abc.abstractmethod
    def read(self) -> Readings:
        """Values by column, in the units that the columns' names end in."""

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """The run has ended."""


class WorkerSampler(Sampler):
    """cpu_percent counts one core as 100, summed over the worker and its descendants, since the reading before."""

    columns = {
        "cpu_percent": Column(since_before=True),
        "rss_bytes": Column(whole=True),
        "threads": Column(whole=True),
        "processes": Column(whole=True),
    }

    def read(self) -> Readings:
        reading = self._watched.reading
        return reading._asdict() if reading else {}


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
        readings = {"machine_ram_percent": parse_meminfo(os.pread(self._meminfo, 256, 0))}
        now, before = self._watched.cores, self._before
        self._before = now
        if now and before and now.total > before.total:
            percent = 100.0 * (now.busy - before.busy) / (now.total - before.total)
            # Idle time can step back by a tick (proc_stat(5)), which would read below 0 or above 100.
            readings["machine_cpu_percent"] = min(100.0, max(0.0, percent))
        return readings


def parse_meminfo(text: bytes) -> Optional[float]:
    """Percent of memory not available, from /proc/meminfo's first lines: MemTotal, MemFree, MemAvailable (kB)."""
    fields = text.split(None, 8)
    return 100.0 * (1 - int(fields[7]) / int(fields[1])) if fields[6] == b"MemAvailable:" else None


class OthersSampler(Sampler):
    """Percent of one core since the reading before: other programs, the hypervisor, and this process itself."""

    columns = {
        name: Column(since_before=True) for name in ("others_cpu_percent", "steal_percent", "parent_cpu_percent")
    }

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._before: Optional[Counters] = None

    def read(self) -> Readings:
        now, before = self._watched.counters, self._before
        self._before = now
        if not now or not before or now.t_ns <= before.t_ns:
            return {}
        gained = (now.others_ns - before.others_ns, now.stolen_ns - before.stolen_ns, now.parent_ns - before.parent_ns)
        # Ticks of 10 ms are counted at other moments than they pass: a share of little may come out below 0.
        return {name: 100.0 * max(0, ns) / (now.t_ns - before.t_ns) for name, ns in zip(self.columns, gained)}


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


class GpuSampler(Sampler):
    """A column for each field of GpuReading, in its order."""

    columns = {
        "gpu_percent": Column(),
        "gpu_memory_bytes": Column(whole=True),
        "gpu_power_w": Column(),
        "gpu_process_memory_bytes": Column(whole=True),
        "gpu_temperature_c": Column(),
        "gpu_sm_clock_mhz": Column(),
        "gpu_throttle": Column(whole=True),
    }

    def read(self) -> Readings:
        gpu = self._watched.gpu
        return dict(zip(self.columns, gpu.read(self._watched.tree.pids()))) if gpu else {}


SAMPLERS: Tuple[Type[Sampler], ...] = (WorkerSampler, MachineSampler, OthersSampler, CpuClockSampler, GpuSampler)

COLUMNS: Dict[str, Column] = {name: column for sampler in SAMPLERS for name, column in sampler.columns.items()}

if TYPE_CHECKING:

    class Sample:
        t_ns: int

        def __init__(self, t_ns: int, **readings: object) -> None: ...

        def __getattr__(self, column: str) -> Any: ...

else:
    Sample = dataclasses.make_dataclass(
        "Sample",
        [
            ("t_ns", "int"),
            *((name, f"Optional[{'int' if column.whole else 'float'}]", None) for name, column in COLUMNS.items()),
        ],
        frozen=True,
        namespace={
            "__doc__": "One reading of all SAMPLERS at CLOCK_MONOTONIC t_ns; what could not be read is None, never 0.",
            "__module__": __name__,
        },
    )
