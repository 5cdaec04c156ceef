"""Ops on each number by itself: activations, sums and products, and the masks of dropout."""

from __future__ import annotations

import math
from typing import Tuple

import numpy as np

from framework_compare.graph import Node
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Result, Weights, summed_to

ERF = np.frompyfunc(math.erf, 1, 1)


def relu(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    return np.maximum(x, 0), lambda dy: ((dy * (x > 0),), {})


def relu6(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    return np.clip(x, 0, 6), lambda dy: ((dy * ((x > 0) & (x < 6)),), {})


def tanh(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    y = np.tanh(inputs[0])
    return y, lambda dy: ((dy * (1 - y * y),), {})


def sigmoid(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    y = logistic(inputs[0])
    return y, lambda dy: ((dy * y * (1 - y),), {})


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), which does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def silu(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,), share = inputs, logistic(inputs[0])
    return x * share, lambda dy: ((dy * share * (1 + x * (1 - share)),), {})


def hardsigmoid(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    return np.clip(x + 3, 0, 6) / 6, lambda dy: ((dy * ((x > -3) & (x < 3)) / 6,), {})


def hardswish(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Howard et al. 2019."""
    (x,) = inputs

    def backward(dy: Array) -> Gradients:
        slope = np.where(x < -3, 0, np.where(x > 3, 1, (2 * x + 3) / 6)).astype(x.dtype)
        return (dy * slope,), {}

    return x * np.clip(x + 3, 0, 6) / 6, backward


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
    (x,), keep = inputs, 1 - node.attrs["p"]
    if not mode.training or mode.dropout is None:
        return x, lambda dy: ((dy,), {})
    mask = (mode.dropout.random(x.shape) < keep).astype(x.dtype) / x.dtype.type(keep)
    return x * mask, lambda dy: ((dy * mask,), {})


def stochastic_depth(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """A mask of one number a sample."""
    (x,), keep = inputs, 1 - node.attrs["p"]
    if not mode.training or mode.dropout is None:
        return x, lambda dy: ((dy,), {})
    drawn = mode.dropout.random((len(x), *[1] * (x.ndim - 1)))
    mask = (drawn < keep).astype(x.dtype) / x.dtype.type(keep)
    return x * mask, lambda dy: ((dy * mask,), {})
