"""Ops on the features of a vector, of each step or of each place, and what joins and cuts arrays."""

from __future__ import annotations

from typing import Tuple

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
    """Of the features."""
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


def layernorm(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Of the features."""
    x = features_last(inputs[0])
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + x.dtype.type(node.attrs["eps"]))
    normal = centred * scale

    def backward(dy: Array) -> Gradients:
        dy = features_last(dy)
        dnormal = dy * weights["weight"]
        means = dnormal.mean(axis=-1, keepdims=True), (dnormal * normal).mean(axis=-1, keepdims=True)
        gradients = {"weight": rows(dy * normal).sum(axis=0), "bias": rows(dy).sum(axis=0)}
        return (features_first(scale * (dnormal - means[0] - normal * means[1])),), gradients

    return features_first(normal * weights["weight"] + weights["bias"]), backward


def rmsnorm(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Of the features."""
    x = features_last(inputs[0])
    scale = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + x.dtype.type(node.attrs["eps"]))
    normal = x * scale

    def backward(dy: Array) -> Gradients:
        dy = features_last(dy)
        dnormal = dy * weights["weight"]
        along = (dnormal * normal).mean(axis=-1, keepdims=True)
        return (features_first(scale * (dnormal - normal * along)),), {"weight": rows(dy * normal).sum(axis=0)}

    return features_first(normal * weights["weight"]), backward


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
    """Of the features, or along the axis that it names; an array without a batch is repeated."""
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
