"""The program that a framework evaluates in place of a graph, and how its nodes are added one by one."""

import dataclasses
from typing import Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Sequence, Set, Tuple, TypeVar, Union

from framework_compare.graph.network import Graph
from framework_compare.graph.node import IMAGE, Node, Shape
from framework_compare.graph.ops import OPS
from framework_compare.graph.task import Field
from framework_compare.json_types import Document

_T = TypeVar("_T")
MOVES = ("Reshape", "Permute", "Slice", "Pad")


@dataclasses.dataclass(frozen=True)
class Program:
    """Program that is evaluated in place of a graph: other nodes, with the same arrays, and the same value at the end.

    A random node keeps its name; one with arrays names the layer that owns them. shapes: of all values, without the
    batch. shared: values that are the same for all samples, of length 1 along the batch.
    """

    graph: Graph
    nodes: Tuple[Node, ...]
    shapes: Mapping[str, Shape]
    shared: FrozenSet[str]

    @property
    def inputs(self) -> Dict[str, Field]:
        return self.graph.inputs

    def input_shape(self, node: Node) -> Shape:
        """Shape of what a node reads first; () where it reads nothing."""
        return self.shapes[node.inputs[0]] if node.inputs else ()


def evaluate(graph: Union[Graph, Program], apply: Callable[..., _T], source: Union[_T, Tuple[_T, ...]]) -> _T:
    """Run the nodes in order through `apply(node, *inputs)` and return the last one's value.

    source: the value of the only input, or a tuple with one value for each input in the task's order. A value is
    dropped after its last reader, so that a framework that runs op by op can free it.
    """
    last_reader = {name: node.name for node in graph.nodes for name in node.inputs}
    values: Dict[str, _T] = dict(zip(graph.inputs, source if isinstance(source, tuple) else (source,)))
    for node in graph.nodes:
        values[node.name] = apply(node, *(values[name] for name in node.inputs))
        for name in set(node.inputs):
            if last_reader[name] == node.name:
                del values[name]
    return values[graph.nodes[-1].name]


class Step(NamedTuple):
    """An op that reads the one before it, its attributes, and the shape that it gives."""

    op: str
    attrs: Document
    shape: Shape


def reshaped(*shape: int) -> Step:
    return Step("Reshape", {"shape": (-1, *shape)}, shape)


def permuted(shape: Shape, *order: int) -> Step:
    return Step("Permute", {"order": (0, *(1 + axis for axis in order))}, tuple(shape[axis] for axis in order))


class Lowering:
    """Nodes of the program as they are added, and their shapes."""

    def __init__(
        self, graph: Graph, has: FrozenSet[str], channels_last: bool, as_stored: FrozenSet[str], views: bool
    ) -> None:
        self.has, self.channels_last, self.as_stored, self.views = has, channels_last, as_stored, views
        self.nodes: List[Node] = []
        self.given = graph.shapes()  # of the graph's values, with its order of axes
        self.shapes: Dict[str, Shape] = {name: self.own(self.given[name]) for name in graph.inputs}
        self.shared: Set[str] = set()
        self.plains: Dict[str, str] = {}  # of images, the value with the axes of the graph

    def plain(self, name: str) -> str:
        """A value with its axes as the graph has them."""
        if len(self.given[name]) != IMAGE or not self.channels_last:
            return name
        if name not in self.plains:
            step = permuted(self.shapes[name], 2, 0, 1)
            self.plains[name] = self.append(f"{name}.plain", step.op, [name], step.attrs, step.shape)
        return self.plains[name]

    def needed(self) -> Tuple[Node, ...]:
        """The nodes without each Permute that nobody reads."""
        kept: List[Node] = []
        read = {self.nodes[-1].name}
        for node in reversed(self.nodes):
            if node.op != "Permute" or node.name in read:
                kept.append(node)
                read.update(node.inputs)
        return tuple(reversed(kept))

    def own(self, axes: Sequence[_T]) -> Tuple[_T, ...]:
        """A shape of the graph, or what stands for its axes, in the framework's order."""
        return (*axes[1:], axes[0]) if len(axes) == IMAGE and self.channels_last else tuple(axes)

    def axis(self, axis: int, rank: int) -> int:
        """Axis of an array, for one of a shape of the graph."""
        return 1 + ((axis - 1) % IMAGE if rank == IMAGE and self.channels_last else axis)

    def append(self, name: str, op: str, inputs: Sequence[str], attrs: Document, shape: Shape) -> str:
        self.nodes.append(Node(name, op, tuple(inputs), attrs))
        self.shapes[name] = shape
        if self.shared.issuperset(inputs):
            self.shared.add(name)
        return name

    def chain(self, node: Node, *steps: Step) -> None:
        """Steps in place of a node; the last has its name, and the one with its arrays says whose they are."""
        inputs = list(node.inputs)
        for number, step in enumerate(steps, start=1):
            name = node.name if number == len(steps) else f"{node.name}.lowered{number}"
            own = name != node.name and OPS[node.op].parameters(node) and step.op not in MOVES
            attrs = {**step.attrs, "arrays": node.arrays} if own else step.attrs
            inputs = [self.append(name, step.op, inputs, attrs, step.shape)]

    def one(self, node: Node, op: str = "", **changed: object) -> None:
        """The node itself, perhaps of another op, with its attributes, of which some are changed."""
        shape = self.own(self.given[node.name])
        self.append(node.name, op or node.op, node.inputs, {**node.attrs, **changed}, shape)

    def cut(self, shape: Shape, axis: int, start: int, end: int, step: int = 1) -> Step:
        """Return the step that slices a shape in the framework's order along an axis of its array."""
        sizes = list(shape)
        sizes[axis - 1] = -(-(end - start) // step)
        at = (slice(None),) * axis + (slice(start, end, step),)
        return Step("Slice", {"axis": axis, "start": start, "end": end, "step": step, "at": at}, tuple(sizes))
