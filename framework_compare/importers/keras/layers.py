"""Each Keras layer in the graph. A handler: (at, layer, inputs) -> Value.

Values have Keras's layout, channels last: an image's axes are batch, height, width, channels.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NoReturn, Sequence, Tuple

import numpy as np

from framework_compare.graph.node import conv_attrs, linear_attrs, window_attrs
from framework_compare.graph.window import same_padding
from framework_compare.importers.common.axes import materialised
from framework_compare.importers.common.graph_reader import GraphReader
from framework_compare.importers.common.views import NotExpressible, Value, View, plain, reshaped, whole
from framework_compare.json_types import JSON, Fields

if TYPE_CHECKING:
    from keras.layers import Layer

At = Any  # that of reading.py, which has these handlers
Handler = Callable[[At, "Layer", Sequence[Value]], Value]
Windows = Sequence[Sequence[int]]  # kernel, strides, dilation; each down and across
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # channels
# Ops by the names of Keras's activations; None: nothing is done.
ACTIVATIONS = {
    "gelu": "GELU",
    "hard_sigmoid": "HardSigmoid",
    "hard_silu": "HardSwish",
    "linear": None,
    "relu": "ReLU",
    "relu6": "ReLU6",
    "sigmoid": "Sigmoid",
    "silu": "SiLU",
    "tanh": "Tanh",
}
UNSIGNED = ("ReLU", "ReLU6", "Sigmoid", "HardSigmoid")  # never below zero
KEEPS_SIGN = ("MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "Dropout")


def swapped(view: View, order: Sequence[int]) -> View:
    return tuple(view[axis] for axis in order)


def image(reader: GraphReader, value: Value) -> str:
    """The node of a value that stands as (N, H, W, C)."""
    if len(value.view) != 4:
        raise NotExpressible(f"an image of shape {value.shape}")
    return reader.image(Value(value.node, swapped(value.view, FIRST)))


def as_keras(reader: GraphReader, name: str) -> Value:
    value = reader.plain(name)
    return Value(name, swapped(value.view, LAST)) if len(value.view) == 4 else value


def refuse(kind: str) -> NoReturn:
    raise NotExpressible(kind)


def refuse_unless(kind: str, **wanted: Tuple[object, object]) -> None:
    """NotExpressible for attributes that are not as wanted, by their names: (value, wanted)."""
    odd = [f"{name}={value!r}" for name, (value, allowed) in wanted.items() if value != allowed]
    if odd:
        raise NotExpressible(f"{kind} with {', '.join(odd)}")


def activated(at: At, layer: Layer, value: Value) -> Value:
    """A value behind the activation that a layer has built in."""
    name = getattr(layer.activation, "__name__", str(layer.activation))
    if name in at.reading.ends and layer is at.reading.last:
        return left_out(at, value, name)
    if name not in ACTIVATIONS:
        raise NotExpressible(f"activation {name}")
    op = ACTIVATIONS[name]
    if op is None:
        return value
    attrs = {"approximate": "none"} if op == "GELU" else {}
    return (at.inner(name) if layer.weights else at).elementwise(op, value, attrs)


def left_out(at: At, value: Value, name: str = "softmax") -> Value:
    """A value without the softmax or sigmoid that a model ends in."""
    at.reading.cut = at.reading.last.name
    at.reading.notes.append(f"its last {name} is removed: losses take logits")
    return value


# -- convolutions and pooling -------------------------------------------------------------------------------------------


def _pads(layer: Layer, size: Sequence[int], window: Windows) -> List[int]:
    """Top, bottom, left, right; "same" puts the odd one behind, "causal" all of a row in front."""
    kernel, strides, dilation = window
    if layer.padding == "valid":
        return [0, 0, 0, 0]
    if layer.padding == "causal":
        return [0, 0, dilation[1] * (kernel[1] - 1), 0]
    if layer.padding != "same":
        raise NotExpressible(f"padding {layer.padding!r}")
    return [side for axis in zip(size, kernel, strides, dilation) for side in same_padding(*axis)]


def _convolved(at: At, layer: Layer, x: Value, kernel: Any, *, groups: int, bias: bool, **steps: JSON) -> Value:
    """Read a convolution in groups; 0: each channel has its own, with a kernel (height, width, channels, multiple)."""
    shape = height, width, into, out = _of_image(kernel.shape, 4)
    into, out, count = (into * groups, out, groups) if groups else (into, into * out, into)

    def form(array: np.ndarray) -> np.ndarray:
        """Return outputs first; where each channel has its own, its multiples are one behind the other."""
        order = (3, 2, 0, 1) if groups else (2, 3, 0, 1)
        return array.reshape(shape).transpose(order).reshape(out, -1, height, width)

    attrs = conv_attrs(into, out, [height, width], groups=count, bias=bias, **steps)
    arrays = {"weight": (kernel, form), **({"bias": (layer.bias, None)} if bias else {})}
    source = image(at.reader, x)
    return as_keras(at.reader, at.add("Conv2d", [source], attrs, **arrays))


def _of_image(sizes: Sequence[int], count: int = 2) -> Tuple[int, ...]:
    """Return the sizes of a layer of images; a layer of sequences becomes one of images with one row."""
    return (*[1] * (count - len(sizes)), *sizes)


def _steps(at: At, layer: Layer, x: Value) -> Fields:
    refuse_unless("a convolution", data_format=(layer.data_format, "channels_last"))
    window = kernel, stride, dilation = [
        _of_image(sizes) for sizes in (layer.kernel_size, layer.strides, layer.dilation_rate)
    ]
    padding = _pads(layer, at.reader.shapes[image(at.reader, x)][1:], window)
    return {"stride": stride, "padding": padding, "dilation": dilation}


def conv(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    """Convolve images, or sequences as images of one row."""
    x, reader = inputs[0], at.reader
    is_row = len(x.view) == 3
    x = _standing(reader, x, lambda steps: ((), *steps)) if is_row else x
    groups = 0 if type(layer).__name__ == "DepthwiseConv2D" else layer.groups
    how = {"groups": groups, "bias": layer.use_bias, **_steps(at, layer, x)}
    made = _convolved(at, layer, x, layer.kernel, **how)
    if is_row:
        batch, _, steps, features = made.view
        made = materialised(reader, Value(made.node, (batch, steps, features)))
    return activated(at, layer, made)


def _standing(reader: GraphReader, x: Value, places: Callable[[View], View]) -> Value:
    """A vector or a sequence as an image, whose height and width `places` makes of its steps."""
    x = materialised(reader, x)
    batch, *steps, features = x.view
    made = materialised(reader, Value(x.node, (batch, features, *places(tuple(steps)))))
    return Value(made.node, swapped(made.view, LAST))


def separable_conv2d(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    how = {"groups": 0, "bias": False, **_steps(at, layer, inputs[0])}
    x = _convolved(at.inner("depthwise"), layer, inputs[0], layer.depthwise_kernel, **how)
    how = {"groups": 1, "bias": layer.use_bias}
    made = _convolved(at.inner("pointwise"), layer, x, layer.pointwise_kernel, **how)
    return activated(at, layer, made)


def pooled(at: At, layer: Layer, x: Value, op: str, **more: object) -> Value:
    refuse_unless("pooling", data_format=(layer.data_format, "channels_last"))
    reader: GraphReader = at.reader
    source = image(reader, x)
    pads = _pads(layer, reader.shapes[source][1:], (layer.pool_size, layer.strides, (1, 1)))
    if pads[0] != pads[1] or pads[2] != pads[3]:
        # a zero beside values that are never below zero is never more than the largest
        if op != "MaxPool2d" or not _signless(reader, source):
            raise NotExpressible(f"{op} with unequal padding")
        source, pads = at.inner("pad").add("Pad", [source], {"padding": pads}), [0, 0, 0, 0]
    attrs = {**window_attrs(layer.pool_size, layer.strides, pads), **more}
    return as_keras(reader, at.add(op, [source], attrs))


def _signless(reader: GraphReader, name: str) -> bool:
    node = reader.nodes.get(name)
    while node is not None and node.op in KEEPS_SIGN:
        node = reader.nodes.get(node.inputs[0])
    return node is not None and node.op in UNSIGNED


def global_average_pool(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    source = image(at.reader, inputs[0])
    if layer.keepdims:
        return as_keras(at.reader, at.add("AdaptiveAvgPool2d", [source], {"output": 1}))
    return at.reader.plain(at.add("GlobalAvgPool", [source], {}))


def zero_padding(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    attrs = {"padding": [int(side) for pair in layer.padding for side in pair]}
    return as_keras(at.reader, at.add("Pad", [image(at.reader, inputs[0])], attrs))


# -- layers on features -------------------------------------------------------------------------------------------------


def dense(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    into, out = layer.kernel.shape
    name, view, form = _features(at.reader, inputs[0])
    arrays: Fields = {"weight": (layer.kernel, lambda kernel: form(kernel).T)}
    if layer.use_bias:
        arrays["bias"] = (layer.bias, None)
    made = at.add("Linear", [name], linear_attrs(into, out, bias=layer.use_bias), **arrays)
    return activated(at, layer, at.with_features(made, view))


def _features(reader: GraphReader, x: Value) -> Tuple[str, View, Callable[[np.ndarray], np.ndarray]]:
    """Node and view of a value with its features last, and the rows of a kernel in the graph's order.

    Keras flattens (H, W, C), the graph (C, H, W).
    """
    shape = reader.shapes[x.node]
    if len(shape) == 3 and len(x.view) == 2 and x.view[1] == tuple(a for i in (1, 2, 0) for a in whole(i, shape[i])):
        channels, height, width = shape

        def form(kernel: np.ndarray) -> np.ndarray:
            return kernel.reshape(height, width, channels, -1).transpose(2, 0, 1, 3).reshape(kernel.shape)

        flat = Value(x.node, reshaped(plain(reader.batch, shape), (reader.batch, math.prod(shape))))
        return (*reader.features_last(flat), form)
    return (*reader.features_last(x), lambda kernel: kernel)


def batch_norm(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    """Normalise images; vectors and sequences as images of one column."""
    x, axes = inputs[0], len(inputs[0].view)
    refuse_unless(
        "BatchNormalization",
        scale=(layer.scale, True),
        center=(layer.center, True),
        trainable=(layer.trainable, True),
        renorm=(getattr(layer, "renorm", False), False),
        axis=(layer.axis % axes, axes - 1),
    )
    attrs = {"channels": layer.gamma.shape[0], "momentum": round(1 - layer.momentum, 9), "eps": layer.epsilon}
    parts = {"weight": layer.gamma, "bias": layer.beta}
    parts.update(running_mean=layer.moving_mean, running_var=layer.moving_variance)
    parts = {name: (variable, None) for name, variable in parts.items()}
    x = x if axes == len(LAST) else _standing(at.reader, x, lambda steps: (*(steps or [()]), ()))
    source = image(at.reader, x)
    made = as_keras(at.reader, at.add("BatchNorm2d", [source], attrs, **parts))
    if axes == len(LAST):
        return made
    batch, steps, _, features = made.view
    return materialised(at.reader, Value(made.node, (batch, *([steps] if axes == 3 else []), features)))


def layer_norm(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    x, axis = inputs[0], layer.axis if isinstance(layer.axis, int) else list(layer.axis)
    last = len(x.view) - 1
    refuse_unless("LayerNormalization", scale=(layer.scale, True), center=(layer.center, True))
    if axis not in (-1, last, [-1], [last]):
        raise NotExpressible(f"LayerNormalization over axis {layer.axis}")
    attrs = {"features": layer.gamma.shape[0], "eps": layer.epsilon}
    arrays = {"weight": (layer.gamma, None), "bias": (layer.beta, None)}
    return at.on_features("LayerNorm", x, attrs, **arrays)


# -- all else -----------------------------------------------------------------------------------------------------------


def relu(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    refuse_unless("ReLU", negative_slope=(layer.negative_slope, 0), threshold=(layer.threshold, 0))
    if layer.max_value not in (None, 6):
        raise NotExpressible(f"ReLU up to {layer.max_value}")
    return at.elementwise("ReLU" if layer.max_value is None else "ReLU6", inputs[0], {})


def dropout(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    if not layer.rate:
        return inputs[0]
    shape = tuple(layer.noise_shape or ())
    if shape and set(shape[1:]) != {1}:
        raise NotExpressible(f"Dropout with noise_shape={shape}")
    return at.elementwise("StochasticDepth" if shape else "Dropout", inputs[0], {"p": layer.rate})


def reshape(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    batch, *rest = inputs[0].shape
    shape = list(layer.target_shape)
    if -1 in shape:
        shape[shape.index(-1)] = math.prod(rest) // -math.prod(shape)
    return at.reshape(inputs[0], (batch, *shape))


def merged(op: str) -> Handler:
    """Add or Mul, of two or more."""

    def handler(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
        result = inputs[0]
        for value in inputs[1:]:
            if len(value.view) != len(result.view):  # which Keras aligns in another way than torch does
                raise NotExpressible(f"{op} of {result.shape} and {value.shape}")
            result = at.both(op, result, value)
        return result

    return handler


def rescaling(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    x = inputs[0]
    for op, number in (("Mul", layer.scale), ("Add", layer.offset)):
        neutral = 1 if op == "Mul" else 0
        if np.any(np.asarray(number) != neutral):
            x = at.inner(op.lower()).with_constant(op, x, np.asarray(number, np.float32))
    return x


HANDLERS: Dict[str, Handler] = {
    "Activation": lambda at, layer, inputs: activated(at, layer, inputs[0]),
    **dict.fromkeys(("ActivityRegularization", "Identity"), lambda at, layer, inputs: inputs[0]),
    "Add": merged("Add"),
    "AveragePooling2D": lambda at, layer, inputs: pooled(at, layer, inputs[0], "AvgPool2d", count_include_pad=False),
    "BatchNormalization": batch_norm,
    **dict.fromkeys(("Conv1D", "Conv2D", "DepthwiseConv2D"), conv),
    "Dense": dense,
    "Dropout": dropout,
    "Flatten": lambda at, layer, inputs: at.reshape(inputs[0], (inputs[0].shape[0], math.prod(inputs[0].shape[1:]))),
    "GlobalAveragePooling2D": global_average_pool,
    "LayerNormalization": layer_norm,
    "MaxPooling2D": lambda at, layer, inputs: pooled(at, layer, inputs[0], "MaxPool2d"),
    "Multiply": merged("Mul"),
    "Permute": lambda at, layer, inputs: at.permute(inputs[0], (0, *layer.dims)),
    "ReLU": relu,
    "Rescaling": rescaling,
    "Reshape": reshape,
    "SeparableConv2D": separable_conv2d,
    "Softmax": lambda at, layer, inputs: (
        left_out(at, inputs[0]) if layer is at.reading.last and "softmax" in at.reading.ends else refuse("Softmax")
    ),
    "ZeroPadding2D": zero_padding,
}
