"""The graph as one gluon HybridBlock, and its parameters by their names in the graph."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterator, Mapping, Sequence, Tuple

from framework_compare.adapters.common import quanv
from framework_compare.adapters.common.network import by_graph_name
from framework_compare.adapters.common.recurrent import LOWERED, Direction, by_direction, lowered, pairs
from framework_compare.adapters.mxnet import attention, recurrent
from framework_compare.errors import Unsupported
from framework_compare.graph import Graph, Node, evaluate, trainable_names
from framework_compare.graph.image_ops import adaptive_size
from framework_compare.graph.node import IMAGE, feature_axis
from framework_compare.graph.window import Window

GRAPH_NAMES = {"gamma": "weight", "beta": "bias"}
POOLS = ("MaxPool2d", "AvgPool2d")


def make_network(mx: Any, graph: Graph) -> Any:
    shapes, shared = graph.shapes(), graph.shared_values()
    evaluated = lowered(graph)
    described = {
        node.name: {
            "input": shapes[node.inputs[0]] if node.inputs else (),
            "output": node.attrs.get("output", shapes[node.name]),
            "broadcasts": bool(shared.intersection(node.inputs)) or len({shapes[name] for name in node.inputs}) > 1,
            "operands": len(node.inputs) - bool(node.op == "Attention" and node.attrs.get("bias")),
        }
        for node in graph.nodes
    }
    attrs = {node.name: {**node.attrs, **described.get(node.name, {})} for node in evaluated.nodes}

    class Network(mx.gluon.HybridBlock):
        """The graph as one block; children are registered under their graph names."""

        def __init__(self) -> None:
            super().__init__(prefix="")
            self.layers = {}
            self.pairs = pairs(evaluated)
            for node in evaluated.nodes:
                if node.op in LAYERS and node.arrays not in self.layers:
                    self.layers[node.arrays] = LAYERS[node.op](mx.gluon, attrs[node.name])
                    self.register_child(self.layers[node.arrays], node.arrays)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            def apply(node: Node, *inputs: Any) -> Any:
                if _pads_first(node.op, node.attrs):
                    inputs = (_padded(F, node.attrs, *inputs),)
                if node.op == "Concat" and shared.intersection(node.inputs):
                    inputs = tuple(_repeated(F, node, shared, inputs))
                if node.op not in LAYERS:
                    return FUNCTIONS[node.op](F, attrs[node.name], *inputs)
                value = self.layers[node.arrays](*(inputs or (x,)))
                return _cut(F, attrs[node.name], value) if node.op in POOLS else value

            return evaluate(evaluated, apply, x)

    return Network()


def _repeated(F: Any, node: Node, shared: FrozenSet[str], inputs: Sequence[Any]) -> Iterator[Any]:
    """A node's inputs, of which those without a batch are repeated for each sample of the others."""
    like = next((x for name, x in zip(node.inputs, inputs) if name not in shared), inputs[0])
    for name, x in zip(node.inputs, inputs):
        yield F.broadcast_like(x, like, lhs_axes=(0,), rhs_axes=(0,)) if name in shared else x


def _pads_first(op: str, a: Mapping[str, Any]) -> bool:
    """Whether padding is a layer of its own: that of a convolution which is not symmetric, and where an average rounds
    up and counts its padding, whose gradient is wrong by what it rounds up to (1.9.1)."""
    if op == "Conv2d":
        return not Window.of(a).is_symmetric
    return op == "AvgPool2d" and bool(a.get("ceil_mode")) and bool(a["count_include_pad"])


