"""The graph as a torch.fx module of torch.nn layers: eager runs straight-line code."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Sequence, Set

from framework_compare.adapters.common import quanv
from framework_compare.adapters.torch import attention
from framework_compare.graph import INPUT, Graph, Node
from framework_compare.graph.node import IMAGE
from framework_compare.graph.window import Window

# torch's names of arrays that the graph calls otherwise, by op; None: no array of the graph's.
GRAPH_NAMES = {
    "BatchNorm2d": {"num_batches_tracked": None},
    "LSTM": {"weight_ih_l0": "weight_ih", "weight_hh_l0": "weight_hh", "bias_ih_l0": "bias", "bias_hh_l0": None},
    "GRU": {name + "_l0": name for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")},
}


IN_PLACE = ("ReLU", "ReLU6")
OVERWRITABLE = ("Conv2d", "BatchNorm2d", "Linear", "Conv1d", "Add")


def make_network(torch: Any, graph: Graph) -> Any:
    shapes, spare, shared = graph.shapes(), _spare_values(graph), graph.shared_values()
    modules = {}
    for node in graph.nodes:
        if node.op in LAYERS and node.arrays not in modules:
            in_place = {"in_place": True} if node.op in IN_PLACE and node.inputs[0] in spare else {}
            modules[node.arrays] = LAYERS[node.op](torch.nn, {**node.attrs, **in_place})
    code = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(code)
    values = {INPUT: torch.fx.Proxy(code.placeholder("images"), tracer)}
    parts: Dict[Any, Any] = {}
    for node in graph.nodes:
        inputs = [values[name] for name in node.inputs]
        if node.op == "Add":
            first, second = node.inputs
            spared = first in spare and first != second and shapes[first] == shapes[node.name]
            value = code.call_function(operator.iadd if spared else operator.add, tuple(one.node for one in inputs))
            values[node.name] = torch.fx.Proxy(value, tracer)
        elif node.op == "Split":
            key = (node.inputs, node.attrs["axis"], *node.attrs["sizes"])
            if key not in parts:
                parts[key] = torch.split(*inputs, node.attrs["sizes"], 1 + node.attrs["axis"])
            values[node.name] = parts[key][node.attrs["index"]]
        else:
            if node.op == "Concat" and shared.intersection(node.inputs):
                inputs = _repeated(node, inputs, shared, len(shapes[node.name]))
            rank = len(shapes[(*node.inputs, node.name)[0]])
            values[node.name] = _emit(torch, tracer, node, rank, *inputs)
    code.output(values[graph.nodes[-1].name].node)
    return torch.fx.GraphModule(modules, code, graph.name)


def _emit(torch: Any, tracer: Any, node: Node, rank: int, *inputs: Any) -> Any:
    """The value of a node whose first input has that rank without the batch."""
    if node.op in FUNCTIONS:
        return FUNCTIONS[node.op](torch, node, rank, *inputs)
    by_place = rank == IMAGE and node.op in ("Linear", "LayerNorm")  # which torch has for the last axis only
    if by_place:
        inputs = (inputs[0].permute(0, 2, 3, 1),)
    if node.op == "Conv2d" and not Window.of(node.attrs).is_symmetric:
        inputs = (_padded(torch, inputs[0], node.attrs["padding"]),)
    if node.op == "GlobalAvgPool" and rank != IMAGE:
        return inputs[0].mean(1)
    value = torch.fx.Proxy(tracer.graph.call_module(node.arrays, tuple(one.node for one in inputs)), tracer)
    if by_place:
        value = value.permute(0, 3, 1, 2)
    return torch.flatten(value, 1) if node.op == "GlobalAvgPool" else value


def _spare_values(graph: Graph) -> Set[str]:
    """Values that a later layer may overwrite: read once, and not needed by their own layer's backward pass."""
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    return {node.name for node in graph.nodes if node.op in OVERWRITABLE and readers[node.name] == 1}


