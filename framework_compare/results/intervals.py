"""How sure a mean is: a bootstrap interval that also holds for the few epochs of a short study."""

from __future__ import annotations

import math
from typing import Optional, Sequence, Tuple

import numpy as np

RESAMPLES = 2000
MIN_EPOCHS = 3
# Student's t over the normal quantile, both at 97.5 %, by degrees of freedom from 1 (any table of t, over 1.960).
_T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_Z975 = 1.960


def mean_interval(runs: Sequence[np.ndarray], seed: int = 0) -> Tuple[Optional[float], Optional[float]]:
    """95 % bootstrap interval of the mean of all values, (None, None) with fewer than 3; never below 0.

    Runs are resampled first and the values within each then, so that what differs from run to run counts. The
    percentile interval is then widened by t / z of the number of values and n / (n - 1), without which it holds
    the mean of 3 epochs in 3 cases of 4 instead of 19 of 20 (Hesterberg 2015, doi:10.1080/00031305.2015.1089789).
    """
    runs = [values for values in runs if len(values)]
    count = sum(len(values) for values in runs)
    if count < MIN_EPOCHS:
        return None, None
    mean = float(np.concatenate(runs).mean())
    off = _resampled_means(runs, np.random.default_rng(seed)) - mean
    low, high = mean + _widening(count) * np.percentile(off, [2.5, 97.5])
    return max(float(low), 0.0), float(high)


def _resampled_means(runs: Sequence[np.ndarray], generator: np.random.Generator) -> np.ndarray:
    places = (RESAMPLES, len(runs))
    chosen = generator.integers(len(runs), size=places)
    totals, counts = np.zeros(places), np.zeros(places)
    for index, values in enumerate(runs):
        drawn = chosen == index
        picks = generator.integers(len(values), size=(int(drawn.sum()), len(values)))
        totals[drawn] = values[picks].sum(axis=1)
        counts[drawn] = len(values)
    return totals.sum(axis=1) / counts.sum(axis=1)


def _widening(count: int) -> float:
    freedom = count - 1
    # Beyond the table, the first term of the expansion of t in 1 / freedom is right to 0.3 %.
    quantile = _T975[freedom - 1] if freedom <= len(_T975) else _Z975 + 2.55 / freedom
    return quantile / _Z975 * math.sqrt(count / freedom)


def median_ratio_interval(
    before: Sequence[np.ndarray], now: Sequence[np.ndarray], seed: int = 0
) -> Tuple[Optional[float], Optional[float]]:
    """95 % bootstrap interval of median(now) / median(before), (None, None) with fewer than 3 values on a side.

    Resampled as in `mean_interval`, widened by the smaller side's factor, on the logarithm, where a ratio and its
    inverse are alike.
    """
    sides = [[values for values in runs if len(values)] for runs in (before, now)]
    counts = [sum(map(len, runs)) for runs in sides]
    if min(counts) < MIN_EPOCHS:
        return None, None
    generator = np.random.default_rng(seed)
    logs = [np.log(_resampled_medians(runs, generator)) for runs in sides]
    ratio = math.log(np.median(np.concatenate(sides[1])) / np.median(np.concatenate(sides[0])))
    off = logs[1] - logs[0] - ratio
    low, high = np.exp(ratio + _widening(min(counts)) * np.percentile(off, [2.5, 97.5]))
    return float(low), float(high)


def _resampled_medians(runs: Sequence[np.ndarray], generator: np.random.Generator) -> np.ndarray:
    if len(runs) == 1:
        picks = generator.integers(len(runs[0]), size=(RESAMPLES // 4, len(runs[0])))
        return np.median(runs[0][picks], axis=1)

    def once() -> float:
        drawn = [runs[index] for index in generator.integers(len(runs), size=len(runs))]
        return float(np.median(np.concatenate([generator.choice(values, len(values)) for values in drawn])))

    return np.array([once() for _ in range(RESAMPLES // 4)])
