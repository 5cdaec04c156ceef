"""The graph as one gluon HybridBlock, and its parameters by their names in the graph."""

import functools
import math
from typing import Any, Callable, Dict, Mapping, Set

from framework_compare.adapters.common.network import by_graph_name, named
from framework_compare.adapters.common.recurrent import PAIR, RECURRENT, TURN, Direction, by_direction, pairs, turned
from framework_compare.adapters.mxnet import blocks
from framework_compare.errors import Unsupported
from framework_compare.graph import Graph, Node, evaluate, trainable_names
from framework_compare.graph.image_ops import adaptive_size
from framework_compare.graph.lowering import graph_ops, lowered
from framework_compare.graph.window import Window

GRAPH_NAMES = {"gamma": "weight", "beta": "bias"}
RECURRENT_ARRAYS = {"i2h_weight": "weight_ih", "h2h_weight": "weight_hh", "i2h_bias": "bias_ih", "h2h_bias": "bias_hh"}


def make_network(mx: Any, graph: Graph) -> Any:
    program = turned(lowered(graph, HAS))
    trained = _trained_layers(graph)
    behind: Set[str] = set()  # the nodes that a trained array has a part in
    for node in program.nodes:
        if node.arrays in trained or not behind.isdisjoint(node.inputs):
            behind.add(node.name)
    attrs = {
        node.name: {
            **node.attrs,
            "input": program.input_shape(node),  # symbols have no shapes
            "size": program.shapes[node.name],
            "shapes": [program.shapes[name] for name in node.inputs],
            "shared_inputs": [name in program.shared for name in node.inputs],
            # its plain sum leaves gradients uninitialised beside an operand that has none, with static_alloc (1.9.1)
            "broadcasts": len({(name in program.shared, program.shapes[name]) for name in node.inputs}) > 1
            or not behind.issuperset(node.inputs),
        }
        for node in program.nodes
    }

    class Network(mx.gluon.HybridBlock):
        """The graph as one block; children are registered under their graph names."""

        def __init__(self) -> None:
            super().__init__(prefix="")
            self.layers: Dict[str, Any] = {}
            self.tied: Dict[str, Any] = {}
            self.pairs = pairs(program)
            for node in program.nodes:
                if node.op == "Unembedding":  # its array is the embedding's
                    shared = self.layers[node.arrays].params
                    how = {"in_units": node.attrs["embedding_dim"], "use_bias": False, "flatten": False}
                    self.tied[node.name] = mx.gluon.nn.Dense(node.attrs["num_embeddings"], params=shared, **how)
                elif node.op == "ConvTranspose":
                    self.tied[node.name] = self._conv_transpose(node)
                elif node.op in LAYERS and node.arrays not in self.layers:
                    self.layers[node.arrays] = LAYERS[node.op](mx.gluon, attrs[node.name])
                    self.register_child(self.layers[node.arrays], node.arrays)
            for name, layer in self.tied.items():
                self.register_child(layer, name)

        def _conv_transpose(self, node: Node) -> Any:
            (weight,) = (one for one in program.nodes if one.name == node.inputs[1])
            if weight.op != "Parameter":
                raise Unsupported(
                    f"{node.name}: MXNet's Deconvolution needs a weight that is a parameter, not one computed"
                )
            return blocks.conv_transpose(mx.gluon, attrs[node.name], self.layers[weight.arrays].params)

        def hybrid_forward(self, F: Any, x: Any, *more: Any) -> Any:
            def apply(node: Node, *inputs: Any) -> Any:
                if node.name in self.tied:
                    return self.tied[node.name](*inputs)
                if node.op not in LAYERS:
                    return FUNCTIONS[node.op](F, attrs[node.name], *inputs)
                return self.layers[node.arrays](*(inputs or (x,)))

            return evaluate(program, apply, (x, *more))

    return Network()


def _trained_layers(graph: Graph) -> Set[str]:
    return {name.rpartition(".")[0] for name in trainable_names(graph)}


def parameters_of(network: Any) -> Dict[str, Any]:
    return by_graph_name(by_direction(network.layers, network.pairs), _arrays_of, GRAPH_NAMES)


def _arrays_of(layer: Any) -> Dict[str, Any]:
    if not isinstance(layer, Direction):
        return {name: array for name, array in layer._reg_params.items() if type(array).__name__ != "Constant"}
    side, params = "r0" if layer.is_backward else "l0", layer.layer._reg_params
    arrays = {name: params[f"{side}_{own}"] for own, name in RECURRENT_ARRAYS.items()}
    if layer.layer.has_one_bias:  # in the graph, of two: the other stays zero, or both would move
        arrays.pop("bias_hh").grad_req = "null"
        arrays["bias"] = arrays.pop("bias_ih")
    return arrays


def _recurrent(gluon: Any, a: Mapping[str, Any], op: str, **how: Any) -> Any:
    """A layer with the steps in front of the samples."""
    layer = getattr(gluon.rnn, op)(a["hidden_size"], layout="TNC", input_size=a["input_size"], **how)
    layer.has_one_bias = op == "LSTM" and a.get("biases", 1) == 1
    return layer


