"""Ops that compute nothing: they move or choose numbers, and their gradients go back the way the numbers came."""

from typing import Callable, Dict, Tuple

import numpy as np

from framework_compare.graph import Node
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Result, Weights
from framework_compare.protocol import Document

Attrs = Document


def move(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,), moved = inputs, MOVES[node.op]

    def backward(dy: Array) -> Gradients:
        places = moved(np.arange(x.size).reshape(x.shape), node.attrs)
        dx = np.zeros(x.size, dy.dtype)
        dx[places.ravel()] = dy.ravel()  # no number comes out twice
        return (dx.reshape(x.shape),), {}

    return moved(x, node.attrs), backward


def pad(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,), (top, bottom, left, right) = inputs, node.attrs["padding"]
    pads = ((0, 0), (0, 0), (top, bottom), (left, right))
    inner = (..., slice(top, top + x.shape[2]), slice(left, left + x.shape[3]))
    return np.pad(x, pads, constant_values=node.attrs.get("value", 0)), lambda dy: ((dy[inner],), {})


def _tokens(x: Array, a: Attrs) -> Array:
    return x.reshape(*x.shape[:2], -1).swapaxes(1, 2)


def _channel_shuffle(x: Array, a: Attrs) -> Array:
    return x.reshape(len(x), a["groups"], -1, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)


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


MOVES: Dict[str, Callable[[Array, Attrs], Array]] = {
    "Flatten": lambda x, a: x.reshape(len(x), -1),
    "Tokens": _tokens,
    "ChannelShuffle": _channel_shuffle,
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
}
