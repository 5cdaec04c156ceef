"""The records of a cell's runs as arrays that figures are computed from; none of them holds a missing value."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from framework_compare.protocol import Document
from framework_compare.results.intervals import Interval, geometric_mean
from framework_compare.results.repeats import undisturbed

# NVML's power and utilisation are averages of up to a second before they are read.
SETTLING_NS = 1_000_000_000

Columns = Mapping[str, Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Measured:
    """The records of one run: its fields, and phases, epochs, samples, ... as columns by field name of `records`."""

    run: Document
    phases: Columns
    epochs: Columns
    samples: Columns
    energy: Columns
    slices: Columns


def floats(values: Sequence[object]) -> np.ndarray:
    return np.asarray(values, dtype=float)


def span_seconds(spans: Columns) -> np.ndarray:
    # Subtracted as integers: a clock of many days in nanoseconds does not fit a float.
    return (np.asarray(spans["end_ns"], dtype=np.int64) - np.asarray(spans["start_ns"], dtype=np.int64)) / 1e9


def epoch_seconds(epochs: Columns) -> np.ndarray:
    """Seconds of each epoch, without the time in which its worker waited for a turn."""
    return span_seconds(epochs) - np.nan_to_num(floats(epochs["waited_s"]))


def turn_seconds(epochs: Columns, slices: Columns) -> float | None:
    """Seconds of an epoch by the slices of a run whose rounds count, which hold unequal numbers of samples; None without."""
    counted = np.asarray([not void for void in slices["void"]], dtype=bool)
    if not counted.any() or not len(epochs["images"]):
        return None
    measured_s, samples = (floats(slices[name])[counted].sum() for name in ("measured_s", "samples"))
    return float(measured_s / samples * np.median(_whole_images(epochs)))


def epoch_spans(run: Measured) -> list[tuple[int, int]]:
    """Start and end of each part of an epoch in which its worker had the turn; whole epochs of a run without turns."""
    epochs, turns = (list(zip(spans["start_ns"], spans["end_ns"])) for spans in (run.epochs, run.slices))
    if not turns:
        return epochs
    parts = [(max(turn[0], epoch[0]), min(turn[1], epoch[1])) for turn in turns for epoch in epochs]
    return [(start, end) for start, end in parts if start < end]


class Pool:
    """The runs of one cell, as the figures read them. Arrays hold no missing values."""

    def __init__(self, runs: Sequence[Measured]) -> None:
        self.ok = [run for run in runs if run.run["status"] == "ok" and len(run.epochs["number"])]
        self.seen = self.ok or list(runs)
        self._weights: dict[int, np.ndarray] = {}
        marks = [floats(run.epochs["disturbed"]) for run in self.ok]
        timed = undisturbed(_joined(marks), np.zeros(sum(map(len, marks))))
        self._timed = np.split(timed, np.cumsum([*map(len, marks)])[:-1])

    def seconds(self) -> np.ndarray:
        """Epoch seconds of all runs; without disturbed epochs where there are others."""
        return _joined(self._of_timed(lambda run: epoch_seconds(run.epochs)))

    def epochs(self, name: str) -> np.ndarray:
        return present(self._of_timed(lambda run: floats(run.epochs[name])))

    def _of_timed(self, values: Callable[[Measured], np.ndarray]) -> list[np.ndarray]:
        return [values(run)[mask] for run, mask in zip(self.ok, self._timed)]

    def phase(self, name: str) -> np.ndarray:
        """Seconds of a phase, one value per run that reached it."""
        return present([span_seconds(run.phases)[np.asarray(run.phases["name"]) == name] for run in self.seen])

    def startup_s(self) -> np.ndarray:
        """Seconds from the start of the process to the first measured epoch, one value per run that reached one."""
        reached = [run for run in self.ok if len(run.phases["start_ns"])]
        return floats([(run.epochs["start_ns"][0] - min(run.phases["start_ns"])) / 1e9 for run in reached])

    def field(self, name: str) -> np.ndarray:
        return present([floats([run.run[name]]) for run in self.seen])

    def readings(self, table: str, name: str) -> np.ndarray:
        """A column of "samples" or "phases", of whole runs."""
        return present([floats(getattr(run, table)[name]) for run in self.seen])

    def measured(self, name: str, settling_ns: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Readings within measured epochs, and the seconds each stands for: since the reading before it.

        settling_ns: without the first of each run's epochs; none of epochs that last less than two of it.
        """
        value = _joined(floats(run.samples[name]) for run in self.seen)
        if settling_ns not in self._weights:
            self._weights[settling_ns] = _joined(_epoch_weights(run, settling_ns) for run in self.seen)
        weight = self._weights[settling_ns]
        kept = ~np.isnan(value) & (weight > 0)
        return value[kept], weight[kept]

    def epoch_share(self, name: str) -> float | None:
        """A part of the epochs' time, of those epochs that tell it."""
        parts = _joined(self._of_timed(lambda run: floats(run.epochs[name])))
        known = ~np.isnan(parts)
        whole = float(self.seconds()[known].sum())
        return float(parts[known].sum()) / whole if whole > 0 else None

    @functools.cached_property
    def sampled(self) -> bool:
        """Return whether any run measured only a part of an epoch."""
        return any(value is not None for run in self.ok for value in run.epochs["whole_images"])

    @functools.cached_property
    def took_turns(self) -> bool:
        """Return whether times are by slices of any run."""
        return any(turn_seconds(run.epochs, run.slices) is not None for run in self.ok)

    @property
    def whole_images(self) -> float:
        """Images of an epoch, also where only some of them were measured."""
        return float(np.median(_joined(self._of_timed(lambda run: _whole_images(run.epochs)))))

    @functools.cached_property
    def epoch_s(self) -> Interval | None:
        """Over runs, the geometric mean of each one's epoch seconds: by its turns, else the median of its epochs.

        Of a sample those of its estimate.
        """
        medians = []
        for run, mask in zip(self.ok, self._timed):
            estimates = floats(run.epochs["estimate_s"])
            seconds = np.where(np.isnan(estimates), epoch_seconds(run.epochs), estimates)[mask]
            if len(seconds):
                medians.append(turn_seconds(run.epochs, run.slices) or float(np.median(seconds)))
        return geometric_mean(medians) if medians and min(medians) > 0 else None

    @property
    def median(self) -> Interval | None:
        """`epoch_s` of whole epochs; None where it is an estimate, at least in part."""
        return None if self.sampled else self.epoch_s

    @property
    def estimate(self) -> Interval | None:
        """`epoch_s` of samples; None where all epochs are whole."""
        return self.epoch_s if self.sampled else None