def _repeated(node: Node, inputs: List[Any], shared: FrozenSet[str], rank: int) -> List[Any]:
    """A node's inputs, of which those without a batch are repeated for each sample of the others."""
    count = next((one for name, one in zip(node.inputs, inputs) if name not in shared), inputs[0]).shape[0]
    sizes = [-1] * rank
    return [one.expand(count, *sizes) if name in shared else one for name, one in zip(node.inputs, inputs)]


def _padded(torch: Any, x: Any, padding: Sequence[int], value: float = 0.0) -> Any:
    top, bottom, left, right = padding
    return torch.nn.functional.pad(x, (left, right, top, bottom), value=value)


def _concat(torch: Any, node: Node, rank: int, *inputs: Any) -> Any:
    axis = 0 if rank == IMAGE else rank - 1
    return torch.cat(inputs, 1 + node.attrs.get("axis", axis))


def _slices(a: Mapping[str, Any]) -> Any:
    return (slice(None),) * (1 + a["axis"]) + (slice(a["start"], a["end"], a.get("step", 1)),)


def _windows(x: Any, down: int, across: int) -> Any:
    cut = x.unflatten(3, (-1, across)).unflatten(2, (-1, down))
    return cut.permute(0, 2, 4, 3, 5, 1).flatten(3, 4)


