"""What adapters evaluate in place of a graph: the same function, in the ops that a framework has."""

import dataclasses

import numpy as np
import pytest
from bounds import rounding
from sequences import ROWS, SERIES, TAGS, TEXT, WORDS

from framework_compare.adapters.common.recurrent import PAIR, RECURRENT, TURN, pairs, turned
from framework_compare.adapters.jax import network as jax
from framework_compare.adapters.mxnet import network as mxnet
from framework_compare.adapters.paddle import network as paddle
from framework_compare.adapters.singa import network as singa
from framework_compare.adapters.tensorflow import network as tensorflow
from framework_compare.adapters.tensorflow.recurrent import BLOCK, CUDNN, LOOPS, kernels
from framework_compare.adapters.torch import network as torch
from framework_compare.conformance import graphs
from framework_compare.graph import (
    OPS,
    Field,
    Graph,
    GraphBuilder,
    Task,
    evaluate,
    initial_weights,
    weight_views,
    weights_size,
)
from framework_compare.graph.lowering import NEEDS, Program, lowered
from framework_compare.models import bilstm_tagger, conv_tagger, diabetes_mlp, language, lstm, quanv, text_rnn
from framework_compare.parity.network import oracle
from framework_compare.parity.network.oracle import Mode, Oracle


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


RECURRENT_GRAPHS = {
    **{"lstm": lstm.build(SERIES), "gru": lstm.build(SERIES, kind="gru"), "tagger": bilstm_tagger.build(TAGS)},
    **{"words": text_rnn.build(WORDS), "gru-pair": two_directions("gru")},
    "other-sizes": two_directions("lstm", hidden=6),
    "not-in-order": two_directions("lstm", in_order=False),
    "swapped": two_directions("lstm", swapped=True),
    "read-twice": two_directions("lstm", read_twice=True),
}
GREY = Task((Field("image", (1, 9, 8)),), Field("label", (), "int64"), 10, "cross_entropy")
GRAPHS = {
    "gated": graphs.gated(),
    "joined": graphs.joined(),
    "attention": graphs.attention(),
    "windows": graphs.windows(),
    "primitives": graphs.primitives(),
    "conv-tagger": conv_tagger.build(TAGS, width=12, blocks=2),
    "quanv": quanv.build(GREY),
    "gpt": language.gpt(TEXT, layers=1, heads=2, width=16),
    "llama": language.llama(TEXT, layers=1, heads=4, kv_heads=2, width=32),
    **RECURRENT_GRAPHS,
}
PROGRAMS = {
    "torch": lambda graph: lowered(graph, torch.HAS, views=True),
    "tensorflow": lambda graph: lowered(graph, tensorflow.HAS, channels_last=True),
    "jax": lambda graph: lowered(graph, jax.HAS),
    "mxnet": lambda graph: turned(lowered(graph, mxnet.HAS)),
    "paddle": lambda graph: turned(lowered(graph, paddle.HAS)),
}
MOVES = {
    "Reshape": lambda a, x: x.reshape(a["shape"]),
    "Permute": lambda a, x: x.transpose(a["order"]),
    "Slice": lambda a, x: x[(slice(None),) * a["axis"] + (slice(a["start"], a["end"], a["step"]),)],
    "Split": lambda a, x: np.split(x, np.cumsum(a["sizes"])[:-1], a["axis"])[a["index"]],
    "Select": lambda a, x: x.take(a["index"], a["axis"]),
    "Reverse": lambda a, x: np.flip(x, a["axis"]),
    "Concat": lambda a, *xs: np.concatenate(xs, a["axis"]),
    "Repeat": lambda a, x, like: np.broadcast_to(x, (len(like), *a["shape"])),
    "Pad": lambda a, x: np.pad(x, a["pads"], constant_values=a["value"]),
    "Roll": lambda a, x: np.roll(x, a["shifts"], a["axes"]),
    "Max": lambda a, x: x.max(a["axis"]),
    "Mean": lambda a, x: x.mean(a["axis"]),
    TURN: lambda a, x: x.swapaxes(0, 1),
    "Constant": lambda a: a["value"].astype(np.float64),
    "ReduceSum": lambda a, x: x.sum(a["axes"], keepdims=True),
    "ReduceMean": lambda a, x: x.mean(a["axes"], keepdims=True),
    "ReduceMax": lambda a, x: x.max(a["axes"], keepdims=True),
    "Softmax": lambda a, x: np.exp(x) / np.exp(x).sum(a["axis"], keepdims=True),
    "LogSoftmax": lambda a, x: x - np.log(np.exp(x).sum(a["axis"], keepdims=True)),
    "CumSum": lambda a, x: x.cumsum(a["axis"]),
    "Take": lambda a, x: x.take(a["index"], a["axis"]),
    "Gather": lambda a, table, index: table[0][index.astype(int)],
    "PadAxes": lambda a, x: np.pad(x, a["pads"], constant_values=a.get("value", 0)),
    "Expand": lambda a, x: np.broadcast_to(x, (len(x), *a["shape"][1:])),
    "MatMul": lambda a, x, y: x @ y,
}
FORMS = {"LinearOfChannels": "Linear", "LayerNormOfChannels": "LayerNorm", "Conv2dPaddedUnevenly": "Conv2d"}


