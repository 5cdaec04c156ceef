"""The graph as a torch.fx module of torch.nn layers: eager runs straight-line code."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from framework_compare.adapters.common import network, quanv
from framework_compare.graph import INPUT, Graph
from framework_compare.graph.lowering import graph_ops, lowered
from framework_compare.graph.window import Window, pair

# torch's names of arrays that the graph calls otherwise, by op; None: no array of the graph's.
GRAPH_NAMES: Dict[str, Dict[str, Optional[str]]] = {
    "BatchNorm2d": {"num_batches_tracked": None},
    "LSTM": {"weight_ih_l0": "weight_ih", "weight_hh_l0": "weight_hh", "bias_ih_l0": "bias", "bias_hh_l0": None},
    "LSTM of two biases": {name + "_l0": name for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")},
    "GRU": {name + "_l0": name for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")},
}
IN_PLACE = ("ReLU", "ReLU6")
OVERWRITABLE = ("Conv2d", "BatchNorm2d", "Linear", "Conv1d", "Add")


def make_network(torch: Any, graph: Graph, layers: Any = None, made: Optional[Mapping[str, Any]] = None) -> Any:
    """layers: in place of LAYERS. made: modules that exist already, by the names of their arrays."""
    program, layers, modules = lowered(graph, HAS, views=True), layers or LAYERS, dict(made or {})
    # values that a later layer may overwrite: read once, and not needed by their own layer's backward pass
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    spare = {node.name for node in graph.nodes if node.op in OVERWRITABLE and readers[node.name] == 1}
    for node in program.nodes:
        if node.op in LAYERS and node.arrays not in modules:
            in_place = {"in_place": node.inputs[0] in spare} if node.op in IN_PLACE else {}
            modules[node.arrays] = layers[node.op](torch, {**node.attrs, **in_place})
    code = torch.fx.Graph()
    proxy = functools.partial(torch.fx.Proxy, tracer=torch.fx.proxy.GraphAppendingTracer(code))
    names = {name: "images" if name == INPUT else f"input{place}" for place, name in enumerate(graph.inputs)}
    values = {name: proxy(code.placeholder(own)) for name, own in names.items()}
    parts: Dict[Any, Any] = {}
    for node in program.nodes:
        inputs = [values[name] for name in node.inputs]
        if node.op in LAYERS:
            values[node.name] = proxy(code.call_module(node.arrays, tuple(one.node for one in inputs)))
        elif node.op == "Add":
            first, second = node.inputs
            spared = first in spare and first != second and program.shapes[first] == program.shapes[node.name]
            function = operator.iadd if spared else operator.add
            values[node.name] = proxy(code.call_function(function, tuple(one.node for one in inputs)))
        elif node.op == "Unembedding":
            modules[f"{node.arrays}.weight"] = modules[node.arrays].weight
            held = proxy(code.get_attr(f"{node.arrays}.weight"))
            values[node.name] = torch.nn.functional.linear(*inputs, held)
        elif node.op == "Split":
            key = (node.inputs, node.attrs["axis"], *node.attrs["sizes"])
            if key not in parts:
                parts[key] = torch.split(*inputs, node.attrs["sizes"], node.attrs["axis"])
            values[node.name] = parts[key][node.attrs["index"]]
        else:
            values[node.name] = FUNCTIONS[node.op](torch, node.attrs, *inputs)
    code.output(values[program.nodes[-1].name].node)
    return torch.fx.GraphModule(modules, code, graph.name)


def by_graph_name(graph: Graph, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Arrays of a network's state by their names in the graph, without those that the graph lacks."""
    ops = {node.arrays: "LSTM of two biases" if node.attrs.get("biases") == 2 else node.op for node in graph.nodes}
    named = {}
    for name, array in arrays.items():
        layer, _, own = name.rpartition(".")
        ours = GRAPH_NAMES.get(ops[layer], {}).get(own, own)
        if ours is not None:
            named[f"{layer}.{ours}"] = array
    return named


