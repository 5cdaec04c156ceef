"""The graph as a torch.fx module of torch.nn layers: eager runs straight-line code."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Set

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
    spare, program, layers = _spare_values(graph), lowered(graph, HAS, views=True), layers or LAYERS
    modules = dict(made or {})
    for node in program.nodes:
        if node.op in LAYERS and node.arrays not in modules:
            in_place = {"in_place": True} if node.op in IN_PLACE and node.inputs[0] in spare else {}
            modules[node.arrays] = layers[node.op](torch.nn, {**node.attrs, **in_place})
    code = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(code)
    values = {
        name: torch.fx.Proxy(code.placeholder("images" if name == INPUT else f"input{place}"), tracer)
        for place, name in enumerate(graph.inputs)
    }
    parts: Dict[Any, Any] = {}
    for node in program.nodes:
        inputs = [values[name] for name in node.inputs]
        if node.op in LAYERS:
            value = code.call_module(node.arrays, tuple(one.node for one in inputs))
            values[node.name] = torch.fx.Proxy(value, tracer)
        elif node.op == "Add":
            first, second = node.inputs
            spared = first in spare and first != second and program.shapes[first] == program.shapes[node.name]
            value = code.call_function(operator.iadd if spared else operator.add, tuple(one.node for one in inputs))
            values[node.name] = torch.fx.Proxy(value, tracer)
        elif node.op == "Unembedding":
            modules[f"{node.arrays}.weight"] = modules[node.arrays].weight
            held = torch.fx.Proxy(code.get_attr(f"{node.arrays}.weight"), tracer)
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


def _spare_values(graph: Graph) -> Set[str]:
    """Values that a later layer may overwrite: read once, and not needed by their own layer's backward pass."""
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    return {node.name for node in graph.nodes if node.op in OVERWRITABLE and readers[node.name] == 1}


