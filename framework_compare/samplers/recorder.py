"""Samples of a run, taken at a steady rate by a thread of the parent."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from array import array
from contextlib import ExitStack, contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from framework_compare.errors import UsageError
from framework_compare.records import Energy, Sample
from framework_compare.samplers.energy import (
    COUNTER,
    GPU,
    EnergyRecorder,
    GpuMeter,
    Meter,
    find_packages,
    integrate_power,
)
from framework_compare.samplers.machine_load import MachineSampler
from framework_compare.samplers.nvml import GpuReading, NvmlSampler, gpu_index
from framework_compare.samplers.process import ProcessTreeSampler, TreeReading

MAX_HZ = 100.0  # kernel ticks are 10 ms: a faster reading of CPU time says nothing
MAX_SAMPLES = 72_000  # two hours at 10 Hz, 9 MB

Reading = Optional[Union[int, float]]
NO_GPU = GpuReading()
NOTED = ("phase", "epoch")


class Recorder:
    """Samples of process `pid` with its descendants, and of the machine, `hz` times a second while in context.

    `device` "cpu" reads no GPU, "gpu:1" or "cuda:1" reads that one too; `gpu` is its sampler where it was opened
    before the process. Energy is read at its start and end and at each `note`. `hz=0` reads nothing. Ends by itself
    when the process does. Readings missed while the machine is busy are skipped, not made up for. After 72,000
    samples every two become one and the rate halves. Raises UsageError for a rate outside 0 to 100.
    """

    def __init__(self, pid: int, *, device: str = "cpu", hz: float = 10.0, gpu: Optional[NvmlSampler] = None) -> None:
        if not 0 <= hz <= MAX_HZ:
            raise UsageError(f"sampling rate {hz!r} Hz: allowed is 0 (off) to {MAX_HZ:g}")
        self._pid, self._hz, self._gpu_index, self._gpu = pid, hz, gpu_index(device), gpu
        self._tree = ProcessTreeSampler(pid)
        self._log = SampleLog()
        self._lock = threading.Lock()
        # A bare lock, held until the end: waiting for it with a time limit costs half of what an Event does.
        self._going = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._cpu_s = 0.0
        self._peak_rss_bytes: Optional[int] = None
        self._energy: Optional[EnergyRecorder] = None
        self._gauges: Dict[str, Any] = {}
        self._warnings: Tuple[str, ...] = ()

    def __enter__(self) -> "Recorder":
        if self._hz:
            self._going.acquire()
            self._thread = threading.Thread(target=self._record, name=f"sampler-{self._pid}", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._thread:
            self._going.release()
            self._thread.join()
        self._tree.close()

    def samples(self) -> Tuple[Sample, ...]:
        """All samples so far, oldest first."""
        with self._lock:
            return tuple(self._log[number] for number in range(len(self._log)))

    def note(self, event: Mapping[str, Any]) -> None:
        """Have the energy read soon if the worker's event ends something that is measured. Returns at once."""
        if self._energy and event["event"] in NOTED:
            self._energy.note(event["event"])

    def energy(self) -> Tuple[Energy, ...]:
        """Readings of counters, oldest first; of a GPU that has none, the integral of its power at the same times."""
        if not self._energy:
            return ()
        found = list(self._energy.readings)
        if not any(reading.device == GPU for reading in found):
            found += integrate_power(self.samples(), self._energy.times_ns)
        return tuple(sorted(found, key=lambda reading: reading.t_ns))

    def gauges(self) -> Dict[str, Any]:
        """How the readings were had, once they have ended; {} where none were."""
        source = next((reading.source for reading in self.energy() if reading.device == GPU), None)
        gpu = self._gauges.get("gpu")
        return {**self._gauges, "gpu": {**gpu, "energy_source": source}} if gpu else self._gauges

    def warnings(self) -> Tuple[str, ...]:
        """What may have disturbed the run, once it has ended: others on its GPU."""
        return self._warnings

    def latest(self) -> Optional[Sample]:
        """The newest sample, or None when there is none yet."""
        with self._lock:
            return self._log[len(self._log) - 1] if len(self._log) else None

    def pss_bytes(self) -> Optional[int]:
        """Memory of the tree now, shared pages divided among their users; None where it cannot be read."""
        return self._tree.pss_bytes()

    @property
    def peak_rss_bytes(self) -> Optional[int]:
        """Largest RSS of the whole tree in any sample; None without samples."""
        return self._peak_rss_bytes

    @property
    def running(self) -> bool:
        """Whether samples are being taken: False once the process has ended."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def cpu_s(self) -> float:
        """CPU seconds that taking the samples has cost so far, to be held against the run's."""
        return self._cpu_s

    def _record(self) -> None:
        with ExitStack() as stack:
            machine = stack.enter_context(MachineSampler())
            # Starting NVML can take a second, which must not hold up the parent.
            gpu = self._gpu
            if gpu is None and self._gpu_index is not None:
                gpu = stack.enter_context(NvmlSampler(self._gpu_index))
            self._meter(gpu, stack)
            start_ns, period_ns = time.monotonic_ns(), round(1e9 / self._hz)
            while reading := self._tree.read():
                if self._append(reading, machine, gpu):
                    period_ns *= 2
                self._cpu_s = time.thread_time()
                now_ns = time.monotonic_ns()
                if self._going.acquire(timeout=(next_tick_ns(start_ns, now_ns, period_ns) - now_ns) / 1e9):
                    break

    def _meter(self, gpu: Optional[NvmlSampler], stack: ExitStack) -> None:
        """Start the readings of energy where there is anything to read, and have all facts told at the end."""
        packages, reason = find_packages()
        self._gauges["host_energy"] = {"source": COUNTER if packages else None, "reason": reason}
        meters: List[Meter] = [*packages]
        if gpu:
            stack.callback(self._ask_facts, gpu)
            meters.append(GpuMeter(gpu.energy_j))
        if packages or (gpu and gpu.reason is None):
            self._energy = stack.enter_context(EnergyRecorder(meters))

    def _ask_facts(self, gpu: NvmlSampler) -> None:
        self._gauges["gpu"], self._warnings = gpu.facts(), tuple(gpu.warnings())

    def _append(self, tree: TreeReading, machine: MachineSampler, gpu: Optional[NvmlSampler]) -> bool:
        """Add a sample; True if the log was full and is now half as dense."""
        readings = (*tree[1:], *machine.read(), *(gpu.read(self._tree.pids()) if gpu else NO_GPU))
        self._peak_rss_bytes = max(self._peak_rss_bytes or 0, tree.rss_bytes)
        with self._lock:
            self._log.append(tree.t_ns, *readings)
            if len(self._log) < MAX_SAMPLES:
                return False
            self._log.thin()
            return True