def freeze(parameters: Dict[str, Any], graph: Graph) -> None:
    """Leave the layers that are not to be trained out of the backward pass.

    Running statistics move in that pass (1.9.1): those before the first trained array stay where they are.
    """
    trained = _trained_layers(graph)
    for name, layer in ((p.name, p.name.rpartition(".")[0]) for p in graph.parameters() if not p.trainable):
        if parameters[name].grad_req == "null":  # a running statistic, which MXNet never trains
            continue
        if layer in trained:  # oneDNN computes a bias's gradient with its weight's, or not at all (1.9.1)
            raise Unsupported(f"layer {layer}: MXNet trains all arrays of a layer or none")
        parameters[name].grad_req = "null"


def _pool(gluon: Any, a: Mapping[str, Any], kind: str) -> Any:
    """Crop afterwards where MXNet rounds up to windows behind the image.

    Where an average rounds up and counts its padding, MXNet's gradient is wrong (1.9.1): there pad first.
    """
    window, counts = Window.of(a), a.get("count_include_pad", False)
    first = window.ceil_mode and counts
    how = {"count_include_pad": counts and not first} if kind == "AvgPool2D" else {}
    pads = (0, 0) if first else (window.pads[0][0], window.pads[1][0])
    pool = getattr(gluon.nn, kind)(window.kernel, window.stride, pads, ceil_mode=window.ceil_mode, **how)
    if not window.ceil_mode:
        return pool

    def forward(F: Any, x: Any) -> Any:
        x = _pad(F, {"pads": ((0, 0), (0, 0), *window.pads), "value": 0}, x) if first else x
        return F.slice(pool(x), begin=(None, None, 0, 0), end=(None, None, *a["size"][1:]))

    return blocks.block(gluon, forward)


def _conv2d(gluon: Any, a: Mapping[str, Any]) -> Any:
    window, how = Window.of(a), {"groups": a["groups"], "use_bias": a["bias"], "in_channels": a["in_channels"]}
    pads = tuple(first for first, _ in window.pads)
    return gluon.nn.Conv2D(a["out_channels"], window.kernel, window.stride, pads, window.dilation, **how)


def _mul(F: Any, a: Mapping[str, Any], x: Any, y: Any) -> Any:
    """Repeat the smaller operand first: of unlike shapes the gradient takes three times as long (1.9.1)."""
    one, other = ((1 if shared else 0, *shape) for shared, shape in zip(a["shared_inputs"], a["shapes"]))
    if len(one) == len(other) > 1 and one != other:  # a sum that all samples share keeps its axes
        if all(size in (1, wanted) for size, wanted in zip(one, other)):
            x = F.broadcast_like(x, y)
        elif all(size in (1, wanted) for size, wanted in zip(other, one)):
            y = F.broadcast_like(y, x)
    return F.broadcast_mul(x, y)


def _layernorm(gluon: Any, a: Mapping[str, Any], axis: int = -1) -> Any:
    return gluon.nn.LayerNorm(axis=axis, epsilon=a["eps"], in_channels=a["features"])