def by_graph_name(graph: Graph, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Arrays of a network's state by their names in the graph; what the graph has not is left out."""
    ops: Dict[str, str] = {
        node.arrays: "LSTM of two biases" if node.attrs.get("biases") == 2 else node.op for node in graph.nodes
    }
    named = {}
    for name, array in arrays.items():
        layer, _, own = name.rpartition(".")
        ours = GRAPH_NAMES.get(ops[layer], {}).get(own, own)
        if ours is not None:
            named[f"{layer}.{ours}"] = array
    return named


def _recurrent(kind: str) -> Any:
    """A layer of torch.nn that returns the states of all steps and no other."""

    def make(nn: Any, a: Mapping[str, Any]) -> Any:
        base = getattr(nn, kind)

        class Recurrent(base):  # type: ignore[misc, valid-type]
            def forward(self, x: Any) -> Any:
                return super().forward(x)[0]

        layer = Recurrent(a["input_size"], a["hidden_size"], batch_first=True)
        if kind == "LSTM" and a.get("biases", 1) == 1:
            # of its two biases the graph has one: trained both, it would move twice as far
            nn.init.zeros_(layer.bias_hh_l0)
        return layer

    return make


def _conv1d(nn: Any, a: Mapping[str, Any]) -> Any:
    class Conv1d(nn.Conv1d):
        """Of (N, steps, features); torch has the features before the steps."""

        def forward(self, x: Any) -> Any:
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    return Conv1d(a["in_channels"], a["out_channels"], a["kernel"], padding=a["padding"], bias=a["bias"])


def _avgpool2d(nn: Any, a: Mapping[str, Any]) -> Any:
    class AvgPool2d(nn.AvgPool2d):
        """Of channels_last images PyTorch's kernel for GPUs puts the gradient of padded windows in wrong places.

        Its issue 188344, of 2.11 at least, mended in July 2026. Forward, unpadded and on a CPU it is right.
        """

        def forward(self, x: Any) -> Any:
            padded = self.padding not in (0, (0, 0), [0, 0])
            return super().forward(x.contiguous() if padded and x.is_cuda else x)

    return AvgPool2d(
        a["kernel"],
        stride=a["stride"],
        padding=a["padding"],
        ceil_mode=a.get("ceil_mode", False),
        count_include_pad=a["count_include_pad"],
    )


def _layer(nn: Any, forward: Callable[..., Any], arrays: Mapping[str, Sequence[int]] = {}, **buffers: Any) -> Any:
    """Return a module with this method, with parameters of these shapes and with tensors that are no state."""
    import torch

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, shape in arrays.items():
                setattr(self, name, nn.Parameter(torch.zeros(tuple(shape))))
            for name, tensor in buffers.items():
                self.register_buffer(name, tensor, persistent=False)

    Layer.forward = forward
    return Layer()


def _quanv2d(nn: Any, a: Mapping[str, Any]) -> Any:
    import torch

    functions = quanv.Functions(torch.cos, torch.sin, lambda arrays: torch.cat(arrays, -1), torch.matmul)
    known = {f"constant{i}": torch.from_numpy(one) for i, one in enumerate(quanv.constants(a["gates"], a["trained"]))}

    def forward(self: Any, patches: Any) -> Any:
        angles = self.angles[None] if a["trained"] else None
        pixels, constants = patches.reshape(-1, quanv.QUBITS), [getattr(self, name) for name in known]
        return quanv.expectations(functions, pixels, a["gates"], constants, angles).reshape(patches.shape)

    return _layer(nn, forward, {"angles": (quanv.rotations(a["gates"]),)} if a["trained"] else {}, **known)


def _conv2d(nn: Any, a: Mapping[str, Any]) -> Any:
    class Pointwise(nn.Conv2d):
        """Of 2 to 7 channels_last channels the gradient of a pointwise convolution with a stride crashes on a CPU.

        PyTorch 2.13.0, seen with AVX2. So it reads the pixels that count first, and convolves these without a stride.
        """

        def forward(self, x: Any) -> Any:
            if x.is_cuda:
                return super().forward(x)
            down, right = self.stride
            return nn.functional.conv2d(x[:, :, ::down, ::right], self.weight, self.bias)

    pointwise = a["kernel"] == 1 and a["padding"] == 0 and a["groups"] == 1
    crashes = pointwise and a["stride"] != 1 and a["in_channels"] < 8
    # skip_init: the initial weights are loaded over it; drawing them twice takes a second for VGG-16
    return nn.utils.skip_init(
        Pointwise if crashes else nn.Conv2d,
        a["in_channels"],
        a["out_channels"],
        a["kernel"],
        stride=a["stride"],
        padding=a["padding"],
        dilation=a.get("dilation", 1),
        groups=a["groups"],
        bias=a["bias"],
    )


def attention(nn: Any, a: Mapping[str, Any], attend: Any = None) -> Any:
    """scaled_dot_product_attention, which picks torch's own fused kernel, or `attend` in its place.

    Products around it are Linear layers.
    """
    attend = attend or nn.functional.scaled_dot_product_attention
    shape = None if a["mask"] is None else a["mask"].shape
    kv_heads = a.get("kv_heads", a["heads"])
    how = {"scale": a["scale"], "is_causal": a.get("causal", False), "enable_gqa": kv_heads != a["heads"]}

    def forward(self: Any, *inputs: Any) -> Any:
        if a["operands"] == 1:
            q, k, v = inputs[0].unflatten(-1, (3, a["heads"], -1)).unbind(-3)
        else:
            q, k, v = (x.unflatten(-1, (n, -1)) for x, n in zip(inputs, (a["heads"], kv_heads, kv_heads)))
        q, k, v = (x.transpose(-2, -3) for x in (q, k, v))
        mask = None if shape is None else self.mask.view(shape)
        added = _sum(mask, *inputs[a["operands"] :], windows=q.dim() == 6)
        return attend(q, k, v, added, **how).transpose(-2, -3).flatten(-2)

    return _layer(nn, forward, **({} if shape is None else {"mask": _flat(a["mask"])}))


def _sum(mask: Any, bias: Any = None, *, windows: bool) -> Any:
    """Return what is added to the scores, or None."""
    if bias is None:
        return mask
    bias = bias[:, None, None] if windows else bias
    return bias if mask is None else bias + mask


def _flat(array: Any) -> Any:
    """A tensor of one axis: of five axes there is no channels_last, which a module asks of all of its arrays."""
    import torch

    return torch.from_numpy(array).flatten()


def _constant(nn: Any, a: Mapping[str, Any]) -> Any:
    shape = a["value"].shape
    return _layer(nn, lambda self: self.value.view(shape), value=_flat(a["value"]))


def _parameter(nn: Any, a: Mapping[str, Any]) -> Any:
    return _layer(nn, lambda self: self.value[None], {"value": a["shape"]})


def _relative_bias(nn: Any, a: Mapping[str, Any]) -> Any:
    shape = a["index"].shape

    def forward(self: Any) -> Any:
        return self.weight[self.index].view(*shape, -1).permute(2, 0, 1)[None]

    table = {"weight": (int(a["index"].max()) + 1, a["heads"])}
    return _layer(nn, forward, table, index=_flat(a["index"]).long())


def _take(nn: Any, a: Mapping[str, Any]) -> Any:
    import torch

    return _layer(nn, lambda self, x: x.index_select(a["axis"], self.index), index=torch.tensor(a["index"]))


def _convolve(torch: Any, a: Mapping[str, Any], x: Any, weight: Any) -> Any:
    window = Window.of(a)
    pads = tuple(first for first, _ in window.pads)
    return torch.nn.functional.conv2d(x, weight[0], None, window.stride, pads, window.dilation, a["groups"])


def _conv_transpose(torch: Any, a: Mapping[str, Any], x: Any, weight: Any) -> Any:
    window = Window.of(a)
    pads, more = tuple(first for first, _ in window.pads), pair(a["output_padding"])
    how = (None, window.stride, pads, more, a["groups"], window.dilation)
    return torch.nn.functional.conv_transpose2d(x, weight[0], *how)


def _stochastic_depth(nn: Any, a: Mapping[str, Any]) -> Any:
    kept = 1 - a["p"]

    def forward(self: Any, x: Any) -> Any:
        if not self.training:
            return x
        return x * x.new_empty((len(x), *[1] * (x.dim() - 1))).bernoulli_(kept).div_(kept)

    return _layer(nn, forward)


LAYERS = {
    "Conv2d": _conv2d,
    "BatchNorm2d": lambda nn, a: nn.BatchNorm2d(a["channels"], eps=a["eps"], momentum=a["momentum"]),
    "ReLU": lambda nn, a: nn.ReLU(inplace=a.get("in_place", False)),
    "ReLU6": lambda nn, a: nn.ReLU6(inplace=a.get("in_place", False)),
    "SiLU": lambda nn, a: nn.SiLU(),
    "HardSigmoid": lambda nn, a: nn.Hardsigmoid(),
    "HardSwish": lambda nn, a: nn.Hardswish(),
    "GELU": lambda nn, a: nn.GELU(approximate=a["approximate"]),
    "StochasticDepth": _stochastic_depth,
    "MaxPool2d": lambda nn, a: nn.MaxPool2d(
        a["kernel"], stride=a["stride"], padding=a["padding"], ceil_mode=a.get("ceil_mode", False)
    ),
    "AdaptiveAvgPool2d": lambda nn, a: nn.AdaptiveAvgPool2d(a["output"]),
    "Linear": lambda nn, a: nn.utils.skip_init(
        nn.Linear, a["in_features"], a["out_features"], bias=a.get("bias", True)
    ),
    "Dropout": lambda nn, a: nn.Dropout(a["p"]),
    "AvgPool2d": _avgpool2d,
    "Tanh": lambda nn, a: nn.Tanh(),
    "Sigmoid": lambda nn, a: nn.Sigmoid(),
    "Embedding": lambda nn, a: nn.Embedding(a["num_embeddings"], a["embedding_dim"]),
    "LSTM": _recurrent("LSTM"),
    "GRU": _recurrent("GRU"),
    "Conv1d": _conv1d,
    "LayerNorm": lambda nn, a: nn.LayerNorm(a["features"], eps=a["eps"]),
    "RMSNorm": lambda nn, a: nn.RMSNorm(a["features"], eps=a["eps"]),
    "Constant": _constant,
    "Quanv2d": _quanv2d,
    "Attention": attention,
    "Parameter": _parameter,
    "RelativeBias": _relative_bias,
    "GroupNorm": lambda nn, a: nn.GroupNorm(a["groups"], a["channels"], eps=a["eps"]),
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
    "PadAxes": lambda torch, a, x: torch.nn.functional.pad(
        x, [side for pads in reversed(a["pads"]) for side in pads], value=a.get("value", 0.0)
    ),
    "Convolve": _convolve,
    "ConvTranspose": _conv_transpose,
}
HAS = frozenset(LAYERS) | frozenset(FUNCTIONS) | {"Split", "Unembedding"}
OPS = graph_ops(HAS)
