"""The graph as one paddle.nn.Layer, and its arrays by their names in the graph."""

from __future__ import annotations

from typing import Any, Callable, Dict

from framework_compare.adapters.common.network import by_graph_name
from framework_compare.graph import Graph, Node, evaluate

GRAPH_NAMES = {"_mean": "running_mean", "_variance": "running_var"}


def make_layers(paddle: Any, graph: Graph) -> Dict[str, Any]:
    return {n.name: LAYERS[n.op](paddle.nn, n.attrs) for n in graph.nodes if n.op in LAYERS}


def make_network(paddle: Any, graph: Graph, layers: Dict[str, Any]) -> Any:
    class Network(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            for name, layer in layers.items():
                self.add_sublayer(name.replace(".", "_"), layer)

        def forward(self, images: Any) -> Any:
            def apply(node: Node, *inputs: Any) -> Any:
                if node.op in LAYERS:
                    return layers[node.name](*inputs)
                return FUNCTIONS[node.op](paddle, *inputs)

            return evaluate(graph, apply, images)

    return Network()


def arrays_of(layers: Dict[str, Any]) -> Dict[str, Any]:
    return by_graph_name(layers, lambda layer: layer.state_dict(), GRAPH_NAMES)


LAYERS: Dict[str, Callable[..., Any]] = {
    "Conv2d": lambda nn, a: nn.Conv2D(
        a["in_channels"],
        a["out_channels"],
        a["kernel"],
        stride=a["stride"],
        padding=a["padding"],
        groups=a["groups"],
        bias_attr=None if a["bias"] else False,
    ),
    "BatchNorm2d": lambda nn, a: nn.BatchNorm2D(a["channels"], momentum=1 - a["momentum"], epsilon=a["eps"]),
    "ReLU": lambda nn, a: nn.ReLU(),
    "ReLU6": lambda nn, a: nn.ReLU6(),
    "MaxPool2d": lambda nn, a: nn.MaxPool2D(a["kernel"], stride=a["stride"], padding=a["padding"]),
    "AdaptiveAvgPool2d": lambda nn, a: nn.AdaptiveAvgPool2D(a["output"]),
    "Linear": lambda nn, a: nn.Linear(a["in_features"], a["out_features"]),
    "Dropout": lambda nn, a: nn.Dropout(a["p"], mode="upscale_in_train"),
}
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "GlobalAvgPool": lambda paddle, x: paddle.flatten(paddle.nn.functional.adaptive_avg_pool2d(x, 1), 1),
    "Flatten": lambda paddle, x: paddle.flatten(x, 1),
    "Add": lambda paddle, x, y: x + y,
}
OPS = frozenset(LAYERS) | frozenset(FUNCTIONS)
