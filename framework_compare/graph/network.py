"""A network as a framework-neutral graph of layers, and what follows from it: shapes, parameters, MACs.

Shapes leave the batch out: images and feature maps are (channels, height, width), vectors are (features,).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from framework_compare.graph.ops import OPS, Node, Parameter, Shape

INPUT = "input"


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