def _whole_images(epochs: Columns) -> np.ndarray:
    whole, images = floats(epochs["whole_images"]), floats(epochs["images"])
    return np.where(np.isnan(whole), images, whole)


def _joined(arrays: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0), *arrays])


def present(arrays: Iterable[np.ndarray]) -> np.ndarray:
    values = _joined(arrays)
    return values[~np.isnan(values)]


def _epoch_weights(run: Measured, settling_ns: int) -> np.ndarray:
    times = np.asarray(run.samples["t_ns"], dtype=np.int64)
    starts, ends = (np.asarray(run.epochs[name], dtype=np.int64) for name in ("start_ns", "end_ns"))
    # Of epochs that do not last twice the settling there are none.
    if not len(times) or not len(starts) or ends[-1] - starts[0] < 2 * settling_ns:
        return np.zeros(len(times))
    begun = starts[0] + settling_ns
    starts, ends = np.maximum(starts[ends > begun], begun), ends[ends > begun]
    # A reading at the very end of an epoch is of that epoch, not of one that starts there.
    epoch = np.maximum(np.searchsorted(starts, times, side="left") - 1, 0)
    since = np.maximum(np.concatenate([starts[:1], times[:-1]]), starts[epoch])
    turns = np.asarray(run.slices["start_ns"], dtype=np.int64)
    if len(turns):  # the time before its turn is that of its rivals
        since = np.maximum(since, turns[np.maximum(np.searchsorted(turns, times, side="left") - 1, 0)])
    # One at the very start stands for hardly anything, but it may be the only one.
    seconds = np.maximum(times - since, 1) / 1e9
    return np.where((starts[epoch] <= times) & (times <= ends[epoch]), seconds, 0.0)
