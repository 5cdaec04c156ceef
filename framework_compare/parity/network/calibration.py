"""Weights at which a network is smooth, so that its gradient can be asked for in float32.

At ordinary weights some inputs of every ReLU lie within rounding of its kink. Each that falls on the other side
changes the gradient by as much as any other input does: float32 alone moves ResNet-50's gradient by 2 %, and a wrong
gradient of that size would pass. Here the bias in front of each ReLU puts every channel wholly on one side of each
kink, by half of its own largest deviation: on, off or, at ReLU6, capped. What is left is rounding proper, some 1e-5.
"""

from __future__ import annotations

from typing import Any, Container, Dict, List, Optional, Tuple

import numpy as np

from framework_compare.graph import INPUT, Graph, Node
from framework_compare.parity.network.oracle import OPS, Mode

Array = np.ndarray
MARGIN = 1.5  # distance of a channel's middle from the kink, in its largest deviations from that middle
KINKS = {"ReLU": (0.0,), "ReLU6": (0.0, 6.0)}
OFF = 1.0
SPREAD = 2.7  # largest deviation of a channel that is to fit between the kinks of a ReLU6 with that margin, and some


def smooth(graph: Graph, views: Dict[str, Array], images: Array, seed: int) -> None:
    """Move biases (and BatchNorm scales in front of a ReLU6) of `views` in place, for training mode on `images`."""
    rng = np.random.default_rng(seed)
    nodes = {node.name: node for node in graph.nodes}
    values: Dict[str, Array] = {INPUT: images}
    last_reader = {name: node.name for node in graph.nodes for name in node.inputs}
    for node in graph.nodes:
        values[node.name] = _run(node, views, values)
        reader = _reader(graph, node.name, KINKS)
        if reader is not None and _bias_of(node, nodes, views) is not None:
            state = rng.random(values[node.name].shape[1])
            pool = _reader(graph, reader.name, ("MaxPool2d",))
            if pool is not None:
                state[_nearly_tied(values[node.name], pool)] = OFF
            values[node.name] += _shift(node, nodes, views, values[node.name], reader.op, state)
        for name in set(node.inputs):
            if last_reader[name] == node.name:
                del values[name]


def _run(node: Node, views: Dict[str, Array], values: Dict[str, Array]) -> Array:
    weights = {name.rpartition(".")[2]: a for name, a in views.items() if name.rpartition(".")[0] == node.name}
    return OPS[node.op](node, weights, tuple(values[name] for name in node.inputs), Mode(True))[0]


def _reader(graph: Graph, name: str, ops: Container[str]) -> Optional[Node]:
    """The node of one of `ops` that reads a node, None where there is none."""
    return next((node for node in graph.nodes if name in node.inputs and node.op in ops), None)


def _nearly_tied(value: Array, pool: Node) -> Array:
    """Mask of the channels in which the two largest of a pooling window lie closest: rounding may swap them.

    All but an eighth are masked: with the first step the others move, and some windows come to be tied.
    """
    a = pool.attrs
    pad = ((0, 0), (0, 0), (a["padding"],) * 2, (a["padding"],) * 2)
    padded = np.pad(value, pad, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (a["kernel"],) * 2, axis=(2, 3))
    windows = windows[:, :, :: a["stride"], :: a["stride"]].reshape(*value.shape[:2], -1, a["kernel"] ** 2)
    second, first = np.moveaxis(np.partition(windows, -2, axis=-1)[..., -2:], -1, 0)
    gaps = (first - second).min(axis=(0, 2)) / _spread(value)[1]
    return gaps < np.quantile(gaps, 0.875)


def _bias_of(node: Node, nodes: Dict[str, Node], views: Dict[str, Array]) -> Any:
    """Name of the bias that moves a node's output: its own, or that of the branch an Add adds."""
    owner = nodes.get(node.inputs[0]) if node.op == "Add" else node
    name = f"{owner.name}.bias" if owner is not None else ""
    return name if name in views else None


def _shift(
    node: Node, nodes: Dict[str, Node], views: Dict[str, Array], value: Array, activation: str, state: Array
) -> Array:
    """Put each channel of `value` on one side of the kinks; returns what is to be added to it."""
    middle, deviation = _spread(value)
    added = np.zeros_like(value)
    if activation == "ReLU6" and f"{node.name}.weight" in views and node.op == "BatchNorm2d":
        factor = SPREAD / (MARGIN * np.maximum(deviation, 1e-6))
        _scale(node, views, factor)
        bias = views[f"{node.name}.bias"]
        scaled = (value - _wide(bias, value)) * _wide(factor, value) + _wide(bias, value)
        added = scaled - value
        middle, deviation = _spread(scaled)
    move = (_target(activation, deviation, state) - middle).astype(value.dtype)
    views[_bias_of(node, nodes, views)][:] += move
    return added + _wide(move, value)


def _scale(node: Node, views: Dict[str, Array], factor: Array) -> None:
    views[f"{node.name}.weight"][:] *= factor


def _spread(value: Array) -> Tuple[Array, Array]:
    """Middle and largest deviation of each channel; a channel is never narrower than a tenth of the widest.

    Of a vector, with a value a picture, the deviation between pictures says little: the features' own scatter counts.
    """
    axes = (0, *range(2, value.ndim))
    high, low = value.max(axis=axes), value.min(axis=axes)
    deviation = (high - low) / 2
    if value.ndim == 2:
        deviation = np.maximum(deviation, value.std())
    return (high + low) / 2, np.maximum(deviation, 0.1 * deviation.max())


def _target(activation: str, deviation: Array, state: Array) -> Array:
    """Where the middle of each channel goes, by `state` from 0 to 1: on, beyond 6 where there is a 6, or off."""
    away = MARGIN * deviation
    if activation == "ReLU6":
        return np.where(state < 0.6, 3.0, np.where(state < 0.8, 6.0 + away, -away))
    return np.where(state < 0.8, away, -away)


def _wide(vector: Array, value: Array) -> Array:
    return vector.reshape(-1, *[1] * (value.ndim - 2))


def kink_distance(graph: Graph, views: Dict[str, Array], images: Array) -> float:
    """Smallest distance of any ReLU input from a kink, in largest deviations of its channel."""
    found: List[float] = []
    values: Dict[str, Array] = {INPUT: images}
    for node in graph.nodes:
        if node.op in KINKS:
            before = values[node.inputs[0]]
            distance = np.min([np.abs(before - kink) for kink in KINKS[node.op]], axis=0)
            found.append(float((distance / _wide(_spread(before)[1], before)).min()))
        values[node.name] = _run(node, views, values)
    return min(found)
