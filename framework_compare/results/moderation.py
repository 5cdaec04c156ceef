"""The variance of paired runs, pooled over the pairs of cells of a study: empirical Bayes, as Smyth has it.

The variance of a pair's ratios in three blocks has two degrees of freedom, and a t of 4.3. If other pairs are as noisy,
they tell it better; if not, each pair knows its own best. So each variance is drawn towards the mean of all, the more
the less their logarithms differ beyond chance (Smyth 2004, Statistical Applications in Genetics and Molecular Biology
3(1), 3: limma's moderated t). Two departures keep verdicts right where one cell is far noisier than the others: the mean
of the variances stands for the scale of their prior, and the weight of the prior is bounded.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Runs that differ by less than a ten-millionth are stored constants: they say nothing of the noise of others.
_NO_VARIANCE = 1e-14
MOST_PAIRS = 20_000  # of a group; all pairs of 10,000 cells would take gigabytes
# Others count at most as so many times a pair's own degrees of freedom, and at most as this share of theirs.
MOST_TIMES_OWN = 2.0
MOST_OF_OTHERS = 0.5


class Prior(NamedTuple):
    """The prior of a variance of log ratios, from the other pairs of a study.

    freedom: the degrees of freedom that it is worth, inf if variances differ by chance only. pooled: those of all runs.
    """

    variance: float
    freedom: float
    pooled: float

    def moderate(self, variance: float, freedom: float) -> tuple[float, float]:
        """A pair's own variance and degrees of freedom, with those of the prior."""
        most = min(MOST_TIMES_OWN * freedom, MOST_OF_OTHERS * max(self.pooled - freedom, 0.0))
        weight = min(self.freedom, most)
        total = weight + freedom
        return (weight * self.variance + freedom * variance) / total, total


def fit(groups: Sequence[np.ndarray]) -> Prior | None:
    """The prior of all pairs of cells of one group each; None where fewer than two pairs have two blocks in common.

    groups: logarithms of seconds, a row a cell, a column a block; NaN where a cell has no run in a block.
    """
    pairs = [_pairs(logs) for logs in groups]
    variances, freedoms = (np.concatenate([np.empty(0), *parts]) for parts in zip(*pairs)) if pairs else ((), ())
    noisy = np.asarray(variances) > _NO_VARIANCE
    if noisy.sum() < 2:
        return None
    variances, freedoms = variances[noisy], freedoms[noisy]
    return Prior(
        float(np.average(variances, weights=freedoms)), _prior_freedom(variances, freedoms), sum(map(_freedom, groups))
    )


def _pairs(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The variances of the differences of every two cells with two blocks in common, and their degrees of freedom."""
    first, second = _every_two(len(logs))
    differences = logs[first] - logs[second]
    freedoms = np.isfinite(differences).sum(axis=1) - 1
    some = freedoms > 0
    return np.nanvar(differences[some], axis=1, ddof=1), freedoms[some]


def _every_two(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Every two of so many; of more than MOST_PAIRS as many, drawn the same way each time: they tell the noise as well."""
    if cells * (cells - 1) // 2 <= MOST_PAIRS:
        return np.triu_indices(cells, 1)
    draw = np.random.default_rng(cells)
    first = draw.integers(0, cells, MOST_PAIRS)
    return first, (first + draw.integers(1, cells, MOST_PAIRS)) % cells


def _prior_freedom(variances: np.ndarray, freedoms: np.ndarray) -> float:
    """Twice the argument at which trigamma is what logarithms of variances differ by beyond chance (limma's fitFDist)."""
    # scipy.stats would take a second to import.
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    halves = freedoms / 2
    logs = np.log(variances) - digamma(halves) + np.log(halves)
    excess = float(logs.var(ddof=1) - polygamma(1, halves).mean())
    low, high = 1e-3, 1e6
    if excess <= polygamma(1, high):
        return np.inf
    return 2 * float(brentq(lambda half: polygamma(1, half) - excess, low, high)) if excess < polygamma(1, low) else 0.0


def _freedom(logs: np.ndarray) -> float:
    """Degrees of freedom of the runs of a group about effects of cells and blocks, two-way and additive."""
    there = np.isfinite(logs)
    shared = there[:, there.sum(axis=0) > 1]
    cells = int(shared.any(axis=1).sum())
    return float(max(shared.sum() - cells - shared.shape[1] + 1, 0))
