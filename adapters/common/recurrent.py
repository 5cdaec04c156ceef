"""Recurrent layers as MXNet and Paddle run them fastest: steps in front of samples, both directions as one layer.

Their kernels take (steps, N, features). A layer that is given (N, steps, features) turns it round, and its result back,
each time: here all layers between the first and the last recurrent one keep the steps in front.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from framework_compare.graph import Node
from framework_compare.graph.program import Program

RECURRENT = ("LSTM", "GRU")
PAIR = "Pair"  # a layer of each direction: attributes "op", "forward" and "backward", the names of their arrays
TURN = "Turn"  # (N, steps, ...) to (steps, N, ...), or back
_OF_STEPS = ("Select", "Reverse")  # along the axis of the steps, which is the first where these are in front
_FEATURES = 2  # axis of a sequence's array
_EACH_STEP = ("Dropout", "Linear", "Tanh", "Sigmoid", "ReLU", "Reverse")  # whatever is in front of the features


def turned(program: Program) -> Program:
    """The program to evaluate in place of one: other nodes, of the same arrays, with the same value at the end."""
    if not any(node.op in RECURRENT for node in program.nodes):
        return program
    nodes = _Turned(program.inputs, _paired(program)).nodes
    shapes = {**program.shapes, **{node.name: program.shapes[node.inputs[0]] for node in nodes if node.op == TURN}}
    return dataclasses.replace(program, nodes=tuple(nodes), shapes=shapes)


def pairs(program: Program) -> Dict[str, Tuple[str, str]]:
    """Return the names of the forward and the backward arrays of each pair of directions in a turned program."""
    return {n.name: (n.attrs["forward"], n.attrs["backward"]) for n in program.nodes if n.op == PAIR}


class Direction(NamedTuple):
    """One direction of a framework's recurrent layer, which may have two."""

    layer: Any
    is_backward: bool


def by_direction(layers: Mapping[str, Any], of_pairs: Mapping[str, Tuple[str, str]]) -> Dict[str, Any]:
    """Layers by the names of their arrays; a recurrent one is a Direction, or two."""
    found: Dict[str, Any] = {}
    for name, layer in layers.items():
        if name in of_pairs:
            found.update({one: Direction(layer, bool(back)) for back, one in enumerate(of_pairs[name])})
        else:
            found[name] = Direction(layer, False) if type(layer).__name__ in RECURRENT else layer
    return found


def _paired(program: Program) -> List[Node]:
    """Nodes, where each layer beside one between two Reverse, joined by Concat, is one node in the place of the Concat."""
    gone: Set[str] = set()
    made: Dict[str, Node] = {}
    for node in program.nodes:
        found = _directions(program, node)
        if found:
            forward, backward = found[0], found[2]
            attrs = {**forward.attrs, "op": forward.op, "forward": forward.name, "backward": backward.name}
            made[node.name] = Node(node.name, PAIR, forward.inputs, attrs)
            gone.update(one.name for one in found)
    return [made.get(node.name, node) for node in program.nodes if node.name not in gone]


def _directions(program: Program, concat: Node) -> Optional[Tuple[Node, Node, Node, Node]]:
    """The layer forward, Reverse, the layer backward and Reverse that a Concat joins, if nothing else reads them."""
    if concat.op != "Concat" or len(concat.inputs) != 2 or concat.attrs["axis"] != _FEATURES:
        return None
    by_name = {node.name: node for node in program.nodes}
    forward, last = (by_name.get(name) for name in concat.inputs)
    backward = by_name.get(last.inputs[0]) if last and last.op == "Reverse" else None
    first = by_name.get(backward.inputs[0]) if backward and backward.op in RECURRENT else None
    if not (forward and last and backward and first and first.op == "Reverse"):
        return None
    alike = (forward.op, forward.inputs, forward.attrs) == (backward.op, first.inputs, backward.attrs)
    read = [name for node in program.nodes for name in (*node.inputs, node.arrays)]  # each names itself by its arrays
    layers = (forward, first, backward, last)
    alone = all(read.count(node.name) == 2 for node in layers)
    frozen = program.graph.is_frozen(forward) or program.graph.is_frozen(backward)
    return layers if alike and alone and not frozen else None


class _Turned:
    """The nodes of a graph with a Turn wherever the steps come in front, or go back behind the samples."""

    def __init__(self, inputs: Mapping[str, object], nodes: List[Node]) -> None:
        self.nodes: List[Node] = []
        self._front: Set[str] = set()  # values with the steps in front
        self._turned: Dict[str, str] = {}
        self._readers = {name: [n for n in nodes if name in n.inputs] for name in [*inputs, *(n.name for n in nodes)]}
        for node in nodes:
            self._add(node)
        if nodes[-1].name in self._front:
            self._turn(nodes[-1].name)

    def _add(self, node: Node) -> None:
        front = self._goes_in_front(node)
        reads = front or (node.op == "Select" and node.inputs[0] in self._front)
        inputs = tuple(name if (name in self._front) == reads else self._turn(name) for name in node.inputs)
        attrs = {**node.attrs, "axis": 0} if reads and node.op in _OF_STEPS else node.attrs
        self.nodes.append(dataclasses.replace(node, inputs=inputs, attrs=attrs))
        self._front.update({node.name} if front else ())

    def _goes_in_front(self, node: Node) -> bool:
        if node.op in (*RECURRENT, PAIR):
            return True
        if node.op == "Embedding":  # tokens are less to turn than their rows
            return all(reader.op in (*RECURRENT, PAIR, "Reverse") for reader in self._readers[node.name])
        in_front = all(name in self._front for name in node.inputs)
        return in_front and (node.op in _EACH_STEP or (node.op == "Concat" and node.attrs["axis"] == _FEATURES))

    def _turn(self, name: str) -> str:
        """The name of a value with steps and samples the other way round, made when it is first asked for."""
        if name not in self._turned:
            self._turned[name] = f"{name}.turned"
            self.nodes.append(Node(self._turned[name], TURN, (name,), {}))
            self._front.update(() if name in self._front else {self._turned[name]})
        return self._turned[name]
