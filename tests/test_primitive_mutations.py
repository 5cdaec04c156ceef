"""The ladder's comparison catches a seeded mistake in each primitive, at its level; gradients agree with differences."""

import dataclasses
import functools

import numpy as np
import op_mistakes
import pytest
from op_mistakes import attrs, check_caught, check_honest, first, gradient, inputs, output, renamed, scaled
from slopes import slope

from framework_compare.conformance import graphs
from framework_compare.graph import OPS as GRAPH_OPS
from framework_compare.graph import primitives as table
from framework_compare.graph.weights import initial_weights, weights_size
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.reference import Questions, Reference, make_reference


@functools.lru_cache(maxsize=None)
def reference() -> Reference:
    return make_reference(graphs.primitives(), Questions(), "fp32")


def other(change):
    """The second input is another."""
    return inputs(lambda x: (x[0], change(x[1]), *x[2:]))


def unscaled(right):
    """The gradient of the input without the scale."""

    def wrong(node, weights, given, mode):
        y, back = right(node, weights, given, mode)
        _, bare = right(node, {**weights, "weight": np.ones_like(weights["weight"])}, given, mode)
        return y, lambda dy: (bare(dy)[0], back(dy)[1])

    return wrong


SWAPPED = inputs(lambda x: (x[1], x[0], *x[2:]))
Mistake = functools.partial(op_mistakes.Mistake, "primitives")
MISTAKES = {
    "GroupNorm of other groups": Mistake(1, "GroupNorm", attrs(groups=4)),
    "GroupNorm with another eps": Mistake(1, "GroupNorm", attrs(eps=1e-4)),
    "GroupNorm without the scale in its gradient": Mistake(2, "GroupNorm", unscaled),
    "LeakyReLU of torch's own slope": Mistake(1, "LeakyReLU", attrs(slope=0.01)),
    "ConvTranspose with its window turned round": Mistake(1, "ConvTranspose", other(lambda w: w[..., ::-1, ::-1])),
    "ConvTranspose without the gradient of its weight": Mistake(2, "ConvTranspose", scaled(1, 0)),
    "Convolve as a true convolution": Mistake(1, "Convolve", other(lambda w: w[..., ::-1, ::-1])),
    "Convolve without the gradient of its weight": Mistake(2, "Convolve", scaled(1, 0)),
    "ReduceMean that gives sums": Mistake(1, "ReduceMean", renamed("ReduceSum")),
    "ReduceSum that gives means": Mistake(1, "ReduceSum", renamed("ReduceMean")),
    "ReduceMax that gives means": Mistake(1, "ReduceMax", renamed("ReduceMean")),
    "Sub the other way round": Mistake(1, "Sub", SWAPPED),
    "Sub whose second input gets the gradient of the first": Mistake(2, "Sub", scaled(1, -1)),
    "Div the other way round": Mistake(1, "Div", SWAPPED),
    "Div without the gradient of the divisor": Mistake(2, "Div", scaled(1, 0)),
    "Maximum for Minimum": Mistake(1, "Minimum", renamed("Maximum")),
    "Minimum for Maximum": Mistake(1, "Maximum", renamed("Minimum")),
    "Maximum with a gradient for both": Mistake(2, "Maximum", gradient(1, lambda g, x: g + np.float32(1e-2))),
    "Cos for Sin": Mistake(1, "Sin", renamed("Cos")),
    "Sin for Cos": Mistake(1, "Cos", renamed("Sin")),
    "Cos with the gradient's sign turned": Mistake(2, "Cos", scaled(0, -1)),
    "Abs with the gradient of a sum": Mistake(2, "Abs", gradient(0, lambda g, x: np.abs(g))),
    "Abs that does nothing": Mistake(1, "Abs", output(lambda y, x, node: x[0])),
    "Sqrt with half the gradient": Mistake(2, "Sqrt", scaled(0, 0.5)),
    "Erf by tanh": Mistake(1, "Erf", output(lambda y, x, node: np.tanh(x[0] * np.float32(1.128)))),
    "Power of another exponent": Mistake(1, "Power", attrs(exponent=-1.0)),
    "Exp in powers of two": Mistake(1, "Exp", first(lambda x: x * np.float32(np.log(2)))),
    "Log with base 2": Mistake(1, "Log", output(lambda y, x, node: y / np.float32(np.log(2)))),
    "Softmax along another axis": Mistake(1, "Softmax", attrs(axis=1)),
    "LogSoftmax along another axis": Mistake(1, "LogSoftmax", attrs(axis=0)),
    "LogSoftmax without the gradient of the sum": Mistake(2, "LogSoftmax", gradient(0, lambda g, x: g * 0.5)),
    "CumSum from the end": Mistake(1, "CumSum", first(lambda x: x[:, ::-1])),
    "CumSum with the gradient of an Add": Mistake(2, "CumSum", scaled(0, 0.5)),
    "MatMul of a transposed matrix": Mistake(1, "MatMul", output(lambda y, x, node: y[:, ::-1])),
    "MatMul without the gradient of its second input": Mistake(2, "MatMul", scaled(1, 0)),
    "Reshape by columns": Mistake(1, "Reshape", output(lambda y, x, node: x[0].swapaxes(1, -1).reshape(y.shape))),
    "Permute that only reshapes": Mistake(1, "Permute", output(lambda y, x, node: x[0].reshape(y.shape))),
    "Expand with the gradient of one place": Mistake(2, "Expand", scaled(0, 0.2)),
    "Take of neighbours": Mistake(1, "Take", attrs(index=[2, 1, 1, 0])),
    "Take that counts a repeated place once": Mistake(2, "Take", scaled(0, 0.5)),
    "Gather of the next row": Mistake(1, "Gather", first(lambda x: x[:, ::-1])),
    "Gather with the gradient of one row": Mistake(2, "Gather", scaled(0, 0.5)),
    "PadAxes on the other sides": Mistake(1, "PadAxes", output(lambda y, x, node: np.roll(y, (-1, 2), (1, 2)))),
    "PadAxes with zeros": Mistake(1, "PadAxes", attrs(value=0.0)),
    "Where the other way round": Mistake(1, "Where", inputs(lambda x: (x[0], x[2], x[1]))),
    "Where with the gradient of both": Mistake(2, "Where", scaled(1, 2)),
    "Less for greater": Mistake(1, "Less", SWAPPED),
    "LessEqual that is strict": Mistake(1, "LessEqual", renamed("Less")),
    "Equal that is not": Mistake(1, "Equal", output(lambda y, x, node: 1 - y)),
    "Cast that loses all": Mistake(1, "Cast", output(lambda y, x, node: 0 * y)),
    "Detach that lets the gradient through": Mistake(2, "Detach", gradient(0, lambda g, x: g + np.float32(1e-2))),
    "Sign that keeps the size": Mistake(1, "Sign", output(lambda y, x, node: x[0])),
}


