"""Attention, free arrays and the ops that move what a network has, as functions of a Network and a node."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping

from framework_compare.graph import Node
from framework_compare.graph.attention import relative_index, shift_mask


def attention(net: Any, node: Node, own: Mapping[str, Any], *inputs: Any, **_: Any) -> Any:
    a, jnp = node.attrs, net.jax.numpy
    operands, bias = (inputs[:-1], inputs[-1]) if a.get("bias") else (inputs, None)
    operands = [x.astype(net.dtype) for x in operands]
    q, k, v = jnp.split(operands[0], 3, axis=-1) if len(operands) == 1 else operands
    q, k, v = (x.reshape(*x.shape[:-1], a["heads"], -1) for x in (q, k, v))  # (N, ..., steps, heads, features)
    if q.ndim == 4:
        y = net.jax.nn.dot_product_attention(q, k, v, bias, scale=a["scale"])
    else:
        scores = a["scale"] * jnp.einsum("nrcqhf,nrckhf->nrchqk", q, k).astype("float32")
        scores = scores if bias is None else scores + bias[:, None, None]
        mask = shift_mask(a, *q.shape[1:3])
        shares = net.jax.nn.softmax(scores if mask is None else scores + mask).astype(net.dtype)
        y = jnp.einsum("nrchqk,nrckhf->nrcqhf", shares, v)
    return y.reshape(*y.shape[:-2], -1)


def relative_bias(net: Any, node: Node, own: Mapping[str, Any], **_: Any) -> Any:
    return own["weight"].astype(net.dtype)[relative_index(node.attrs["window"])].transpose(2, 0, 1)[None]


def parameter(net: Any, node: Node, own: Mapping[str, Any], **_: Any) -> Any:
    """Of length 1 along the batch; an array for images in their layout."""
    value = own["value"].astype(net.dtype)[None]
    return value.transpose(0, 2, 3, 1) if value.ndim == 4 and net.channels_last else value


def stochastic_depth(net: Any, node: Node, own: Mapping[str, Any], x: Any, *, key: Any) -> Any:
    return net.dropped(node, x, (len(x), *[1] * (x.ndim - 1)), key)


def concat(net: Any, node: Node, own: Mapping[str, Any], *inputs: Any, **_: Any) -> Any:
    """Values without a batch are repeated for each sample of the others."""
    rank, count = inputs[0].ndim - 1, max(map(len, inputs))
    axis = net.axis(rank, node.attrs.get("axis", 0 if rank == 3 else rank - 1))
    jnp = net.jax.numpy
    return jnp.concatenate([jnp.broadcast_to(x, (count, *x.shape[1:])) for x in inputs], axis)


def part(net: Any, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
    """A Slice, or one part of a Split."""
    a = node.attrs
    if node.op == "Split":
        start = sum(a["sizes"][: a["index"]])
        along = slice(start, start + a["sizes"][a["index"]])
    else:
        along = slice(a["start"], a["end"], a.get("step", 1))
    return x[(slice(None),) * net.axis(x.ndim - 1, a["axis"]) + (along,)]


def channel_shuffle(net: Any, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
    groups = node.attrs["groups"]
    if net.channels_last:
        return x.reshape(*x.shape[:-1], groups, -1).swapaxes(-1, -2).reshape(x.shape)
    return x.reshape(len(x), groups, -1, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)


def tokens(net: Any, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
    x = net.features_last(x)
    return x.reshape(len(x), -1, x.shape[-1])


def pad(net: Any, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
    top, bottom, left, right = node.attrs["padding"]
    pads = [(0, 0)] * 4
    for axis, sides in zip(net.spatial, ((top, bottom), (left, right))):
        pads[axis] = sides
    return net.jax.numpy.pad(x, pads, constant_values=node.attrs.get("value", 0.0))


def roll(net: Any, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
    return net.jax.numpy.roll(x, tuple(node.attrs["shifts"]), net.spatial)


def windows(net: Any, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
    x, (down, across) = net.features_last(x), node.attrs["window"]
    count, height, width, channels = x.shape
    cut = x.reshape(count, height // down, down, width // across, across, channels).swapaxes(2, 3)
    return cut.reshape(*cut.shape[:3], down * across, channels)


def from_windows(net: Any, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
    (count, rows, columns, _, channels), (down, across) = x.shape, node.attrs["window"]
    whole = x.reshape(count, rows, columns, down, across, channels).swapaxes(2, 3)
    return net.features_first(whole.reshape(count, rows * down, columns * across, channels))


LOWERINGS: Dict[str, Callable[..., Any]] = {
    "Attention": attention,
    "RelativeBias": relative_bias,
    "Parameter": parameter,
    "StochasticDepth": stochastic_depth,
    "Concat": concat,
    "Slice": part,
    "Split": part,
    "Select": lambda net, node, own, x, **_: x[:, node.attrs["index"]],
    "ChannelShuffle": channel_shuffle,
    "Tokens": tokens,
    "Pad": pad,
    "Roll": roll,
    "Windows": windows,
    "FromWindows": from_windows,
    "Mul": lambda net, node, own, x, y, **_: x * y,
    "SiLU": lambda net, node, own, x, **_: net.jax.nn.silu(x),
    "HardSigmoid": lambda net, node, own, x, **_: net.jax.nn.hard_sigmoid(x),
    "HardSwish": lambda net, node, own, x, **_: net.jax.nn.hard_swish(x),
    "GELU": lambda net, node, own, x, **_: net.jax.nn.gelu(x, approximate=node.attrs["approximate"] == "tanh"),
}
