"""Ops on each number by itself: activations, sums and products, and the masks of dropout."""

from __future__ import annotations

import math
from typing import Callable, Dict, Tuple

import numpy as np

from framework_compare.graph import Node
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Result, Weights, summed_to

ERF = np.frompyfunc(math.erf, 1, 1)


def activation(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,), (value, slope) = inputs, ACTIVATIONS[node.op]
    y = value(x)
    return y, lambda dy: ((dy * np.asarray(slope(x, y), x.dtype),), {})


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), which does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def gelu(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Hendrycks and Gimpel 2016: x P(x), P the normal distribution function, or its approximation by a tanh."""
    (x,), root = inputs, math.sqrt(2 / math.pi)
    if node.attrs["approximate"] == "tanh":
        squashed = np.tanh(root * (x + 0.044715 * x**3))
        share = (1 + squashed) / 2
        density = root / 2 * (1 + 3 * 0.044715 * x**2) * (1 - squashed**2)
    else:
        share = ((1 + np.asarray(ERF(x / math.sqrt(2)), np.float64)) / 2).astype(x.dtype)
        density = np.exp(-(x**2) / 2) * (root / 2)
    return x * share, lambda dy: ((dy * (share + x * density),), {})


def add(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    first, second = inputs
    return first + second, lambda dy: ((summed_to(dy, first.shape), summed_to(dy, second.shape)), {})


def mul(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    first, second = inputs

    def backward(dy: Array) -> Gradients:
        return (summed_to(dy * second, first.shape), summed_to(dy * first, second.shape)), {}

    return first * second, backward


def dropout(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Of a StochasticDepth the mask has one number a sample."""
    (x,), keep = inputs, 1 - node.attrs["p"]
    if not mode.training or mode.dropout is None:
        return x, lambda dy: ((dy,), {})
    shape = x.shape if node.op == "Dropout" else (len(x), *[1] * (x.ndim - 1))
    mask = (mode.dropout.random(shape) < keep).astype(x.dtype) / x.dtype.type(keep)
    return x * mask, lambda dy: ((dy * mask,), {})


# By op, y of x, and its slope by x and y.
ACTIVATIONS: Dict[str, Tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "ReLU": (lambda x: np.maximum(x, 0), lambda x, y: x > 0),
    "ReLU6": (lambda x: np.clip(x, 0, 6), lambda x, y: (x > 0) & (x < 6)),
    "Tanh": (np.tanh, lambda x, y: 1 - y * y),
    "Sigmoid": (logistic, lambda x, y: y * (1 - y)),
    "SiLU": (lambda x: x * logistic(x), lambda x, y: y + logistic(x) * (1 - y)),
    "HardSigmoid": (lambda x: np.clip(x + 3, 0, 6) / 6, lambda x, y: ((x > -3) & (x < 3)) / 6),
    # Howard et al. 2019
    "HardSwish": (
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
        lambda x, y: np.where(x < -3, 0, np.where(x > 3, 1, (2 * x + 3) / 6)),
    ),
}