def value_of(program: Program, weights: dict, images: np.ndarray, channels_last: bool) -> np.ndarray:
    """A program's value: by numpy, and by the oracle's ops, which know one order of axes only."""
    in_front = {TURN}  # values with their steps before the samples

    def op_value(node, name, op, *values):
        own = {n.rpartition(".")[2]: a for n, a in weights.items() if n.rpartition(".")[0] == name}
        of_images = op not in ("Attention", "Parameter", "RelativeBias")
        last = of_images and (channels_last or op in ("Linear", "LayerNorm"))
        op = FORMS.get(op, op)
        values = [x.transpose(0, 3, 1, 2) if last and x.ndim == 4 else x for x in values]
        y = oracle.OPS[op](dataclasses.replace(node, op=op), own, tuple(values), Mode(False, False))[0]
        return y.transpose(0, 2, 3, 1) if last and y.ndim == 4 else y

    def recurrent(node, x):
        x = x.swapaxes(0, 1) if node.name in in_front else x
        if node.op != PAIR:
            y = op_value(node, node.arrays, node.op, x)
        else:
            one, other = (node.attrs[way] for way in ("forward", "backward"))
            kind = node.attrs["op"]
            backward = op_value(node, other, kind, x[:, ::-1])[:, ::-1]
            y = np.concatenate([op_value(node, one, kind, x), backward], axis=2)
        return y.swapaxes(0, 1) if node.name in in_front else y

    def patches(node, x):
        count, places, _ = x.shape
        image = x.reshape(count, places, 2, 2).transpose(0, 2, 1, 3).reshape(count, 1, 2, 2 * places)
        y = oracle.OPS["Quanv2d"](node, {}, (image,), Mode(False))[0]
        return y[:, :, 0].swapaxes(1, 2)

    def apply(node, *values):
        if node.op in MOVES:
            y = MOVES[node.op](node.attrs, *values)
        elif node.op in (*RECURRENT, PAIR):
            y = recurrent(node, *values)
        else:
            y = patches(node, *values) if node.op == "Quanv2d" else op_value(node, node.arrays, node.op, *values)
        if TURN not in ops:  # samples are in front everywhere
            assert y.shape[1:] == program.shapes[node.name], node
            assert (len(y) == 1) == (node.name in program.shared), node
        return y

    ops = {node.op for node in program.nodes}
    if TURN in ops:
        in_front.update(node.name for node in program.nodes if node.op in (*RECURRENT, PAIR))
    return evaluate(program, apply, images)


def drawn(graph: Graph) -> "tuple[dict, np.ndarray]":
    flat, rng = np.empty(weights_size(graph), np.float32), np.random.default_rng(0)
    initial_weights(graph, 1, flat)
    weights = {key: np.array(a, np.float64) + 0.1 for key, a in weight_views(graph, flat).items()}
    field = graph.task.inputs[0]
    shape = (2, *field.shape)
    return weights, rng.integers(0, 40, shape) if field.vocabulary else rng.uniform(size=shape)


@pytest.mark.parametrize("framework", PROGRAMS)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_program_is_the_same_function(name, framework):
    graph, channels_last = GRAPHS[name], framework == "tensorflow"
    weights, inputs = drawn(graph)
    expected = Oracle(graph, weights).forward(inputs)
    own = inputs.transpose(0, 2, 3, 1) if channels_last and inputs.ndim == 4 else inputs
    found = value_of(PROGRAMS[framework](graph), weights, own, channels_last)
    longest = max(max(array.shape, default=1) for array in weights.values())
    # llama's cosines of angles are float32
    allowed = rounding(1, np.float32) if name == "llama" else rounding(longest)
    np.testing.assert_allclose(found, expected, rtol=0, atol=allowed * np.abs(expected).max())


def test_adapters_have_every_op_and_singa_those_of_plain_images_and_what_only_moves_numbers_is_gone():
    assert {torch.OPS, tensorflow.OPS, mxnet.OPS, paddle.OPS, jax.OPS} == {frozenset(OPS)}
    assert singa.OPS.intersection(NEEDS) == {"Flatten", "GlobalAvgPool"}
    left = {node.op for graph in GRAPHS.values() for node in lowered(graph, torch.HAS).nodes}
    assert left.isdisjoint({*NEEDS} - {"Roll", "Split"})


def mxnets(graph: Graph) -> Program:
    return PROGRAMS["mxnet"](graph)


def test_two_directions_are_one_layer_and_what_is_not_a_pair_stays():
    for name in ("tagger", "gru-pair"):
        program = mxnets(GRAPHS[name])
        assert len(pairs(program)) == 1
        assert not any(node.op in ("Reverse", *RECURRENT) for node in program.nodes)
    for name in ("other-sizes", "not-in-order", "swapped", "read-twice"):
        assert not pairs(mxnets(GRAPHS[name])), name
    assert not pairs(mxnets(GRAPHS["tagger"].frozen("lstm_backward")))


@pytest.mark.parametrize("name, times", [("lstm", 1), ("tagger", 2), ("words", 1)])
def test_steps_come_in_front_once_and_go_back_once(name, times):
    """Behind the last step nothing is left to turn back."""
    ops = [node.op for node in mxnets(GRAPHS[name]).nodes]
    assert ops.count(TURN) == times
    assert name != "tagger" or ops[:2] == [TURN, "Embedding"], "tokens are turned in place of their rows"
    # and without recurrent layers a program stays as it is
    program = lowered(diabetes_mlp.build(ROWS), mxnet.HAS)
    assert turned(program) is program


def test_kernels_of_tensorflows_recurrent_layers_by_device_and_type():
    assert kernels("float32", gpu=False, compiled=False) == BLOCK
    assert kernels("float32", gpu=True, compiled=False) == CUDNN, "in fp32 and tf32"
    for dtype, gpu, compiled in (("float32", True, True), ("bfloat16", True, False), ("float16", True, False)):
        assert kernels(dtype, gpu=gpu, compiled=compiled) == LOOPS
    assert kernels("bfloat16", gpu=False, compiled=False) == LOOPS
