"""The derivative of a function along a direction, by small steps to either side."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bounds import rounding

STEP = float(np.finfo(float).eps) ** (1 / 3)  # at which what is cut off and what is rounded are about as large
ROUNDINGS = 10  # of a term: its errors add up one by one, those of different terms as well cancel


def slope(function, array, direction):
    """Return what equals the derivative but for its error; function: a number, or terms whose sum is meant.

    By Richardson, what a step cuts off is a third of the difference from one of twice the length: all of it is allowed.
    What is rounded is known from the size of the terms.
    """
    near, far = ([np.ravel(function(array + side * step * direction)) for side in (1, -1)] for step in (STEP, 2 * STEP))
    size = max(np.abs(terms).sum() for terms in near)
    found, twice = math.fsum(near[0] - near[1]) / (2 * STEP), math.fsum(far[0] - far[1]) / (4 * STEP)
    return pytest.approx(found, rel=0, abs=abs(twice - found) + rounding(ROUNDINGS) * size / (2 * STEP))
