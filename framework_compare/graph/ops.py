"""The ops a network is made of: output shape, parameters and multiply-accumulates of each, in one literal."""

import dataclasses
import math
from typing import Callable, Dict, List, Mapping, Optional

from framework_compare.errors import UsageError
from framework_compare.graph import attention, image_ops, primitives
from framework_compare.graph.node import (
    Node,
    Parameter,
    Shape,
    affine,
    arrays,
    feature_axis,
    weight_and_bias,
    with_features,
)


def _conv1d_shape(node: Node, shape: Shape) -> Shape:
    a = node.attrs
    steps = _sequence(node, shape, a["in_channels"]) + 2 * a["padding"] - a["kernel"] + 1
    if steps < 1:
        raise UsageError(f"layer {node.name}: a window of {a['kernel']} steps does not fit {shape[0]}")
    return (steps, a["out_channels"])


def _conv1d_parameters(node: Node) -> List[Parameter]:
    return weight_and_bias(node, *(node.attrs[name] for name in ("out_channels", "in_channels", "kernel")))


def _linear_parameters(node: Node) -> List[Parameter]:
    return weight_and_bias(node, node.attrs["out_features"], node.attrs["in_features"])


def _features(node: Node, shape: Shape, features: int) -> Shape:
    """The shape; UsageError where it has another number of features."""
    if not shape or shape[feature_axis(shape)] != features:
        raise UsageError(f"layer {node.name}: expects {features} features, gets shape {shape}")
    return shape


def _linear_shape(node: Node, shape: Shape) -> Shape:
    return with_features(_features(node, shape, node.attrs["in_features"]), node.attrs["out_features"])


def _batchnorm_parameters(node: Node) -> List[Parameter]:
    channels = node.attrs["channels"]
    shape = (channels,)
    return [
        *affine(node, channels),
        Parameter(f"{node.arrays}.running_mean", shape, "zeros", trainable=False),
        Parameter(f"{node.arrays}.running_var", shape, "ones", trainable=False),
    ]


def _layernorm_shape(node: Node, shape: Shape) -> Shape:
    return _features(node, shape, node.attrs["features"])


