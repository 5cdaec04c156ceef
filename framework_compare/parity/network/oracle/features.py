"""Ops on the features of a vector, of each step or of each place, and their normalisation."""

from typing import Callable

import numpy as np

from framework_compare.graph import Node
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Op, Result, Weights, rows


def features_last(x: Array) -> Array:
    """An image with its channels at the end, where all else has its features."""
    return x.transpose(0, 2, 3, 1) if x.ndim == 4 else x


def features_first(x: Array) -> Array:
    """Back from `features_last`."""
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x


def linear(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
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


def norm(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
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


def normalised(x: Array, eps: float, centred: bool = True) -> tuple[Array, Callable[[Array], Array]]:
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


def groupnorm(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Wu and He 2018: of each sample's channels in groups, with the biased variance."""
    (x,), a = inputs, node.attrs
    grouped, back = normalised(x.reshape(len(x), a["groups"], -1), a["eps"])
    normal = grouped.reshape(x.shape)

    def backward(dy: Array) -> Gradients:
        gradients = {"weight": (dy * normal).sum(axis=(0, 2, 3)), "bias": dy.sum(axis=(0, 2, 3))}
        dnormal = (dy * weights["weight"][:, None, None]).reshape(grouped.shape)
        return (back(dnormal).reshape(x.shape),), gradients

    def backward_by_sums(dy: Array) -> Gradients:
        """Return gradients from sums over a group, as Paddle's and PyTorch's kernels do: sums that nearly cancel."""
        values, dnormal = x.reshape(grouped.shape), (dy * weights["weight"][:, None, None]).reshape(grouped.shape)
        mean = values.mean(axis=2, keepdims=True)
        scale = 1 / np.sqrt(values.var(axis=2, keepdims=True) + x.dtype.type(a["eps"]))

        def share(each: Array) -> Array:
            return each.cumsum(axis=2)[..., -1:] / x.dtype.type(grouped.shape[2])

        along = (share(dnormal * values) - share(dnormal) * mean) * scale**3
        dx = dnormal * scale - values * along + along * mean - share(dnormal) * scale
        scaled, shift = (np.broadcast_to(each * scale, grouped.shape).reshape(x.shape) for each in (values, mean))
        gradients = {"weight": mode.total(dy * scaled) - mode.total(dy * shift), "bias": mode.total(dy)}
        return (dx.reshape(x.shape),), gradients

    y = normal * weights["weight"][:, None, None] + weights["bias"][:, None, None]
    return y, backward_by_sums if mode.plain_sums else backward


OPS: dict[str, Op] = {
    **dict.fromkeys(("Linear", "Unembedding"), linear),
    **dict.fromkeys(("LayerNorm", "RMSNorm"), norm),
    "GroupNorm": groupnorm,
}
