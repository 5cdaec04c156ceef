"""Elementwise ops: functions of one and of two, and the masks of dropout."""

import math
from typing import Any, Callable

import numpy as np

from framework_compare.graph import Node
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Op, Result, Weights, summed_to

ERF = np.frompyfunc(math.erf, 1, 1)


def unary(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    (x,), (value, slope) = inputs, UNARY[node.op]
    y = np.asarray(value(x, node.attrs), x.dtype)
    return y, lambda dy: ((dy * np.asarray(slope(x, y, node.attrs), x.dtype),), {})


def binary(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    (x, y), (value, slopes) = inputs, BINARY[node.op]

    def backward(dz: Array) -> Gradients:
        by_x, by_y = slopes(x, y)
        return (summed_to(dz * by_x, x.shape), summed_to(dz * by_y, y.shape)), {}

    return np.asarray(value(x, y), np.result_type(x, y)), backward


def _larger(x: Array, y: Array) -> tuple[Array, Array]:
    """Half to each of two equal numbers, as torch has it."""
    half = x.dtype.type(0.5)
    return (x > y) + half * (x == y), (y > x) + half * (x == y)


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), which does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def gelu(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
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


def dropout(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Apply dropout; the mask of a StochasticDepth has one number per sample."""
    (x,), keep = inputs, 1 - node.attrs["p"]
    if not mode.training or mode.dropout is None:
        return x, lambda dy: ((dy,), {})
    shape = x.shape if node.op == "Dropout" else (len(x), *[1] * (x.ndim - 1))
    mask = (mode.dropout.random(shape) < keep).astype(x.dtype) / x.dtype.type(keep)
    return x * mask, lambda dy: ((dy * mask,), {})


# By op: y of x and attributes; its slope by x, y and attributes.
UNARY: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "ReLU": (lambda x, a: np.maximum(x, 0), lambda x, y, a: x > 0),
    "ReLU6": (lambda x, a: np.clip(x, 0, 6), lambda x, y, a: (x > 0) & (x < 6)),
    "Tanh": (lambda x, a: np.tanh(x), lambda x, y, a: 1 - y * y),
    "Sigmoid": (lambda x, a: logistic(x), lambda x, y, a: y * (1 - y)),
    "SiLU": (lambda x, a: x * logistic(x), lambda x, y, a: y + logistic(x) * (1 - y)),
    "HardSigmoid": (lambda x, a: np.clip(x + 3, 0, 6) / 6, lambda x, y, a: ((x > -3) & (x < 3)) / 6),
    # Howard et al. 2019
    "HardSwish": (
        lambda x, a: x * np.clip(x + 3, 0, 6) / 6,
        lambda x, y, a: np.where(x < -3, 0, np.where(x > 3, 1, (2 * x + 3) / 6)),
    ),
    "LeakyReLU": (lambda x, a: np.where(x > 0, x, a["slope"] * x), lambda x, y, a: np.where(x > 0, 1, a["slope"])),
    "Exp": (lambda x, a: np.exp(x), lambda x, y, a: y),
    "Log": (lambda x, a: np.log(x), lambda x, y, a: 1 / x),
    "Sqrt": (lambda x, a: np.sqrt(x), lambda x, y, a: 0.5 / y),
    "Power": (lambda x, a: x ** a["exponent"], lambda x, y, a: a["exponent"] * x ** (a["exponent"] - 1)),
    "Abs": (lambda x, a: np.abs(x), lambda x, y, a: np.sign(x)),
    "Sign": (lambda x, a: np.sign(x), lambda x, y, a: 0 * x),
    "Sin": (lambda x, a: np.sin(x), lambda x, y, a: np.cos(x)),
    "Cos": (lambda x, a: np.cos(x), lambda x, y, a: -np.sin(x)),
    "Erf": (lambda x, a: np.asarray(ERF(x), np.float64), lambda x, y, a: 2 / np.sqrt(np.pi) * np.exp(-x * x)),
    "Detach": (lambda x, a: x, lambda x, y, a: 0 * x),
}
# By op: the value, and the slopes by both.
BINARY: dict[str, tuple[Callable[[Array, Array], Array], Callable[[Array, Array], tuple[Any, Any]]]] = {
    "Add": (lambda x, y: x + y, lambda x, y: (1.0, 1.0)),
    "Sub": (lambda x, y: x - y, lambda x, y: (1.0, -1.0)),
    "Mul": (lambda x, y: x * y, lambda x, y: (y, x)),
    "Div": (lambda x, y: x / y, lambda x, y: (1 / y, -x / (y * y))),
    "Maximum": (np.maximum, _larger),
    "Minimum": (np.minimum, lambda x, y: _larger(y, x)),
    "Equal": (lambda x, y: x == y, lambda x, y: (0 * x, 0 * y)),
    "Less": (lambda x, y: x < y, lambda x, y: (0 * x, 0 * y)),
    "LessEqual": (lambda x, y: x <= y, lambda x, y: (0 * x, 0 * y)),
}


OPS: dict[str, Op] = {
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(BINARY, binary),
    **dict.fromkeys(("Dropout", "StochasticDepth"), dropout),
    "GELU": gelu,
}
