"""Energy by difference of counters: NVML's total of a GPU, RAPL's of the processor packages and their memory.

The GPU's counter takes milliseconds to read and is renewed every 20 to 100 ms: it is read at the ends of phases and
epochs, by a thread of its own, with the time of the reading.
"""

import dataclasses
import queue
import threading
import time
from pathlib import Path
from typing import Sequence, Union

import numpy as np

from framework_compare.samplers.nvml import GPU, GpuMeter
from framework_compare.samplers.samplers import Sample

COUNTER = "counter"
POWER_INTEGRAL = "power integral"
# RAPL counts to some 260 kJ and begins anew: ten minutes at 400 W.
EVERY_S = 60.0
# Between readings that only epochs ask for.
LEAST_GAP_NS = 500_000_000
POWERCAP = Path("/sys/class/powercap")
# Of the power before the first worker starts: a GPU's counter is renewed every 20 to 100 ms, so 3 % of it.
IDLE_S = 3.0

_PHASE, _EPOCH, _END = "phase", "epoch", "end"


@dataclasses.dataclass(frozen=True)
class Energy:
    """Joules that a device had taken at a moment, from an origin of its own: two readings make a figure, by difference."""

    device: str  # "gpu", "host-package-0"
    t_ns: int
    energy_j: float
    source: str  # "counter" or "power integral"


class RaplDomain:
    """A processor package, or its memory: all that uses it, other programs included. Joules since the first reading."""

    def __init__(self, folder: Path, device: str) -> None:
        self.device = device
        self._counter = folder / "energy_uj"
        self._range_uj = int((folder / "max_energy_range_uj").read_text())
        self._turns_uj = 0
        self._before_uj = self._first_uj = int(self._counter.read_text())

    def read(self) -> float | None:
        try:
            now_uj = int(self._counter.read_text())
        except (OSError, ValueError):
            return None
        if now_uj < self._before_uj:
            self._turns_uj += self._range_uj
        self._before_uj = now_uj
        return (now_uj + self._turns_uj - self._first_uj) / 1e6


Meter = Union[GpuMeter, RaplDomain]  # of which `read` gives None where it cannot be read now


def find_packages(root: Path = POWERCAP) -> tuple[list[RaplDomain], str | None]:
    """The packages and their memory as far as they can be read, or why there are none."""
    found: list[RaplDomain] = []
    for folder in sorted(root.glob("intel-rapl:*")):
        try:
            device = _device(folder)
            found += [RaplDomain(folder, device)] if device else []
        except PermissionError:
            return [], f"{folder}/energy_uj is readable by root only"
        except (OSError, ValueError) as error:
            return [], f"{folder} cannot be read: {error}"
    return found, None if found else f"there is no processor package in {root}"


def _device(folder: Path) -> str:
    """Return what a domain meters, "" if it is part of another: a package includes cores and graphics, not memory."""
    name, place = (folder / "name").read_text().strip(), folder.name.split(":")[1:]
    if len(place) == 1 and name.startswith("package"):
        return f"host-{name}"
    return f"host-dram-{place[0]}" if len(place) == 2 and name == "dram" else ""


_idle_w: dict[str, float] = {}  # by device, as it was before this process started its first worker


def note_idle(meters: Sequence[Meter]) -> None:
    """Read each meter over IDLE_S, once per device: its power while nothing of this comparison runs."""
    new = [meter for meter in meters if meter.device not in _idle_w]
    before = [(time.monotonic(), meter.read()) for meter in new]
    if any(energy_j is not None for _, energy_j in before):
        time.sleep(IDLE_S)
    for meter, (start_s, first_j) in zip(new, before):
        last_j = meter.read()
        if first_j is not None and last_j is not None:
            _idle_w[meter.device] = (last_j - first_j) / (time.monotonic() - start_s)


def idle_w(meters: Sequence[Meter]) -> dict[str, float]:
    """Watts by device, of those that `note_idle` has read."""
    return {meter.device: _idle_w[meter.device] for meter in meters if meter.device in _idle_w}


class EnergyRecorder:
    """Readings of `meters` at each `note`, in a thread of its own while in context; one at its start and end."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self.readings: list[Energy] = []
        self.times_ns: list[int] = []
        self.fault = ""
        self._meters = meters
        self._notes: "queue.SimpleQueue[str]" = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="energy", daemon=True)

    def __enter__(self) -> "EnergyRecorder":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._notes.put(_END)
        self._thread.join()

    def note(self, kind: str) -> None:
        """Have all meters read soon: a phase began or ended, or an epoch ended. Returns at once."""
        self._notes.put(kind)

    def _work(self) -> None:
        notes = {_PHASE}
        while True:
            if notes != {_EPOCH} or time.monotonic_ns() - self.times_ns[-1] > LEAST_GAP_NS:
                self._read()
            if _END in notes:
                return
            notes = self._wait()

    def _wait(self) -> set[str]:
        """All that has been noted since, at least one; a phase where nothing was for long."""
        notes: set[str] = set()
        try:
            notes.add(self._notes.get(timeout=EVERY_S))
            while True:
                notes.add(self._notes.get_nowait())
        except queue.Empty:
            return notes or {_PHASE}

    def _read(self) -> None:
        self.times_ns.append(time.monotonic_ns())
        for meter in self._meters:
            before_ns = time.monotonic_ns()
            try:
                energy_j = meter.read()
            except Exception as error:  # a reading less; the thread, and the run, go on
                self.fault = f"energy of {meter.device} could not be read: {type(error).__name__}: {error}"
                continue
            if energy_j is not None:
                at_ns = (before_ns + time.monotonic_ns()) // 2
                self.readings.append(Energy(meter.device, at_ns, energy_j, COUNTER))


def integrate_power(samples: Sequence[Sample], times_ns: Sequence[int]) -> list[Energy]:
    """Energy of a GPU without a counter at those times that samples span: its power, joined by straight lines."""
    known = [(sample.t_ns, sample.gpu_power_w) for sample in samples if sample.gpu_power_w is not None]
    if len(known) < 2:
        return []
    first_ns = known[0][0]
    at_s = np.array([t_ns - first_ns for t_ns, _ in known]) / 1e9
    power_w = np.array([power for _, power in known])
    energy_j = np.concatenate([[0.0], np.cumsum(np.diff(at_s) * (power_w[1:] + power_w[:-1]) / 2)])
    inside = [t_ns for t_ns in times_ns if 0 <= (t_ns - first_ns) / 1e9 <= at_s[-1]]
    found = np.interp([(t_ns - first_ns) / 1e9 for t_ns in inside], at_s, energy_j)
    return [Energy(GPU, t_ns, float(joules), POWER_INTEGRAL) for t_ns, joules in zip(inside, found)]
