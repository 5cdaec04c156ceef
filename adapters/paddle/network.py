"""The graph as one paddle.nn.Layer, and its arrays by their names in the graph."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Sequence

import numpy as np

from framework_compare.adapters.common import quanv
from framework_compare.adapters.common.network import by_graph_name
from framework_compare.adapters.common.recurrent import (
    LOWERED,
    PAIR,
    RECURRENT,
    STEPS,
    TURN,
    Direction,
    by_direction,
    lowered,
    pairs,
)
from framework_compare.adapters.paddle import attention
from framework_compare.graph import Graph, Node, evaluate
from framework_compare.graph.node import IMAGE
from framework_compare.graph.window import Window

GRAPH_NAMES = {"_mean": "running_mean", "_variance": "running_var"}


def make_layers(paddle: Any, graph: Graph) -> Dict[str, Any]:
    """What computes the nodes of the lowered graph, by the names of their arrays."""
    shapes, layers = graph.shapes(), {}
    read = {node.name: node.inputs for node in graph.nodes}
    for node in lowered(graph).nodes:
        if node.op in LAYERS and node.arrays not in layers:
            shape = shapes[read[node.name][0]] if node.inputs else ()
            layer = LAYERS[node.op](paddle.nn, {**node.attrs, "input": shape})
            by_place = node.op in ("Linear", "LayerNorm") and len(shape) == IMAGE
            layers[node.arrays] = attention.by_place(paddle.nn, layer) if by_place else layer
    return layers


def make_network(paddle: Any, graph: Graph, layers: Dict[str, Any]) -> Any:
    shared, evaluated = graph.shared_values(), lowered(graph)

    class Network(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            for name, layer in layers.items():
                self.add_sublayer(name.replace(".", "_"), layer)

        def forward(self, images: Any) -> Any:
            def apply(node: Node, *inputs: Any) -> Any:
                if node.op in (*RECURRENT, PAIR):
                    return layers[node.arrays](*inputs)[0]  # the states of all steps
                if node.op in LAYERS:
                    return layers[node.arrays](*inputs)
                if node.op == "Concat":
                    inputs = _repeated(paddle, node, shared, inputs)
                return FUNCTIONS[node.op](paddle, node.attrs, *inputs)

            return evaluate(evaluated, apply, images)

    return Network()


def _repeated(paddle: Any, node: Node, shared: FrozenSet[str], inputs: Sequence[Any]) -> Sequence[Any]:
    """A node's inputs, of which those without a batch are repeated for each sample of the others."""
    count = next((x.shape[0] for name, x in zip(node.inputs, inputs) if name not in shared), 1)
    return [x.expand([count, *x.shape[1:]]) if name in shared else x for name, x in zip(node.inputs, inputs)]


def arrays_of(graph: Graph, layers: Dict[str, Any]) -> Dict[str, Any]:
    return by_graph_name(by_direction(layers, pairs(lowered(graph))), _arrays_of, GRAPH_NAMES)


def _arrays_of(layer: Any) -> Dict[str, Any]:
    if not isinstance(layer, Direction):
        return dict(layer.state_dict())
    cell = _cells(layer.layer)[layer.is_backward]
    biases = (
        {"bias": cell.bias_ih}
        if type(layer.layer).__name__ == "LSTM"
        else {"bias_ih": cell.bias_ih, "bias_hh": cell.bias_hh}
    )
    return {"weight_ih": cell.weight_ih, "weight_hh": cell.weight_hh, **biases}


def second_biases(layers: Dict[str, Any]) -> List[Any]:
    """Of each LSTM the bias that the graph has not, made zero: no optimiser may have it.

    Without it the kernel for CPUs ends the process, and one that needs no gradient its backward pass (3.3.1).
    """
    lstms = [layer for layer in layers.values() if type(layer).__name__ == "LSTM"]
    biases = [cell.bias_hh for layer in lstms for cell in _cells(layer)]
    for bias in biases:
        bias.set_value(np.zeros(bias.shape, np.float32))
    return biases


def _cells(layer: Any) -> Sequence[Any]:
    """Of a recurrent layer: that of its only direction, or those forward and backward."""
    both = type(layer[0]).__name__ == "BiRNN"
    return (layer[0].cell_fw, layer[0].cell_bw) if both else (layer[0].cell,)


def _recurrent(nn: Any, a: Mapping[str, Any], op: str, **how: Any) -> Any:
    return getattr(nn, op)(a["input_size"], a["hidden_size"], time_major=True, **how)


