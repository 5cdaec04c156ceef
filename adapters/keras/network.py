"""The graph as a functional keras.Model of Keras' own layers, channels last; and where its arrays are in them."""

import functools
import math
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from framework_compare.adapters.common import network
from framework_compare.adapters.keras.layers import own_layers
from framework_compare.errors import Unsupported
from framework_compare.graph import Graph, Node, Parameter, evaluate
from framework_compare.graph.image_ops import adaptive_size
from framework_compare.graph.lowering import UNEVEN, graph_ops, lowered
from framework_compare.graph.window import Window

ROWS = {"bias_ih": 0, "bias_hh": 1}  # of a GRU's bias


class Array(NamedTuple):
    """Place of an array of the graph: a variable of Keras', or one row of it."""

    variable: Any
    order: Tuple[int, ...] = ()  # the graph's axes as Keras has them; () where they are the same
    row: Optional[int] = None
    swapped: bool = False  # the first two gates of a GRU: r, z, n in the graph, z, r, n in Keras

    def to_native(self, array: np.ndarray) -> np.ndarray:
        array = _swapped(array) if self.swapped else array
        return array.transpose(self.order) if self.order else array

    def from_native(self, value: np.ndarray) -> np.ndarray:
        """A copy, float32."""
        value = value if self.row is None else value[self.row]
        value = value.transpose(np.argsort(self.order)) if self.order else value
        return np.array(_swapped(value) if self.swapped else value, np.float32, order="C")


def _swapped(array: np.ndarray) -> np.ndarray:
    first, second, rest = np.split(array, 3, axis=0)
    return np.concatenate([second, first, rest], axis=0)


class Network:
    """`model`, the keras.Model, and `arrays`, its arrays by graph name; the layers' own initial values are zeros."""

    def __init__(self, keras: Any, graph: Graph) -> None:
        self.keras, self.graph, self.own = keras, graph, own_layers(keras)
        self._layers: Dict[str, Any] = {}  # by the name of their arrays: a layer that is called twice is one
        self.program = lowered(graph, HAS, channels_last=True)
        self.tied = {node.arrays for node in graph.nodes if node.op == "Unembedding"}
        kinds = ((node.arrays, parameter.kind) for node in graph.nodes for parameter in graph.parameters_of(node))
        self._frozen = {arrays for arrays, kind in kinds if kind == "frozen"}
        ((name, field),) = graph.inputs.items()
        self.source = keras.Input(self.program.shapes[name], dtype=field.dtype)
        output = evaluate(self.program, self._apply, self.source)
        self.model = keras.Model(self.source, output, name=network.identifier(graph.name))
        self.arrays = {p.name: self._array(node, p) for node in graph.nodes for p in graph.parameters_of(node)}

    def _apply(self, node: Node, *inputs: Any) -> Any:
        if node.op in FUNCTIONS:
            return FUNCTIONS[node.op](self.keras.ops, node.attrs, *inputs)
        return LAYERS[node.op](self, node, *inputs)

    def layer(self, node: Node, kind: str, *arguments: Any, **how: Any) -> Any:
        """A layer of ours or of Keras'; the one that is there already where a node has the arrays of another."""
        if node.arrays not in self._layers:
            make = self.own.get(kind) or getattr(self.keras.layers, kind)
            how.update(name=network.identifier(node.arrays), trainable=node.arrays not in self._frozen)
            self._layers[node.arrays] = make(*arguments, **how)
        return self._layers[node.arrays]

    def _array(self, node: Node, parameter: Parameter) -> Array:
        layer, part = self._layers[node.arrays], parameter.part
        variable = functools.reduce(getattr, NAMES.get(node.op, {}).get(part, part).split("."), layer)
        order = network.order_of(node, len(parameter.shape))
        if type(layer).__name__ == "DepthwiseConv2D" and order:
            order = (2, 3, 0, 1)
        return Array(variable, order, ROWS.get(part) if node.op == "GRU" else None, swapped=node.op == "GRU")


def _padded(net: Network, x: Any, pads: Any, value: float = 0.0) -> Any:
    if not any(map(any, pads)):
        return x
    if value == 0.0:
        return net.keras.layers.ZeroPadding2D(pads)(x)
    return net.keras.ops.pad(x, ((0, 0), *pads, (0, 0)), constant_values=value)


