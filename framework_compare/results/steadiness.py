"""Detection of steady step times in a run, from the run itself; and the whole epoch that a sample of one stands for.

The steps of a run, without the first and the last of each epoch (which fill the loader's queue, or are of a smaller
batch), are taken as at most 40 medians of neighbours. Binary segmentation looks for changes of level (Scott and Knott
1974): the split with the least absolute deviations counts where its levels differ by LEAST_CHANGE and by LEAST_SCORE of
their standard errors. Splits in the first half of a run end its warm-up. A later one, or a trend by rank (Mann 1945,
Kendall 1975) of LEAST_CHANGE over what is left, and the run does not settle.
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from framework_compare.launch.scratch import open_regular
from framework_compare.protocol import Document, Fields
from framework_compare.records import Epoch
from framework_compare.results.metrics import percent

KIND = np.dtype("<i8")
MIN_STEPS = 20
MOST_MEDIANS = 40
LEAST_CHANGE = 0.05
LEAST_SCORE = 4.5  # as the best of up to 40 splits is looked at, of neighbours that are alike
RISK = 0.01  # of a trend in steps that have none
# Columns of the cell frame.
COLUMNS = ("runs_unsettled",)
Row = Document


class Steadiness(NamedTuple):
    """The number of a run's steps that are warm-up, and the share by which a step still changes after them."""

    warm_up: int
    change: float

    @property
    def settled(self) -> bool:
        return self.change == 0


def read(path: Path, epochs: Sequence[Epoch]) -> list[np.ndarray] | None:
    """Nanoseconds of each step, an array per epoch; None where the file is not there or does not fit the epochs."""
    counts = [epoch.steps for epoch in epochs]
    try:
        with open_regular(path) as file:
            if not counts or os.fstat(file.fileno()).st_size != KIND.itemsize * sum(counts):
                return None
            steps = np.split(np.frombuffer(file.read(), KIND), np.cumsum(counts)[:-1])
    except (OSError, ValueError):
        return None
    lengths = [round(epoch.seconds * 1e9) + 1 for epoch in epochs]
    sound = all((part >= 0).all() and 0 <= part.sum() <= length for part, length in zip(steps, lengths))
    return steps if sound else None


def marked(epochs: Sequence[Epoch], path: Path) -> Fields:
    """The fields of a Run that say whether it became steady; {} where nobody knows.

    No epoch is left out for its own time. A sample of an epoch gets its estimate, which leaves the warm-up out.
    """
    steps = read(path, epochs)
    inner = [part[1:-1] for part in steps or ()]
    steady_state = steadiness(np.concatenate(inner)) if inner else None
    fields: Fields = {} if steady_state is None else {"settled": int(steady_state.settled)}
    if epochs and epochs[0].whole_images is not None:
        warm_up = steady_state.warm_up if steady_state else 0
        whole_s = whole_epoch_s(epochs[0], steps[0] if steps else None, warm_up)
        fields["epochs"] = (dataclasses.replace(epochs[0], estimate_s=whole_s),)
    return fields