def test_an_honest_run_passes():
    check_honest(reference(), plain_sums=True)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(name, monkeypatch):
    check_caught(reference(), MISTAKES[name], monkeypatch)


class Precise:
    """A rounding that rounds nothing, and notes the types of gradients by the op they come from."""

    def __init__(self) -> None:
        self.types = {}

    def gradient(self, dy):
        return dy

    def __call__(self, op, node, weights, given, mode):
        y, backward = op(node, weights, given, mode)

        def noted(dy):
            found, parameters = backward(dy)
            self.types.setdefault(node.op, set()).update(g.dtype.name for g in (dy, *found, *parameters.values()))
            return found, parameters

        return y, noted


def test_gradients_of_float32_stay_float32():
    """Else the yardstick knows too little rounding, and what is behind the op fails for the rounding of an honest run."""
    found, (images, labels) = reference(), reference().batches[0]
    precise = Precise()
    Oracle(found.graph, found.initial, np.float32, rounding=precise).gradients(images, labels)
    assert {op: types for op, types in precise.types.items() if types != {"float32"}} == {}


def test_each_primitive_has_a_mistake():
    named = {asked.name for asked in MISTAKES.values()}
    primitives = {*table.UNARY, *table.BINARY[2:], *table.COMPARISONS, *table.REDUCTIONS, *table.ALONG}
    others = {"Where", "Reshape", "Permute", "Expand", "Take", "Gather", "PadAxes", "MatMul", "Convolve", "GroupNorm"}
    assert {*primitives, *others, "ConvTranspose"} <= named <= set(GRAPH_OPS)


@functools.lru_cache(maxsize=None)
def weights():
    """Of the network with its Detach, which no difference knows, as a number that is passed on."""
    graph, rng = graphs.primitives(), np.random.default_rng(0)
    passed = {"op": "Power", "attrs": {"exponent": 1.0}}
    nodes = tuple(dataclasses.replace(node, **passed) if node.op == "Detach" else node for node in graph.nodes)
    graph = dataclasses.replace(graph, nodes=nodes)
    views = initial_weights(graph, 0, np.empty(weights_size(graph), np.float32))
    trained = {parameter.name for parameter in graph.parameters() if parameter.trainable}
    own = {n: a.astype(np.float64) + 0.1 * rng.standard_normal(a.shape) * (n in trained) for n, a in views.items()}
    return graph, own, rng.standard_normal((4, 3, 32, 32))


@pytest.mark.parametrize("name", [p.name for p in graphs.primitives().parameters() if p.trainable])
def test_gradients_agree_with_differences(name):
    graph, own, images = weights()
    way = np.random.default_rng(1).standard_normal(own[name].shape)

    def trained(array):
        return Oracle(graph, {**own, name: array}).gradients(images, np.arange(4) % 3)

    assert (trained(own[name])[2][name] * way).sum() == slope(lambda array: trained(array)[0], own[name], way)