def _plain(kind: str, *given: str, **named: str) -> Callable[..., Any]:
    """A layer of torch.nn whose arguments are attributes of a node."""

    def make(torch: Any, a: Mapping[str, Any]) -> Any:
        return getattr(torch.nn, kind)(*map(a.__getitem__, given), **{name: a[own] for name, own in named.items()})

    return make


def _recurrent(kind: str) -> Callable[..., Any]:
    """A layer of torch.nn that returns only the states of all steps."""

    def make(torch: Any, a: Mapping[str, Any]) -> Any:
        class Recurrent(getattr(torch.nn, kind)):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return super().forward(x)[0]

        layer = Recurrent(a["input_size"], a["hidden_size"], batch_first=True)
        if kind == "LSTM" and a.get("biases", 1) == 1:
            # of its two biases the graph has one: trained both, it would move twice as far
            torch.nn.init.zeros_(layer.bias_hh_l0)
        return layer

    return make


def _conv1d(torch: Any, a: Mapping[str, Any]) -> Any:
    class Conv1d(torch.nn.Conv1d):
        """Convolve (N, steps, features); torch has the features before the steps."""

        def forward(self, x: Any) -> Any:
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    return Conv1d(a["in_channels"], a["out_channels"], a["kernel"], padding=a["padding"], bias=a["bias"])


def _pooling(a: Mapping[str, Any]) -> Dict[str, Any]:
    return {"stride": a["stride"], "padding": a["padding"], "ceil_mode": a.get("ceil_mode", False)}


def _avgpool2d(torch: Any, a: Mapping[str, Any]) -> Any:
    class AvgPool2d(torch.nn.AvgPool2d):
        """On channels_last images PyTorch's kernel for GPUs puts the gradient of padded windows in wrong places.

        Its issue 188344, of 2.11 at least, mended in July 2026. Forward, unpadded and on a CPU it is right.
        """

        def forward(self, x: Any) -> Any:
            padded = self.padding not in (0, (0, 0), [0, 0])
            return super().forward(x.contiguous() if padded and x.is_cuda else x)

    return AvgPool2d(a["kernel"], count_include_pad=a["count_include_pad"], **_pooling(a))


def _layer(torch: Any, forward: Callable[..., Any], arrays: Mapping[str, Sequence[int]] = {}, **buffers: Any) -> Any:
    """Return a module with this method, with parameters of these shapes and with tensors that are no state."""

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, shape in arrays.items():
                setattr(self, name, torch.nn.Parameter(torch.zeros(tuple(shape))))
            for name, tensor in buffers.items():
                self.register_buffer(name, tensor, persistent=False)

    Layer.forward = forward
    return Layer()


def _quanv2d(torch: Any, a: Mapping[str, Any]) -> Any:
    functions = quanv.Functions(torch.cos, torch.sin, lambda arrays: torch.cat(arrays, -1), torch.matmul)
    known = {f"constant{i}": torch.from_numpy(one) for i, one in enumerate(quanv.constants(a["gates"], a["trained"]))}

    def forward(self: Any, patches: Any) -> Any:
        angles = self.angles[None] if a["trained"] else None
        pixels, constants = patches.reshape(-1, quanv.QUBITS), [getattr(self, name) for name in known]
        return quanv.expectations(functions, pixels, a["gates"], constants, angles).reshape(patches.shape)

    return _layer(torch, forward, {"angles": (quanv.rotations(a["gates"]),)} if a["trained"] else {}, **known)


def _conv2d(torch: Any, a: Mapping[str, Any]) -> Any:
    nn = torch.nn

    class Pointwise(nn.Conv2d):  # type: ignore[name-defined]
        """Read the pixels that count first, and convolve these without a stride.

        On a CPU the gradient with a stride and 2 to 7 channels_last channels crashes (PyTorch 2.13.0, seen with AVX2).
        """

        def forward(self, x: Any) -> Any:
            if x.is_cuda:
                return super().forward(x)
            down, right = self.stride
            return nn.functional.conv2d(x[:, :, ::down, ::right], self.weight, self.bias)

    pointwise = a["kernel"] == 1 and a["padding"] == 0 and a["groups"] == 1
    crashes = pointwise and a["stride"] != 1 and a["in_channels"] < 8
    how = {name: a[name] for name in ("stride", "padding", "groups", "bias")}
    how["dilation"] = a.get("dilation", 1)
    # skip_init: the initial weights are loaded over it; drawing them twice takes a second for VGG-16
    kind, sizes = Pointwise if crashes else nn.Conv2d, (a["in_channels"], a["out_channels"], a["kernel"])
    return nn.utils.skip_init(kind, *sizes, **how)