@contextmanager
def open_gpu(device: str, hz: float) -> Iterator[Optional[NvmlSampler]]:
    """The sampler of a GPU with its baseline read, for a Recorder of a process that is not there yet; None without."""
    index = gpu_index(device)
    if index is None or not hz:
        yield None
        return
    with NvmlSampler(index) as gpu:
        gpu.note_baseline()
        yield gpu


class SampleLog:
    """Samples in columns, 112 bytes each instead of 600 as objects."""

    _whole = ("rss_bytes", "threads", "processes", "gpu_memory_bytes", "gpu_process_memory_bytes", "gpu_throttle")
    _since_before = ("cpu_percent", "machine_cpu_percent")

    def __init__(self) -> None:
        names = [field.name for field in dataclasses.fields(Sample)][1:]
        self._t_ns = array("q")
        self._columns: Dict[str, "array[float]"] = {name: array("d") for name in names}

    def __len__(self) -> int:
        return len(self._t_ns)

    def __getitem__(self, number: int) -> Sample:
        values = {name: self._value(name, column[number]) for name, column in self._columns.items()}
        return Sample(self._t_ns[number], **values)

    def append(self, t_ns: int, *readings: Reading) -> None:
        """Add one row; readings in the order of Sample's fields."""
        self._t_ns.append(t_ns)
        for column, reading in zip(self._columns.values(), readings):
            column.append(math.nan if reading is None else reading)

    def thin(self) -> None:
        """Make one row of every two: the later one, with the mean of what covers the time since the row before."""
        for name in self._since_before:
            column = self._columns[name]
            column[1::2] = array("d", ((a + b) / 2 for a, b in zip(column[::2], column[1::2])))
        every_other = slice(0, len(self) // 2 * 2, 2)
        del self._t_ns[every_other]
        for column in self._columns.values():
            del column[every_other]

    def _value(self, name: str, reading: float) -> Any:
        if math.isnan(reading):
            return None
        return int(reading) if name in self._whole else reading


def next_tick_ns(start_ns: int, now_ns: int, period_ns: int) -> int:
    """The next point of the grid from `start_ns`, but for one less than half a period away.

    CPU time comes in ticks of 10 ms: over a stretch much shorter than the period a share of it means little.
    """
    return start_ns + ((now_ns - start_ns + period_ns // 2) // period_ns + 1) * period_ns
