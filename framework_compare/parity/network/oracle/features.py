"""Ops on the features of a vector, of each step or of each place, and what joins and cuts arrays."""

from typing import Callable, Tuple

import numpy as np

from framework_compare.graph import Node
from framework_compare.graph.ops import concat_axis
from framework_compare.parity.network.oracle.op import (
    Array,
    Gradients,
    Mode,
    Result,
    Weights,
    features_first,
    features_last,
    rows,
    summed_to,
)


def linear(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Multiply the features; an Unembedding's matrix has the rows of an embedding."""
    x, matrix = features_last(inputs[0]), weights["weight"]
    y = x @ matrix.T
    if "bias" in weights:
        y = y + weights["bias"]

    def backward(dy: Array) -> Gradients:
        dy = features_last(dy)
        gradients = {"weight": rows(dy).T @ rows(x)}
        if "bias" in weights:
            gradients["bias"] = rows(dy).sum(axis=0)
        return (features_first(dy @ matrix),), gradients

    return features_first(y), backward


def norm(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """LayerNorm or RMSNorm of the features."""
    normal, back = normalised(features_last(inputs[0]), node.attrs["eps"], centred=node.op == "LayerNorm")
    y = normal * weights["weight"]
    if "bias" in weights:
        y = y + weights["bias"]

    def backward(dy: Array) -> Gradients:
        dy = features_last(dy)
        gradients = {"weight": rows(dy * normal).sum(axis=0)}
        if "bias" in weights:
            gradients["bias"] = rows(dy).sum(axis=0)
        return (features_first(back(dy * weights["weight"])),), gradients

    return features_first(y), backward


def normalised(x: Array, eps: float, centred: bool = True) -> Tuple[Array, Callable[[Array], Array]]:
    """The last axis with the mean square 1, and the mean 0 if `centred`; what takes its gradient to that of x."""

    def mean(value: Array) -> Array:
        return value.mean(axis=-1, keepdims=True)

    x = x - mean(x) if centred else x
    scale = 1 / np.sqrt(mean(x**2) + x.dtype.type(eps))
    normal = x * scale

    def back(dnormal: Array) -> Array:
        along = normal * mean(dnormal * normal)
        return scale * ((dnormal - mean(dnormal) if centred else dnormal) - along)

    return normal, back


def maxout(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """The gradient goes to the first largest of a group of neighbours."""
    (x,) = inputs
    groups = x.reshape(*x.shape[:-1], -1, node.attrs["pieces"])
    winner = groups.argmax(axis=-1)[..., None]

    def backward(dy: Array) -> Gradients:
        dgroups = np.zeros_like(groups)
        np.put_along_axis(dgroups, winner, dy[..., None], axis=-1)
        return (dgroups.reshape(x.shape),), {}

    return groups.max(axis=-1), backward


def concat(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Concatenate features, or along the node's axis; an array without a batch is repeated."""
    axis, count = 1 + concat_axis(node, inputs[0].shape[1:]), max(map(len, inputs))
    ends = np.cumsum([x.shape[axis] for x in inputs])[:-1]
    y = np.concatenate([np.broadcast_to(x, (count, *x.shape[1:])) for x in inputs], axis=axis)

    def backward(dy: Array) -> Gradients:
        parts = np.split(dy, ends, axis=axis)
        return tuple(summed_to(one, x.shape) for one, x in zip(parts, inputs)), {}

    return y, backward


def parameter(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """An array without a batch: of length 1 along it, so that it meets any."""
    return weights["value"][None], lambda dy: ((), {"value": dy[0]})
