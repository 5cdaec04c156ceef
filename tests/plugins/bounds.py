"""Bounds on a difference: by the digits that are kept, by rounding, by chance, by the clock of the kernel."""

import math
import os
from typing import Any

import numpy as np

CHANCE = 5.0  # standard errors: one draw in two million lies farther from its mean
TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # the kernel tells CPU time in these


def digits(count: int) -> float:
    """The relative error of a figure that is kept to so many significant digits: half a unit of the last, of the smallest."""
    return 0.5 * 10.0 ** (1 - count)


def decimals(count: int) -> float:
    """The error of a figure that is kept to so many decimals."""
    return 0.5 * 10.0**-count


def rounding(count: int, dtype: Any = np.float64) -> float:
    """The relative difference of two results after `count` roundings each, none of which cancels another.

    A sum of n terms that may have either sign has that error relative to the sum of their sizes (Higham, "Accuracy and
    Stability of Numerical Algorithms", section 4.2): multiply by it, or by the largest value.
    """
    return count * float(np.finfo(dtype).eps)


def standard_errors(deviation: float, draws: int) -> float:
    """Return how far the mean of `draws` draws of this standard deviation may lie from what it estimates.

    Relative, the standard deviation of normal draws is a mean of deviation sqrt(1/2), their variance one of sqrt(2).
    """
    return CHANCE * deviation / math.sqrt(draws)


def ticks(count: int, seconds: float) -> float:
    """The error of a share of a core over a span whose CPU time is the sum of so many counters of ticks.

    A counter may lack up to one tick when it is read, at the beginning of the span as at its end.
    """
    return count * TICK_S / seconds
