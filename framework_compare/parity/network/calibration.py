"""Weights at which a network is smooth, so that its gradient can be asked for in float32.

At ordinary weights some inputs of every ReLU lie within rounding of its kink. Each that falls on the other side
changes the gradient by as much as any other input does: float32 alone moves ResNet-50's gradient by 2 %, and a wrong
gradient of that size would pass. Here the bias in front of each ReLU puts every channel wholly on one side of each
kink, by half of its own largest deviation: on, off or, at ReLU6, capped. What is left is rounding proper, some 1e-5.
In front of a Maxout one of each group's features is moved above the others everywhere.
"""

import math
from typing import Container

import numpy as np

from framework_compare.graph import Graph, Node, evaluate
from framework_compare.graph.window import Window
from framework_compare.parity.network.oracle import OPS, Mode
from framework_compare.parity.network.oracle.op import Inputs

Array = np.ndarray
MARGIN = 1.5  # distance of a channel's middle from the kink, in its largest deviations from that middle
KINKS = {"ReLU": (0.0,), "LeakyReLU": (0.0,), "ReLU6": (0.0, 6.0), "HardSigmoid": (-3.0, 3.0), "HardSwish": (-3.0, 3.0)}
CAPPED = ("ReLU6", "HardSigmoid", "HardSwish")  # with two kinks, six apart
OFF = 1.0
SPREAD = 2.7  # largest deviation of a channel that is to fit between two kinks with that margin, and some


def smooth(graph: Graph, views: dict[str, Array], images: Inputs, seed: int, replicas: int = 1) -> None:
    """Move biases (and BatchNorm scales in front of a ReLU6) of `views` in place, for training mode on `images`.

    Each of `replicas` has batch statistics of its own part of them.
    """
    rng = np.random.default_rng(seed)
    nodes = {node.name: node for node in graph.nodes}

    def apply(node: Node, *inputs: Array) -> Array:
        value = _run(graph, node, views, inputs, replicas)
        maxout = _reader(graph, node.name, ("Maxout",))
        if maxout is not None and f"{node.name}.bias" in views:
            lift = _lift(value, maxout.attrs["pieces"], rng)
            views[f"{node.name}.bias"][:] += lift
            value = value + lift
        reader = _reader(graph, node.name, KINKS)
        bias = _bias_of(node, nodes, views)
        if reader is not None and bias is not None:
            state = rng.random((value.shape[_channel_axis(value)],))
            pool = _pool_behind(graph, reader.name)
            if pool is not None and value.ndim == 4:
                state[_nearly_tied(value, pool)] = OFF
            value += _shift(node, bias, views, value, reader.op, state)
        return value

    evaluate(graph, apply, images)


