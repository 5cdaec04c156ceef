"""Attention, free arrays and the ops that move what a network has, as functions of a Network and a node."""

from __future__ import annotations

from typing import Any, Callable, Dict

from framework_compare.graph import Node
from framework_compare.graph.attention import relative_index, shift_mask


def attention(net: Any, node: Node, *inputs: Any, **_: Any) -> Any:
    """TensorFlow has no op for it: Keras' own layer is these products, too."""
    tf, a = net.tf, node.attrs
    operands, bias = (inputs[:-1], inputs[-1]) if a.get("bias") else (inputs, None)
    q, k, v = (_heads(tf, x, a["heads"]) for x in (tf.split(operands[0], 3, -1) if len(operands) == 1 else operands))
    scores = tf.matmul(q * tf.cast(a["scale"], q.dtype), k, transpose_b=True)
    if bias is not None:
        scores += bias if len(q.shape) == 4 else bias[:, None, None]
    mask = shift_mask(a, *q.shape[1:3])
    if mask is not None:
        scores += tf.cast(mask, scores.dtype)
    y = _swapped(tf, tf.matmul(_softmax(tf, scores), v))
    return tf.reshape(y, [-1, *y.shape[1:-2], y.shape[-2] * y.shape[-1]])


def _softmax(tf: Any, scores: Any) -> Any:
    """Over the last axis; its kernel takes no gradient of more than five axes (windows of an image have six)."""
    if len(scores.shape) <= 5:
        return tf.nn.softmax(scores)
    return tf.reshape(tf.nn.softmax(tf.reshape(scores, [-1, scores.shape[-1]])), [-1, *scores.shape[1:]])


def _heads(tf: Any, x: Any, heads: int) -> Any:
    """(N, ..., steps, features) to (N, ..., heads, steps, features of a head)."""
    return _swapped(tf, tf.reshape(x, [-1, *x.shape[1:-1], heads, x.shape[-1] // heads]))


def _swapped(tf: Any, x: Any) -> Any:
    *outer, first, second, last = range(len(x.shape))
    return tf.transpose(x, [*outer, second, first, last])


def relative_bias(net: Any, node: Node, **_: Any) -> Any:
    table = net.tf.gather(net.cast(node, "weight"), relative_index(node.attrs["window"]))
    return net.tf.transpose(table, (2, 0, 1))[None]


def parameter(net: Any, node: Node, **_: Any) -> Any:
    """Of length 1 along the batch; an array for images with its channels last."""
    value = net.cast(node, "value")[None]
    return net.tf.transpose(value, (0, 2, 3, 1)) if len(value.shape) == 4 else value


def stochastic_depth(net: Any, node: Node, x: Any, *, training: bool, **_: Any) -> Any:
    return net.dropped(node, x, [net.batch(x), *[1] * (len(x.shape) - 1)]) if training else x


def concat(net: Any, node: Node, *inputs: Any, **_: Any) -> Any:
    """Values without a batch are repeated for each sample of the others."""
    rank = len(inputs[0].shape) - 1
    axis = _axis(rank, node.attrs.get("axis", 0 if rank == 3 else rank - 1))
    own = [name not in net.shared for name in node.inputs]
    if any(own) and not all(own):
        count = net.batch(inputs[own.index(True)])
        inputs = tuple(x if o else net.tf.broadcast_to(x, [count, *x.shape[1:]]) for x, o in zip(inputs, own))
    return net.tf.concat(inputs, axis)


def _axis(rank: int, axis: int) -> int:
    """Axis of an array, for one of the graph's shape, which has no batch and an image's channels before its rows."""
    return 1 + ((axis - 1) % 3 if rank == 3 else axis)


def part(net: Any, node: Node, x: Any, **_: Any) -> Any:
    """A Slice, or one part of a Split."""
    a = node.attrs
    if node.op == "Split":
        start = sum(a["sizes"][: a["index"]])
        along = slice(start, start + a["sizes"][a["index"]])
    else:
        along = slice(a["start"], a["end"], a.get("step", 1))
    return x[(slice(None),) * _axis(len(x.shape) - 1, a["axis"]) + (along,)]


def channel_shuffle(net: Any, node: Node, x: Any, **_: Any) -> Any:
    tf, groups, (height, width, channels) = net.tf, node.attrs["groups"], x.shape[1:]
    turned = _swapped_last(tf, tf.reshape(x, (-1, height, width, groups, channels // groups)))
    return tf.reshape(turned, (-1, height, width, channels))


def _swapped_last(tf: Any, x: Any) -> Any:
    *outer, first, second = range(len(x.shape))
    return tf.transpose(x, [*outer, second, first])


def tokens(net: Any, node: Node, x: Any, **_: Any) -> Any:
    return net.tf.reshape(x, (-1, x.shape[1] * x.shape[2], x.shape[3]))


def pad(net: Any, node: Node, x: Any, **_: Any) -> Any:
    top, bottom, left, right = node.attrs["padding"]
    pads = [[0, 0], [top, bottom], [left, right], [0, 0]]
    return net.tf.pad(x, pads, constant_values=node.attrs.get("value", 0.0))


def windows(net: Any, node: Node, x: Any, **_: Any) -> Any:
    tf, (down, across), (height, width, channels) = net.tf, node.attrs["window"], x.shape[1:]
    rows, columns = height // down, width // across
    cut = tf.transpose(tf.reshape(x, (-1, rows, down, columns, across, channels)), (0, 1, 3, 2, 4, 5))
    return tf.reshape(cut, (-1, rows, columns, down * across, channels))


def from_windows(net: Any, node: Node, x: Any, **_: Any) -> Any:
    tf, (down, across), (rows, columns, _places, channels) = net.tf, node.attrs["window"], x.shape[1:]
    whole = tf.transpose(tf.reshape(x, (-1, rows, columns, down, across, channels)), (0, 1, 3, 2, 4, 5))
    return tf.reshape(whole, (-1, rows * down, columns * across, channels))


LOWERINGS: Dict[str, Callable[..., Any]] = {
    "Attention": attention,
    "RelativeBias": relative_bias,
    "Parameter": parameter,
    "StochasticDepth": stochastic_depth,
    "Concat": concat,
    "Slice": part,
    "Split": part,
    "Select": lambda net, node, x, **_: x[:, node.attrs["index"]],
    "ChannelShuffle": channel_shuffle,
    "Tokens": tokens,
    "Pad": pad,
    "Roll": lambda net, node, x, **_: net.tf.roll(x, node.attrs["shifts"], [1, 2]),
    "Windows": windows,
    "FromWindows": from_windows,
    "Mul": lambda net, node, x, y, **_: x * y,
    "SiLU": lambda net, node, x, **_: net.tf.nn.silu(x),
    "HardSigmoid": lambda net, node, x, **_: net.tf.nn.relu6(x + 3) / 6,
    "HardSwish": lambda net, node, x, **_: x * (net.tf.nn.relu6(x + 3) / 6),
    "GELU": lambda net, node, x, **_: net.tf.nn.gelu(x, approximate=node.attrs["approximate"] == "tanh"),
}