def _maxout(nn: Any, a: Mapping[str, Any]) -> Any:
    class Maxout(nn.Layer):  # type: ignore[misc]
        """paddle.nn.Maxout takes neighbours along the channels of images only."""

        def forward(self, x: Any) -> Any:
            return x.reshape([*x.shape[:-1], x.shape[-1] // a["pieces"], a["pieces"]]).max(-1)

    return Maxout()


def _quanv2d(nn: Any, a: Mapping[str, Any]) -> Any:
    import paddle

    functions = quanv.Functions(
        paddle.cos,
        paddle.sin,
        paddle.multiply,
        lambda array, i: array[:, i : i + 1],
        lambda arrays: paddle.concat(arrays, axis=-1),
        paddle.matmul,
    )

    class Quanv2d(nn.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.known = [paddle.to_tensor(array) for array in quanv.constants(a["gates"], a["trained"])]
            if a["trained"]:
                self.angles = self.create_parameter([quanv.rotations(a["gates"])])

        def forward(self, x: Any) -> Any:
            rows, across = x.shape[2] // 2, x.shape[3] // 2
            pixels = x[:, 0, : 2 * rows, : 2 * across].reshape([-1, rows, 2, across, 2])
            pixels = pixels.transpose([0, 1, 3, 2, 4]).reshape([-1, quanv.QUBITS])
            angles = self.angles.unsqueeze(0) if a["trained"] else None
            y = quanv.expectations(functions, pixels, a["gates"], self.known, angles)
            return y.reshape([-1, rows, across, quanv.QUBITS]).transpose([0, 3, 1, 2])

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

    class Pool(nn.Layer):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return nn.functional.avg_pool2d(pads(x), a["kernel"], a["stride"]) * shares

    return Pool()


def _pads_behind(nn: Any, a: Mapping[str, Any], value: float) -> Any:
    """All padding as a layer of its own where ceil_mode needs more of it; Paddle rounds up otherwise than torch."""
    window = Window.of(a)
    pads = window.all_pads(a["input"][1:])
    return None if pads == window.pads else nn.Pad2D([*pads[1], *pads[0]], value=value)


def _global_avgpool(paddle: Any, a: Mapping[str, Any], x: Any) -> Any:
    if len(x.shape) == 3:
        return x.mean(1)
    return paddle.flatten(paddle.nn.functional.adaptive_avg_pool2d(x, 1), 1)


def _concat(paddle: Any, a: Mapping[str, Any], *inputs: Any) -> Any:
    rank = len(inputs[0].shape) - 1
    return paddle.concat(list(inputs), axis=1 + a.get("axis", 0 if rank == IMAGE else rank - 1))


LAYERS: Dict[str, Callable[..., Any]] = {
    "Conv2d": lambda nn, a: nn.Conv2D(
        a["in_channels"],
        a["out_channels"],
        a["kernel"],
        stride=a["stride"],
        padding=a["padding"],
        dilation=a.get("dilation", 1),
        groups=a["groups"],
        bias_attr=None if a["bias"] else False,
    ),
    "BatchNorm2d": lambda nn, a: nn.BatchNorm2D(a["channels"], momentum=1 - a["momentum"], epsilon=a["eps"]),
    "ReLU": lambda nn, a: nn.ReLU(),
    "ReLU6": lambda nn, a: nn.ReLU6(),
    "SiLU": lambda nn, a: nn.Silu(),
    "HardSwish": lambda nn, a: nn.Hardswish(),
    "GELU": lambda nn, a: nn.GELU(approximate=a["approximate"] == "tanh"),
    "StochasticDepth": lambda nn, a: nn.Dropout(a["p"], axis=0, mode="upscale_in_train"),
    "MaxPool2d": _maxpool,
    "AdaptiveAvgPool2d": lambda nn, a: nn.AdaptiveAvgPool2D(a["output"]),
    "Linear": lambda nn, a: nn.Linear(
        a["in_features"], a["out_features"], bias_attr=None if a.get("bias", True) else False
    ),
    "Dropout": lambda nn, a: nn.Dropout(a["p"], mode="upscale_in_train"),
    "AvgPool2d": _avgpool,
    "Tanh": lambda nn, a: nn.Tanh(),
    "Sigmoid": lambda nn, a: nn.Sigmoid(),
    "Embedding": lambda nn, a: nn.Embedding(a["num_embeddings"], a["embedding_dim"]),
    "LSTM": lambda nn, a: _recurrent(nn, a, "LSTM"),
    "GRU": lambda nn, a: _recurrent(nn, a, "GRU"),
    PAIR: lambda nn, a: _recurrent(nn, a, a["op"], direction="bidirect"),
    "Conv1d": lambda nn, a: nn.Conv1D(
        a["in_channels"],
        a["out_channels"],
        a["kernel"],
        padding=a["padding"],
        bias_attr=None if a["bias"] else False,
        data_format="NLC",
    ),
    "Maxout": _maxout,
    "Quanv2d": _quanv2d,
    "LayerNorm": lambda nn, a: nn.LayerNorm(a["features"], epsilon=a["eps"]),
    **attention.LAYERS,
}
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "GlobalAvgPool": _global_avgpool,
    "Flatten": lambda paddle, a, x: paddle.flatten(x, 1),
    "Add": lambda paddle, a, x, y: x + y,
    "Last": lambda paddle, a, x: x[-1] if STEPS in a else x[:, -1],
    "Reverse": lambda paddle, a, x: paddle.flip(x, [a.get(STEPS, 1)]),
    TURN: lambda paddle, a, x: x.transpose([1, 0, *range(2, len(x.shape))]),
    "Concat": _concat,
    **attention.FUNCTIONS,
}
OPS = (frozenset(LAYERS) | frozenset(FUNCTIONS)) - LOWERED
