"""Student's t intervals over runs, on logarithms, where a ratio and its inverse are alike.

The run is the unit of repetition: epochs of one process share its memory layout, its compiled code and its minute, so
they say nothing of the next process. BCa bootstrap intervals of 5 runs cover the true value in 8 cases of 10, and no exact
rank method reaches 95 % below 6 runs. The t interval of logarithms keeps 95 % from 2 runs on, as the ratio of two noisy
runs is even round the truth, and errs on the wide side where some runs are held up (benchmarks/results/intervals.json).
"""

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

    @property
    def half_width(self) -> float | None:
        """The larger half-width, as a share of the value; None without an interval."""
        return None if self.high is None else self.high / self.value - 1

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends, NaN without an interval."""
        return (math.nan, math.nan) if self.low is None or self.high is None else (self.low, self.high)


UNKNOWN = Interval(math.nan)
# Runs that are added until an interval is narrow make it narrow by chance more often than a fixed number of them: so much
# wider, those of the first LEAST_RUNS runs apart, they cover the true value in 95 % of cases (benchmarks/results/stopping.json).
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
        raise ValueError("no value; a geometric mean needs at least one")
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
    """Return the ratio of seconds by block over the blocks that both have; None if there is none."""
    shared = sorted(slower.keys() & faster.keys())
    return geometric_mean([slower[block] / faster[block] for block in shared], prior, looked) if shared else None


def mean_of_ratios(by_model: Sequence[Sequence[float]], looked: bool = False) -> Interval | None:
    """Return the geometric mean over models of paired ratios, of each model those of its own blocks; None if one has none.

    Of models whose runs share no blocks, as under a budget. Without an interval where a model has one block.
    """
    wider = STOPPING if looked and max(map(len, by_model), default=0) > LEAST_RUNS else 1.0
    return _sum_of_means(by_model, [1 / len(by_model) for _ in by_model], wider=wider)


# The smallest and the largest seen in series of sessions on one machine (docs/records/turns.md).
LEAST_SESSION_SD, SESSION_SD = 0.03, 0.13
LEAST_SESSIONS = 3


class SessionVariance(NamedTuple):
    """Variance between sessions on one machine though nothing changed, beyond what the runs of each show.

    sd: of logarithms of a session's times. sessions: from how many it is estimated; 0: it is assumed.
    """

    sd: float = SESSION_SD
    sessions: int = 0

    @property
    def sentence(self) -> str:
        if self.sessions:
            return f"The standard deviation between sessions is estimated as {100 * self.sd:.1f} % from {self.sessions} sessions."
        return f"The standard deviation between sessions is assumed to be {100 * self.sd:.1f} %, the largest measured."


def session_variance(cells: Sequence[Sequence[Sequence[float]]]) -> SessionVariance:
    """Estimate from cells, of each several sessions, of each the seconds of its runs; assumed below LEAST_SESSIONS.

    What a session does to all cells is shared, so that cells add no degrees of freedom.
    """
    known = [[np.log(np.asarray(runs)) for runs in sessions if len(runs) >= MIN_RUNS] for sessions in cells]
    known = [sessions for sessions in known if len(sessions) >= LEAST_SESSIONS]
    if not known:
        return SessionVariance()
    freedom = sum(len(sessions) - 1 for sessions in known)
    between = sum(float(np.var([runs.mean() for runs in sessions])) * len(sessions) for sessions in known) / freedom
    within = float(np.mean([runs.var(ddof=1) / len(runs) for sessions in known for runs in sessions]))
    sd = max(LEAST_SESSION_SD, math.sqrt(max(between - within, 0.0)))
    return SessionVariance(sd, min(map(len, known)))


def unpaired_ratio(
    now: Sequence[float], before: Sequence[float], between: SessionVariance | None = None
) -> Interval | None:
    """Return the ratio of seconds of runs that share no blocks, with Welch's interval; None if a side has no value.

    between: what all runs of a side share, if the sides are sessions. Its variance is estimated as the one that means of
    sessions show, less that of runs, so noise of runs adds no degrees of freedom to those between sessions.
    """
    beside = (
        (2 * between.sd**2, between.sessions - 1.0 if between.sessions else math.inf) if between else (0.0, math.inf)
    )
    return _sum_of_means((now, before), (1, -1), beside=beside)


def _sum_of_means(
    groups: Sequence[Sequence[float]],
    weights: Sequence[float],
    *,
    beside: tuple[float, float] = (0.0, math.inf),
    wider: float = 1.0,
) -> Interval | None:
    """Return the weighted sum of the means of logarithms of groups whose variances add up; None if a group has no value.

    With Satterthwaite's degrees of freedom (1946, Biometrics Bulletin 2(6), 110-114). beside: a variance of the sum that
    the groups do not show, and its degrees of freedom, which the sum has at most; wider: the interval than by these.
    """
    logs = [np.log(np.asarray(group, dtype=float)) for group in groups]
    fewest = min(map(len, logs), default=0)
    if not fewest:
        return None
    mean = float(sum(weight * group.mean() for weight, group in zip(weights, logs)))
    if fewest < MIN_RUNS:
        return Interval(math.exp(mean), runs=fewest)
    parts = [weight**2 * float(group.var(ddof=1)) / len(group) for weight, group in zip(weights, logs)]
    variance = sum(parts) + beside[0]
    if variance <= _SAME**2:
        return _interval(mean, math.sqrt(variance), 1.0, fewest)
    doubts = sum(part**2 / (len(group) - 1) for part, group in zip(parts, logs)) + beside[0] ** 2 / beside[1]
    freedom = min(variance**2 / doubts if doubts else math.inf, beside[1])
    return _interval(mean, wider * math.sqrt(variance), freedom, fewest)


def _interval(mean: float, error: float, freedom: float, runs: int) -> Interval:
    # scipy.stats takes a second to import and holds 60 MB; these two functions are all that is needed.
    from scipy.special import stdtr, stdtrit

    if error <= _SAME:
        same = abs(mean) <= _SAME
        return Interval(math.exp(mean), math.exp(mean), math.exp(mean), 1.0 if same else 0.0, runs)
    half = float(stdtrit(freedom, 0.5 + LEVEL / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return Interval(math.exp(mean), exp(mean - half), exp(mean + half), p, runs)


def p_beyond(ratio: Interval, margin: float) -> float:
    """Return the p value of a ratio of 1 + margin; that of 1 and the interval tell the degrees of freedom."""
    from scipy.special import stdtr, stdtrit

    away, beyond = math.log(ratio.value), math.log(ratio.value) - math.log1p(margin)
    if beyond <= 0 or ratio.p is None or not ratio.low:
        return 1.0
    if ratio.p >= 1 - LEVEL:
        return ratio.p  # or more, which makes no difference
    half = away - math.log(ratio.low)
    if half <= _SAME:
        return ratio.p

    def p_of(distance: float, log_freedom: float) -> float:
        freedom = math.exp(log_freedom)
        return 2 * float(stdtr(freedom, -distance / half * stdtrit(freedom, 0.5 + LEVEL / 2)))

    few, many = math.log(0.5), math.log(1e6)
    for _ in range(30):
        middle = (few + many) / 2
        few, many = (middle, many) if (p_of(away, middle) > ratio.p) == (away > half) else (few, middle)
    return max(ratio.p, p_of(beyond, few))


def exp(log: float) -> float:
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