def _from_windows(x: Any, down: int, across: int) -> Any:
    """Its channels last in memory, as the layers behind it want them."""
    whole = x.unflatten(3, (down, across)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
    return whole.permute(0, 3, 1, 2)


def by_graph_name(graph: Graph, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Arrays of a network's state by their names in the graph; what the graph has not is left out."""
    ops = {node.arrays: node.op for node in graph.nodes}
    named = {}
    for name, array in arrays.items():
        layer, _, own = name.rpartition(".")
        own = GRAPH_NAMES.get(ops[layer], {}).get(own, own)
        if own is not None:
            named[f"{layer}.{own}"] = array
    return named


def _recurrent(kind: str) -> Any:
    """A layer of torch.nn that returns the states of all steps and no other."""

    def make(nn: Any, a: Mapping[str, Any]) -> Any:
        base = getattr(nn, kind)

        class Recurrent(base):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return super().forward(x)[0]

        layer = Recurrent(a["input_size"], a["hidden_size"], batch_first=True)
        if kind == "LSTM":  # of its two biases the graph has one: trained both, it would move twice as far
            nn.init.zeros_(layer.bias_hh_l0)
        return layer

    return make


def _conv1d(nn: Any, a: Mapping[str, Any]) -> Any:
    class Conv1d(nn.Conv1d):  # type: ignore[misc]
        """Of (N, steps, features); torch has the features before the steps."""

        def forward(self, x: Any) -> Any:
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    return Conv1d(a["in_channels"], a["out_channels"], a["kernel"], padding=a["padding"], bias=a["bias"])


def _avgpool2d(nn: Any, a: Mapping[str, Any]) -> Any:
    class AvgPool2d(nn.AvgPool2d):  # type: ignore[misc]
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


def _maxout(nn: Any, a: Mapping[str, Any]) -> Any:
    class Maxout(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.unflatten(-1, (-1, a["pieces"])).amax(-1)

    return Maxout()


def _quanv2d(nn: Any, a: Mapping[str, Any]) -> Any:
    import torch

    functions = quanv.Functions(
        torch.cos,
        torch.sin,
        torch.mul,
        lambda array, i: array[:, i : i + 1],
        lambda arrays: torch.cat(arrays, -1),
        torch.matmul,
    )

    class Quanv2d(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for number, array in enumerate(quanv.constants(a["gates"], a["trained"])):
                self.register_buffer(f"constant{number}", torch.from_numpy(array), persistent=False)
            self.known = number + 1
            if a["trained"]:
                self.angles = nn.Parameter(torch.zeros(quanv.rotations(a["gates"])))

        def forward(self, x: Any) -> Any:
            rows, across = x.shape[2] // 2, x.shape[3] // 2
            pixels = x[:, 0, : 2 * rows, : 2 * across].reshape(-1, rows, 2, across, 2)
            pixels = pixels.permute(0, 1, 3, 2, 4).reshape(-1, quanv.QUBITS)
            known = [getattr(self, f"constant{number}") for number in range(self.known)]
            angles = self.angles[None] if a["trained"] else None
            y = quanv.expectations(functions, pixels, a["gates"], known, angles)
            return y.reshape(-1, rows, across, quanv.QUBITS).permute(0, 3, 1, 2)

    return Quanv2d()


def _conv2d(nn: Any, a: Mapping[str, Any]) -> Any:
    # skip_init: the initial weights are loaded over it; drawing them twice takes a second for VGG-16
    return nn.utils.skip_init(
        nn.Conv2d,
        a["in_channels"],
        a["out_channels"],
        a["kernel"],
        stride=a["stride"],
        padding=a["padding"] if Window.of(a).is_symmetric else 0,
        dilation=a.get("dilation", 1),
        groups=a["groups"],
        bias=a["bias"],
    )


LAYERS = {
    "Conv2d": _conv2d,
    "BatchNorm2d": lambda nn, a: nn.BatchNorm2d(a["channels"], eps=a["eps"], momentum=a["momentum"]),
    "ReLU": lambda nn, a: nn.ReLU(inplace=a.get("in_place", False)),
    "ReLU6": lambda nn, a: nn.ReLU6(inplace=a.get("in_place", False)),
    "SiLU": lambda nn, a: nn.SiLU(),
    "HardSigmoid": lambda nn, a: nn.Hardsigmoid(),
    "HardSwish": lambda nn, a: nn.Hardswish(),
    "GELU": lambda nn, a: nn.GELU(approximate=a["approximate"]),
    "StochasticDepth": attention.stochastic_depth,
    "MaxPool2d": lambda nn, a: nn.MaxPool2d(
        a["kernel"], stride=a["stride"], padding=a["padding"], ceil_mode=a.get("ceil_mode", False)
    ),
    "AdaptiveAvgPool2d": lambda nn, a: nn.AdaptiveAvgPool2d(a["output"]),
    "GlobalAvgPool": lambda nn, a: nn.AdaptiveAvgPool2d(1),
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
    "Maxout": _maxout,
    "Quanv2d": _quanv2d,
    "Attention": attention.attention,
    "Parameter": attention.parameter,
    "RelativeBias": attention.relative_bias,
}
# Of torch, a node, the rank of its first input, and its inputs.
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "Flatten": lambda torch, node, rank, x: torch.flatten(x, 1),
    "Last": lambda torch, node, rank, x: x[:, -1],
    "Select": lambda torch, node, rank, x: x[:, node.attrs["index"]],
    "Reverse": lambda torch, node, rank, x: torch.flip(x, (1,)),
    "Concat": _concat,
    "Slice": lambda torch, node, rank, x: x[_slices(node.attrs)],
    "Mul": lambda torch, node, rank, x, y: x * y,
    "Tokens": lambda torch, node, rank, x: x.flatten(2).transpose(1, 2),
    "ChannelShuffle": lambda torch, node, rank, x: (
        x.unflatten(1, (node.attrs["groups"], -1)).transpose(1, 2).flatten(1, 2)
    ),
    "Pad": lambda torch, node, rank, x: _padded(torch, x, node.attrs["padding"], node.attrs.get("value", 0.0)),
    "Roll": lambda torch, node, rank, x: torch.roll(x, node.attrs["shifts"], (2, 3)),
    "Windows": lambda torch, node, rank, x: _windows(x, *node.attrs["window"]),
    "FromWindows": lambda torch, node, rank, x: _from_windows(x, *node.attrs["window"]),
}
OPS = frozenset(LAYERS) | frozenset(FUNCTIONS) | {"Add", "Split"}
