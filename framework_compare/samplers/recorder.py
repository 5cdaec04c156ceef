"""Samples of a run, taken at a steady rate by a thread of the parent."""

import contextlib
import math
import threading
import time
from array import array
from contextlib import ExitStack, contextmanager
from typing import Iterator, Sequence

from framework_compare.errors import UsageError
from framework_compare.json_types import Document, Fields
from framework_compare.samplers import energy as metering
from framework_compare.samplers.disturbance import (
    SLOW_EVERY_NS,
    CoreCounter,
    Cores,
    Counters,
    DisturbanceLog,
    Shares,
    SlowCounters,
)
from framework_compare.samplers.nvml import GPU, GpuGroup, NvmlSampler, gpu_indices
from framework_compare.samplers.process import ProcessTreeSampler
from framework_compare.samplers.samplers import COLUMNS, SAMPLERS, Readings, Sample, Sampler, Watched

LEAST_HZ, MAX_HZ = 0.01, 100.0  # kernel ticks are 10 ms: a faster reading of CPU time says nothing
MAX_SAMPLES = 72_000  # two hours at 10 Hz, 11 MB
LEAST_GAP_NS = 50_000_000  # between a reading and one at the edge of an epoch: epochs may be shorter than a tick


def check_hz(hz: object) -> None:
    """UsageError for what is no rate of reading."""
    number = isinstance(hz, (int, float)) and not isinstance(hz, bool)
    if not number or not (hz == 0 or LEAST_HZ <= hz <= MAX_HZ):  # type: ignore[operator]
        raise UsageError(f"sampling_hz is {hz!r}; allowed: 0 (off), or {LEAST_HZ:g} to {MAX_HZ:g}")


