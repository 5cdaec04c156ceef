"""Every published figure: one literal table that feeds all renderers, and how each is had from the runs of a cell.

Figures of epochs come from runs that are `ok` only; the others from those, or from all runs where none is.
A figure that cannot be had is None.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from framework_compare.bootstrap import mean_interval
from framework_compare.records import Energy, Epoch, Phase, Run, Sample

Columns = Mapping[str, Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Measured:
    """What one run left: its fields, and phases, epochs, samples, energy as columns by field name of `records`."""

    run: Mapping[str, Any]
    phases: Columns
    epochs: Columns
    samples: Columns
    energy: Columns

    @classmethod
    def of(cls, run: Run) -> "Measured":
        fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(Run)}
        lists = ((Phase, run.phases), (Epoch, run.epochs), (Sample, run.samples), (Energy, run.energy))
        return cls(fields, *(_columns(kind, items) for kind, items in lists))


def _columns(kind: Any, items: Sequence[Any]) -> Columns:
    return {field.name: [getattr(item, field.name) for item in items] for field in dataclasses.fields(kind)}


def _floats(values: Sequence[Any]) -> np.ndarray:
    return np.asarray(values, dtype=float)


def _seconds(spans: Columns) -> np.ndarray:
    # Subtracted as integers: a clock of many days in nanoseconds does not fit a float.
    return (np.asarray(spans["end_ns"], dtype=np.int64) - np.asarray(spans["start_ns"], dtype=np.int64)) / 1e9


class Pool:
    """The runs of one cell, as the figures read them. Arrays hold no missing values."""

    def __init__(self, runs: Sequence[Measured]) -> None:
        self.ok = [run for run in runs if run.run["status"] == "ok" and len(run.epochs["number"])]
        self.seen = self.ok or list(runs)

    def seconds(self) -> List[np.ndarray]:
        """Epoch seconds, an array a run."""
        return [_seconds(run.epochs) for run in self.ok]

    def all_seconds(self) -> np.ndarray:
        return np.concatenate([np.empty(0), *self.seconds()])

    def epochs(self, name: str) -> np.ndarray:
        return _present([_floats(run.epochs[name]) for run in self.ok])

    def phase(self, name: str) -> np.ndarray:
        """Seconds of a phase, one a run that had it."""
        return _present([_seconds(run.phases)[np.asarray(run.phases["name"]) == name] for run in self.seen])

    def phase_values(self, name: str) -> np.ndarray:
        return _present([_floats(run.phases[name]) for run in self.seen])

    def field(self, name: str) -> np.ndarray:
        return _present([_floats([run.run[name]]) for run in self.seen])

    def samples(self, name: str) -> np.ndarray:
        """Readings of whole runs."""
        return _present([_floats(run.samples[name]) for run in self.seen])

    def measured(self, name: str) -> Tuple[np.ndarray, np.ndarray]:
        """Readings within measured epochs, and the seconds each stands for: since the reading before it."""
        weights = [_epoch_weights(run) for run in self.seen]
        values = [_floats(run.samples[name]) for run in self.seen]
        value, weight = np.concatenate([np.empty(0), *values]), np.concatenate([np.empty(0), *weights])
        kept = ~np.isnan(value) & (weight > 0)
        return value[kept], weight[kept]

    @functools.cached_property
    def interval(self) -> Tuple[Optional[float], Optional[float]]:
        return mean_interval(self.seconds())


def _present(arrays: Sequence[np.ndarray]) -> np.ndarray:
    values = np.concatenate([np.empty(0), *arrays])
    return values[~np.isnan(values)]


def _epoch_weights(run: Measured) -> np.ndarray:
    times = np.asarray(run.samples["t_ns"], dtype=np.int64)
    starts, ends = (np.asarray(run.epochs[name], dtype=np.int64) for name in ("start_ns", "end_ns"))
    if not len(starts) or not len(times):
        return np.zeros(len(times))
    # A reading at the very end of an epoch is of that epoch, not of one that starts there.
    epoch = np.maximum(np.searchsorted(starts, times, side="left") - 1, 0)
    since = np.maximum(np.concatenate([starts[:1], times[:-1]]), starts[epoch])
    # One at the very start stands for hardly anything, but it may be the only one.
    seconds = np.maximum(times - since, 1) / 1e9
    return np.where((starts[epoch] <= times) & (times <= ends[epoch]), seconds, 0.0)


def _mean(values: np.ndarray) -> Optional[float]:
    return float(values.mean()) if len(values) else None


def _median(values: np.ndarray) -> Optional[float]:
    return float(np.median(values)) if len(values) else None


def _max(values: np.ndarray) -> Optional[float]:
    return float(values.max()) if len(values) else None


def _min(values: np.ndarray) -> Optional[float]:
    return float(values.min()) if len(values) else None


def _ratio(part: float, whole: float) -> Optional[float]:
    return float(part / whole) if whole > 0 else None


def _weighted(readings: Tuple[np.ndarray, np.ndarray]) -> Optional[float]:
    values, weights = readings
    return float(np.average(values, weights=weights)) if len(values) else None


def _loss(pool: Pool, place: int) -> Optional[float]:
    return _mean(_present([_floats(run.epochs["loss"])[[place]] for run in pool.ok]))


@dataclasses.dataclass(frozen=True)
class Metric:
    """One figure: what to call it, the unit it is shown in, which way is better ("", "lower", "higher")."""

    label: str
    unit: str
    better: str
    of: Callable[[Pool], Optional[float]]
    scale: float = 1.0  # from the stored SI value to `unit`
    whole: bool = False  # a count

    def show(self, value: Optional[float]) -> str:
        """The stored value in `unit`, three significant digits or all whole ones; "-" for a missing one."""
        if value is None or math.isnan(value):
            return "-"
        return f"{value * self.scale:.0f}" if self.whole else digits(value * self.scale)


def digits(value: float) -> str:
    """At least three significant digits, never an exponent."""
    return f"{value:.{decimals(value)}f}"


def decimals(value: float) -> int:
    """Decimals that give a number three significant digits, 0 to 6."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(max(2 - math.floor(math.log10(abs(value))), 0), 6)


