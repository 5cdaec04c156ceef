"""Each op in TensorFlow, on NHWC; ops that oneDNN's kernels do not take are expressed by others."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Mapping, Tuple

import numpy as np

from framework_compare.adapters.common import network, quanv
from framework_compare.adapters.tensorflow import recurrent
from framework_compare.graph import Node
from framework_compare.graph.image_ops import adaptive_size
from framework_compare.graph.lowering import UNEVEN
from framework_compare.graph.window import Window


def conv2d(net: Any, node: Node, x: Any, **_: Any) -> Any:
    tf, a, window = net.tf, node.attrs, Window.of(node.attrs)
    x, pads = _padded(tf, x, window)
    weight = net.cast(node, "weight")
    if is_depthwise(a):
        strides = [1, *window.stride, 1]
        y = tf.nn.depthwise_conv2d(x, weight, strides, pads, dilations=list(window.dilation))
    elif a["groups"] == 1:
        y = _convolve(net, x, weight, window, pads)
    else:  # tf.nn.conv2d has no grouped kernels on a CPU
        parts = zip(*(tf.split(array, a["groups"], axis=3) for array in (x, weight)))
        y = tf.concat([_convolve(net, part, kernel, window, pads) for part, kernel in parts], axis=3)
    return tf.nn.bias_add(y, net.cast(node, "bias")) if a["bias"] else y


def _convolve(net: Any, x: Any, weight: Any, window: Window, pads: str) -> Any:
    nn, dilation = net.tf.nn, list(window.dilation)
    if window.dilation == (1, 1) or net.on_gpu:
        return nn.conv2d(x, weight, list(window.stride), pads, dilations=dilation)
    # on a CPU a dilated convolution has no gradient (2.21): one of every second pixel is not dilated
    y = net.tf.compat.v1.nn.with_space_to_batch(
        x, dilation, pads, lambda part, _, pads: nn.conv2d(part, weight, 1, pads), filter_shape=weight.shape
    )
    return y[:, :: window.stride[0], :: window.stride[1]]


def batchnorm(net: Any, node: Node, x: Any, *, training: bool, keep_statistics: bool) -> Any:
    tf, a = net.tf, node.attrs
    mean, variance = net.of(node, "running_mean"), net.of(node, "running_var")
    arrays = {"scale": net.of(node, "weight"), "offset": net.of(node, "bias"), "mean": mean, "variance": variance}
    how = {"epsilon": a["eps"], "exponential_avg_factor": a["momentum"], "is_training": training}
    y, new_mean, new_variance, *_ = tf.raw_ops.FusedBatchNormV3(x=x, **arrays, **how)
    if training and not keep_statistics:
        mean.assign(new_mean)
        variance.assign(new_variance)
    return y


def maxpool(net: Any, node: Node, x: Any, **_: Any) -> Any:
    window = Window.of(node.attrs)
    x = _surrounded(net.tf, x, window.all_pads(x.shape[1:3]), -math.inf)
    return net.tf.nn.max_pool2d(x, window.kernel, window.stride, "VALID")


def adaptive_avgpool(net: Any, node: Node, x: Any, **_: Any) -> Any:
    sizes = list(zip(x.shape[1:3], adaptive_size(node.attrs)))
    if all(output == 1 for _, output in sizes):
        return net.tf.reduce_mean(x, axis=[1, 2], keepdims=True)
    if all(size % output == 0 for size, output in sizes):
        kernel = [size // output for size, output in sizes]
        return net.tf.nn.avg_pool2d(x, kernel, kernel, "VALID")
    # no such op in TensorFlow: the windows of torch's adaptive pooling as one small matrix for rows, one for columns
    rows, columns = (net.tf.cast(network.adaptive_matrix(*pair), x.dtype) for pair in sizes)
    return net.tf.einsum("ih,nhwc,jw->nijc", rows, x, columns)


def conv1d(net: Any, node: Node, x: Any, **_: Any) -> Any:
    padding = node.attrs["padding"]
    x = net.tf.pad(x, [[0, 0], [padding] * 2, [0, 0]]) if padding else x
    y = net.tf.nn.conv1d(x, net.cast(node, "weight"), 1, "VALID")
    return y + net.cast(node, "bias") if node.attrs["bias"] else y


def layernorm(net: Any, node: Node, x: Any, **_: Any) -> Any:
    tf, exact = net.tf, net.tf.cast(x, "float32")
    mean, variance = tf.nn.moments(exact, [-1], keepdims=True)
    weight, bias = net.of(node, "weight"), net.of(node, "bias")
    return tf.cast(tf.nn.batch_normalization(exact, mean, variance, bias, weight, node.attrs["eps"]), x.dtype)


def rmsnorm(net: Any, node: Node, x: Any, **_: Any) -> Any:
    tf, exact = net.tf, net.tf.cast(x, "float32")
    scale = tf.math.rsqrt(tf.reduce_mean(tf.square(exact), -1, keepdims=True) + node.attrs["eps"])
    return tf.cast(exact * scale * net.of(node, "weight"), x.dtype)


def avgpool(net: Any, node: Node, x: Any, **_: Any) -> Any:
    tf, window, size = net.tf, Window.of(node.attrs), x.shape[1:3]
    x = _surrounded(tf, x, window.all_pads(size))  # TensorFlow's own kernel takes no explicit pads
    means = tf.nn.avg_pool2d(x, window.kernel, window.stride, "VALID")
    shares = math.prod(window.kernel) / window.areas(size, with_pads=node.attrs["count_include_pad"])
    return means if (shares == 1).all() else means * tf.cast(shares[:, :, None], means.dtype)


def quanv2d(net: Any, node: Node, patches: Any, **_: Any) -> Any:
    tf, a = net.tf, node.attrs
    functions = quanv.Functions(tf.cos, tf.sin, lambda arrays: tf.concat(arrays, axis=-1), tf.matmul)
    angles = net.of(node, "angles")[None] if a["trained"] else None
    pixels = tf.reshape(tf.cast(patches, "float32"), (-1, quanv.QUBITS))
    y = quanv.expectations(functions, pixels, a["gates"], quanv.constants(a["gates"], a["trained"]), angles)
    return tf.cast(tf.reshape(y, (-1, *patches.shape[1:])), net.dtype)


def linear(net: Any, node: Node, x: Any, **_: Any) -> Any:
    """Linear, or Unembedding by the rows of an embedding."""
    tf, outer, weight = net.tf, x.shape[1:-1], net.cast(node, "weight")
    weight = tf.transpose(weight) if node.op == "Unembedding" else weight
    x = tf.reshape(x, (-1, x.shape[-1])) if outer else x  # a product of matrices; of more axes it is one a sample
    y = tf.linalg.matmul(x, weight)
    y = tf.nn.bias_add(y, net.cast(node, "bias")) if node.op == "Linear" and node.attrs.get("bias", True) else y
    return tf.reshape(y, (-1, *outer, weight.shape[1])) if outer else y


def is_depthwise(a: Mapping[str, Any]) -> bool:
    """TensorFlow's depthwise kernel takes one stride for both axes, and of dilated ones the stride 1 only."""
    (down, across), dilation = Window.of(a).stride, Window.of(a).dilation
    takes = down == across and (down == 1 or dilation == (1, 1))
    return 1 < a["groups"] == a["in_channels"] == a["out_channels"] and takes