def _maxout_shape(node: Node, shape: Shape) -> Shape:
    pieces = node.attrs["pieces"]
    if len(shape) > 2 or shape[-1] % pieces:
        raise UsageError(f"layer {node.name}: cannot group the features of shape {shape} by {pieces}")
    return (*shape[:-1], shape[-1] // pieces)


def concat_axis(node: Node, shape: Shape) -> int:
    """Axis of a shape without the batch along which a Concat joins: that of the features unless it names one."""
    axis: int = node.attrs.get("axis", feature_axis(shape))
    return axis


def _concat_shape(node: Node, *shapes: Shape) -> Shape:
    first = shapes[0]
    axis = concat_axis(node, first)
    rest = [(len(shape), shape[:axis], shape[axis + 1 :]) for shape in shapes]
    if not 0 <= axis < len(first) or any(other != rest[0] for other in rest):
        what = "steps" if "axis" in node.attrs else "features"
        raise UsageError(f"layer {node.name}: cannot join the {what} of shapes {', '.join(map(str, shapes))}")
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _slice_shape(node: Node, shape: Shape) -> Shape:
    a = node.attrs
    if a["axis"] >= len(shape) or not 0 <= a["start"] < a["end"] <= shape[a["axis"]]:
        raise UsageError(f"layer {node.name}: cannot take {a['start']} to {a['end']} of axis {a['axis']} of {shape}")
    count = -(-(a["end"] - a["start"]) // a.get("step", 1))
    return (*shape[: a["axis"]], count, *shape[a["axis"] + 1 :])


def _split_shape(node: Node, shape: Shape) -> Shape:
    axis, sizes = node.attrs["axis"], node.attrs["sizes"]
    if axis >= len(shape) or sum(sizes) != shape[axis]:
        raise UsageError(f"layer {node.name}: cannot split axis {axis} of {shape} into {sizes}")
    return (*shape[:axis], sizes[node.attrs["index"]], *shape[axis + 1 :])


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
    return arrays(node, weight=((a["num_embeddings"], a["embedding_dim"]), a["init"]))


def _recurrent_shape(node: Node, shape: Shape) -> Shape:
    return (_sequence(node, shape, node.attrs["input_size"]), node.attrs["hidden_size"])


def _recurrent_parameters(node: Node, gates: int, biases: Mapping[str, str]) -> List[Parameter]:
    inputs, hidden = node.attrs["input_size"], node.attrs["hidden_size"]
    wide = gates * hidden
    weights = {"weight_ih": ((wide, inputs), "glorot_uniform"), "weight_hh": ((wide, hidden), "orthogonal")}
    return arrays(node, **weights, **{name: ((wide,), init) for name, init in biases.items()})


def _lstm_parameters(node: Node) -> List[Parameter]:
    """One bias, or, as torch and cuDNN have it, two that are added: trained both, their sum moves twice as far."""
    two = node.attrs.get("biases", 1) == 2
    biases = {"bias_ih": "forget_ones", "bias_hh": "zeros"} if two else {"bias": "forget_ones"}
    return _recurrent_parameters(node, 4, biases)


def _gru_parameters(node: Node) -> List[Parameter]:
    return _recurrent_parameters(node, 3, {"bias_ih": "zeros", "bias_hh": "zeros"})


def _select_shape(node: Node, shape: Shape) -> Shape:
    steps, index = _sequence(node, shape), node.attrs.get("index", -1)
    if not -steps <= index < steps:
        raise UsageError(f"layer {node.name}: there is no step {index} of {steps}")
    return shape[1:]


def _stated_shape(node: Node) -> Shape:
    return tuple(node.attrs["shape"])


def _free_parameters(node: Node) -> List[Parameter]:
    trained = node.attrs.get("trained", True)
    return [
        Parameter(
            f"{node.arrays}.value", _stated_shape(node), node.attrs["init"], trainable=trained, frozen=not trained
        )
    ]


@dataclasses.dataclass(frozen=True)
class Op:
    """Facts of an op for the graph: output shape, parameters, multiply-accumulates of one sample.

    macs: in the forward pass. input_macs: those of them that multiply the input with weights; the gradient of the
    input takes as many again and, where the layer is the first that is trained, is not needed. None: all of them.
    """

    shape: Callable[..., Shape]
    parameters: Callable[[Node], List[Parameter]] = lambda node: []
    macs: Callable[[Node, Shape], int] = lambda node, out: 0
    input_macs: Optional[Callable[[Node, Shape], int]] = None


def _same(node: Node, shape: Shape) -> Shape:
    return shape


def _weight_macs(parameters: Callable[[Node], List[Parameter]], weights: int = 1) -> Callable[[Node, Shape], int]:
    """Every number of the first `weights` arrays is used once a step or place, or once for a vector."""
    return lambda node, out: sum(p.size for p in parameters(node)[:weights]) * math.prod(with_features(out, 1))


ACTIVATIONS = ("ReLU", "ReLU6", "Tanh", "Sigmoid", "SiLU", "HardSigmoid", "HardSwish", "GELU")
OPS: Dict[str, Op] = {
    "Conv2d": Op(image_ops.conv2d_shape, image_ops.conv2d_parameters, image_ops.window_macs),
    "BatchNorm2d": Op(_same, _batchnorm_parameters),
    "MaxPool2d": Op(image_ops.pool2d_shape),
    "AvgPool2d": Op(image_ops.pool2d_shape),
    "AdaptiveAvgPool2d": Op(image_ops.adaptive_avgpool2d_shape),
    "GlobalAvgPool": Op(image_ops.global_avgpool_shape),
    "Flatten": Op(lambda node, shape: (math.prod(shape),)),
    "Linear": Op(_linear_shape, _linear_parameters, _weight_macs(_linear_parameters)),
    "Embedding": Op(_embedding_shape, _embedding_parameters),
    "LSTM": Op(_recurrent_shape, _lstm_parameters, _weight_macs(_lstm_parameters, 2), _weight_macs(_lstm_parameters)),
    "GRU": Op(_recurrent_shape, _gru_parameters, _weight_macs(_gru_parameters, 2), _weight_macs(_gru_parameters)),
    "Reverse": Op(lambda node, shape: (_sequence(node, shape), *shape[1:])),
    **dict.fromkeys(("Last", "Select"), Op(_select_shape)),
    "Concat": Op(_concat_shape),
    "Split": Op(_split_shape),
    "Slice": Op(_slice_shape),
    "Conv1d": Op(_conv1d_shape, _conv1d_parameters, _weight_macs(_conv1d_parameters)),
    "LayerNorm": Op(_layernorm_shape, lambda node: affine(node, node.attrs["features"])),
    "RMSNorm": Op(_layernorm_shape, lambda node: arrays(node, weight=((node.attrs["features"],), "ones"))),
    "Rotary": Op(attention.rotary_shape),
    "Unembedding": Op(attention.unembedding_shape, _embedding_parameters, attention.unembedding_macs),
    "Maxout": Op(_maxout_shape),
    "Parameter": Op(_stated_shape, _free_parameters),
    "ChannelShuffle": Op(image_ops.channel_shuffle_shape),
    "Tokens": Op(image_ops.tokens_shape),
    "Attention": Op(attention.attention_shape, macs=attention.attention_macs),
    "Pad": Op(image_ops.pad_shape),
    "Roll": Op(image_ops.image),
    "Windows": Op(image_ops.windows_shape),
    "FromWindows": Op(image_ops.from_windows_shape),
    "RelativeBias": Op(attention.relative_bias_shape, attention.relative_bias_parameters),
    # a patch: 32 x 16 for the circuit, 4 x 32 for the signs
    "Quanv2d": Op(image_ops.quanv2d_shape, image_ops.quanv2d_parameters, lambda node, out: 640 * out[1] * out[2]),
    "Constant": Op(_stated_shape),
    "GroupNorm": Op(primitives.groupnorm_shape, lambda node: affine(node, node.attrs["channels"])),
    **dict.fromkeys((*primitives.UNARY, *ACTIVATIONS, "Dropout", "StochasticDepth"), Op(_same)),
    **dict.fromkeys((*primitives.BINARY, *primitives.COMPARISONS, "Where"), Op(primitives.broadcast_shape)),
    **dict.fromkeys(primitives.REDUCTIONS, Op(primitives.reduced_shape)),
    **dict.fromkeys(primitives.ALONG, Op(primitives.along_shape)),
    "Reshape": Op(primitives.reshape_shape),
    "Permute": Op(primitives.permute_shape),
    "Expand": Op(primitives.expand_shape),
    "Take": Op(primitives.take_shape),
    "Gather": Op(primitives.gather_shape),
    "PadAxes": Op(primitives.pad_axes_shape),
    "MatMul": Op(primitives.matmul_shape, macs=primitives.matmul_macs),
    "Convolve": Op(primitives.convolve_shape, macs=primitives.convolve_macs),
    "ConvTranspose": Op(primitives.transposed_shape, macs=primitives.transposed_macs),
}
