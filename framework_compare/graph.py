"""A network as a framework-neutral graph of layers, and what follows from it: shapes, parameters, MACs, weights.

Shared by both sides of the process boundary; standard library and numpy only. Shapes leave the batch out:
images and feature maps are (channels, height, width), vectors are (features,).
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from framework_compare.errors import UsageError

Shape = Tuple[int, ...]
INPUT = "input"


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A trained array, or a running statistic (`trainable` False), with the initialiser that fills it."""

    name: str
    shape: Shape
    init: str
    trainable: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Node:
    """One layer: its torch.nn name in the network, its op, the nodes it reads, its attributes."""

    name: str
    op: str
    inputs: Tuple[str, ...]
    attrs: Mapping[str, Any]


def _conv2d_shape(node: Node, shape: Shape) -> Shape:
    a = node.attrs
    if shape[0] != a["in_channels"]:
        raise UsageError(f"layer {node.name}: expects {a['in_channels']} channels, gets {shape[0]}")
    return (a["out_channels"], *_window(node, shape))


def _window(node: Node, shape: Shape) -> Shape:
    """Height and width after a sliding window with symmetric padding, rounded down."""
    a = node.attrs
    size = tuple((s + 2 * a["padding"] - a["kernel"]) // a["stride"] + 1 for s in shape[1:])
    if min(size) < 1 or min(shape[1:]) + 2 * a["padding"] < a["kernel"]:
        raise UsageError(f"layer {node.name}: a {a['kernel']}x{a['kernel']} window does not fit {shape[1]}x{shape[2]}")
    return size


def _conv2d_parameters(node: Node) -> List[Parameter]:
    a = node.attrs
    shape = (a["out_channels"], a["in_channels"] // a["groups"], a["kernel"], a["kernel"])
    bias = [Parameter(f"{node.name}.bias", (a["out_channels"],), "zeros")] if a["bias"] else []
    return [Parameter(f"{node.name}.weight", shape, a["init"]), *bias]


def _linear_parameters(node: Node) -> List[Parameter]:
    a = node.attrs
    return [
        Parameter(f"{node.name}.weight", (a["out_features"], a["in_features"]), a["init"]),
        Parameter(f"{node.name}.bias", (a["out_features"],), "zeros"),
    ]


def _linear_shape(node: Node, shape: Shape) -> Shape:
    if shape != (node.attrs["in_features"],):
        raise UsageError(f"layer {node.name}: expects {node.attrs['in_features']} features, gets shape {shape}")
    return (node.attrs["out_features"],)


def _batchnorm_parameters(node: Node) -> List[Parameter]:
    shape = (node.attrs["channels"],)
    return [
        Parameter(f"{node.name}.weight", shape, "ones"),
        Parameter(f"{node.name}.bias", shape, "zeros"),
        Parameter(f"{node.name}.running_mean", shape, "zeros", trainable=False),
        Parameter(f"{node.name}.running_var", shape, "ones", trainable=False),
    ]


def _add_shape(node: Node, first: Shape, second: Shape) -> Shape:
    if first != second:
        raise UsageError(f"layer {node.name}: cannot add {first} and {second}")
    return first


@dataclasses.dataclass(frozen=True)
class Op:
    """What the graph must know of an op: output shape, parameters, multiply-accumulates of one picture."""

    shape: Callable[..., Shape]
    parameters: Callable[[Node], List[Parameter]] = lambda node: []
    macs: Callable[[Node, Shape], int] = lambda node, out: 0


def _same(node: Node, shape: Shape) -> Shape:
    return shape


OPS: Dict[str, Op] = {
    "Conv2d": Op(
        _conv2d_shape,
        _conv2d_parameters,
        lambda node, out: _conv2d_parameters(node)[0].size * out[1] * out[2],
    ),
    "BatchNorm2d": Op(_same, _batchnorm_parameters),
    "ReLU": Op(_same),
    "ReLU6": Op(_same),
    "MaxPool2d": Op(lambda node, shape: (shape[0], *_window(node, shape))),
    "AdaptiveAvgPool2d": Op(lambda node, shape: (shape[0], node.attrs["output"], node.attrs["output"])),
    "GlobalAvgPool": Op(lambda node, shape: (shape[0],)),
    "Flatten": Op(lambda node, shape: (math.prod(shape),)),
    "Linear": Op(_linear_shape, _linear_parameters, lambda node, out: _linear_parameters(node)[0].size),
    "Dropout": Op(_same),
    "Add": Op(_add_shape),
}


@dataclasses.dataclass(frozen=True)
class Graph:
    """A network: nodes in an order in which each reads only what stands before it; the last one gives the logits."""

    name: str
    num_classes: int
    image_size: int
    nodes: Tuple[Node, ...]

    @property
    def input_shape(self) -> Shape:
        return (3, self.image_size, self.image_size)

    def shapes(self) -> Dict[str, Shape]:
        """Output shape of every node, without the batch; raises UsageError where a layer does not fit."""
        shapes = {INPUT: self.input_shape}
        for node in self.nodes:
            shapes[node.name] = OPS[node.op].shape(node, *(shapes[name] for name in node.inputs))
        return shapes

    def parameters(self) -> List[Parameter]:
        """Every array the network holds, running statistics included, in graph order."""
        return [parameter for node in self.nodes for parameter in OPS[node.op].parameters(node)]

    def parameter_count(self) -> int:
        """Number of trainable scalars."""
        return sum(parameter.size for parameter in self.parameters() if parameter.trainable)

    def macs(self) -> int:
        """Multiply-accumulates of one picture's forward pass, convolutions and linear layers, biases left out."""
        shapes = self.shapes()
        return sum(OPS[node.op].macs(node, shapes[node.name]) for node in self.nodes)

    def to_dict(self) -> Dict[str, Any]:
        nodes = [{"name": n.name, "op": n.op, "inputs": list(n.inputs), "attrs": dict(n.attrs)} for n in self.nodes]
        return {"name": self.name, "num_classes": self.num_classes, "image_size": self.image_size, "nodes": nodes}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Graph":
        nodes = tuple(Node(n["name"], n["op"], tuple(n["inputs"]), n["attrs"]) for n in document["nodes"])
        return cls(document["name"], document["num_classes"], document["image_size"], nodes)


class GraphBuilder:
    """Adds layers one after the other; each call returns the new node's name, for branches to read."""

    def __init__(self, name: str, *, num_classes: int, image_size: int) -> None:
        for what, value in (("num_classes", num_classes), ("image_size", image_size)):
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"{name}: {what} is {value!r}; allowed: a whole number of at least 1")
        self._graph = Graph(name, num_classes, image_size, ())
        self._nodes: List[Node] = []
        self._shapes: Dict[str, Shape] = {INPUT: self._graph.input_shape}
        self.last = INPUT

    def _add(self, name: str, op: str, source: str = "", other: str = "", **attrs: Any) -> str:
        inputs = (source or self.last,) + ((other,) if other else ())
        node = Node(name, op, inputs, attrs)
        try:
            self._shapes[name] = OPS[op].shape(node, *(self._shapes[i] for i in inputs))
        except UsageError as error:
            size = self._graph.image_size
            raise UsageError(f"{self._graph.name} does not allow image_size {size}: {error}; use a larger one") from None
        self._nodes.append(node)
        self.last = name
        return name

    def shape(self, name: str = "") -> Shape:
        return self._shapes[name or self.last]

    def conv(
        self,
        name: str,
        out: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = False,
        init: str = "kaiming_normal_fan_out",
        source: str = "",
    ) -> str:
        """Conv2d, cross-correlation, square kernel, symmetric zero padding."""
        return self._add(
            name,
            "Conv2d",
            source,
            in_channels=self.shape(source)[0],
            out_channels=out,
            kernel=kernel,
            stride=stride,
            padding=padding,
            groups=groups,
            bias=bias,
            init=init,
        )

    def batchnorm(self, name: str, *, eps: float = 1e-5, momentum: float = 0.1) -> str:
        """BatchNorm2d; `momentum` is the weight of the new batch in the running statistics, as in torch."""
        return self._add(name, "BatchNorm2d", channels=self.shape()[0], eps=eps, momentum=momentum)

    def relu(self, name: str) -> str:
        return self._add(name, "ReLU")

    def relu6(self, name: str) -> str:
        return self._add(name, "ReLU6")

    def maxpool(self, name: str, kernel: int, *, stride: int, padding: int = 0) -> str:
        """Max pooling; padding never wins, output size rounded down."""
        return self._add(name, "MaxPool2d", kernel=kernel, stride=stride, padding=padding)

    def adaptive_avgpool(self, name: str, output: int) -> str:
        """Average pooling to output x output; left out where it would change nothing."""
        if self.shape()[1:] == (output, output):
            return self.last
        return self._add(name, "AdaptiveAvgPool2d", output=output)

    def global_avgpool(self, name: str) -> str:
        return self._add(name, "GlobalAvgPool")

    def flatten(self, name: str) -> str:
        """To a vector in (C, H, W) order, whatever layout the framework computes in."""
        return self._add(name, "Flatten")

    def linear(self, name: str, out: int, *, init: str = "normal_0.01") -> str:
        return self._add(name, "Linear", in_features=self.shape()[0], out_features=out, init=init)

    def dropout(self, name: str, p: float) -> str:
        """Inverted dropout: zeroes a share p, scales the rest by 1 / (1 - p), in training only."""
        return self._add(name, "Dropout", p=p)

    def add(self, name: str, first: str, second: str) -> str:
        return self._add(name, "Add", first, second)

    def build(self) -> Graph:
        return dataclasses.replace(self._graph, nodes=tuple(self._nodes))


def _std(parameter: Parameter) -> float:
    receptive = math.prod(parameter.shape[2:])
    gains = {
        "kaiming_normal_fan_out": math.sqrt(2.0 / (parameter.shape[0] * receptive)),
        "kaiming_normal_fan_in": math.sqrt(2.0 / math.prod(parameter.shape[1:])),
        "normal_0.01": 0.01,
    }
    return gains[parameter.init]


def initial_weights(graph: Graph, seed: int, out: np.ndarray) -> Dict[str, np.ndarray]:
    """Fill `out`, float32 of shape (weights_size(graph),), and return views of it by parameter name.

    The same numbers for the same (graph, seed): one generator a parameter, seeded by its name, so that a layer
    added or renamed does not change the others. Kaiming normal: He et al. 2015, gain sqrt(2).
    """
    views = weight_views(graph, out)
    for parameter in graph.parameters():
        view = views[parameter.name]
        if parameter.init in ("zeros", "ones"):
            view.fill(1.0 if parameter.init == "ones" else 0.0)
            continue
        digest = hashlib.sha256(f"{graph.name}/{parameter.name}/{seed}".encode()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        generator.standard_normal(out=view, dtype=np.float32)
        np.multiply(view, np.float32(_std(parameter)), out=view)
    return views


def weights_size(graph: Graph) -> int:
    """Number of float32 that all arrays of the graph take."""
    return sum(parameter.size for parameter in graph.parameters())


def weight_views(graph: Graph, flat: np.ndarray) -> Dict[str, np.ndarray]:
    """Views of a flat float32 array as the graph's parameters, in graph order."""
    if flat.shape != (weights_size(graph),):
        raise UsageError(f"weights of {graph.name}: {flat.shape[0]} numbers, expected {weights_size(graph)}")
    views, start = {}, 0
    for parameter in graph.parameters():
        views[parameter.name] = flat[start : start + parameter.size].reshape(parameter.shape)
        start += parameter.size
    return views


def trainable_names(graph: Graph) -> Sequence[str]:
    """Names of the parameters that SGD updates, in graph order."""
    return [parameter.name for parameter in graph.parameters() if parameter.trainable]


def evaluate(graph: Graph, apply: Callable[..., Any], source: Any) -> Any:
    """Run the nodes in order through `apply(node, *inputs)` and return the last one's value.

    A value is dropped after its last reader, so that a framework that runs op by op can free it.
    """
    last_reader = {name: node.name for node in graph.nodes for name in node.inputs}
    values = {INPUT: source}
    for node in graph.nodes:
        values[node.name] = apply(node, *(values[name] for name in node.inputs))
        for name in set(node.inputs):
            if last_reader[name] == node.name:
                del values[name]
    return values[graph.nodes[-1].name]
