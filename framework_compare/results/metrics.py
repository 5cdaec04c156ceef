"""Every published figure: one literal table that feeds all renderers, and how each is computed from the runs of a cell.

Figures of epochs come from runs that are `ok` only; the others from those, or from all runs where none is.
A figure that cannot be had is None.
"""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from framework_compare.results import energy
from framework_compare.results.measured import SETTLING_NS, Measured, Pool, floats, present
from framework_compare.samplers.nvml import SLOWING, throttle_words


def _unless_empty(reduce: Callable[..., float]) -> Callable[[np.ndarray], float | None]:
    return lambda values: float(reduce(values)) if len(values) else None


_mean, _median = _unless_empty(np.mean), _unless_empty(np.median)
_max, _min = _unless_empty(np.max), _unless_empty(np.min)


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None


def _weighted(readings: tuple[np.ndarray, np.ndarray]) -> float | None:
    values, weights = readings
    return float(np.average(values, weights=weights)) if len(values) else None


def _p95_of_seconds(readings: tuple[np.ndarray, np.ndarray]) -> float | None:
    """The 95th percentile of means over about a second: single readings are off by a tick of the clock for each thread.

    A rest of less than half a second counts where there is nothing else.
    """
    values, seconds = readings
    if not len(values):
        return None
    second = np.floor(np.cumsum(seconds) - seconds / 2).astype(int)
    lengths = np.bincount(second, seconds)
    means = np.bincount(second, values * seconds)[lengths > 0] / lengths[lengths > 0]
    long = lengths[lengths > 0] >= 0.5
    return float(np.percentile(means[long] if long.any() else means, 95))


def _throttled(readings: tuple[np.ndarray, np.ndarray]) -> float | None:
    masks, weights = readings
    return _ratio(weights[(masks.astype(np.int64) & SLOWING) != 0].sum(), weights.sum())


def _all_bits(masks: np.ndarray) -> float | None:
    return float(np.bitwise_or.reduce(masks.astype(np.int64))) if len(masks) else None


def _power_w(pool: Pool) -> float | None:
    counted = energy.counted_power_w(pool.ok, "gpu")
    return _weighted(pool.measured("gpu_power_w", SETTLING_NS)) if counted is None else counted


def _energy(pool: Pool, end: str) -> float | None:
    interval = energy.whole_j_per_image(pool.ok)
    return None if interval is None else getattr(interval, end)


def _throughput(pool: Pool) -> float | None:
    """Images over seconds; of cells that took turns, or were sampled, those of a whole epoch over its time."""
    if pool.epoch_s is not None and (pool.sampled or pool.took_turns):
        return _ratio(pool.whole_images, pool.epoch_s.value)
    return _ratio(pool.epochs("images").sum(), pool.seconds().sum())


def _loss(pool: Pool, place: int) -> float | None:
    if pool.sampled:  # that of a part of an epoch says nothing of the whole
        return None
    return _mean(present([floats(run.epochs["loss"])[[place]] for run in pool.ok]))


@dataclasses.dataclass(frozen=True)
class Metric:
    """One figure: what to call it, the unit it is shown in, which way is better ("", "lower", "higher")."""

    label: str
    unit: str
    better: str
    of: Callable[[Pool], float | None]
    scale: float = 1.0  # from the stored SI value to `unit`
    whole: bool = False  # a count
    words: Callable[[int], str] | None = None  # what a mask means

    @property
    def si_unit(self) -> str:
        """The unit of the stored value: shares have none, memory is in bytes, time in seconds."""
        return self.unit if self.scale == 1 else {"GiB": "B", "ms": "s"}.get(self.unit, "")

    def show(self, value: float | None) -> str:
        """The stored value in `unit`, three significant digits or all whole ones; "-" for a missing one."""
        if value is None or math.isnan(value):
            return "-"
        if self.words:
            return self.words(int(value))
        return f"{value * self.scale:.0f}" if self.whole else digits(value * self.scale)