class Recorder:
    """Log what SAMPLERS read of process `pid`, its descendants and the machine, `hz` times a second while in context.

    `others` are the other ranks of a cell that several processes train; `gpu`, from `open_gpu`, reads what they train
    on. Energy is read at its start and end and at each `note`. `hz=0` reads nothing. Reading ends when the process
    does. Readings missed while the machine is busy are skipped. After MAX_SAMPLES every two become one and the rate
    halves.
    """

    def __init__(self, pid: int, *others: int, hz: float, gpu: GpuGroup | None = None) -> None:
        self._pid, self._hz, self._gpu = pid, hz, gpu
        self._tree = ProcessTreeSampler(pid, *others)
        self._log = SampleLog()
        self._lock = threading.Lock()
        # A bare lock, let go to wake the thread: waiting for it with a time limit costs half of what an Event does.
        self._going = threading.Lock()
        self._ended = self._held = False
        self._disturbance = DisturbanceLog(MAX_SAMPLES)
        self._thread: threading.Thread | None = None
        self.peak_rss_bytes: int | None = None  # of the whole tree, the most in any sample
        self._energy: metering.EnergyRecorder | None = None
        self._gauges: Fields = {}
        self._warnings: tuple[str, ...] = ()

    def __enter__(self) -> "Recorder":
        if self._hz:
            self._going.acquire()
            self._thread = threading.Thread(target=self._record_or_tell, name=f"sampler-{self._pid}", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._thread:
            self._ended = True
            self._wake()
            self._thread.join()
        self._tree.close()

    def samples(self) -> tuple[Sample, ...]:
        """All samples so far, oldest first."""
        with self._lock:
            return tuple(self._log[number] for number in range(len(self._log)))

    def note(self, event: Document) -> None:
        """Have energy and counters read soon if the worker's event ends something that is measured. Returns at once."""
        if event["event"] not in ("phase", "epoch"):
            return
        if self._energy:
            self._energy.note(event["event"])
        if self._thread and (event["event"] == "epoch" or event.get("name") == "epochs"):
            self._wake()

    def go_on(self) -> None:
        self.hold(False)

    def hold(self, held: bool = True) -> None:
        """Read nothing until `go_on`: the worker waits while rivals have their turns. Returns at once."""
        self._held = held
        if self._energy:
            self._energy.note("phase")
        if self._thread:
            self._wake()

    def _wake(self) -> None:
        if self._going.locked():  # only the thread takes it, so nobody else lets it go meanwhile
            self._going.release()

    def shares(self, epoch: tuple[int, int], within: tuple[int, int]) -> Shares | None:
        """Return what a span of time lost to others, once the run has ended; see `DisturbanceLog.shares`."""
        return self._disturbance.shares(epoch, within)

    def energy(self) -> tuple[metering.Energy, ...]:
        """Readings of counters, oldest first; of a GPU that has none, the integral of its power at the same times."""
        if not self._energy:
            return ()
        found = list(self._energy.readings)
        if not any(reading.device.startswith(GPU) for reading in found):
            found += metering.integrate_power(self.samples(), self._energy.times_ns)
        return tuple(sorted(found, key=lambda reading: reading.t_ns))

    def gauges(self) -> Fields:
        """The sources of the readings, once they have ended; {} without readings."""
        source = next((reading.source for reading in self.energy() if reading.device.startswith(GPU)), None)
        gpu = self._gauges.get("gpu")
        return {**self._gauges, "gpu": {**gpu, "energy_source": source}} if gpu else self._gauges

    def warnings(self) -> tuple[str, ...]:
        """Return what may have disturbed an ended run: others on its GPU, and readings that could not be had."""
        fault = self._energy.fault if self._energy else ""
        return (*self._warnings, fault) if fault else self._warnings

    def _record_or_tell(self) -> None:
        try:
            self._record()
        except Exception as error:  # the boundary of a thread: the run goes on, without readings
            self._warnings += (f"readings ended before the run did: {type(error).__name__}: {error}",)

    def _record(self) -> None:
        with ExitStack() as stack:
            self._meter(stack)
            watched, cores, slow = Watched(self._tree, self._gpu), None, SlowCounters()
            with contextlib.suppress(OSError):
                cores = stack.enter_context(contextlib.closing(CoreCounter()))
            samplers = [stack.enter_context(contextlib.closing(sampler(watched))) for sampler in SAMPLERS]
            start_ns, period_ns = time.monotonic_ns(), round(1e9 / self._hz)
            while self._read(watched, cores):
                if self._append(watched.reading.t_ns, samplers):  # type: ignore[union-attr]
                    period_ns *= 2
                now_ns = time.monotonic_ns()
                if now_ns - self._disturbance.last_ns(slow=True) >= SLOW_EVERY_NS:
                    self._disturbance.add_slow(now_ns, *slow.read())
                due_ns = next_tick_ns(start_ns, now_ns, period_ns)
                while self._going.acquire(timeout=max(0, due_ns - time.monotonic_ns()) / 1e9):
                    if self._held:
                        self._sit_out(watched, cores, samplers, due_ns - period_ns // 2)
                        start_ns = time.monotonic_ns()
                        due_ns = start_ns + period_ns
                    if self._ended:
                        return
                    self._count_at_edge(cores, slow)

    def _read(self, watched: Watched, cores: CoreCounter | None) -> bool:
        """Read the process tree and the cores; False once the process has ended."""
        reading = watched.reading = self._tree.read()
        if reading is None:
            return False
        watched.cores, watched.counters = self._count(cores, reading.spent_ns)
        self.peak_rss_bytes = max(self.peak_rss_bytes or 0, reading.rss_bytes)
        return True

    def _sit_out(self, watched: Watched, cores: CoreCounter | None, samplers: Sequence[Sampler], since_ns: int) -> None:
        """Wait for the worker's next turn: a last sample of this one, and what comes next counts from its start."""
        if time.monotonic_ns() >= since_ns and self._read(watched, cores):
            self._append(watched.reading.t_ns, samplers)  # type: ignore[union-attr]
        while self._held and not self._ended:
            self._going.acquire()
        if self._read(watched, cores):
            _readings(samplers)

    def _count(self, cores: CoreCounter | None, worker_ns: int) -> tuple[Cores | None, Counters | None]:
        """Read the cores, and log that for disturbances; None where they cannot be read."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            if cores:
                found = cores.counters(worker_ns)
                self._disturbance.add(found[1])
                return found
        return None, None

    def _count_at_edge(self, cores: CoreCounter | None, slow: SlowCounters) -> None:
        """Log the cores, and what changes slowly, as an epoch begins or ends."""
        now_ns = time.monotonic_ns()
        if now_ns - self._disturbance.last_ns() >= LEAST_GAP_NS:
            worker_ns = self._tree.spent_ns()
            if worker_ns is not None:  # what a worker that has ended used last would count as others'
                self._count(cores, worker_ns)
            self._disturbance.add_slow(now_ns, *slow.read())

    def _meter(self, stack: ExitStack) -> None:
        """Start the readings of energy where there is anything to read; all facts are reported at the end."""
        gpu, (packages, reason) = self._gpu, metering.find_packages()
        self._gauges["host_energy"] = {"source": metering.COUNTER if packages else None, "reason": reason}
        meters: list[metering.Meter] = [*packages]
        if gpu:
            stack.callback(self._ask_facts, gpu)
            meters += gpu.meters()
        if idle := metering.idle_w(meters):
            self._gauges["idle_w"] = idle
        if packages or (gpu and gpu.reason is None):
            self._energy = stack.enter_context(metering.EnergyRecorder(meters))

    def _ask_facts(self, gpu: GpuGroup) -> None:
        self._gauges["gpu"] = gpu.facts()
        self._warnings += tuple(gpu.warnings())

    def _append(self, t_ns: int, samplers: Sequence[Sampler]) -> bool:
        """Add a sample; True if the log was full and is now half as dense."""
        readings = _readings(samplers)
        with self._lock:
            self._log.append(t_ns, readings)
            full = len(self._log) >= MAX_SAMPLES
            if full:
                self._log.thin()
        return full


def _readings(samplers: Sequence[Sampler]) -> Fields:
    found: Fields = {}
    for sampler in samplers:
        with contextlib.suppress(OSError, ValueError):
            found.update(sampler.read())
    return found


@contextmanager
def open_gpu(device: str, hz: float) -> Iterator[GpuGroup | None]:
    """The sampler of GPUs for a Recorder of a process that is not there yet; None without GPUs.

    Their baselines are read; so is the idle power of GPUs and host, which takes seconds the first time.
    """
    indices, packages = gpu_indices(device), metering.find_packages()[0] if hz else []
    if not indices or not hz:
        metering.note_idle(packages)
        yield None
        return
    with contextlib.closing(GpuGroup({index: NvmlSampler(index) for index in indices})) as gpu:
        gpu.note_baseline()
        metering.note_idle([*packages, *gpu.meters()])
        yield gpu


class SampleLog:
    """Samples in columns, 8 bytes a value instead of 50 as objects."""

    def __init__(self) -> None:
        self._t_ns = array("q")
        self._columns: dict[str, "array[float]"] = {name: array("d") for name in COLUMNS}

    def __len__(self) -> int:
        return len(self._t_ns)

    def __getitem__(self, number: int) -> Sample:
        values = {name: self._value(name, column[number]) for name, column in self._columns.items()}
        return Sample(self._t_ns[number], **values)

    def append(self, t_ns: int, readings: Readings) -> None:
        """Add one row, readings by column; what is not among them is missing."""
        self._t_ns.append(t_ns)
        for name, column in self._columns.items():
            reading = readings.get(name)
            column.append(math.nan if reading is None else reading)

    def thin(self) -> None:
        """Make one row of every two: the later one, with the mean of what covers the time since the row before."""
        for name, column in self._columns.items():
            if COLUMNS[name].since_before:
                column[1::2] = array("d", ((a + b) / 2 for a, b in zip(column[::2], column[1::2])))
        every_other = slice(0, len(self) // 2 * 2, 2)
        del self._t_ns[every_other]
        for column in self._columns.values():
            del column[every_other]

    def _value(self, name: str, reading: float) -> int | float | None:
        return None if math.isnan(reading) else int(reading) if COLUMNS[name].whole else reading


def next_tick_ns(start_ns: int, now_ns: int, period_ns: int) -> int:
    """Return the next point of the grid from `start_ns` that is at least half a period away."""
    # CPU time comes in ticks of 10 ms: over a stretch much shorter than the period a share of it means little
    return start_ns + ((now_ns - start_ns + period_ns // 2) // period_ns + 1) * period_ns