def conv2d(net: Network, node: Node, x: Any) -> Any:
    a, window = node.attrs, Window.of(node.attrs)
    same = window.keeps_size and window.is_padded
    x = x if same else _padded(net, x, window.pads)  # "same" with a stride pads unevenly
    # Keras refuses a stride beside a dilation: of all places the strides are taken
    thinned = window.dilation != (1, 1) and window.stride != (1, 1)
    how = {
        "strides": (1, 1) if thinned else window.stride,
        "padding": "same" if same else "valid",
        "dilation_rate": window.dilation,
        "use_bias": a["bias"],
    }
    # DepthwiseConv2D takes one stride for both axes
    if 1 < a["groups"] == a["in_channels"] == a["out_channels"] and window.stride[0] == window.stride[1]:
        layer = net.layer(node, "DepthwiseConv2D", window.kernel, depthwise_initializer="zeros", **how)
    else:
        how.update(groups=a["groups"], kernel_initializer="zeros")
        layer = net.layer(node, "Conv2D", a["out_channels"], window.kernel, **how)
    y = layer(x)
    return y[:, :: window.stride[0], :: window.stride[1]] if thinned else y


def maxpool(net: Network, node: Node, x: Any) -> Any:
    window = Window.of(node.attrs)
    x = _padded(net, x, window.all_pads(x.shape[1:3]), -math.inf)
    return net.layer(node, "MaxPooling2D", window.kernel, window.stride)(x)


def avgpool(net: Network, node: Node, x: Any) -> Any:
    window, size = Window.of(node.attrs), x.shape[1:3]
    x = _padded(net, x, window.all_pads(size))
    means = net.layer(node, "AveragePooling2D", window.kernel, window.stride)(x)
    shares = math.prod(window.kernel) / window.areas(size, with_pads=node.attrs["count_include_pad"])
    return means if (shares == 1).all() else means * net.keras.ops.convert_to_tensor(shares[None, :, :, None])