def _padded(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    (top, bottom), (left, right) = Window.of(a).pads
    return F.pad(x, mode="constant", constant_value=0, pad_width=(0, 0, 0, 0, top, bottom, left, right))


def _cut(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    """Without a last window that starts behind the image: MXNet rounds up without regard to that."""
    if not a.get("ceil_mode"):
        return x
    return F.slice(x, begin=(None, None, 0, 0), end=(None, None, *a["output"][1:]))


def parameters_of(network: Any) -> Dict[str, Any]:
    return by_graph_name(by_direction(network.layers, network.pairs), _arrays_of, GRAPH_NAMES)


def _arrays_of(layer: Any) -> Dict[str, Any]:
    if isinstance(layer, Direction):
        return recurrent.arrays_of(layer)
    return {name: array for name, array in layer._reg_params.items() if type(array).__name__ != "Constant"}


def freeze(parameters: Dict[str, Any], graph: Graph) -> None:
    """Leave the layers that are not to be trained out of the backward pass.

    Running statistics move in that pass (1.9.1): those before the first trained array stay where they are.
    """
    trained = {name.rpartition(".")[0] for name in trainable_names(graph)}
    for name, layer in ((p.name, p.name.rpartition(".")[0]) for p in graph.parameters() if not p.trainable):
        if parameters[name].grad_req == "null":  # a running statistic, which MXNet never trains
            continue
        if layer in trained:  # oneDNN computes a bias's gradient with its weight's, or not at all (1.9.1)
            raise Unsupported(f"layer {layer}: MXNet trains all arrays of a layer or none")
        parameters[name].grad_req = "null"


def _conv1d(gluon: Any, a: Dict[str, Any]) -> Any:
    kernel, padding = a["kernel"], a["padding"]
    steps = a["input"][0] + 2 * padding - kernel + 1

    class Conv1d(gluon.HybridBlock):  # type: ignore[misc]
        """One product of all windows: into what oneDNN makes of gluon's weights no others can be loaded (1.9.1)."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = self.params.get("weight", shape=(a["out_channels"], a["in_channels"], kernel))
            self.bias = self.params.get("bias", shape=(a["out_channels"],)) if a["bias"] else None

        def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
            if padding:
                zeros = F.zeros_like(F.slice_axis(x, axis=1, begin=0, end=padding))
                x = F.concat(zeros, x, zeros, dim=1)
            windows = [F.slice_axis(x, axis=1, begin=i, end=i + steps) for i in range(kernel)]
            weight = F.reshape(F.transpose(weight, (0, 2, 1)), (0, -1))
            how = {"num_hidden": a["out_channels"], "flatten": False}
            if bias is None:
                return F.FullyConnected(F.concat(*windows, dim=2), weight, no_bias=True, **how)
            return F.FullyConnected(F.concat(*windows, dim=2), weight, bias, **how)

    return Conv1d()


def _quanv2d(gluon: Any, a: Dict[str, Any]) -> Any:
    _, height, width = a["input"]
    rows, across = height // 2, width // 2

    class Quanv2d(gluon.HybridBlock):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            known = quanv.constants(a["gates"], a["trained"])
            with self.name_scope():
                for number, array in enumerate(known):
                    setattr(self, f"constant{number}", self.params.get_constant(f"constant{number}", array))
                if a["trained"]:
                    count = quanv.rotations(a["gates"])
                    self.angles = self.params.get("angles", shape=(count,))

        def hybrid_forward(self, F: Any, x: Any, angles: Any = None, **constants: Any) -> Any:
            functions = quanv.Functions(
                F.cos,
                F.sin,
                F.broadcast_mul,
                lambda array, i: F.slice_axis(array, axis=1, begin=i, end=i + 1),
                lambda arrays: F.concat(*arrays, dim=-1),
                F.dot,
            )
            pixels = F.slice(x, begin=(None, 0, 0, 0), end=(None, 1, 2 * rows, 2 * across))
            pixels = F.transpose(F.reshape(pixels, (-1, rows, 2, across, 2)), (0, 1, 3, 2, 4))
            pixels = F.reshape(pixels, (-1, quanv.QUBITS))
            known = [constants[f"constant{number}"] for number in range(len(constants))]
            angles = None if angles is None else F.expand_dims(angles, 0)
            y = quanv.expectations(functions, pixels, a["gates"], known, angles)
            return F.transpose(F.reshape(y, (-1, rows, across, quanv.QUBITS)), (0, 3, 1, 2))

    return Quanv2d()


def _maxout(gluon: Any, a: Dict[str, Any]) -> Any:
    class Maxout(gluon.HybridBlock):  # type: ignore[misc]
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            shape = (*[0] * len(a["input"]), -4, -1, a["pieces"])  # each 0 keeps an axis, -4 divides the next
            return F.max(F.reshape(x, shape), axis=-1)

    return Maxout()


def _padding(a: Dict[str, Any]) -> Tuple[int, int]:
    """Of a convolution; what is not symmetric is a layer of its own."""
    window = Window.of(a)
    return (window.pads[0][0], window.pads[1][0]) if window.is_symmetric else (0, 0)


def _avgpool(gluon: Any, a: Dict[str, Any]) -> Any:
    if _pads_first("AvgPool2d", a):  # then what is counted is what it gets
        a = {**a, "padding": 0, "count_include_pad": False}
    return gluon.nn.AvgPool2D(**_pool(a), count_include_pad=a["count_include_pad"])


def _pool(a: Dict[str, Any]) -> Dict[str, Any]:
    window = Window.of(a)
    how = {"pool_size": window.kernel, "strides": window.stride, "padding": _padding(a)}
    return {**how, "ceil_mode": window.ceil_mode}


def _linear(gluon: Any, a: Dict[str, Any]) -> Any:
    if len(a["input"]) == IMAGE:
        return attention.linear_of_channels(gluon, a)
    return gluon.nn.Dense(
        a["out_features"],
        in_units=a["in_features"],
        flatten=len(a["input"]) == 1,
        use_bias=a.get("bias", True),
    )


def _global_pool(F: Any, x: Any) -> Any:
    return F.Pooling(x, kernel=(1, 1), global_pool=True, pool_type="avg")


def _adaptive_avgpool(F: Any, a: Dict[str, Any], x: Any) -> Any:
    output = adaptive_size(a)
    return _global_pool(F, x) if output == (1, 1) else F.contrib.AdaptiveAvgPooling2D(x, output_size=output)


def _add(F: Any, a: Dict[str, Any], x: Any, y: Any) -> Any:
    return F.broadcast_add(x, y) if a["broadcasts"] else x + y


LAYERS = {
    "Conv2d": lambda gluon, a: gluon.nn.Conv2D(
        a["out_channels"],
        Window.of(a).kernel,
        strides=Window.of(a).stride,
        padding=_padding(a),
        dilation=Window.of(a).dilation,
        groups=a["groups"],
        use_bias=a["bias"],
        in_channels=a["in_channels"],
    ),
    # MXNet's momentum is the share of the old statistics that is kept
    "BatchNorm2d": lambda gluon, a: gluon.nn.BatchNorm(
        momentum=1 - a["momentum"], epsilon=a["eps"], in_channels=a["channels"]
    ),
    "ReLU": lambda gluon, a: gluon.nn.Activation("relu"),
    "MaxPool2d": lambda gluon, a: gluon.nn.MaxPool2D(**_pool(a)),
    "Linear": _linear,
    "Dropout": lambda gluon, a: gluon.nn.Dropout(a["p"]),
    "Tanh": lambda gluon, a: gluon.nn.Activation("tanh"),
    "Sigmoid": lambda gluon, a: gluon.nn.Activation("sigmoid"),
    "Embedding": lambda gluon, a: gluon.nn.Embedding(a["num_embeddings"], a["embedding_dim"]),
    "AvgPool2d": _avgpool,
    "Conv1d": _conv1d,
    "LayerNorm": lambda gluon, a: gluon.nn.LayerNorm(
        axis=1 if len(a["input"]) == IMAGE else -1, epsilon=a["eps"], in_channels=a["features"]
    ),
    "Maxout": _maxout,
    "Quanv2d": _quanv2d,
    **recurrent.LAYERS,
    **attention.LAYERS,
}
FUNCTIONS = {
    "ReLU6": lambda F, a, x: F.clip(x, 0, 6),
    "AdaptiveAvgPool2d": _adaptive_avgpool,
    "GlobalAvgPool": lambda F, a, x: F.flatten(_global_pool(F, x)) if len(a["input"]) == IMAGE else F.mean(x, axis=1),
    "Flatten": lambda F, a, x: F.flatten(x),
    "Add": _add,
    "Concat": lambda F, a, *xs: F.concat(*xs, dim=1 + a.get("axis", feature_axis(a["input"]))),
    **recurrent.FUNCTIONS,
    **attention.FUNCTIONS,
}
OPS = (frozenset(LAYERS) | frozenset(FUNCTIONS)) - LOWERED
