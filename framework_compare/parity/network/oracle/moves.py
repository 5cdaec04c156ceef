"""Ops that compute nothing: they move, repeat or choose numbers, and their gradients go back the way the numbers came."""

from typing import Callable

import numpy as np

from framework_compare.graph import Node
from framework_compare.graph.ops import concat_axis
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Op, Result, Weights, summed_to
from framework_compare.protocol import Document

Attrs = Document


def move(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    (x,), moved = inputs, MOVES[node.op]

    def backward(dy: Array) -> Gradients:
        places = moved(np.arange(x.size).reshape(x.shape), node.attrs)
        dx = np.zeros(x.size, dy.dtype)
        np.add.at(dx, places.ravel(), dy.ravel())  # a number that is taken twice gets both
        return (dx.reshape(x.shape),), {}

    return moved(x, node.attrs), backward


def pad(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Pad an image's rows and columns, or any axes."""
    (x,), a = inputs, node.attrs
    if node.op == "Pad":
        top, bottom, left, right = a["padding"]
        pads = [(0, 0), (top, bottom), (left, right)]
    else:
        pads = [tuple(pair) for pair in a["pads"]]
    inner = (slice(None), *(slice(first, first + size) for (first, _), size in zip(pads, x.shape[1:])))
    padded = np.pad(x, ((0, 0), *pads), constant_values=a.get("value", 0))
    return padded, lambda dy: ((dy[inner],), {})


def looked_up(table: Array, index: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Rows of a table; what takes their gradient to that of the table: the sum over its occurrences, zero without one."""

    def back(dy: Array) -> Array:
        gradient = np.zeros_like(table)
        np.add.at(gradient, index, dy)
        return gradient

    return table[index], back


def embedding(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Rows of the weight by token; nothing is moved by moving a token."""
    (tokens,) = inputs
    y, back = looked_up(weights["weight"], tokens)
    return y, lambda dy: ((np.zeros(tokens.shape, y.dtype),), {"weight": back(dy)})


def gather(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Rows of an input by the numbers in another."""
    table, index = inputs[0][0], inputs[1].astype(np.int64)
    y, back = looked_up(table, index)
    return y, lambda dy: ((back(dy)[None], np.zeros(index.shape, dy.dtype)), {})


def expand(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    return np.broadcast_to(x, (len(x), *node.attrs["shape"])), lambda dy: ((summed_to(dy, x.shape),), {})


def maxout(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """The largest of each group of neighbours; equals share the gradient."""
    (x,) = inputs
    groups = x.reshape(*x.shape[:-1], -1, node.attrs["pieces"])
    y = groups.max(axis=-1)
    winners = (groups == y[..., None]).astype(x.dtype)
    share = winners / winners.sum(axis=-1, keepdims=True)
    return y, lambda dy: (((dy[..., None] * share).reshape(x.shape),), {})


def concat(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Concatenate features, or along the node's axis; an array without a batch is repeated."""
    axis, count = 1 + concat_axis(node, inputs[0].shape[1:]), max(map(len, inputs))
    ends = np.cumsum([x.shape[axis] for x in inputs])[:-1]
    y = np.concatenate([np.broadcast_to(x, (count, *x.shape[1:])) for x in inputs], axis=axis)

    def backward(dy: Array) -> Gradients:
        parts = np.split(dy, ends, axis=axis)
        return tuple(summed_to(one, x.shape) for one, x in zip(parts, inputs)), {}

    return y, backward


def _windows(x: Array, a: Attrs) -> Array:
    """(N, C, H, W) to (N, rows, across, places, C)."""
    (count, channels, height, width), (down, across) = x.shape, a["window"]
    cut = x.reshape(count, channels, height // down, down, width // across, across).transpose(0, 2, 4, 3, 5, 1)
    return cut.reshape(*cut.shape[:3], down * across, channels)


def _from_windows(x: Array, a: Attrs) -> Array:
    (count, rows, columns, _, channels), (down, across) = x.shape, a["window"]
    cut = x.reshape(count, rows, columns, down, across, channels).transpose(0, 5, 1, 3, 2, 4)
    return cut.reshape(count, channels, rows * down, columns * across)


def _split(x: Array, a: Attrs) -> Array:
    start = sum(a["sizes"][: a["index"]])
    return _slice(x, {**a, "start": start, "end": start + a["sizes"][a["index"]]})


def _slice(x: Array, a: Attrs) -> Array:
    return x[(slice(None),) * (a["axis"] + 1) + (slice(a["start"], a["end"], a.get("step", 1)),)]


MOVES: dict[str, Callable[[Array, Attrs], Array]] = {
    "Flatten": lambda x, a: x.reshape(len(x), -1),
    "Tokens": lambda x, a: x.reshape(*x.shape[:2], -1).swapaxes(1, 2),
    "ChannelShuffle": lambda x, a: x.reshape(len(x), a["groups"], -1, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape),
    "Roll": lambda x, a: np.roll(x, a["shifts"], (2, 3)),
    "Windows": _windows,
    "FromWindows": _from_windows,
    "Split": _split,
    "Slice": _slice,
    "Reverse": lambda x, a: x[:, ::-1],
    "Last": lambda x, a: x[:, -1],
    "Reshape": lambda x, a: x.reshape(len(x), *a["shape"]),
    "Permute": lambda x, a: x.transpose(0, *(1 + axis for axis in a["order"])),
    "Select": lambda x, a: x[:, a["index"]],
    "Take": lambda x, a: x.take(a["index"], axis=1 + a["axis"]),
}
OPS: dict[str, Op] = {
    **dict.fromkeys(MOVES, move),
    **dict.fromkeys(("Pad", "PadAxes"), pad),
    "Embedding": embedding,
    "Gather": gather,
    "Expand": expand,
    "Maxout": maxout,
    "Concat": concat,
}