_GIB = 1 / 2**30
METRICS: Dict[str, Metric] = {
    "epoch_s": Metric("epoch time", "s", "lower", lambda p: _mean(p.all_seconds())),
    "epoch_s_median": Metric("median epoch time", "s", "lower", lambda p: _median(p.all_seconds())),
    "epoch_s_ci_low": Metric("epoch time, 95 % from", "s", "lower", lambda p: p.interval[0]),
    "epoch_s_ci_high": Metric("epoch time, 95 % to", "s", "lower", lambda p: p.interval[1]),
    "images_per_s": Metric(
        "images/s", "1/s", "higher", lambda p: _ratio(p.epochs("images").sum(), p.all_seconds().sum())
    ),
    "step_s_median": Metric("median step", "ms", "lower", lambda p: _median(p.epochs("step_s_median")), 1e3),
    "data_wait_share": Metric(
        "data wait", "%", "lower", lambda p: _ratio(p.epochs("data_wait_s").sum(), p.all_seconds().sum()), 100
    ),
    "peak_rss_bytes": Metric(
        "peak RSS", "GiB", "lower", lambda p: _max(np.append(p.field("peak_rss_bytes"), p.samples("rss_bytes"))), _GIB
    ),
    "pss_peak_bytes": Metric("peak PSS", "GiB", "lower", lambda p: _max(p.phase_values("pss_bytes")), _GIB),
    "cpu_percent_mean": Metric("mean CPU", "% of a core", "", lambda p: _weighted(p.measured("cpu_percent"))),
    "cpu_percent_max": Metric("max CPU", "% of a core", "", lambda p: _max(p.measured("cpu_percent")[0])),
    "machine_cpu_percent_mean": Metric("machine CPU", "%", "", lambda p: _weighted(p.measured("machine_cpu_percent"))),
    "threads_min": Metric("fewest threads", "", "", lambda p: _min(p.measured("threads")[0]), whole=True),
    "threads_max": Metric("most threads", "", "", lambda p: _max(p.measured("threads")[0]), whole=True),
    "gpu_percent_mean": Metric("mean GPU", "%", "", lambda p: _weighted(p.measured("gpu_percent"))),
    "gpu_memory_peak_bytes": Metric(
        "peak GPU memory", "GiB", "lower", lambda p: _max(p.samples("gpu_memory_bytes")), _GIB
    ),
    "gpu_power_w_mean": Metric("mean GPU power", "W", "lower", lambda p: _weighted(p.measured("gpu_power_w"))),
    "parameters": Metric("parameters", "", "", lambda p: _max(p.field("parameters")), whole=True),
    "loss_first": Metric("loss of the first epoch", "", "", lambda p: _loss(p, 0)),
    "loss_last": Metric("loss of the last epoch", "", "lower", lambda p: _loss(p, -1)),
    "import_s": Metric("import", "s", "lower", lambda p: _mean(p.phase("import"))),
    "build_s": Metric("build", "s", "lower", lambda p: _mean(p.phase("build"))),
    "first_step_s": Metric("first step", "s", "lower", lambda p: _mean(p.phase("first-step"))),
    "warm_up_s": Metric("warm-up", "s", "lower", lambda p: _mean(p.phase("warm-up"))),
    "wall_s": Metric("wall time of a run", "s", "lower", lambda p: _mean(p.field("wall_s"))),
}


def figures(runs: Sequence[Measured]) -> Dict[str, Optional[float]]:
    """Every figure of METRICS over the runs of one cell, in SI units; shares are 0 to 1."""
    pool = Pool(runs)
    return {name: metric.of(pool) for name, metric in METRICS.items()}


def of_run(run: Run) -> Dict[str, Optional[float]]:
    """Every figure of METRICS of one run."""
    return figures([Measured.of(run)])


@functools.lru_cache(maxsize=1)
def version() -> str:
    """Checksum of how the figures are computed: those kept under another one are computed again."""
    sources = [Path(__file__), Path(__file__).with_name("bootstrap.py")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