def digits(value: float) -> str:
    """At least three significant digits, never an exponent."""
    return f"{value:.{decimals(value)}f}"


def percent(share: float, places: int = 0) -> str:
    """A share as text, such as "5 %"."""
    return f"{100 * share:.{places}f} %"


def decimals(value: float) -> int:
    """Decimals that give a number three significant digits, 0 to 6."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(max(2 - math.floor(math.log10(abs(value))), 0), 6)


_GIB = 1 / 2**30
METRICS: dict[str, Metric] = {
    "epoch_s": Metric("mean epoch time", "s", "lower", lambda p: None if p.sampled else _mean(p.seconds())),
    "epoch_s_median": Metric("epoch time", "s", "lower", lambda p: p.median and p.median.value),
    "epoch_s_ci_low": Metric("epoch time, 95 % interval, low", "s", "lower", lambda p: p.median and p.median.low),
    "epoch_s_ci_high": Metric("epoch time, 95 % interval, high", "s", "lower", lambda p: p.median and p.median.high),
    "epoch_estimate_s": Metric("estimated epoch time", "s", "lower", lambda p: p.estimate and p.estimate.value),
    "epoch_estimate_s_low": Metric(
        "estimated epoch time, 95 % interval, low", "s", "lower", lambda p: p.estimate and p.estimate.low
    ),
    "epoch_estimate_s_high": Metric(
        "estimated epoch time, 95 % interval, high", "s", "lower", lambda p: p.estimate and p.estimate.high
    ),
    "interval_half_width": Metric("larger half-width", "%", "lower", lambda p: p.epoch_s and p.epoch_s.half_width, 100),
    "interval_runs": Metric("runs of the interval", "", "", lambda p: p.epoch_s and p.epoch_s.runs, whole=True),
    "images_per_s": Metric("throughput", "images/s", "higher", _throughput),
    "step_s_median": Metric("median step", "ms", "lower", lambda p: _median(p.epochs("step_s_median")), 1e3),
    "step_s_p95": Metric("95th percentile of steps", "ms", "lower", lambda p: _median(p.epochs("step_s_p95")), 1e3),
    "data_wait_share": Metric(
        "data wait", "%", "lower", lambda p: _ratio(p.epochs("data_wait_s").sum(), p.seconds().sum()), 100
    ),
    "peak_rss_bytes": Metric(
        "peak RSS",
        "GiB",
        "lower",
        lambda p: _max(np.append(p.field("peak_rss_bytes"), p.readings("samples", "rss_bytes"))),
        _GIB,
    ),
    "pss_peak_bytes": Metric(
        "peak memory (PSS)", "GiB", "lower", lambda p: _max(p.readings("phases", "pss_bytes")), _GIB
    ),
    "cpu_percent_mean": Metric("mean CPU", "% of a core", "", lambda p: _weighted(p.measured("cpu_percent"))),
    "cpu_percent_p95": Metric(
        "95th percentile of CPU", "% of a core", "", lambda p: _p95_of_seconds(p.measured("cpu_percent"))
    ),
    "cpu_percent_max": Metric("max CPU", "% of a core", "", lambda p: _max(p.measured("cpu_percent")[0])),
    "machine_cpu_percent_mean": Metric("machine CPU", "%", "", lambda p: _weighted(p.measured("machine_cpu_percent"))),
    "threads_min": Metric("fewest threads", "", "", lambda p: _min(p.measured("threads")[0]), whole=True),
    "threads_max": Metric("peak threads", "", "", lambda p: _max(p.measured("threads")[0]), whole=True),
    "gpu_percent_mean": Metric("mean GPU", "%", "", lambda p: _weighted(p.measured("gpu_percent", SETTLING_NS))),
    "gpu_memory_peak_bytes": Metric(
        "peak GPU memory", "GiB", "lower", lambda p: _max(p.readings("samples", "gpu_memory_bytes")), _GIB
    ),
    "gpu_process_memory_peak_bytes": Metric(
        "peak GPU memory of its own",
        "GiB",
        "lower",
        lambda p: _max(p.readings("samples", "gpu_process_memory_bytes")),
        _GIB,
    ),
    "gpu_power_w_mean": Metric("mean GPU power", "W", "lower", _power_w),
    "gpu_temperature_c_max": Metric(
        "max GPU temperature", "°C", "", lambda p: _max(p.measured("gpu_temperature_c")[0])
    ),
    "gpu_sm_clock_mhz_mean": Metric("mean SM clock", "MHz", "", lambda p: _weighted(p.measured("gpu_sm_clock_mhz"))),
    "gpu_throttled_share": Metric("GPU throttled", "%", "lower", lambda p: _throttled(p.measured("gpu_throttle")), 100),
    "gpu_throttle_reasons": Metric(
        "clocks limited by", "", "", lambda p: _all_bits(p.measured("gpu_throttle")[0]), words=throttle_words
    ),
    "gpu_j_per_image": Metric("GPU energy per image", "J", "lower", lambda p: energy.joules_per_image(p.ok, "gpu")),
    "gpu_above_idle_j_per_image": Metric(
        "GPU energy per image above idle", "J", "lower", lambda p: energy.above_idle(p.ok, "gpu")
    ),
    "gpu_idle_w": Metric("idle GPU power", "W", "", lambda p: energy.idle_power_w(p.ok, "gpu")),
    "host_j_per_image": Metric("host energy per image", "J", "lower", lambda p: energy.joules_per_image(p.ok, "host-")),
    "host_above_idle_j_per_image": Metric(
        "host energy per image above idle", "J", "lower", lambda p: energy.above_idle(p.ok, "host-")
    ),
    "host_idle_w": Metric("idle host power", "W", "", lambda p: energy.idle_power_w(p.ok, "host-")),
    "j_per_image": Metric("energy per image", "J", "lower", lambda p: _energy(p, "value")),
    "j_per_image_ci_low": Metric("energy per image, 95 % interval, low", "J", "lower", lambda p: _energy(p, "low")),
    "j_per_image_ci_high": Metric("energy per image, 95 % interval, high", "J", "lower", lambda p: _energy(p, "high")),
    "compute_share": Metric("computing on the device", "%", "", lambda p: p.epoch_share("compute_s"), 100),
    "copy_share": Metric("copying to the device", "%", "lower", lambda p: p.epoch_share("copy_s"), 100),
    "parameters": Metric("parameters", "", "", lambda p: _max(p.field("parameters")), whole=True),
    "loss_first": Metric("loss of the first epoch", "", "", lambda p: _loss(p, 0)),
    "loss_last": Metric("loss of the last epoch", "", "lower", lambda p: _loss(p, -1)),
    "startup_s": Metric("start-up", "s", "lower", lambda p: _mean(p.startup_s())),
    "import_s": Metric("import", "s", "lower", lambda p: _mean(p.phase("import"))),
    "build_s": Metric("build", "s", "lower", lambda p: _mean(p.phase("build"))),
    "first_step_s": Metric("first step", "s", "lower", lambda p: _mean(p.phase("first-step"))),
    "warm_up_s": Metric("warm-up", "s", "lower", lambda p: _mean(p.phase("warm-up"))),
    "wall_s": Metric("wall time of a run", "s", "lower", lambda p: _mean(p.field("wall_s"))),
}


SOURCES = ("metrics.py", "measured.py", "repeats.py", "intervals.py", "energy.py")


def figures(runs: Sequence[Measured]) -> dict[str, float | None]:
    """Every figure of METRICS over the runs of one cell, in SI units; shares are 0 to 1."""
    pool = Pool(runs)
    return {name: metric.of(pool) for name, metric in METRICS.items()}


@functools.lru_cache(maxsize=1)
def version() -> str:
    """Checksum of how the figures are computed: figures stored under another one are computed again."""
    sources = [Path(__file__).with_name(name) for name in SOURCES]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
