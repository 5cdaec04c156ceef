"""Attention, and the windows of an image that it is computed in."""

from typing import Dict, Tuple

import numpy as np

from framework_compare.graph import Node
from framework_compare.graph.attention import relative_index, shift_mask
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Op, Result, Weights, summed_to


def attention(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Vaswani et al. 2017: softmax(s q k' + b) v in each head, of (N, ..., steps, features)."""
    a, heads, bias = node.attrs, node.attrs["heads"], inputs[-1] if node.attrs.get("bias") else None
    operands = inputs[:-1] if bias is not None else inputs
    fused, scale = len(operands) == 1, operands[0].dtype.type(a["scale"])
    q, k, v = np.split(operands[0], 3, axis=-1) if fused else operands
    groups = heads // a.get("kv_heads", heads)
    q = _heads(q, heads)
    k, v = (_heads(x, heads // groups).repeat(groups, axis=-3) for x in (k, v))
    scores = scale * (q @ k.swapaxes(-1, -2))
    if bias is not None:
        scores = scores + bias.reshape(len(bias), *[1] * (scores.ndim - 4), *bias.shape[1:])
    mask = shift_mask(a, *scores.shape[1:3])
    if mask is not None:
        scores = scores + mask.astype(scores.dtype)
    if a.get("causal"):
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = powers / powers.sum(axis=-1, keepdims=True)
    rounded = mode.operand(shares)

    def backward(dy: Array) -> Gradients:
        dout = _heads(dy, heads)
        dshares = dout @ v.swapaxes(-1, -2)
        dscores = shares * (dshares - (dshares * shares).sum(axis=-1, keepdims=True))
        narrow = mode.operand_gradient(dscores)
        of_heads = (scale * (narrow @ k), scale * (narrow.swapaxes(-1, -2) @ q), rounded.swapaxes(-1, -2) @ dout)
        merged = tuple(_merged(_summed(x, of)) for x, of in zip(of_heads, (1, groups, groups)))
        gradients = (np.concatenate(merged, axis=-1),) if fused else merged
        if bias is None:
            return gradients, {}
        windows = tuple(range(1, dscores.ndim - 3))
        return (*gradients, summed_to(dscores.sum(axis=windows) if windows else dscores, bias.shape)), {}

    return _merged(rounded @ v), backward


def _heads(x: Array, heads: int) -> Array:
    """(N, ..., steps, features) to (N, ..., heads, steps, features of a head)."""
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def _summed(x: Array, groups: int) -> Array:
    """The gradient of heads that were repeated so often."""
    return x if groups == 1 else x.reshape(*x.shape[:-3], -1, groups, *x.shape[-2:]).sum(axis=-3)


def _merged(x: Array) -> Array:
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def relative_bias(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Liu et al. 2021: a row of the table for each distance of two places."""
    table, index = weights["weight"], relative_index(node.attrs["window"])

    def backward(dy: Array) -> Gradients:
        gradient = np.zeros_like(table)
        np.add.at(gradient, index, dy[0].transpose(1, 2, 0))
        return (), {"weight": gradient}

    return table[index].transpose(2, 0, 1)[None], backward


OPS: Dict[str, Op] = {"Attention": attention, "RelativeBias": relative_bias}
