"""The graph as one paddle.nn.Layer, and its arrays by their names in the graph."""

import functools
import math
from typing import Any, Callable, Dict, List, Mapping, Sequence

import numpy as np

from framework_compare.adapters.common import network, quanv
from framework_compare.adapters.common.recurrent import PAIR, RECURRENT, TURN, Direction, by_direction, pairs, turned
from framework_compare.graph import Graph, Node, evaluate
from framework_compare.graph.lowering import UNEVEN, graph_ops, lowered
from framework_compare.graph.program import Program
from framework_compare.graph.window import Window, pair

GRAPH_NAMES = {"_mean": "running_mean", "_variance": "running_var"}


def make_program(graph: Graph) -> Program:
    return turned(lowered(graph, HAS))


def make_layers(paddle: Any, program: Program, kinds: Any = None, made: Mapping[str, Any] = {}) -> Dict[str, Any]:
    """Return layers by the names of their arrays. kinds: in place of LAYERS. made: layers that exist."""
    layers, kinds = dict(made), kinds or LAYERS
    for node in program.nodes:
        if node.op in LAYERS and node.arrays not in layers:
            layers[node.arrays] = kinds[node.op](paddle.nn, {**node.attrs, "input": program.input_shape(node)})
    return layers


def make_network(paddle: Any, program: Program, layers: Dict[str, Any]) -> Any:
    def apply(node: Node, *inputs: Any) -> Any:
        if node.op == "Unembedding":
            return paddle.matmul(*inputs, layers[node.arrays].weight, transpose_y=True)
        if node.op not in LAYERS:
            return FUNCTIONS[node.op](paddle, node.attrs, *inputs)
        value = layers[node.arrays](*inputs)
        return value[0] if node.op in (*RECURRENT, PAIR) else value  # the states of all steps

    class Network(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            for name, layer in layers.items():
                self.add_sublayer(name.replace(".", "_"), layer)

        def forward(self, *inputs: Any) -> Any:
            return evaluate(program, apply, inputs)

    class OfOneInput(Network):  # paddle.jit.to_static takes no variable number of arguments
        def forward(self, x: Any) -> Any:
            return evaluate(program, apply, (x,))

    return OfOneInput() if len(program.inputs) == 1 else Network()


def arrays_of(program: Program, layers: Dict[str, Any]) -> Dict[str, Any]:
    return network.by_graph_name(by_direction(layers, pairs(program)), _arrays_of, GRAPH_NAMES)


def _arrays_of(layer: Any) -> Dict[str, Any]:
    if not isinstance(layer, Direction):
        return dict(layer.state_dict())
    cell = _cells(layer.layer)[layer.is_backward]
    biases = {"bias": cell.bias_ih} if layer.layer.has_one_bias else {"bias_ih": cell.bias_ih, "bias_hh": cell.bias_hh}
    return {"weight_ih": cell.weight_ih, "weight_hh": cell.weight_hh, **biases}


def second_biases(layers: Dict[str, Any]) -> List[Any]:
    """Return the bias of each LSTM that the graph lacks, set to zero: no optimizer may have it.

    Without it the kernel for CPUs ends the process, and one that needs no gradient its backward pass (3.3.1).
    """
    short = [layer for layer in layers.values() if getattr(layer, "has_one_bias", False)]
    biases = [cell.bias_hh for layer in short for cell in _cells(layer)]
    for bias in biases:
        bias.set_value(np.zeros(bias.shape, np.float32))
    return biases


def _cells(layer: Any) -> Sequence[Any]:
    """Return a recurrent layer's only cell, or its forward and backward cells."""
    both = type(layer[0]).__name__ == "BiRNN"
    return (layer[0].cell_fw, layer[0].cell_bw) if both else (layer[0].cell,)


def _recurrent(nn: Any, a: Mapping[str, Any], op: str, **how: Any) -> Any:
    layer = getattr(nn, op)(a["input_size"], a["hidden_size"], time_major=True, **how)
    layer.has_one_bias = op == "LSTM" and a.get("biases", 1) == 1  # in the graph
    return layer


def _quanv2d(nn: Any, a: Mapping[str, Any]) -> Any:
    import paddle

    # multiply, as `*` of a constant by a value of a traced graph ends the process (3.3.1)
    functions = quanv.Functions(
        paddle.cos, paddle.sin, lambda arrays: paddle.concat(arrays, axis=-1), paddle.matmul, paddle.multiply
    )

    class Quanv2d(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.known = [paddle.to_tensor(array) for array in quanv.constants(a["gates"], a["trained"])]
            if a["trained"]:
                self.angles = self.create_parameter([quanv.rotations(a["gates"])])

        def forward(self, patches: Any) -> Any:
            angles = self.angles.unsqueeze(0) if a["trained"] else None
            pixels = patches.reshape([-1, quanv.QUBITS])
            y = quanv.expectations(functions, pixels, a["gates"], self.known, angles)
            return y.reshape([-1, *a["input"]])

    return Quanv2d()


def _maxpool(nn: Any, a: Mapping[str, Any]) -> Any:
    pads = _pads_behind(nn, a, -math.inf)
    pool = nn.MaxPool2D(a["kernel"], stride=a["stride"], padding=0 if pads else a["padding"])
    return nn.Sequential(pads, pool) if pads else pool


def _avgpool(nn: Any, a: Mapping[str, Any]) -> Any:
    pads = _pads_behind(nn, a, 0.0)
    if pads is None:
        return nn.AvgPool2D(a["kernel"], stride=a["stride"], padding=a["padding"], exclusive=not a["count_include_pad"])
    import paddle

    window = Window.of(a)
    areas = window.areas(a["input"][1:], with_pads=a["count_include_pad"])
    shares = paddle.to_tensor(math.prod(window.kernel) / areas)

    def forward(self: Any, x: Any) -> Any:
        return nn.functional.avg_pool2d(pads(x), a["kernel"], a["stride"]) * shares

    return _layer(nn, forward)


def _pads_behind(nn: Any, a: Mapping[str, Any], value: float) -> Any:
    """All padding as a layer of its own where ceil_mode needs more of it; Paddle rounds up otherwise than torch."""
    window = Window.of(a)
    pads = window.all_pads(a["input"][1:])
    return None if pads == window.pads else nn.Pad2D([*pads[1], *pads[0]], value=value)


def attention(nn: Any, a: Mapping[str, Any], attend: Any = None) -> Any:
    """attend: in place of scaled_dot_product_attention."""
    import paddle

    attend = attend or nn.functional.scaled_dot_product_attention

    def forward(self: Any, *inputs: Any) -> Any:
        bias = inputs[-1] if a.get("bias") else None
        parts = paddle.split(inputs[0], 3, axis=-1) if a["operands"] == 1 else inputs[:3]
        width = parts[0].shape[-1] // a["heads"]
        q, k, v = (x.reshape([*x.shape[:-1], x.shape[-1] // width, width]) for x in parts)
        if bias is None and len(q.shape) == 4:
            # it scales by the root of a head's features, whatever is asked
            factor = a["scale"] * math.sqrt(width)
            q = q if math.isclose(factor, 1) else q * factor
            y = attend(q, k, v, is_causal=a.get("causal", False), training=self.training)
        else:
            y = products(q, k, v, bias)
        return y.reshape([*y.shape[:-2], y.shape[-2] * y.shape[-1]])

    def products(q: Any, k: Any, v: Any, bias: Any) -> Any:
        """Attend by products, (N, ..., steps, heads, features): Paddle's kernels have no gradient of a bias."""
        q, k, v = (_heads_first(x) for x in (q * a["scale"], k, v))
        scores = paddle.matmul(q, k, transpose_y=True)
        if bias is not None:
            scores = scores + (bias if len(q.shape) == 4 else bias.unsqueeze([1, 2]))
        if a["mask"] is not None:
            scores = scores + paddle.to_tensor(a["mask"])
        return _heads_first(paddle.matmul(nn.functional.softmax(scores), v))

    return _layer(nn, forward)


def _heads_first(x: Any) -> Any:
    """(N, ..., steps, heads, features) to (N, ..., heads, steps, features), and back."""
    *outer, first, second, last = range(len(x.shape))
    return x.transpose([*outer, second, first, last])


def _layer(nn: Any, forward: Callable[..., Any], arrays: Mapping[str, Sequence[int]] = {}, **constants: Any) -> Any:
    """Return a layer with this method, with parameters of these shapes and with constants; to_static reads no lambda."""
    import paddle

    class Layer(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            for name, shape in arrays.items():
                setattr(self, name, self.create_parameter(list(shape)))
            for name, array in constants.items():
                setattr(self, name, paddle.to_tensor(array))

    Layer.forward = forward
    return Layer()


def _relative_bias(nn: Any, a: Mapping[str, Any]) -> Any:
    import paddle

    index = a["index"]

    def forward(self: Any) -> Any:
        rows = paddle.gather(self.weight, self.index).reshape([*index.shape, a["heads"]])
        return rows.transpose([2, 0, 1]).unsqueeze(0)

    return _layer(nn, forward, {"weight": (int(index.max()) + 1, a["heads"])}, index=index.ravel())


def _rmsnorm(nn: Any, a: Mapping[str, Any]) -> Any:
    """Written out: Paddle's own has no kernel for CPUs (3.3.1)."""

    def forward(self: Any, x: Any) -> Any:
        exact = x.astype("float32")
        scale = ((exact * exact).mean(-1, keepdim=True) + a["eps"]).rsqrt()
        return (exact * scale * self.weight).astype(x.dtype)

    return _layer(nn, forward, {"weight": [a["features"]]})


def _constant(nn: Any, a: Mapping[str, Any]) -> Any:
    def forward(self: Any) -> Any:
        return self.value

    return _layer(nn, forward, value=a["value"])


def _parameter(nn: Any, a: Mapping[str, Any]) -> Any:
    def forward(self: Any) -> Any:
        return self.value.unsqueeze(0)

    return _layer(nn, forward, {"value": a["shape"]})


def _conv(kind: Any, a: Mapping[str, Any], **how: Any) -> Any:
    how.update(padding=a["padding"], bias_attr=None if a["bias"] else False)
    return kind(a["in_channels"], a["out_channels"], a["kernel"], **how)


def _conv2d(nn: Any, a: Mapping[str, Any]) -> Any:
    return _conv(nn.Conv2D, a, stride=a["stride"], dilation=a.get("dilation", 1), groups=a["groups"])


def _reduce_max(paddle: Any, a: Mapping[str, Any], x: Any) -> Any:
    """Over one axis: over several of five and more its gradient is not initialised (3.3.1)."""
    axes = a["axes"]
    if len(axes) == 1 or x.ndim < 5:
        return x.amax(axes, keepdim=True)
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    sizes = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    return x.transpose([*kept, *axes]).flatten(len(kept)).amax(-1).reshape([-1, *sizes[1:]])


def _convolve(paddle: Any, a: Mapping[str, Any], x: Any, weight: Any) -> Any:
    window = Window.of(a)
    pads = [first for first, _ in window.pads]
    return paddle.nn.functional.conv2d(x, weight[0], None, window.stride, pads, window.dilation, a["groups"])


def _conv_transpose(paddle: Any, a: Mapping[str, Any], x: Any, weight: Any) -> Any:
    window = Window.of(a)
    pads, more = [first for first, _ in window.pads], list(pair(a["output_padding"]))
    how = (None, window.stride, pads, more, list(window.dilation), a["groups"])
    return paddle.nn.functional.conv2d_transpose(x, weight[0], *how)


LAYERS: Dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("Conv2d", UNEVEN), _conv2d),
    **network.named(lambda nn: nn, ReLU="ReLU", ReLU6="ReLU6", SiLU="Silu", HardSwish="Hardswish"),
    **network.named(lambda nn: nn, Tanh="Tanh", Sigmoid="Sigmoid"),
    "BatchNorm2d": lambda nn, a: nn.BatchNorm2D(a["channels"], momentum=1 - a["momentum"], epsilon=a["eps"]),
    "GELU": lambda nn, a: nn.GELU(approximate=a["approximate"] == "tanh"),
    "StochasticDepth": lambda nn, a: nn.Dropout(a["p"], axis=0, mode="upscale_in_train"),
    "MaxPool2d": _maxpool,
    "AdaptiveAvgPool2d": lambda nn, a: nn.AdaptiveAvgPool2D(a["output"]),
    "Linear": lambda nn, a: nn.Linear(
        a["in_features"], a["out_features"], bias_attr=None if a.get("bias", True) else False
    ),
    "Dropout": lambda nn, a: nn.Dropout(a["p"], mode="upscale_in_train"),
    "AvgPool2d": _avgpool,
    "Embedding": lambda nn, a: nn.Embedding(a["num_embeddings"], a["embedding_dim"]),
    **{op: functools.partial(_recurrent, op=op) for op in RECURRENT},
    PAIR: lambda nn, a: _recurrent(nn, a, a["op"], direction="bidirect"),
    "Conv1d": lambda nn, a: _conv(nn.Conv1D, a, data_format="NLC"),
    "Quanv2d": _quanv2d,
    "LayerNorm": lambda nn, a: nn.LayerNorm(a["features"], epsilon=a["eps"]),
    "RMSNorm": _rmsnorm,
    "Constant": _constant,
    "Attention": attention,
    "RelativeBias": _relative_bias,
    "Parameter": _parameter,
    "GroupNorm": lambda nn, a: nn.GroupNorm(a["groups"], a["channels"], epsilon=a["eps"]),
}
# Of paddle, attributes, and inputs.
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    **network.FUNCTIONS,
    # its own slope is 0.1666667
    "HardSigmoid": lambda paddle, a, x: paddle.nn.functional.hardsigmoid(x, slope=1 / 6, offset=0.5),
    "Permute": lambda paddle, a, x: x.transpose(a["order"]),
    # its own kernel for that takes less time than a Permute
    "ChannelShuffle": lambda paddle, a, x: paddle.nn.functional.channel_shuffle(x, a["groups"]),
    "Reverse": lambda paddle, a, x: paddle.flip(x, [a["axis"]]),
    TURN: lambda paddle, a, x: x.transpose([1, 0, *range(2, len(x.shape))]),
    "Concat": lambda paddle, a, *inputs: paddle.concat(list(inputs), axis=a["axis"]),
    "Repeat": lambda paddle, a, x, like: x.expand([like.shape[0], *a["shape"]]),
    "Pad": lambda paddle, a, x: paddle.nn.functional.pad(x, [*a["pads"][3], *a["pads"][2]], value=a["value"]),
    "Roll": lambda paddle, a, x: paddle.roll(x, a["shifts"], a["axes"]),
    "Max": lambda paddle, a, x: x.max(a["axis"]),
    "Mean": lambda paddle, a, x: x.mean(a["axis"]),
    **network.named(lambda paddle: paddle, *network.NUMPY, "erf"),
    "LeakyReLU": lambda paddle, a, x: paddle.nn.functional.leaky_relu(x, a["slope"]),
    "Detach": lambda paddle, a, x: x.detach(),
    "Cast": lambda paddle, a, x: x.astype("float32"),
    "Equal": lambda paddle, a, x, y: paddle.equal(x, y).astype(x.dtype),
    "Less": lambda paddle, a, x, y: paddle.less_than(x, y).astype(x.dtype),
    "LessEqual": lambda paddle, a, x, y: paddle.less_equal(x, y).astype(x.dtype),
    "Where": lambda paddle, a, condition, x, y: paddle.where(condition != 0, x, y),
    "ReduceSum": lambda paddle, a, x: x.sum(a["axes"], keepdim=True),
    "ReduceMean": lambda paddle, a, x: x.mean(a["axes"], keepdim=True),
    "ReduceMax": _reduce_max,
    "Softmax": lambda paddle, a, x: paddle.nn.functional.softmax(x, a["axis"]),
    "LogSoftmax": lambda paddle, a, x: paddle.nn.functional.log_softmax(x, a["axis"]),
    "CumSum": lambda paddle, a, x: x.cumsum(a["axis"]),
    "Expand": lambda paddle, a, x: x.expand(a["shape"]),
    "Take": lambda paddle, a, x: paddle.index_select(x, paddle.to_tensor(a["index"]), a["axis"]),
    "Gather": lambda paddle, a, table, index: paddle.nn.functional.embedding(index.astype("int64"), table[0]),
    "PadAxes": lambda paddle, a, x: paddle.nn.functional.pad(
        x, [side for pads in a["pads"] for side in pads], value=a.get("value", 0.0)
    ),
    "Convolve": _convolve,
    "ConvTranspose": _conv_transpose,
}
HAS = frozenset(LAYERS) | frozenset(FUNCTIONS) | {"Unembedding"}
OPS = graph_ops(HAS)