def adaptive_avgpool(net: Network, node: Node, x: Any) -> Any:
    output = adaptive_size(node.attrs)
    if output == (1, 1):
        return net.layer(node, "GlobalAveragePooling2D", keepdims=True)(x)
    sizes = list(zip(x.shape[1:3], output))
    if all(size % count == 0 for size, count in sizes):
        return net.layer(node, "AveragePooling2D", [size // count for size, count in sizes])(x)
    # AdaptiveAveragePooling2D fails on TensorFlow where windows differ (3.15.1): theirs as a matrix for rows and columns
    rows, columns = (network.adaptive_matrix(*pair) for pair in sizes)
    return net.keras.ops.einsum("ih,nhwc,jw->nijc", rows, x, columns)


def linear(net: Network, node: Node, x: Any) -> Any:
    a, how = node.attrs, {"use_bias": node.attrs.get("bias", True), "kernel_initializer": "zeros"}
    if node.op == "Linear":
        return net.layer(node, "Dense", a["out_features"], **how)(x)
    x = net.keras.layers.ZeroPadding1D(a["padding"])(x) if a["padding"] else x
    return net.layer(node, "Conv1D", a["out_channels"], a["kernel"], **how)(x)


def recurrent(net: Network, node: Node, x: Any) -> Any:
    if node.attrs.get("biases", 1) == 2:
        raise Unsupported(f"layer {node.name}: an LSTM of Keras' has one bias, and this one has two")
    zeros = {"kernel_initializer": "zeros", "recurrent_initializer": "zeros"}
    return net.layer(node, node.op, node.attrs["hidden_size"], return_sequences=True, **zeros)(x)


def embedding(net: Network, node: Node, x: Any) -> Any:
    kind = "ReversibleEmbedding" if node.arrays in net.tied else "Embedding"
    sizes = node.attrs["num_embeddings"], node.attrs["embedding_dim"]
    return net.layer(node, kind, *sizes, embeddings_initializer="zeros")(x)


def dropout(net: Network, node: Node, x: Any) -> Any:
    """Apply dropout, but not in a frozen part."""
    if net.graph.is_frozen(node):
        return x
    of_samples = {"noise_shape": (None, *[1] * (len(x.shape) - 1))} if node.op == "StochasticDepth" else {}
    return net.layer(node, "Dropout", node.attrs["p"], **of_samples)(x)


def _layer(kind: str, *given: str, **named: str) -> Callable[..., Any]:
    """A layer whose arguments are attributes of a node; one that reads nothing is called with the network's input."""

    def layer(net: Network, node: Node, *inputs: Any) -> Any:
        how = {name: node.attrs[own] for name, own in named.items()}
        return net.layer(node, kind, *(node.attrs[name] for name in given), **how)(*(inputs or (net.source,)))

    return layer


# Of a Network, a node, its inputs.
LAYERS: Dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("Conv2d", UNEVEN), conv2d),
    "BatchNorm2d": lambda net, node, x: net.layer(
        node, "BatchNorm", momentum=1 - node.attrs["momentum"], epsilon=node.attrs["eps"]
    )(x),
    "MaxPool2d": maxpool,
    "AvgPool2d": avgpool,
    "AdaptiveAvgPool2d": adaptive_avgpool,
    **dict.fromkeys(("Linear", "Conv1d"), linear),
    "LayerNorm": _layer("LayerNormalization", epsilon="eps"),
    "RMSNorm": _layer("RMSNormalization", epsilon="eps"),
    **dict.fromkeys(("Dropout", "StochasticDepth"), dropout),
    "ReLU": _layer("ReLU"),
    "ReLU6": lambda net, node, x: net.layer(node, "ReLU", 6.0)(x),
    "Embedding": embedding,
    "Unembedding": lambda net, node, x: net.layer(node, "ReversibleEmbedding")(x, reverse=True),  # the embedding's
    **dict.fromkeys(("LSTM", "GRU"), recurrent),
    "Constant": _layer("Constant", "value"),
    "Parameter": _layer("Parameter", "shape"),
    "RelativeBias": _layer("RelativeBias", "index", "heads"),
    "Attention": lambda net, node, *inputs: net.layer(node, "Attention", node.attrs)(*inputs),
    "Repeat": _layer("Repeat"),
    "Quanv2d": _layer("Quanv2d", "gates", "trained"),
}
# Of keras.ops, attributes, and inputs.
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    **network.FUNCTIONS,
    **network.named(
        lambda ops: ops, "tanh", "sigmoid", SiLU="silu", HardSigmoid="hard_sigmoid", HardSwish="hard_swish"
    ),
    "GELU": lambda ops, a, x: ops.gelu(x, approximate=a["approximate"] == "tanh"),
    "Reshape": lambda ops, a, x: ops.reshape(x, a["shape"]),
    "Permute": lambda ops, a, x: ops.transpose(x, a["order"]),
    "Reverse": lambda ops, a, x: ops.flip(x, a["axis"]),
    "Concat": lambda ops, a, *inputs: ops.concatenate(inputs, a["axis"]),
    "Pad": lambda ops, a, x: ops.pad(x, a["pads"], constant_values=a["value"]),
    "Roll": lambda ops, a, x: ops.roll(x, tuple(a["shifts"]), tuple(a["axes"])),
    "Max": lambda ops, a, x: ops.max(x, a["axis"]),
    "Mean": lambda ops, a, x: ops.mean(x, a["axis"]),
}


# Variables of Keras' layers by the graph's names, in which a variable of a layer's cell is after a dot.
_AFFINE, _CELL = {"weight": "gamma", "bias": "beta"}, {"weight_ih": "cell.kernel", "weight_hh": "cell.recurrent_kernel"}
NAMES: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("Conv2d", "Conv1d", "Linear"), {"weight": "kernel"}),
    "BatchNorm2d": {**_AFFINE, "running_mean": "moving_mean", "running_var": "moving_variance"},
    "LayerNorm": _AFFINE,
    "RMSNorm": {"weight": "scale"},
    **dict.fromkeys(("Embedding", "Unembedding"), {"weight": "embeddings"}),
    "LSTM": {**_CELL, "bias": "cell.bias"},
    "GRU": {**_CELL, **dict.fromkeys(ROWS, "cell.bias")},
    "RelativeBias": {"weight": "value"},
    "Quanv2d": {"angles": "value"},
}
HAS = frozenset(LAYERS) | frozenset(FUNCTIONS)
OPS = graph_ops(HAS)