def _padded(tf: Any, x: Any, window: Window) -> Tuple[Any, str]:
    """The input and the named padding that come to a layer's own.

    tf.nn also takes explicit pads, but oneDNN's kernels do not: VGG-16 was 1.24 times slower with them (2.21).
    """
    if not window.is_padded:
        return x, "VALID"
    if window.keeps_size:
        return x, "SAME"
    return tf.pad(x, [(0, 0), *window.pads, (0, 0)]), "VALID"


def _surrounded(tf: Any, x: Any, pads: Any, value: float = 0.0) -> Any:
    return tf.pad(x, [(0, 0), *pads, (0, 0)], constant_values=value) if any(map(any, pads)) else x


def attention(net: Any, node: Node, *inputs: Any, **_: Any) -> Any:
    """TensorFlow has no op for it: Keras' own layer is these products, too."""
    tf, a = net.tf, node.attrs
    operands = tf.split(inputs[0], 3, -1) if a["operands"] == 1 else inputs[:3]
    kv_heads = a.get("kv_heads", a["heads"])
    q, k, v = (_heads(tf, x, n) for x, n in zip(operands, (a["heads"], kv_heads, kv_heads)))
    k, v = net.keys_and_values(node, k, v)
    if kv_heads != a["heads"]:
        k, v = (tf.repeat(x, a["heads"] // kv_heads, axis=1) for x in (k, v))
    scores = tf.matmul(q * tf.cast(a["scale"], q.dtype), k, transpose_b=True)
    if a.get("bias"):
        scores += inputs[-1] if len(q.shape) == 4 else inputs[-1][:, None, None]
    if a["mask"] is not None:
        scores += tf.cast(a["mask"], scores.dtype)
    if a.get("causal") and scores.shape[-2] > 1:  # a single step attends to all that there is
        steps = scores.shape[-1]
        scores += tf.constant(np.where(np.tri(steps, dtype=bool), 0, -np.inf), scores.dtype)
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


def samples(tf: Any, x: Any) -> Any:
    """Return the number of samples in a batch, as a tensor where it is not known before."""
    return tf.shape(x)[0] if x.shape[0] is None else x.shape[0]


def groupnorm(net: Any, node: Node, x: Any, **_: Any) -> Any:
    tf, groups = net.tf, node.attrs["groups"]
    exact = tf.reshape(tf.cast(x, "float32"), [-1, *x.shape[1:3], groups, x.shape[3] // groups])
    mean, variance = tf.nn.moments(exact, [1, 2, 4], keepdims=True)
    y = tf.nn.batch_normalization(exact, mean, variance, None, None, node.attrs["eps"])
    y = tf.reshape(y, [-1, *x.shape[1:]]) * net.of(node, "weight") + net.of(node, "bias")
    return tf.cast(y, x.dtype)


def convolve(net: Any, node: Node, x: Any, weight: Any, **_: Any) -> Any:
    """Convolve with a computed weight, or as the gradient of a convolution; groups one after the other."""
    tf, window, groups = net.tf, Window.of(node.attrs), node.attrs["groups"]
    transposed = node.op == "ConvTranspose"
    kernels = tf.split(tf.transpose(weight[0], (2, 3, 1, 0)), groups, axis=3)  # rows, columns, in or out, out or in
    padded, pads = (x, "VALID") if transposed else _padded(tf, x, window)
    parts = zip(tf.split(padded, groups, axis=3), kernels)
    if not transposed:
        return tf.concat([_convolve(net, part, kernel, window, pads) for part, kernel in parts], axis=3)
    size = [(n - 1) * stride + span for n, stride, span in zip(x.shape[1:3], window.stride, window.spans)]
    shape, how = [samples(tf, x), *size, kernels[0].shape[2]], (window.stride, "VALID")
    wide = [tf.nn.conv2d_transpose(part, kernel, shape, *how) for part, kernel in parts]
    out, (top, left) = node.attrs["size"], (first for first, _ in window.pads)
    more = [max(0, first + n - whole) for first, n, whole in zip((top, left), out, size)]
    y = tf.pad(tf.concat(wide, axis=3), [(0, 0), (0, more[0]), (0, more[1]), (0, 0)])
    return y[:, top : top + out[0], left : left + out[1]]


# Of a Network, a node, its inputs, and by name whether it is training and keeps its statistics.
LAYERS: Dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("Conv2d", UNEVEN), conv2d),
    "BatchNorm2d": batchnorm,
    "MaxPool2d": maxpool,
    "AvgPool2d": avgpool,
    "AdaptiveAvgPool2d": adaptive_avgpool,
    **dict.fromkeys(("Linear", "Unembedding"), linear),
    "LayerNorm": layernorm,
    "Dropout": lambda net, node, x, *, training, **_: net.dropped(node, x, None) if training else x,
    "StochasticDepth": lambda net, node, x, *, training, **_: (
        net.dropped(node, x, [samples(net.tf, x), *[1] * (len(x.shape) - 1)]) if training else x
    ),
    "Parameter": lambda net, node, **_: net.cast(node, "value")[None],
    "Embedding": lambda net, node, x, **_: net.tf.gather(net.cast(node, "weight"), x),
    "RMSNorm": rmsnorm,
    "Constant": lambda net, node, **_: net.tf.constant(node.attrs["value"], net.dtype),
    "LSTM": recurrent.lstm,
    "GRU": recurrent.gru,
    "Conv1d": conv1d,
    "Attention": attention,
    "RelativeBias": lambda net, node, **_: net.tf.transpose(
        net.tf.gather(net.cast(node, "weight"), node.attrs["index"]), (2, 0, 1)
    )[None],
    "Quanv2d": quanv2d,
    "GroupNorm": groupnorm,
    **dict.fromkeys(("Convolve", "ConvTranspose"), convolve),
    "Cast": lambda net, node, x, **_: net.tf.cast(x, net.dtype),
}
# Of tensorflow, attributes, and inputs.
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    **network.FUNCTIONS,
    **network.named(lambda tf: tf.nn, ReLU="relu", ReLU6="relu6", SiLU="silu"),
    **network.named(lambda tf: tf.math, "tanh", "sigmoid", "erf", *network.NUMPY),
    "HardSigmoid": lambda tf, a, x: tf.nn.relu6(x + 3) / 6,
    "HardSwish": lambda tf, a, x: x * (tf.nn.relu6(x + 3) / 6),
    "GELU": lambda tf, a, x: tf.nn.gelu(x, approximate=a["approximate"] == "tanh"),
    "Reshape": lambda tf, a, x: tf.reshape(x, a["shape"]),
    "Permute": lambda tf, a, x: tf.transpose(x, a["order"]),
    "Reverse": lambda tf, a, x: tf.reverse(x, [a["axis"]]),
    "Concat": lambda tf, a, *inputs: tf.concat(inputs, a["axis"]),
    "Repeat": lambda tf, a, x, like: tf.broadcast_to(x, [samples(tf, like), *a["shape"]]),
    "Pad": lambda tf, a, x: tf.pad(x, a["pads"], constant_values=a["value"]),
    "Roll": lambda tf, a, x: tf.roll(x, a["shifts"], a["axes"]),
    "Max": lambda tf, a, x: tf.reduce_max(x, axis=a["axis"]),
    "Mean": lambda tf, a, x: tf.reduce_mean(x, axis=a["axis"]),
    "MatMul": lambda tf, a, x, y: tf.linalg.matmul(x, tf.reshape(y, y.shape[-2:]) if a["shared"] else y),
    "Detach": lambda tf, a, x: tf.stop_gradient(x),
    "LeakyReLU": lambda tf, a, x: tf.nn.leaky_relu(x, a["slope"]),
    "Equal": lambda tf, a, x, y: tf.cast(tf.equal(x, y), x.dtype),
    "Less": lambda tf, a, x, y: tf.cast(x < y, x.dtype),
    "LessEqual": lambda tf, a, x, y: tf.cast(x <= y, x.dtype),
    "Where": lambda tf, a, condition, x, y: tf.where(tf.not_equal(condition, 0), x, y),
    "ReduceSum": lambda tf, a, x: tf.reduce_sum(x, axis=a["axes"], keepdims=True),
    "ReduceMean": lambda tf, a, x: tf.reduce_mean(x, axis=a["axes"], keepdims=True),
    "ReduceMax": lambda tf, a, x: tf.reduce_max(x, axis=a["axes"], keepdims=True),
    "Softmax": lambda tf, a, x: tf.nn.softmax(x, axis=a["axis"]),
    "LogSoftmax": lambda tf, a, x: tf.nn.log_softmax(x, axis=a["axis"]),
    "CumSum": lambda tf, a, x: tf.cumsum(x, axis=a["axis"]),
    "Expand": lambda tf, a, x: tf.broadcast_to(x, [samples(tf, x), *a["shape"][1:]]),
    "Take": lambda tf, a, x: tf.gather(x, a["index"], axis=a["axis"]),
    "Gather": lambda tf, a, table, index: tf.gather(table[0], tf.cast(index, "int32")),
    "PadAxes": lambda tf, a, x: tf.pad(x, a["pads"], constant_values=a.get("value", 0.0)),
}
