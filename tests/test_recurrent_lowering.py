"""What MXNet and Paddle evaluate in place of a graph with recurrent layers: the same function, turned round less often."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from framework_compare.adapters.common.recurrent import PAIR, RECURRENT, STEPS, TURN, lowered, pairs
from framework_compare.graph import (
    Field,
    Graph,
    GraphBuilder,
    Node,
    Task,
    evaluate,
    initial_weights,
    weight_views,
    weights_size,
)
from framework_compare.models import bilstm_tagger, diabetes_mlp, gru, lstm, text_rnn
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.oracle.op import Mode
from framework_compare.parity.network.oracle.ops import OPS

SERIES = Task((Field("prices", (12, 3)),), Field("price", (1,)), 1, "mse", (), "sequence")
TOKENS = Field("tokens", (9,), "int32", 40)
TAGS = Task((TOKENS,), Field("tags", (9,), "int64"), 3, "token_cross_entropy", (), "sequence")
WORDS = Task((TOKENS,), Field("word", (), "int64"), 40, "cross_entropy", (), "sequence")
ROWS = Task((Field("row", (8,)),), Field("y", (1,)), 1, "binary_cross_entropy", (), "row")


def two_directions(op: str, **changed: object) -> Graph:
    """A sequence through a layer of each direction; `changed` says what keeps them from being one."""
    g = GraphBuilder("two", dataclasses.replace(TAGS, target=Field("tags", (9,), "int64")))
    tokens = g.embedding("embedding", 5)
    forward = getattr(g, op)("forward", 4)
    g.reverse("reversed", source=tokens)
    getattr(g, op)("backward", changed.get("hidden", 4))
    backward = g.reverse("in_order") if changed.get("in_order", True) else "backward"
    both = g.concat("both", *((backward, forward) if changed.get("swapped") else (forward, backward)))
    if changed.get("read_twice"):
        g.concat("more", both, forward)
    g.linear("fc", 3)
    return g.build()


GRAPHS = {
    "lstm": lstm.build(SERIES),
    "gru": gru.build(SERIES),
    "tagger": bilstm_tagger.build(TAGS),
    "words": text_rnn.build(WORDS),
    "gru-pair": two_directions("gru"),
    "other-sizes": two_directions("lstm", hidden=6),
    "not-in-order": two_directions("lstm", in_order=False),
    "swapped": two_directions("lstm", swapped=True),
    "read-twice": two_directions("lstm", read_twice=True),
}


def value_of(graph: Graph, weights: dict, inputs: np.ndarray) -> np.ndarray:
    """A lowered graph's value: by the oracle's ops, which know samples in front only."""

    def op_value(node: Node, *values: np.ndarray) -> np.ndarray:
        own = {name.rpartition(".")[2]: a for name, a in weights.items() if name.rpartition(".")[0] == node.arrays}
        return OPS[node.op](node, own, values, Mode(False, False))[0]

    def apply(node: Node, *values: np.ndarray) -> np.ndarray:
        if node.op == TURN:
            return values[0].swapaxes(0, 1)
        steps_in_front = node.op in (*RECURRENT, PAIR) or node.attrs.get(STEPS) == 0
        values = tuple(x.swapaxes(0, 1) for x in values) if steps_in_front else values
        if node.op == PAIR:
            names = (node.attrs["forward"], node.attrs["backward"])
            one, other = (dataclasses.replace(node, op=node.attrs["op"], name=name) for name in names)
            value = np.concatenate([op_value(one, *values), op_value(other, values[0][:, ::-1])[:, ::-1]], axis=2)
        else:
            value = op_value(node, *values)
        return value if node.op == "Last" or not steps_in_front else value.swapaxes(0, 1)

    return evaluate(graph, apply, inputs)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_lowered_graph_is_the_same_function(name):
    graph = GRAPHS[name]
    flat = np.empty(weights_size(graph), np.float32)
    initial_weights(graph, 1, flat)
    weights = {key: np.array(a, np.float64) for key, a in weight_views(graph, flat).items()}
    rng = np.random.default_rng(0)
    field = graph.task.inputs[0]
    drawn = rng.integers(0, 40, (2, *field.shape)) if field.vocabulary else rng.normal(size=(2, *field.shape))
    expected = Oracle(graph, weights).forward(drawn)
    np.testing.assert_allclose(value_of(lowered(graph), weights, drawn), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["tagger", "gru-pair"])
def test_two_directions_are_one_layer(name):
    graph = lowered(GRAPHS[name])
    assert len(pairs(graph)) == 1
    assert not any(node.op in ("Reverse", *RECURRENT) for node in graph.nodes)


@pytest.mark.parametrize("name", ["other-sizes", "not-in-order", "swapped", "read-twice"])
def test_what_is_not_a_pair_stays(name):
    assert not pairs(lowered(GRAPHS[name]))


def test_a_frozen_direction_is_no_pair():
    assert not pairs(lowered(GRAPHS["tagger"].frozen("lstm_backward")))


@pytest.mark.parametrize("name, times", [("lstm", 1), ("tagger", 2), ("words", 1)])
def test_steps_come_in_front_once_and_go_back_once(name, times):
    """Behind the last step nothing is left to turn back."""
    assert [node.op for node in lowered(GRAPHS[name]).nodes].count(TURN) == times


def test_tokens_are_turned_in_place_of_their_rows():
    first, second, *_ = lowered(GRAPHS["tagger"]).nodes
    assert (first.op, second.op) == (TURN, "Embedding")


def test_a_graph_without_recurrent_layers_stays_as_it_is():
    graph = diabetes_mlp.build(ROWS)
    assert lowered(graph) is graph
