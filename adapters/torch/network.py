"""The graph as a torch.fx module of torch.nn layers: eager runs straight-line code."""

from __future__ import annotations

import operator
from typing import Any, Dict, List, Mapping

from framework_compare.adapters.common import quanv
from framework_compare.graph import INPUT, Graph, Node

# torch's names of arrays that the graph calls otherwise, by op; None: no array of the graph's.
GRAPH_NAMES = {
    "BatchNorm2d": {"num_batches_tracked": None},
    "LSTM": {"weight_ih_l0": "weight_ih", "weight_hh_l0": "weight_hh", "bias_ih_l0": "bias", "bias_hh_l0": None},
    "GRU": {name + "_l0": name for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")},
}


def make_network(torch: Any, graph: Graph) -> Any:
    modules = {node.name: LAYERS[node.op](torch.nn, node.attrs) for node in graph.nodes if node.op in LAYERS}
    code = torch.fx.Graph()
    values = {INPUT: code.placeholder("images")}
    for node in graph.nodes:
        values[node.name] = _emit(torch, code, node, [values[name] for name in node.inputs])
    code.output(values[graph.nodes[-1].name])
    return torch.fx.GraphModule(modules, code, graph.name)


def _emit(torch: Any, code: Any, node: Node, inputs: List[Any]) -> Any:
    if node.op == "Add":
        return code.call_function(operator.iadd, tuple(inputs))
    if node.op == "Flatten":
        return code.call_function(torch.flatten, (inputs[0], 1))
    if node.op == "Last":
        return code.call_function(operator.getitem, (inputs[0], (slice(None), -1)))
    if node.op == "Reverse":
        return code.call_function(torch.flip, (inputs[0], (1,)))
    if node.op == "Concat":
        return code.call_function(torch.cat, (inputs, -1))
    value = code.call_module(node.name, tuple(inputs))
    if node.op == "GlobalAvgPool":
        value = code.call_function(torch.flatten, (value, 1))
    return value


def by_graph_name(graph: Graph, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Arrays of a network's state by their names in the graph; what the graph has not is left out."""
    ops = {node.name: node.op for node in graph.nodes}
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
        padding=a["padding"],
        groups=a["groups"],
        bias=a["bias"],
    )


LAYERS = {
    "Conv2d": _conv2d,
    "BatchNorm2d": lambda nn, a: nn.BatchNorm2d(a["channels"], eps=a["eps"], momentum=a["momentum"]),
    "ReLU": lambda nn, a: nn.ReLU(inplace=True),
    "ReLU6": lambda nn, a: nn.ReLU6(inplace=True),
    "MaxPool2d": lambda nn, a: nn.MaxPool2d(a["kernel"], stride=a["stride"], padding=a["padding"]),
    "AdaptiveAvgPool2d": lambda nn, a: nn.AdaptiveAvgPool2d(a["output"]),
    "GlobalAvgPool": lambda nn, a: nn.AdaptiveAvgPool2d(1),
    "Linear": lambda nn, a: nn.utils.skip_init(nn.Linear, a["in_features"], a["out_features"]),
    "Dropout": lambda nn, a: nn.Dropout(a["p"]),
    "AvgPool2d": lambda nn, a: nn.AvgPool2d(
        a["kernel"], stride=a["stride"], padding=a["padding"], count_include_pad=a["count_include_pad"]
    ),
    "Tanh": lambda nn, a: nn.Tanh(),
    "Sigmoid": lambda nn, a: nn.Sigmoid(),
    "Embedding": lambda nn, a: nn.Embedding(a["num_embeddings"], a["embedding_dim"]),
    "LSTM": _recurrent("LSTM"),
    "GRU": _recurrent("GRU"),
    "Conv1d": _conv1d,
    "LayerNorm": lambda nn, a: nn.LayerNorm(a["features"], eps=a["eps"]),
    "Maxout": _maxout,
    "Quanv2d": _quanv2d,
}
OPS = frozenset(LAYERS) | {"Add", "Flatten", "Last", "Reverse", "Concat"}
