"""The graph as a torch.fx module of torch.nn layers: eager runs straight-line code."""

from __future__ import annotations

import operator
from typing import Any, List, Mapping

from framework_compare.graph import INPUT, Graph, Node


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
    value = code.call_module(node.name, tuple(inputs))
    if node.op == "GlobalAvgPool":
        value = code.call_function(torch.flatten, (value, 1))
    return value


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
}
OPS = frozenset(LAYERS) | {"Add", "Flatten"}
