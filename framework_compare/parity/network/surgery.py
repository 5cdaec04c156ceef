"""Cuts of a layer graph that the ladder trains or looks into: without dropout, up to a layer, a few of its values."""

import dataclasses
import math
from typing import Mapping, Sequence

import numpy as np

from framework_compare.graph import Graph, Node, weight_views, weights_size
from framework_compare.graph.network import needed

PEEK = "peek"
SUMS = 4  # of all values of an output, with signs: what differs anywhere moves them
DROPS = ("Dropout", "StochasticDepth")
MOST_DROPS = 4  # of one kind that are all asked about
ASKED_DEPTH = 0.2
FEWEST, MOST = 8, 256  # single values looked at in one output
PEEK_VALUES = 8_000_000  # numbers in the matrix that reads them


def without_dropout(graph: Graph) -> Graph:
    """The same network with everything left out that drops by chance: what reads it reads what it read."""
    source = {node.name: node.inputs[0] for node in graph.nodes if node.op in DROPS}

    def through(name: str) -> str:
        while name in source:
            name = source[name]
        return name

    kept = [
        dataclasses.replace(node, inputs=tuple(map(through, node.inputs)))
        for node in graph.nodes
        if node.op not in DROPS
    ]
    return dataclasses.replace(graph, nodes=tuple(kept))


def up_to(graph: Graph, last: str) -> Graph:
    """The part of the network that `last` needs, ending there."""
    return dataclasses.replace(graph, nodes=tuple(needed(graph.nodes, last)))


def peeking(graph: Graph, last: str, rows: int) -> Graph:
    """The network up to `last`, then a Linear layer with `rows` logits, whose weights come from `peek_weights`.

    A framework may hold feature maps in any layout; a Linear behind a Flatten is in (C, H, W) order in all of them.
    """
    cut = up_to(graph, last)
    shape = graph.shapes()[last]
    nodes: list[Node] = list(cut.nodes)
    if len(shape) > 1:
        nodes.append(Node(f"{PEEK}_flatten", "Flatten", (last,), {}))
    attrs = {"in_features": math.prod(shape), "out_features": rows, "init": "zeros"}
    nodes.append(Node(PEEK, "Linear", (nodes[-1].name,), attrs))
    return dataclasses.replace(cut, nodes=tuple(nodes), task=dataclasses.replace(cut.task, outputs=rows))


def peek_weights(shape: tuple[int, ...], places: Sequence[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """One-hot rows: the k-th logit is the value at places[k]; then SUMS rows of signs, each a sum of all values."""
    matrix = np.zeros((len(places) + SUMS, math.prod(shape)), np.float32)
    matrix[np.arange(len(places)), [np.ravel_multi_index(place, shape) for place in places]] = 1
    matrix[len(places) :] = signs(math.prod(shape))
    return {f"{PEEK}.weight": matrix, f"{PEEK}.bias": np.zeros(len(matrix), np.float32)}


def signs(size: int) -> np.ndarray:
    """(SUMS, size) of +1 and -1 by chance, the same for the same size."""
    return 2 * np.random.default_rng(size).integers(0, 2, (SUMS, size), np.int8) - 1


def places_in(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return where to look in an output: the corners of the first and the last channel, then at random."""
    rng = np.random.default_rng(1)
    count = min(max(PEEK_VALUES // math.prod(shape), FEWEST), MOST)
    ends = [tuple(0 for _ in shape), tuple(size - 1 for size in shape)]
    if len(shape) == 3:
        ends += [(0, shape[1] - 1, 0), (shape[0] - 1, 0, shape[2] - 1)]
    drawn = [tuple(int(rng.integers(size)) for size in shape) for _ in range(count)]
    return list(dict.fromkeys(ends + drawn))[:count]


def flat_weights(graph: Graph, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Arrays by name as the one flat float32 array that `graph.weight_views` cuts."""
    out = np.empty(weights_size(graph), np.float32)
    for name, view in weight_views(graph, out).items():
        view[...] = arrays[name]
    return out


def dropout_nodes(graph: Graph) -> list[Node]:
    """The layers that level 5 asks about: of many of one kind the first, the last and some between."""
    picked = []
    for op in DROPS:
        nodes = [node for node in graph.nodes if node.op == op]
        picked += nodes if len(nodes) <= MOST_DROPS else [nodes[i * (len(nodes) - 1) // 2] for i in range(3)]
    return picked


def asked_dropout(graph: Graph) -> Graph:
    """The network with every StochasticDepth at a share that a few samples show; a real one is often 1 in 100."""
    nodes = [
        dataclasses.replace(node, attrs={**node.attrs, "p": ASKED_DEPTH}) if node.op == "StochasticDepth" else node
        for node in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes))