def attention(torch: Any, a: Mapping[str, Any], attend: Any = None) -> Any:
    """scaled_dot_product_attention, which picks torch's own fused kernel, or `attend` in its place.

    Products around it are Linear layers.
    """
    attend = attend or torch.nn.functional.scaled_dot_product_attention
    shape = None if a["mask"] is None else a["mask"].shape
    kv_heads = a.get("kv_heads", a["heads"])
    how = {"scale": a["scale"], "is_causal": a.get("causal", False), "enable_gqa": kv_heads != a["heads"]}

    def forward(self: Any, *inputs: Any) -> Any:
        if a["operands"] == 1:
            q, k, v = inputs[0].unflatten(-1, (3, a["heads"], -1)).unbind(-3)
        else:
            q, k, v = (x.unflatten(-1, (n, -1)) for x, n in zip(inputs, (a["heads"], kv_heads, kv_heads)))
        q, k, v = (x.transpose(-2, -3) for x in (q, k, v))
        added = None if shape is None else self.mask.view(shape)
        if a.get("bias"):
            bias = inputs[-1][:, None, None] if q.dim() == 6 else inputs[-1]
            added = bias if added is None else bias + added
        return attend(q, k, v, added, **how).transpose(-2, -3).flatten(-2)

    return _layer(torch, forward, **({} if shape is None else {"mask": _flat(torch, a["mask"])}))


def _flat(torch: Any, array: Any) -> Any:
    """A tensor of one axis: of five axes there is no channels_last, which a module asks of all of its arrays."""
    return torch.from_numpy(array).flatten()


def _constant(torch: Any, a: Mapping[str, Any]) -> Any:
    shape = a["value"].shape
    return _layer(torch, lambda self: self.value.view(shape), value=_flat(torch, a["value"]))


def _relative_bias(torch: Any, a: Mapping[str, Any]) -> Any:
    shape = a["index"].shape

    def forward(self: Any) -> Any:
        return self.weight[self.index].view(*shape, -1).permute(2, 0, 1)[None]

    table = {"weight": (int(a["index"].max()) + 1, a["heads"])}
    return _layer(torch, forward, table, index=_flat(torch, a["index"]).long())


def _take(torch: Any, a: Mapping[str, Any]) -> Any:
    return _layer(torch, lambda self, x: x.index_select(a["axis"], self.index), index=torch.tensor(a["index"]))


def _stochastic_depth(torch: Any, a: Mapping[str, Any]) -> Any:
    kept = 1 - a["p"]

    def forward(self: Any, x: Any) -> Any:
        if not self.training:
            return x
        return x * x.new_empty((len(x), *[1] * (x.dim() - 1))).bernoulli_(kept).div_(kept)

    return _layer(torch, forward)


def _convolve(torch: Any, a: Mapping[str, Any], x: Any, weight: Any) -> Any:
    window = Window.of(a)
    pads = tuple(first for first, _ in window.pads)
    return torch.nn.functional.conv2d(x, weight[0], None, window.stride, pads, window.dilation, a["groups"])


def _conv_transpose(torch: Any, a: Mapping[str, Any], x: Any, weight: Any) -> Any:
    window = Window.of(a)
    pads, more = tuple(first for first, _ in window.pads), pair(a["output_padding"])
    how = (None, window.stride, pads, more, a["groups"], window.dilation)
    return torch.nn.functional.conv_transpose2d(x, weight[0], *how)


