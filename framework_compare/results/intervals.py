"""How sure a figure is: Student's t intervals over runs, on logarithms, where a ratio and its inverse are alike.

The run is the unit of repetition: epochs of one process share its memory layout, its compiled code and its minute, so
they say nothing of the next process. BCa bootstrap intervals of 5 runs hold the truth in 8 cases of 10, and no exact
rank method reaches 95 % below 6 runs. The t interval of logarithms keeps 95 % from 2 runs on, as the ratio of two noisy
runs is even round the truth, and errs on the wide side where some runs are held up (benchmarks/results/intervals.json).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from framework_compare.results.moderation import Prior

MIN_RUNS = 2
LEVEL = 0.95
# Logarithms this close are the same number in floats.
_SAME = 1e-12


class Interval(NamedTuple):
    """A ratio or a time with its interval and the probability of one at least as far from 1 by chance; None: unknown."""

    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    runs: int = 0


# Runs that are added until an interval is narrow make it narrow by chance more often than a fixed number of them: so much
# wider, those of the first LEAST_RUNS runs apart, they hold the truth in 95 % of cases (benchmarks/stopping.py).
STOPPING = 1.3
LEAST_RUNS = 3


def geometric_mean(values: Sequence[float], prior: Prior | None = None, looked: bool = False) -> Interval:
    """The geometric mean of positive values, one per run or block, with its 95 % interval from 2 values on.

    prior: of the variance of their logarithms, from others. looked: whether there are more than LEAST_RUNS of them only
    because their interval was not narrow yet. ValueError for no value.
    """
    logs = np.log(np.asarray(values, dtype=float))
    count = len(logs)
    if not count:
        raise ValueError("no value; a geometric mean needs one at least")
    if count < MIN_RUNS:
        return Interval(float(values[0]), runs=count)
    variance, freedom = float(logs.var(ddof=1)), count - 1.0
    if prior:
        variance, freedom = prior.moderate(variance, freedom)
    wider = STOPPING if looked and count > LEAST_RUNS else 1.0
    return _interval(float(logs.mean()), wider * math.sqrt(variance / count), freedom, count)


def paired_ratio(
    slower: Mapping[int, float], faster: Mapping[int, float], prior: Prior | None = None, looked: bool = False
) -> Interval | None:
    """Of seconds by block, the ratio over the blocks that both have; None if there is none."""
    shared = sorted(slower.keys() & faster.keys())
    return geometric_mean([slower[block] / faster[block] for block in shared], prior, looked) if shared else None


def mean_of_ratios(by_model: Sequence[Sequence[float]], looked: bool = False) -> Interval | None:
    """The geometric mean over models of paired ratios, of each model those of its own blocks; None if one has none.

    Of models whose runs share no blocks, as under a budget: their variances add up, with Satterthwaite's degrees of
    freedom. Without an interval where a model has one block. Satterthwaite 1946, Biometrics Bulletin 2(6), 110-114.
    """
    logs = [np.log(np.asarray(ratios, dtype=float)) for ratios in by_model]
    counts = [len(ratios) for ratios in logs]
    if not counts or not min(counts):
        return None
    mean = float(np.mean([ratios.mean() for ratios in logs]))
    if min(counts) < MIN_RUNS:
        return Interval(math.exp(mean), runs=min(counts))
    parts = [float(ratios.var(ddof=1)) / len(ratios) for ratios in logs]
    error = math.sqrt(sum(parts)) / len(parts)
    if error <= _SAME:
        return _interval(mean, error, 1.0, min(counts))
    freedom = sum(parts) ** 2 / sum(part**2 / (count - 1) for part, count in zip(parts, counts))
    wider = STOPPING if looked and max(counts) > LEAST_RUNS else 1.0
    return _interval(mean, wider * error, freedom, min(counts))


# What two sessions on one machine differ by though nothing changed, beyond what runs of each tell: the standard deviation
# of logarithms of a session's times (benchmarks/sessions.py).
SESSION_SD = 0.03


def unpaired_ratio(now: Sequence[float], before: Sequence[float], session_sd: float = 0.0) -> Interval | None:
    """Of seconds of runs that share no blocks, the ratio with Welch's interval; None if a side has no value.

    session_sd: of each side, what all its runs share.
    """
    logs = [np.log(np.asarray(side, dtype=float)) for side in (now, before)]
    counts = [len(side) for side in logs]
    if not min(counts):
        return None
    mean = float(logs[0].mean() - logs[1].mean())
    if min(counts) < MIN_RUNS:
        return Interval(math.exp(mean), runs=min(counts))
    parts = [float(side.var(ddof=1)) / len(side) for side in logs]
    variance = sum(parts) + 2 * session_sd**2
    error = math.sqrt(variance)
    if sum(parts) <= _SAME**2:
        return _interval(mean, error, math.inf if session_sd else 1.0, min(counts))
    # Welch and Satterthwaite's degrees of freedom.
    freedom = variance**2 / sum(part**2 / (count - 1) for part, count in zip(parts, counts))
    return _interval(mean, error, freedom, min(counts))


def _interval(mean: float, error: float, freedom: float, runs: int) -> Interval:
    # scipy.stats takes a second to import and holds 60 MB; these two functions are all that is needed.
    from scipy.special import stdtr, stdtrit

    if error <= _SAME:
        same = abs(mean) <= _SAME
        return Interval(math.exp(mean), math.exp(mean), math.exp(mean), 1.0 if same else 0.0, runs)
    arm = float(stdtrit(freedom, 0.5 + LEVEL / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return Interval(math.exp(mean), _exp(mean - arm), _exp(mean + arm), p, runs)


def _exp(log: float) -> float:
    """Two runs may leave an interval that floats cannot hold."""
    return math.exp(log) if log < 700 else math.inf


def holm(p_values: Sequence[float]) -> Sequence[float]:
    """P values corrected for their number, so that any false verdict among them is as rare as in one.

    Holm 1979, Scandinavian Journal of Statistics 6(2), 65-70.
    """
    corrections, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda number: p_values[number])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrections[place] = highest
    return corrections
