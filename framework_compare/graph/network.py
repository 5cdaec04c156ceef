"""A network as a framework-neutral graph of layers, and what follows from it: shapes, parameters, MACs.

Shapes leave the batch out: images and feature maps are (channels, height, width), sequences are (steps, features),
vectors are (features,).
"""

import dataclasses
from typing import Dict, FrozenSet, List, Sequence, Set, Tuple

from framework_compare.errors import UsageError
from framework_compare.graph.node import Node, Parameter, Shape
from framework_compare.graph.ops import OPS
from framework_compare.graph.task import Field, Task, image_classification
from framework_compare.json_types import Document, Fields


@dataclasses.dataclass(frozen=True)
class Graph:
    """A network for a task: nodes in an order in which each reads only what stands before it.

    The last node gives the output: logits, or the numbers that an mse compares. Nodes read a task's only input as
    "input", several inputs by the names of their fields. A node whose name starts with one of `frozen_prefixes` is
    frozen: a step does not change its parameters, and it runs in evaluation mode (no dropout, BatchNorm by its running
    statistics, which stay as they are).
    """

    name: str
    task: Task
    nodes: Tuple[Node, ...]
    frozen_prefixes: Tuple[str, ...] = ()

    @property
    def inputs(self) -> Dict[str, Field]:
        """The fields of a sample by the names under which nodes read them, in the task's order."""
        return self.task.named_inputs

    @property
    def input_shape(self) -> Shape:
        """Shape of the first input, the only one of most networks."""
        return self.task.inputs[0].shape

    @property
    def num_classes(self) -> int:
        return self.task.outputs

    @property
    def image_size(self) -> int:
        """Pixels a side of the first input; 0 where that is not an image."""
        return self.task.image_size

    def shapes(self) -> Dict[str, Shape]:
        """Output shape of every node, without the batch; raises UsageError where a layer does not fit."""
        shapes = {name: field.shape for name, field in self.inputs.items()}
        for node in self.nodes:
            shapes[node.name] = OPS[node.op].shape(node, *(shapes[name] for name in node.inputs))
        return shapes

    def frozen(self, *prefixes: str) -> "Graph":
        """The same network with the parameters of every node frozen whose name starts with one of the prefixes."""
        for prefix in prefixes:
            if not any(self.parameters_of(node) for node in self.nodes if node.name.startswith(prefix)):
                raise UsageError(f"{self.name}: no layer with parameters starts with {prefix!r}; nothing to freeze")
        return dataclasses.replace(self, frozen_prefixes=(*self.frozen_prefixes, *prefixes))

    def is_frozen(self, node: Node) -> bool:
        return node.arrays.startswith(self.frozen_prefixes)

    def parameters(self) -> List[Parameter]:
        """Every array the network has, running statistics and frozen ones included, in graph order; shared ones once."""
        return list(dict.fromkeys(parameter for node in self.nodes for parameter in self.parameters_of(node)))

    def parameters_of(self, node: Node) -> List[Parameter]:
        parameters = OPS[node.op].parameters(node)
        if not self.is_frozen(node):
            return parameters
        return [dataclasses.replace(p, trainable=False, frozen=True) if p.trainable else p for p in parameters]

    def parameter_count(self) -> int:
        """Number of trainable scalars."""
        return sum(parameter.size for parameter in self.parameters() if parameter.trainable)

    def backward_nodes(self) -> FrozenSet[str]:
        """Names of the nodes that a backward pass runs through: those with trained parameters, and all behind them."""
        names: Set[str] = set()
        for node in self.nodes:
            if names.intersection(node.inputs) or any(p.trainable for p in self.parameters_of(node)):
                names.add(node.name)
        return frozenset(names)

    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward pass: products with weights, biases left out."""
        return sum(self.macs_by_node().values())

    def macs_by_node(self) -> Dict[str, int]:
        """The same of each node."""
        shapes = self.shapes()
        return {node.name: OPS[node.op].macs(node, shapes[node.name]) for node in self.nodes}

    def backward_macs(self) -> int:
        """Multiply-accumulates of one sample's backward pass, which stops where nothing in front is trained.

        A product is done twice more, for the gradients of its weights and of its input; either is left out where
        nothing needs it.
        """
        return sum(self.backward_macs_by_node().values())

    def backward_macs_by_node(self) -> Dict[str, int]:
        """The same of each node that a backward pass runs through."""
        shapes, through = self.shapes(), self.backward_nodes()
        totals = {}
        for node in self.nodes:
            if node.name not in through:
                continue
            op, out = OPS[node.op], shapes[node.name]
            macs = op.macs(node, out)
            input_macs = macs if op.input_macs is None else op.input_macs(node, out)
            needs_input, needs_weights = bool(through.intersection(node.inputs)), not self.is_frozen(node)
            totals[node.name] = 2 * macs - input_macs * (not needs_input) - macs * (not needs_weights)
        return totals

    def to_dict(self) -> Fields:
        nodes = [{"name": n.name, "op": n.op, "inputs": list(n.inputs), "attrs": dict(n.attrs)} for n in self.nodes]
        if self.task == image_classification(self.num_classes, self.image_size) and not self.frozen_prefixes:
            return {"name": self.name, "num_classes": self.num_classes, "image_size": self.image_size, "nodes": nodes}
        frozen = {"frozen_prefixes": list(self.frozen_prefixes)} if self.frozen_prefixes else {}
        return {"name": self.name, "task": self.task.to_dict(), "nodes": nodes, **frozen}

    @classmethod
    def from_dict(cls, document: Document) -> "Graph":
        nodes = tuple(Node(n["name"], n["op"], tuple(n["inputs"]), n["attrs"]) for n in document["nodes"])
        if "task" in document:
            task = Task.from_dict(document["task"])
        else:
            task = image_classification(document["num_classes"], document["image_size"])
        return cls(document["name"], task, nodes, tuple(document.get("frozen_prefixes", ())))


def trainable_names(graph: Graph) -> Sequence[str]:
    """Names of the parameters that a step updates, in graph order."""
    return [parameter.name for parameter in graph.parameters() if parameter.trainable]


def needed(nodes: Sequence[Node], last: str) -> List[Node]:
    """Return the nodes that `last` needs and itself, each behind what it reads; nothing if it is not there."""
    by_name = {node.name: node for node in nodes}
    found: Set[str] = set()
    waiting = [last]
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in found:
            found.add(name)
            waiting += by_name[name].inputs
    return [node for node in nodes if node.name in found - {last}] + [by_name[name] for name in found & {last}]
