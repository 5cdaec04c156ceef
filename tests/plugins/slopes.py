"""The derivative of a function along a direction, by a small step to either side."""

from __future__ import annotations

STEP = 1e-6


def slope(function, array, direction):
    return (function(array + STEP * direction) - function(array - STEP * direction)) / (2 * STEP)