# Of torch and attributes: a module.
LAYERS: Dict[str, Callable[..., Any]] = {
    **{name: _plain(name) for name in ("SiLU", "Tanh", "Sigmoid")},
    **{name: _plain(name, inplace="in_place") for name in IN_PLACE},
    "HardSigmoid": _plain("Hardsigmoid"),
    "HardSwish": _plain("Hardswish"),
    "GELU": _plain("GELU", approximate="approximate"),
    "BatchNorm2d": _plain("BatchNorm2d", "channels", eps="eps", momentum="momentum"),
    "LayerNorm": _plain("LayerNorm", "features", eps="eps"),
    "RMSNorm": _plain("RMSNorm", "features", eps="eps"),
    "GroupNorm": _plain("GroupNorm", "groups", "channels", eps="eps"),
    "Embedding": _plain("Embedding", "num_embeddings", "embedding_dim"),
    "Dropout": _plain("Dropout", "p"),
    "StochasticDepth": _stochastic_depth,
    "MaxPool2d": lambda torch, a: torch.nn.MaxPool2d(a["kernel"], **_pooling(a)),
    "AvgPool2d": _avgpool2d,
    "AdaptiveAvgPool2d": _plain("AdaptiveAvgPool2d", "output"),
    "Linear": lambda torch, a: torch.nn.utils.skip_init(
        torch.nn.Linear, a["in_features"], a["out_features"], bias=a.get("bias", True)
    ),
    "Conv2d": _conv2d,
    "Conv1d": _conv1d,
    "LSTM": _recurrent("LSTM"),
    "GRU": _recurrent("GRU"),
    "Quanv2d": _quanv2d,
    "Attention": attention,
    "RelativeBias": _relative_bias,
    "Constant": _constant,
    "Parameter": lambda torch, a: _layer(torch, lambda self: self.value[None], {"value": a["shape"]}),
    "Take": _take,
}
# Of torch, attributes, and inputs.
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    **network.FUNCTIONS,
    "Permute": lambda torch, a, x: x.permute(a["order"]),
    "Reverse": lambda torch, a, x: torch.flip(x, (a["axis"],)),
    "Concat": lambda torch, a, *inputs: torch.cat(inputs, a["axis"]),
    "Repeat": lambda torch, a, x, like: x.expand(like.shape[0], *a["shape"]),
    "Pad": lambda torch, a, x: torch.nn.functional.pad(x, (*a["pads"][3], *a["pads"][2]), value=a["value"]),
    "Roll": lambda torch, a, x: torch.roll(x, a["shifts"], a["axes"]),
    "Max": lambda torch, a, x: x.amax(a["axis"]),
    "Mean": lambda torch, a, x: x.mean(a["axis"]),
    **network.named(lambda torch: torch, *network.NUMPY, "erf"),
    "LeakyReLU": lambda torch, a, x: torch.nn.functional.leaky_relu(x, a["slope"]),
    "Cast": lambda torch, a, x: x.float(),
    "Detach": lambda torch, a, x: x.detach(),
    "Equal": lambda torch, a, x, y: torch.eq(x, y).type_as(x),
    "Less": lambda torch, a, x, y: torch.lt(x, y).type_as(x),
    "LessEqual": lambda torch, a, x, y: torch.le(x, y).type_as(x),
    "Where": lambda torch, a, condition, x, y: torch.where(torch.ne(condition, 0), x, y),
    "ReduceSum": lambda torch, a, x: x.sum(a["axes"], keepdim=True),
    "ReduceMean": lambda torch, a, x: x.mean(a["axes"], keepdim=True),
    "ReduceMax": lambda torch, a, x: x.amax(a["axes"], keepdim=True),
    "Softmax": lambda torch, a, x: x.softmax(a["axis"]),
    "LogSoftmax": lambda torch, a, x: x.log_softmax(a["axis"]),
    "CumSum": lambda torch, a, x: x.cumsum(a["axis"]),
    "Expand": lambda torch, a, x: x.expand(a["shape"]),
    "Gather": lambda torch, a, table, index: torch.nn.functional.embedding(index.long(), table[0]),
    "PadAxes": lambda torch, a, x: torch.nn.functional.pad(x, sum(a["pads"][::-1], ()), value=a.get("value", 0.0)),
    "Convolve": _convolve,
    "ConvTranspose": _conv_transpose,
}
HAS = frozenset(LAYERS) | frozenset(FUNCTIONS) | {"Split", "Unembedding"}
OPS = graph_ops(HAS)
