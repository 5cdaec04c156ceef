"""The ops a network is made of: output shape, parameters and multiply-accumulates of each, in one literal.

Shapes leave the batch out: images and feature maps are (channels, height, width), sequences are (steps, features),
vectors are (features,). Arrays are batch-first everywhere: (N, T, F).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Dict, List, Mapping, Tuple

from framework_compare.errors import UsageError

Shape = Tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """An array of the network with the initialiser that fills it.

    trainable: a step updates it. frozen: it would be trained, but its part of the network is frozen. A running
    statistic is neither: training leaves a new value in it, without a gradient.
    """

    name: str
    shape: Shape
    init: str
    trainable: bool = True
    frozen: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def kind(self) -> str:
        """ "trained", "frozen" or "statistic"."""
        return "frozen" if self.frozen else "trained" if self.trainable else "statistic"


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


def _avgpool2d_shape(node: Node, shape: Shape) -> Shape:
    if 2 * node.attrs["padding"] > node.attrs["kernel"]:  # some window would hold nothing but padding
        raise UsageError(f"layer {node.name}: padding {node.attrs['padding']} is more than half the window")
    return (shape[0], *_window(node, shape))


def _conv2d_parameters(node: Node) -> List[Parameter]:
    a = node.attrs
    shape = (a["out_channels"], a["in_channels"] // a["groups"], a["kernel"], a["kernel"])
    bias = [Parameter(f"{node.name}.bias", (a["out_channels"],), "zeros")] if a["bias"] else []
    return [Parameter(f"{node.name}.weight", shape, a["init"]), *bias]


def _conv1d_shape(node: Node, shape: Shape) -> Shape:
    a = node.attrs
    steps = _sequence(node, shape, a["in_channels"]) + 2 * a["padding"] - a["kernel"] + 1
    if steps < 1:
        raise UsageError(f"layer {node.name}: a window of {a['kernel']} steps does not fit {shape[0]}")
    return (steps, a["out_channels"])


def _conv1d_parameters(node: Node) -> List[Parameter]:
    a = node.attrs
    weight = Parameter(f"{node.name}.weight", (a["out_channels"], a["in_channels"], a["kernel"]), a["init"])
    bias = [Parameter(f"{node.name}.bias", (a["out_channels"],), "zeros")] if a["bias"] else []
    return [weight, *bias]


def _linear_parameters(node: Node) -> List[Parameter]:
    a = node.attrs
    return [
        Parameter(f"{node.name}.weight", (a["out_features"], a["in_features"]), a["init"]),
        Parameter(f"{node.name}.bias", (a["out_features"],), "zeros"),
    ]


def _linear_shape(node: Node, shape: Shape) -> Shape:
    if len(shape) > 2 or shape[-1:] != (node.attrs["in_features"],):
        raise UsageError(f"layer {node.name}: expects {node.attrs['in_features']} features, gets shape {shape}")
    return (*shape[:-1], node.attrs["out_features"])


def _batchnorm_parameters(node: Node) -> List[Parameter]:
    shape = (node.attrs["channels"],)
    return [
        Parameter(f"{node.name}.weight", shape, "ones"),
        Parameter(f"{node.name}.bias", shape, "zeros"),
        Parameter(f"{node.name}.running_mean", shape, "zeros", trainable=False),
        Parameter(f"{node.name}.running_var", shape, "ones", trainable=False),
    ]


def _layernorm_shape(node: Node, shape: Shape) -> Shape:
    if len(shape) > 2 or shape[-1:] != (node.attrs["features"],):
        raise UsageError(f"layer {node.name}: expects {node.attrs['features']} features, gets shape {shape}")
    return shape


def _layernorm_parameters(node: Node) -> List[Parameter]:
    shape = (node.attrs["features"],)
    return [Parameter(f"{node.name}.weight", shape, "ones"), Parameter(f"{node.name}.bias", shape, "zeros")]


def _maxout_shape(node: Node, shape: Shape) -> Shape:
    pieces = node.attrs["pieces"]
    if len(shape) > 2 or shape[-1] % pieces:
        raise UsageError(f"layer {node.name}: cannot group the features of shape {shape} by {pieces}")
    return (*shape[:-1], shape[-1] // pieces)


def _add_shape(node: Node, first: Shape, second: Shape) -> Shape:
    if first != second:
        raise UsageError(f"layer {node.name}: cannot add {first} and {second}")
    return first


def _concat_shape(node: Node, *shapes: Shape) -> Shape:
    if any(len(shape) > 2 or shape[:-1] != shapes[0][:-1] for shape in shapes):
        raise UsageError(f"layer {node.name}: cannot join the features of shapes {', '.join(map(str, shapes))}")
    return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))


def _sequence(node: Node, shape: Shape, features: int = 0) -> int:
    """Number of steps of a sequence; UsageError for another shape, or other features where their number matters."""
    if len(shape) != 2 or features not in (0, shape[1]):
        wanted = f"(steps, {features})" if features else "(steps, features)"
        raise UsageError(f"layer {node.name}: expects a sequence {wanted}, gets shape {shape}")
    return shape[0]


def _embedding_shape(node: Node, shape: Shape) -> Shape:
    if len(shape) != 1:
        raise UsageError(f"layer {node.name}: expects tokens (steps,), gets shape {shape}")
    return (*shape, node.attrs["embedding_dim"])


def _embedding_parameters(node: Node) -> List[Parameter]:
    a = node.attrs
    return [Parameter(f"{node.name}.weight", (a["num_embeddings"], a["embedding_dim"]), a["init"])]


def _recurrent_shape(node: Node, shape: Shape) -> Shape:
    return (_sequence(node, shape, node.attrs["input_size"]), node.attrs["hidden_size"])


def _lstm_parameters(node: Node) -> List[Parameter]:
    inputs, hidden = node.attrs["input_size"], node.attrs["hidden_size"]
    return [
        Parameter(f"{node.name}.weight_ih", (4 * hidden, inputs), "glorot_uniform"),
        Parameter(f"{node.name}.weight_hh", (4 * hidden, hidden), "orthogonal"),
        Parameter(f"{node.name}.bias", (4 * hidden,), "forget_ones"),
    ]


def _gru_parameters(node: Node) -> List[Parameter]:
    inputs, hidden = node.attrs["input_size"], node.attrs["hidden_size"]
    return [
        Parameter(f"{node.name}.weight_ih", (3 * hidden, inputs), "glorot_uniform"),
        Parameter(f"{node.name}.weight_hh", (3 * hidden, hidden), "orthogonal"),
        Parameter(f"{node.name}.bias_ih", (3 * hidden,), "zeros"),
        Parameter(f"{node.name}.bias_hh", (3 * hidden,), "zeros"),
    ]


def _last_shape(node: Node, shape: Shape) -> Shape:
    _sequence(node, shape)
    return shape[1:]


def _reverse_shape(node: Node, shape: Shape) -> Shape:
    _sequence(node, shape)
    return shape


def _quanv2d_shape(node: Node, shape: Shape) -> Shape:
    if len(shape) != 3 or shape[0] != 1 or min(shape[1:]) < 2:
        raise UsageError(f"layer {node.name}: expects a grey image (1, height, width) of 2x2 at least, gets {shape}")
    return (4, shape[1] // 2, shape[2] // 2)


def _quanv2d_parameters(node: Node) -> List[Parameter]:
    angles = sum(name != "CNOT" for name, _, _ in node.attrs["gates"])
    return [Parameter(f"{node.name}.angles", (angles,), "uniform_circle")] if node.attrs["trained"] else []


@dataclasses.dataclass(frozen=True)
class Op:
    """What the graph must know of an op: output shape, parameters, multiply-accumulates of one sample.

    macs: of the forward pass. input_macs: those of them that multiply the input with weights; the gradient of the
    input takes as many again and, where the layer is the first that is trained, is not needed. None: all of them.
    """

    shape: Callable[..., Shape]
    parameters: Callable[[Node], List[Parameter]] = lambda node: []
    macs: Callable[[Node, Shape], int] = lambda node, out: 0
    input_macs: Any = None


def _same(node: Node, shape: Shape) -> Shape:
    return shape


def _weight_macs(parameters: Callable[[Node], List[Parameter]], weights: int = 1) -> Callable[[Node, Shape], int]:
    """Every number of the first `weights` arrays is used once a step of a sequence, or once for a vector."""
    return lambda node, out: sum(p.size for p in parameters(node)[:weights]) * math.prod(out[:-1])


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
    "AvgPool2d": Op(_avgpool2d_shape),
    "AdaptiveAvgPool2d": Op(lambda node, shape: (shape[0], node.attrs["output"], node.attrs["output"])),
    "GlobalAvgPool": Op(lambda node, shape: (shape[0],)),
    "Flatten": Op(lambda node, shape: (math.prod(shape),)),
    "Linear": Op(_linear_shape, _linear_parameters, _weight_macs(_linear_parameters)),
    "Dropout": Op(_same),
    "Add": Op(_add_shape),
    "Tanh": Op(_same),
    "Sigmoid": Op(_same),
    "Embedding": Op(_embedding_shape, _embedding_parameters),
    "LSTM": Op(_recurrent_shape, _lstm_parameters, _weight_macs(_lstm_parameters, 2), _weight_macs(_lstm_parameters)),
    "GRU": Op(_recurrent_shape, _gru_parameters, _weight_macs(_gru_parameters, 2), _weight_macs(_gru_parameters)),
    "Reverse": Op(_reverse_shape),
    "Last": Op(_last_shape),
    "Concat": Op(_concat_shape),
    "Conv1d": Op(_conv1d_shape, _conv1d_parameters, _weight_macs(_conv1d_parameters)),
    "LayerNorm": Op(_layernorm_shape, _layernorm_parameters),
    "Maxout": Op(_maxout_shape),
    # a patch: 32 x 16 for the circuit, 4 x 32 for the signs
    "Quanv2d": Op(_quanv2d_shape, _quanv2d_parameters, lambda node, out: 640 * out[1] * out[2]),
}