def steadiness(steps: np.ndarray) -> Steadiness | None:
    """Return where step times become steady, and whether they do; None for fewer than MIN_STEPS."""
    if len(steps) < MIN_STEPS:
        return None
    size = -(-len(steps) // MOST_MEDIANS)
    whole = len(steps) - len(steps) % size
    logs = np.log(np.maximum(np.median(steps[:whole].reshape(-1, size), axis=1), 1))
    cut = 0
    while True:
        split, change = _level_change(logs[cut:])
        if not change:
            return Steadiness(cut * size, _trend(logs[cut:]))
        if cut + split > len(logs) // 2:
            return Steadiness(cut * size, change)
        cut += split


def _level_change(logs: np.ndarray) -> tuple[int, float]:
    """Return where values best split into two levels, and the share between these; (0, 0.0) where they have one level."""
    least = max(len(logs) // 5, 3)  # of a later level: a few slow steps at the end are none
    costs = [_spread(logs[:cut]) + _spread(logs[cut:]) for cut in range(1, len(logs) - least)]
    if not costs:
        return 0, 0.0
    cut = int(np.argmin(costs)) + 1
    head, rest = logs[:cut], logs[cut:]
    levels = np.median(head), np.median(rest)
    # 1.4826 times the median distance from the median is the deviation of normal values; a median has pi / 2 times the
    # variance of a mean.
    deviation = 1.4826 * np.median(np.abs(np.concatenate([head - levels[0], rest - levels[1]])))
    error = deviation * np.sqrt(np.pi / 2 * (1 / len(head) + 1 / len(rest)))
    change = float(np.expm1(levels[1] - levels[0]))
    apart = abs(levels[1] - levels[0]) > LEAST_SCORE * error
    return (cut, change) if apart and abs(change) > LEAST_CHANGE else (0, 0.0)


def _spread(logs: np.ndarray) -> float:
    return float(np.abs(logs - np.median(logs)).sum())


def _trend(logs: np.ndarray) -> float:
    """The share by which values change from their beginning to their end, 0.0 where they show no trend."""
    from scipy.special import ndtr

    count = len(logs)
    later, earlier = np.tril_indices(count, -1)
    differences = logs[later] - logs[earlier]
    score = abs(np.sign(differences).sum()) - 1
    slope = float(np.median(differences / (later - earlier)))  # of Theil and Sen
    # Neighbours that are alike make trends by chance more frequent (Hamed and Rao 1998).
    alike = _likeness(logs - slope * np.arange(count))
    deviation = np.sqrt(count * (count - 1) * (2 * count + 5) / 18 * (1 + alike) / (1 - alike))
    change = float(np.expm1(slope * (count - 1)))
    return change if 2 * ndtr(-score / deviation) < RISK and abs(change) > LEAST_CHANGE else 0.0


def _likeness(residuals: np.ndarray) -> float:
    """Correlation of neighbours, 0 to 0.9."""
    off = residuals - residuals.mean()
    whole = float((off**2).sum())
    return min(max(float((off[1:] * off[:-1]).sum()) / whole, 0.0), 0.9) if whole else 0.0


def summary(runs: Sequence[Row]) -> dict[str, int | None]:
    """COLUMNS of the runs of a cell that count, None where it is not known of any."""
    settled = _settled(runs)
    return {"runs_unsettled": settled.count(False) if settled else None}


def _settled(runs: Sequence[Row]) -> list[bool]:
    return [bool(run["settled"]) for run in runs if run["status"] == "ok" and run["settled"] is not None]


def sentences(runs: Sequence[Row]) -> list[str]:
    """Return what to say of a cell whose figures include steps that are not steady."""
    settled = _settled(runs)
    if all(settled):
        return []
    return [
        f"{settled.count(False)} of {len(settled)} runs did not settle: step times still changed by more than"
        f" {percent(LEAST_CHANGE)} when they ended, so runs of another length may give different results"
    ]


def whole_epoch_s(epoch: Epoch, steps_ns: np.ndarray | None, warm_up: int) -> float:
    """Seconds of the whole epoch of which `epoch` is a sample.

    The first step fills the loader's queue, once per epoch. All others are taken to last as long as those after the
    warm-up, the device waited for at the end; but no less than the input pipeline needs alone, as the sample may have
    been fed from what that had ready. The smaller last batch counts by its images. warm_up: steps after the first one
    that are left out. Without step times all steps are alike.
    """
    size = epoch.images / epoch.steps
    steps = (epoch.whole_images or epoch.images) / size
    if steps_ns is None or len(steps_ns) < 2:
        return steps * max(epoch.seconds / epoch.steps, epoch.pipeline_s or 0.0)
    left_out = 1 + min(warm_up, len(steps_ns) - 2)
    steady_s = (epoch.seconds - steps_ns[:left_out].sum() / 1e9) / (len(steps_ns) - left_out)
    return float(steps_ns[0] / 1e9 + (steps - 1) * max(steady_s, epoch.pipeline_s or 0.0))
