"""The ops a network is made of: output shape, parameters and multiply-accumulates of each, in one literal.

Shapes leave the batch out: images and feature maps are (channels, height, width), vectors are (features,).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Dict, List, Mapping, Tuple

from framework_compare.errors import UsageError

Shape = Tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A trained array, or a running statistic (`trainable` False), with the initialiser that fills it."""

    name: str
    shape: Shape
    init: str
    trainable: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Node:
    """One layer: its torch.nn name in the network, its op, the nodes it reads, its attributes."""

    name: str
    op: str
    inputs: Tuple[str, ...]
    attrs: Mapping[str, Any]


def _conv2d_shape(node: Node, shape: Shape) -> Shape:
    a = node.attrs
    if shape[0] != a["in_channels"]:
        raise UsageError(f"layer {node.name}: expects {a['in_channels']} channels, gets {shape[0]}")
    return (a["out_channels"], *_window(node, shape))


def _window(node: Node, shape: Shape) -> Shape:
    """Height and width after a sliding window with symmetric padding, rounded down."""
    a = node.attrs
    size = tuple((s + 2 * a["padding"] - a["kernel"]) // a["stride"] + 1 for s in shape[1:])
    if min(size) < 1 or min(shape[1:]) + 2 * a["padding"] < a["kernel"]:
        raise UsageError(f"layer {node.name}: a {a['kernel']}x{a['kernel']} window does not fit {shape[1]}x{shape[2]}")
    return size


def _conv2d_parameters(node: Node) -> List[Parameter]:
    a = node.attrs
    shape = (a["out_channels"], a["in_channels"] // a["groups"], a["kernel"], a["kernel"])
    bias = [Parameter(f"{node.name}.bias", (a["out_channels"],), "zeros")] if a["bias"] else []
    return [Parameter(f"{node.name}.weight", shape, a["init"]), *bias]


def _linear_parameters(node: Node) -> List[Parameter]:
    a = node.attrs
    return [
        Parameter(f"{node.name}.weight", (a["out_features"], a["in_features"]), a["init"]),
        Parameter(f"{node.name}.bias", (a["out_features"],), "zeros"),
    ]


def _linear_shape(node: Node, shape: Shape) -> Shape:
    if shape != (node.attrs["in_features"],):
        raise UsageError(f"layer {node.name}: expects {node.attrs['in_features']} features, gets shape {shape}")
    return (node.attrs["out_features"],)


def _batchnorm_parameters(node: Node) -> List[Parameter]:
    shape = (node.attrs["channels"],)
    return [
        Parameter(f"{node.name}.weight", shape, "ones"),
        Parameter(f"{node.name}.bias", shape, "zeros"),
        Parameter(f"{node.name}.running_mean", shape, "zeros", trainable=False),
        Parameter(f"{node.name}.running_var", shape, "ones", trainable=False),
    ]


def _add_shape(node: Node, first: Shape, second: Shape) -> Shape:
    if first != second:
        raise UsageError(f"layer {node.name}: cannot add {first} and {second}")
    return first


@dataclasses.dataclass(frozen=True)
class Op:
    """What the graph must know of an op: output shape, parameters, multiply-accumulates of one picture."""

    shape: Callable[..., Shape]
    parameters: Callable[[Node], List[Parameter]] = lambda node: []
    macs: Callable[[Node, Shape], int] = lambda node, out: 0


def _same(node: Node, shape: Shape) -> Shape:
    return shape


OPS: Dict[str, Op] = {
    "Conv2d": Op(
        _conv2d_shape,
        _conv2d_parameters,
        lambda node, out: _conv2d_parameters(node)[0].size * out[1] * out[2],
    ),
    "BatchNorm2d": Op(_same, _batchnorm_parameters),
    "ReLU": Op(_same),
    "ReLU6": Op(_same),
    "MaxPool2d": Op(lambda node, shape: (shape[0], *_window(node, shape))),
    "AdaptiveAvgPool2d": Op(lambda node, shape: (shape[0], node.attrs["output"], node.attrs["output"])),
    "GlobalAvgPool": Op(lambda node, shape: (shape[0],)),
    "Flatten": Op(lambda node, shape: (math.prod(shape),)),
    "Linear": Op(_linear_shape, _linear_parameters, lambda node, out: _linear_parameters(node)[0].size),
    "Dropout": Op(_same),
    "Add": Op(_add_shape),
}