def _lift(value: Array, pieces: int, rng: np.random.Generator) -> Array:
    """Return what is to be added to each feature, so that one of each group is the largest at all places, with a margin."""
    groups = value.reshape(-1, value.shape[-1] // pieces, pieces)
    winner = rng.integers(pieces, size=(1, groups.shape[1], 1))
    chosen = np.take_along_axis(groups, np.broadcast_to(winner, (len(groups), groups.shape[1], 1)), axis=2)
    others = groups.copy()
    np.put_along_axis(others, np.broadcast_to(winner, chosen.shape), -np.inf, axis=2)
    lift = np.zeros((1, *groups.shape[1:]), value.dtype)
    needed = (others.max(axis=2, keepdims=True) - chosen).max(axis=0, keepdims=True) + value.std()
    np.put_along_axis(lift, winner, np.maximum(needed, 0).astype(value.dtype), axis=2)
    return lift.ravel()


def _channel_axis(value: Array) -> int:
    """Channels stand behind the batch, features of a sequence at the end."""
    return 2 if value.ndim == 3 else 1


def _run(graph: Graph, node: Node, views: dict[str, Array], inputs: tuple[Array, ...], replicas: int) -> Array:
    weights = {name.rpartition(".")[2]: a for name, a in views.items() if name.rpartition(".")[0] == node.arrays}
    mode = Mode(not graph.is_frozen(node))
    if replicas == 1 or all(len(value) == 1 for value in inputs):  # parameters have one value for all samples
        return OPS[node.op](node, weights, inputs, mode)[0]
    parts = zip(*(np.split(value, replicas) if len(value) > 1 else [value] * replicas for value in inputs))
    return np.concatenate([OPS[node.op](node, weights, part, mode)[0] for part in parts])


def _reader(graph: Graph, name: str, ops: Container[str]) -> Node | None:
    """The node of one of `ops` that reads a node, None where there is none."""
    return next((node for node in graph.nodes if name in node.inputs and node.op in ops), None)


def _pool_behind(graph: Graph, name: str) -> Node | None:
    """The MaxPool2d that reads a node, itself or joined to others."""
    pool = _reader(graph, name, ("MaxPool2d",))
    joined = _reader(graph, name, ("Concat",))
    return pool if pool is not None or joined is None else _pool_behind(graph, joined.name)


def _nearly_tied(value: Array, pool: Node) -> Array:
    """Mask of the channels in which the two largest of a pooling window lie closest: rounding may swap them.

    All but an eighth are masked: with the first step the others move, and some windows come to be tied.
    """
    window = Window.of(pool.attrs)
    padded = np.pad(value, ((0, 0), (0, 0), *window.all_pads(value.shape[2:])), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, window.kernel, axis=(2, 3))
    windows = windows[:, :, :: window.stride[0], :: window.stride[1]]
    windows = windows.reshape(*value.shape[:2], -1, math.prod(window.kernel))
    second, first = np.moveaxis(np.partition(windows, -2, axis=-1)[..., -2:], -1, 0)
    gaps = (first - second).min(axis=(0, 2)) / _spread(value)[1]
    return gaps < np.quantile(gaps, 0.875)


def _bias_of(node: Node, nodes: dict[str, Node], views: dict[str, Array]) -> str | None:
    """Name of the bias that moves a node's output: its own, or that of the branch an Add adds.

    None for a layer that has another's: moved, it would move the other again.
    """
    owner = nodes.get(node.inputs[0]) if node.op == "Add" else node
    name = f"{owner.name}.bias" if owner is not None else ""
    return name if name in views else None


def _shift(node: Node, bias_name: str, views: dict[str, Array], value: Array, activation: str, state: Array) -> Array:
    """Put each channel of `value` on one side of the kinks; returns what is to be added to it."""
    middle, deviation = _spread(value)
    added = np.zeros_like(value)
    scales = ("BatchNorm2d",) if activation == "ReLU6" else ("BatchNorm2d", "Conv2d", "Linear")
    if activation in CAPPED and f"{node.name}.weight" in views and node.op in scales:
        factor = SPREAD / (MARGIN * np.maximum(deviation, 1e-6))
        weight = views[f"{node.name}.weight"]
        weight *= factor.reshape(-1, *[1] * (weight.ndim - 1))
        bias = views[f"{node.name}.bias"]
        scaled = (value - _wide(bias, value)) * _wide(factor, value) + _wide(bias, value)
        added = scaled - value
        middle, deviation = _spread(scaled)
    move = (_target(activation, deviation, state) - middle).astype(value.dtype)
    views[bias_name][:] += move
    return added + _wide(move, value)


def _spread(value: Array) -> tuple[Array, Array]:
    """Middle and largest deviation of each channel; a channel is never narrower than a tenth of the widest.

    Of a vector, with one value per image, the deviation between images says little: the features' own scatter counts.
    """
    axes = tuple(axis for axis in range(value.ndim) if axis != _channel_axis(value))
    high, low = value.max(axis=axes), value.min(axis=axes)
    deviation = (high - low) / 2
    if value.ndim == 2 or value[0, 0].size == 1:
        deviation = np.maximum(deviation, value.std())
    return (high + low) / 2, np.maximum(deviation, 0.1 * deviation.max())


def _target(activation: str, deviation: Array, state: Array) -> Array:
    """Return where each channel's middle goes, by `state` from 0 to 1: on, beyond a cap, or off."""
    away = MARGIN * deviation
    if activation in CAPPED:
        low, high = KINKS[activation]
        return np.where(state < 0.6, (low + high) / 2, np.where(state < 0.8, high + away, low - away))
    return np.where(state < 0.8, away, -away)


def _wide(vector: Array, value: Array) -> Array:
    return vector.reshape(-1, *[1] * (value.ndim - 1 - _channel_axis(value)))
