"""A foreign program read into a graph: nodes, arrays, names, and a list of all that the graph has no op for."""

import dataclasses
import math
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph.network import Graph, needed
from framework_compare.graph.node import Node, Shape, feature_axis
from framework_compare.graph.ops import ACTIVATIONS, OPS
from framework_compare.graph.task import Task
from framework_compare.importers.common import views
from framework_compare.importers.common.views import BATCH, Atom, NotExpressible, Value, View, whole
from framework_compare.json_types import Document, Fields

MISSING = "?"  # in front of the kind of a layer that no op of the graph is for
Arrays = Mapping[str, Tuple[str, np.ndarray]]  # by the last part of their names: name in the program, numbers


class GraphReader:
    """Collects nodes and arrays. `batch` is the size with which the program was traced: a prime.

    inputs: shapes of a sample's arrays, by the names under which nodes read them.
    """

    def __init__(self, batch: int, inputs: Mapping[str, Shape]) -> None:
        self.batch = batch
        self.arrays: Dict[str, np.ndarray] = {}
        self.origin: Dict[str, str] = {}  # names of the program's arrays by those of the graph
        self.nodes: Dict[str, Node] = {}
        self.shapes: Dict[str, Shape] = dict(inputs)
        self.lifts = True  # whether a vector may become an image of one pixel, with all that it is made of
        self._once: Dict[object, str] = {}
        self._where: Dict[str, str] = {}  # of missing layers
        self._behind: Set[str] = set()  # missing layers, and what reads them
        self.inputs = {name: self.plain(name) for name in inputs}

    def plain(self, name: str) -> Value:
        """Return what a node gives, in its own axes."""
        return Value(name, views.plain(self.batch, self.shapes[name]))

    def add(self, stem: str, op: str, sources: Sequence[str], attrs: Document, arrays: Optional[Arrays] = None) -> str:
        """A node under a name like `stem`; returns its name. NotExpressible where its op does not take these."""
        node = Node(self._name(stem), op, tuple(sources), dict(attrs))
        if op not in OPS:
            raise NotExpressible(op)
        try:
            shape = OPS[op].shape(node, *(self.shapes[name] for name in node.inputs))
        except UsageError as error:
            raise NotExpressible(f"{op}: {error}") from None
        wanted = {parameter.name: parameter.shape for parameter in OPS[op].parameters(node)}
        for part, (own, array) in (arrays or {}).items():
            name = f"{node.name}.{part}"
            if math.prod(wanted[name]) != array.size:
                raise NotExpressible(f"{op} with {part} of shape {array.shape}")
            self.arrays[name] = np.asarray(array).reshape(wanted[name])
            self.origin[name] = own
        self.nodes[node.name] = node
        self.shapes[node.name] = shape
        if self.is_behind_missing(sources):
            self._behind.add(node.name)
        return node.name

    def once(self, stem: str, op: str, sources: Sequence[str], attrs: Document) -> str:
        """A node without arrays; the one that is there already where it has the same inputs and attributes."""
        key = (op, tuple(sources), repr(sorted(attrs.items())))
        if key not in self._once:
            self._once[key] = self.add(stem, op, sources, attrs)
        return self._once[key]

    def is_fed(self, value: object) -> bool:
        """Return whether it is an input as it is fed."""
        return isinstance(value, Value) and value.node not in self.nodes and value == self.plain(value.node)

    def is_behind_missing(self, names: Sequence[str]) -> bool:
        """Return whether one of these nodes is missing or reads what is: nobody knows how its axes stand."""
        return not self._behind.isdisjoint(names)

    def missing(self, kind: str, where: str, sources: Sequence[str], shape: Sequence[int], line: str = "") -> Value:
        """A place for what cannot be expressed, so that all that is missing is known at the end.

        kind: "" for what could be, were it not for another that is missing in front of it. line: in the user's source.
        """
        if not all(isinstance(size, int) for size in shape):
            kind, shape = kind and f"{kind}, the size of which depends on values", ()
        node = Node(self._name(where), MISSING + kind, tuple(sources), {})
        self.nodes[node.name] = node
        self._behind.add(node.name)
        self._where[node.name] = f"{where} ({line})" if line else where
        if len(shape) > 1 and shape[0] == self.batch:
            self.shapes[node.name] = tuple(shape[1:])
            return self.plain(node.name)
        folded = bool(shape) and shape[0] % self.batch == 0
        inner = (shape[0] // self.batch, *shape[1:]) if folded else tuple(shape)
        self.shapes[node.name] = inner
        batch, *view = self.plain(node.name).view
        return Value(node.name, ((*batch, *view[0]), *view[1:]) if folded else tuple(view))

    # -- values in the form that an op takes ------------------------------------------------------------------------

    def image(self, value: Value) -> str:
        """The node of a value that stands as (N, C, H, W)."""
        name, view = value
        if len(self.shapes[name]) == 1 and len(view) == 4 and self.lifts:
            self.lift(name)
            view = views.moved(view, (0,))
        if len(self.shapes[name]) != 3 or view != self.plain(name).view:
            raise NotExpressible(f"a value of shape {value.shape} where an image (C, H, W) is needed")
        return name

    def features_last(self, value: Value) -> Tuple[str, View]:
        """Node and view of a value whose last axis is the features: channels of an image, else the last axis."""
        value = self.vector(value)
        name, view = value
        if view[-1] == whole(self.feature_axis(name), self.width(name)):
            return name, view
        flat = views.reshaped(self.plain(name).view, (self.batch, math.prod(self.shapes[name])))
        if view != flat:
            raise NotExpressible(f"a layer on axes of {self.shapes[name]} folded to {value.shape}")
        made = self.plain(self.add(f"{name}.flatten", "Flatten", [name], {}))
        return made.node, made.view

    def feature_axis(self, name: str) -> int:
        return feature_axis(self.shapes[name])

    def width(self, name: str) -> int:
        return self.shapes[name][self.feature_axis(name)]

    def vector(self, value: Value) -> Value:
        """An image of one pixel that stands as (N, C) becomes a vector, by a fast op where it was averaged."""
        name, view = value
        shape = self.shapes[name]
        if len(view) != 2 or len(shape) != 3 or shape[1:] != (1, 1) or view != self.plain(name).view[:2]:
            return value
        node = self.nodes.get(name)
        if node is not None and node.op == "AdaptiveAvgPool2d":
            return self.plain(self.add(name, "GlobalAvgPool", node.inputs, {}))
        return self.plain(self.add(f"{name}.flatten", "Flatten", [name], {}))

    def tokens(self, value: Value) -> Value:
        """A view of an image whose pixels are steps, as one of a sequence; others as they are."""
        name, view = value
        shape = self.shapes[name]
        if len(shape) != 3 or shape[1:] == (1, 1):
            return value
        width = shape[2]
        made = self.add(f"{name}.tokens", "Tokens", [name], {})
        place = {0: (1, 1), 1: (0, width), 2: (0, 1)}  # axis, and what its stride is multiplied by
        groups = []
        for group in view:
            atoms = []
            for atom in group:
                axis, times = place.get(atom.axis, (BATCH, 1))
                atoms.append(Atom(axis, atom.stride * times, atom.size))
            groups.append(tuple(atoms))
        return Value(made, views.reshaped(tuple(groups), value.shape))

    def settled(self, value: Value) -> Value:
        """A view that is an op of the graph by itself, as that op's output; others as they are."""
        shape, batch = self.shapes[value.node], whole(BATCH, self.batch)
        if len(shape) == 3 and len(value.view) == 4 and len(value.view[1]) == 2:
            inner, groups = value.view[1]
            channels = (Atom(0, 1, inner.size), Atom(0, inner.size, groups.size))
            if value.view == (batch, channels, *self.plain(value.node).view[2:]):
                stem = f"{value.node}.shuffle"
                return self.plain(self.add(stem, "ChannelShuffle", [value.node], {"groups": groups.size}))
        return value

    def lift(self, name: str) -> None:
        """Have a vector that was made of an image's averages stay an image of one pixel, with all that lies between."""
        node = self.nodes.get(name)
        shape = self.shapes[name]
        if len(shape) == 3:
            return
        if not self.lifts:
            raise NotExpressible("a vector that becomes an image")
        readers = [one for one in self.nodes.values() if name in one.inputs and len(self.shapes[one.name]) == 1]
        fixed = {one.op for one in readers} - {*KEEPS_RANK, "Reshape", "Concat"}
        if node is None or len(shape) != 1 or fixed:
            raise NotExpressible("a vector that becomes an image")
        averaged = node.op == "GlobalAvgPool" and len(self.shapes[node.inputs[0]]) == 3
        if averaged or (node.op == "Flatten" and self.shapes[node.inputs[0]][1:] == (1, 1)):
            node = dataclasses.replace(node, op="AdaptiveAvgPool2d", attrs={"output": 1})
        elif node.inputs and node.op in KEEPS_RANK:
            for source in node.inputs:
                self.lift(source)
        else:
            raise NotExpressible(f"a vector that becomes an image behind {node.op}")
        self.nodes[name] = node
        self.shapes[name] = (*shape, 1, 1)

    # -- the whole --------------------------------------------------------------------------------------------------

    def _name(self, stem: str) -> str:
        name, number = stem or "layer", 1
        while name in self.shapes:
            number += 1
            name = f"{stem or 'layer'}_{number}"
        return name

    def finish(self, output: Value, tasks: Sequence[Task]) -> Graph:
        """The part of the network that gives `output`, for the first of the tasks whose output has its shape.

        UsageError that lists every kind of layer that is missing.
        """
        last = self._without_ones(self.vector(output))
        nodes = needed(list(self.nodes.values()), last.node)
        self._check_missing(nodes)
        task = self._task_of(last, tasks)
        self._check_shared(nodes)
        renamed = _clear_names(nodes)
        nodes = [_renamed_node(node, renamed) for node in nodes]
        if not nodes:
            raise UsageError("it has no layer")
        graph = Graph("", task, tuple(nodes))
        graph.shapes()
        kept = {parameter.name for parameter in graph.parameters()}
        self.arrays = _renamed(self.arrays, renamed, kept)
        self.origin = _renamed(self.origin, renamed, kept)
        return graph

    def _without_ones(self, value: Value) -> Value:
        """Return (N, classes, 1) that stands as (N, classes), or (N, 1, 1) as (N,), as an array of these axes."""
        own, wanted = self.plain(value.node).view, value.shape[1:] or (1,)
        if self.shapes[value.node] == wanted or list(filter(None, value.view)) != list(filter(None, own)):
            return value
        return self.plain(self.add(f"{value.node}.reshaped", "Reshape", [value.node], {"shape": list(wanted)}))

    def _task_of(self, last: Value, tasks: Sequence[Task]) -> Task:
        shape, own = self.shapes[last.node], self.plain(last.node).view
        for task in tasks:
            wanted = task.output_shape
            fits = len(wanted) == len(shape) and all(size in (0, given) for size, given in zip(wanted, shape))
            squeezed = shape == (1,) and last.view == own[:1]  # as regressions often are, (N,)
            if fits and (last.view == own or squeezed):
                return dataclasses.replace(task, outputs=shape[-1])
        allowed = " or ".join(dict.fromkeys(map(_output_words, tasks)))
        raise UsageError(f"its output has shape {last.shape}; allowed: {allowed}")

    def _check_shared(self, nodes: Sequence[Node]) -> None:
        """UsageError where one layer is called with values of different ranks: no framework has one layer for both."""
        ranks = {(node.arrays, node.op): len(self.shapes[node.inputs[0]]) for node in nodes if node.inputs}
        for node in nodes:
            if node.inputs and len(self.shapes[node.inputs[0]]) != ranks[node.arrays, node.op]:
                raise UsageError(
                    f"{node.op} {node.arrays} is called with values of {self.shapes[node.inputs[0]]} and others"
                )

    def _check_missing(self, nodes: Sequence[Node]) -> None:
        places: Dict[str, List[str]] = {}
        for node in nodes:
            if node.op.startswith(MISSING) and node.op != MISSING:
                places.setdefault(node.op[len(MISSING) :], []).append(self._where[node.name])
        if places:
            raise inexpressible(places, len({node.op for node in nodes} - {MISSING}))


def inexpressible(places: Mapping[str, Sequence[str]], kinds: int) -> UsageError:
    """The error that names each kind of layer that cannot be expressed, of so many kinds, and where it stands."""
    words = "; ".join(f"{kind} ({len(where)} x, first at {where[0]})" for kind, where in places.items())
    return UsageError(f"{len(places)} of {kinds} kinds of layer cannot be expressed: {words}")


def _output_words(task: Task) -> str:
    """The output that a task asks for: "(images, classes)"."""
    last = "classes" if task.loss.endswith("cross_entropy") else "values"
    return f"({', '.join([f'{task.unit}s', *(str(size or last) for size in task.output_shape)])})"


# Ops that give a vector for a vector and an image of one pixel for such an image.
KEEPS_RANK = ("Linear", *ACTIVATIONS, "Dropout", "StochasticDepth", "LayerNorm", "Add", "Mul")


def _renamed_node(node: Node, names: Mapping[str, str]) -> Node:
    attrs = {**node.attrs, "arrays": names[node.arrays]} if node.arrays != node.name else node.attrs
    return dataclasses.replace(
        node, name=names[node.name], inputs=tuple(names.get(name, name) for name in node.inputs), attrs=attrs
    )


def _renamed(table: Document, names: Mapping[str, str], kept: Set[str]) -> Fields:
    """Entries by `<node>.<part>` under the nodes' new names; those of nodes that are left out are gone."""
    found = {}
    for name, entry in table.items():
        node, _, part = name.rpartition(".")
        if node in names and f"{names[node]}.{part}" in kept:
            found[f"{names[node]}.{part}"] = entry
    return found


def _clear_names(nodes: Sequence[Node]) -> Dict[str, str]:
    """New names by old ones: none is the beginning of another up to a dot, and none differs by dots alone.

    torch.fx keeps layers in modules of their names; Paddle writes "_" for a dot.
    """
    names = list(dict.fromkeys(name for node in nodes for name in (node.name, node.arrays)))
    inner = {name[:i] for name in names for i, letter in enumerate(name) if letter == "."}
    taken: Set[str] = set()
    renamed = {}
    for name in names:
        new = f"{name}.self" if name in inner else name
        while new.replace(".", "_") in taken or (new != name and new in names):
            new += "_"
        taken.add(new.replace(".", "_"))
        renamed[name] = new
    return renamed