def _adaptive_avgpool(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    output = adaptive_size(a)
    if output == (1, 1):
        return F.Pooling(x, kernel=(1, 1), global_pool=True, pool_type="avg")
    return F.contrib.AdaptiveAvgPooling2D(x, output_size=output)


def _permute(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    moved = [axis for axis, source in enumerate(a["order"]) if axis != source]
    # of two axes that change places it takes less time (1.9.1)
    return F.swapaxes(x, *moved) if len(moved) == 2 else F.transpose(x, a["order"])


def _slice(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    if a["step"] == 1:
        return F.slice_axis(x, axis=a["axis"], begin=a["start"], end=a["end"])
    everything = (None,) * a["axis"]
    begin, end, step = ((*everything, a[name]) for name in ("start", "end", "step"))
    return F.slice(x, begin, end, step=step)


def _pad(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    sides = [side for pads in a["pads"] for side in pads]
    return F.pad(x, mode="constant", constant_value=a["value"], pad_width=sides)


def _gelu(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    if a["approximate"] == "none":
        return F.LeakyReLU(x, act_type="gelu")
    return 0.5 * x * (1 + F.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


LAYERS: Dict[str, Callable[..., Any]] = {
    "Conv2d": _conv2d,
    # MXNet's momentum is the share of the old statistics that is kept
    "BatchNorm2d": lambda gluon, a: gluon.nn.BatchNorm(
        momentum=1 - a["momentum"], epsilon=a["eps"], in_channels=a["channels"]
    ),
    "ReLU": lambda gluon, a: gluon.nn.Activation("relu"),
    "MaxPool2d": lambda gluon, a: _pool(gluon, a, "MaxPool2D"),
    "Linear": lambda gluon, a: gluon.nn.Dense(
        a["out_features"], use_bias=a.get("bias", True), flatten=len(a["input"]) == 1, in_units=a["in_features"]
    ),
    "Dropout": lambda gluon, a: gluon.nn.Dropout(a["p"]),
    "Tanh": lambda gluon, a: gluon.nn.Activation("tanh"),
    "Sigmoid": lambda gluon, a: gluon.nn.Activation("sigmoid"),
    "Embedding": lambda gluon, a: gluon.nn.Embedding(a["num_embeddings"], a["embedding_dim"]),
    "AvgPool2d": lambda gluon, a: _pool(gluon, a, "AvgPool2D"),
    "Conv1d": blocks.conv1d,
    "LinearOfChannels": blocks.linear_of_channels,
    "LayerNorm": _layernorm,
    "LayerNormOfChannels": lambda gluon, a: _layernorm(gluon, a, axis=1),
    "Quanv2d": blocks.quanv2d,
    "RMSNorm": blocks.rmsnorm,
    "Constant": lambda gluon, a: blocks.block(gluon, lambda F, x, value: F.identity(value), value=a["value"]),
    "Attention": blocks.attention,
    "RelativeBias": blocks.relative_bias,
    "Parameter": lambda gluon, a: blocks.block(
        gluon, lambda F, x, value: F.expand_dims(value, 0), {"value": a["shape"]}
    ),
    "StochasticDepth": lambda gluon, a: gluon.nn.Dropout(a["p"], axes=tuple(range(1, 1 + len(a["input"])))),
    "Take": blocks.take,
    "GroupNorm": blocks.groupnorm,
    **{op: functools.partial(_recurrent, op=op) for op in RECURRENT},
    PAIR: lambda gluon, a: _recurrent(gluon, a, a["op"], bidirectional=True),
}
# Of F, attributes, and inputs.
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "ReLU6": lambda F, a, x: F.clip(x, 0, 6),
    "SiLU": lambda F, a, x: x * F.sigmoid(x),
    # its own slope is 0.2
    "HardSigmoid": lambda F, a, x: F.hard_sigmoid(x, alpha=1 / 6, beta=0.5),
    "HardSwish": lambda F, a, x: x * F.hard_sigmoid(x, alpha=1 / 6, beta=0.5),
    "GELU": _gelu,
    "AdaptiveAvgPool2d": _adaptive_avgpool,
    "Add": lambda F, a, x, y: F.broadcast_add(x, y) if a["broadcasts"] else x + y,
    "Mul": _mul,
    "Reshape": lambda F, a, x: F.reshape(x, a["shape"]),
    "Permute": _permute,
    "Slice": _slice,
    "Select": lambda F, a, x: F.squeeze(
        F.slice_axis(x, axis=a["axis"], begin=a["index"], end=a["index"] + 1), axis=a["axis"]
    ),
    "Reverse": lambda F, a, x: F.reverse(x, axis=a["axis"]),
    TURN: lambda F, a, x: F.swapaxes(x, dim1=0, dim2=1),
    "Concat": lambda F, a, *xs: F.concat(*xs, dim=a["axis"]),
    "Repeat": lambda F, a, x, like: F.broadcast_like(x, like, lhs_axes=(0,), rhs_axes=(0,)),
    "Pad": _pad,
    "Max": lambda F, a, x: F.max(x, axis=a["axis"]),  # Maxout: ties are rare, and sharing them would cost every step
    "Mean": lambda F, a, x: F.mean(x, axis=a["axis"]),
    **named(lambda F: F, "exp", "log", "sqrt", "abs", "sign", "sin", "cos", "erf", Detach="BlockGrad"),
    **named(lambda F: F, "sub", "div", "maximum", "minimum", "equal", prefix="broadcast_"),
    **named(lambda F: F, Less="broadcast_lesser", LessEqual="broadcast_lesser_equal"),
    "ReduceSum": lambda F, a, x: F.sum(x, axis=a["axes"], keepdims=True),
    "ReduceMean": lambda F, a, x: F.mean(x, axis=a["axes"], keepdims=True),
    "ReduceMax": lambda F, a, x: blocks.shared_max(F, x, a["axes"]),
    "Power": lambda F, a, x: x ** a["exponent"],
    "LeakyReLU": lambda F, a, x: F.LeakyReLU(x, act_type="leaky", slope=a["slope"]),
    "Cast": lambda F, a, x: F.cast(x, "float32"),
    "Where": blocks.where,
    "Softmax": lambda F, a, x: F.softmax(x, axis=a["axis"]),
    # over the last axis oneDNN computes it, to 3e-6 only
    "LogSoftmax": lambda F, a, x: F.squeeze(F.log_softmax(F.expand_dims(x, axis=-1), axis=a["axis"]), axis=-1),
    "CumSum": blocks.cumsum,
    "Expand": lambda F, a, x: F.broadcast_to(x, (0, *a["shape"][1:])),
    "Gather": lambda F, a, table, index: F.take(F.squeeze(table, axis=0), index),
    "PadAxes": blocks.pad_axes,
    "MatMul": blocks.matmul,
    "Convolve": lambda F, a, x, weight: F.Convolution(x, F.squeeze(weight, axis=0), **blocks.convolution(a)),
}
HAS = frozenset(LAYERS) | frozenset(FUNCTIONS) | {"Unembedding", "ConvTranspose"}
OPS = graph_ops(HAS)
