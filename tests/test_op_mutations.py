"""The ladder's comparison catches each seeded mistake in the ops, losses and optimisers of the workloads, at its level.

The framework is the oracle in float32, run in this process with one thing of it replaced.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Dict, NamedTuple

import numpy as np
import pytest

from framework_compare.conformance import graphs
from framework_compare.graph import (
    Field,
    Graph,
    GraphBuilder,
    Optimizer,
    Task,
    circuit,
    image_classification,
)
from framework_compare.graph.window import Window
from framework_compare.models import bilstm_tagger, conv_tagger, diabetes_mlp, gru, lstm, quanv, small_cnns, text_rnn
from framework_compare.parity.network import oracle
from framework_compare.parity.network.deviations import errors
from framework_compare.parity.network.ladder import TOLERANCE, ratios_of
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.oracle.elementwise import logistic
from framework_compare.parity.network.reference import Questions, Reference, answer, make_reference, moved
from framework_compare.parity.network.rounding import rounding_of

SERIES = Task((Field("prices", (12, 3)),), Field("price", (1,)), 1, "mse", (), "sequence")
TOKENS, WORD = Field("tokens", (9,), "int32", 40), Field("word", (), "int64")
TAGS = Task((TOKENS,), Field("tags", (9,), "int64"), 3, "token_cross_entropy", (), "sequence")
WORDS = Task((TOKENS,), WORD, 40, "cross_entropy", (), "sequence")
ROWS = Task((Field("row", (8,)),), Field("y", (1,)), 1, "binary_cross_entropy", (), "row")
DIGITS = Task((Field("image", (1, 12, 12)),), Field("label", (), "int64"), 10, "cross_entropy")


def squashed() -> Graph:
    g = GraphBuilder("squashed", ROWS)
    g.linear("first", 16, init="glorot_uniform")
    g.tanh("tanh")
    g.linear("second", 16, init="glorot_uniform")
    g.sigmoid("sigmoid")
    g.linear("fc", 1, init="glorot_uniform")
    return g.build()


def pooled() -> Graph:
    g = GraphBuilder("pooled", image_classification(3, 12))
    g.conv("conv", 6, 3, bias=True)
    g.avgpool("avgpool", 3, stride=2, padding=1, count_include_pad=True)
    g.flatten("flatten")
    g.linear("fc", 3)
    return g.build()


def frozen() -> Graph:
    g = GraphBuilder("partly", image_classification(3, 12))
    g.conv("base.conv", 6, 3)
    g.batchnorm("base.bn")
    g.flatten("flatten")
    g.linear("fc", 3)
    return g.build().frozen("base.")


NETWORKS: Dict[str, Callable[[], Graph]] = {
    "lstm": lambda: lstm.build(SERIES, layers=2, hidden=8),
    "gru": lambda: gru.build(SERIES, layers=2, hidden=8),
    "bilstm_tagger": lambda: bilstm_tagger.build(TAGS, width=8, hidden=8),
    "conv_tagger": lambda: conv_tagger.build(TAGS, width=12, blocks=2),
    "text_rnn": lambda: text_rnn.build(WORDS, width=8, hidden=8),
    "diabetes_mlp": lambda: diabetes_mlp.build(ROWS),
    "squashed": squashed,
    "pooled": pooled,
    "frozen": frozen,
    "mnist_cnn": lambda: small_cnns.mnist_cnn(Task((Field("image", (1, 28, 28)),), DIGITS.target, 10, "cross_entropy")),
    "quanv_fixed": lambda: quanv.build(DIGITS),
    "quanv_trained": lambda: quanv.build(DIGITS, trained=True),
    "gated": graphs.gated,
    "joined": graphs.joined,
    "attention": graphs.attention,
    "windows": graphs.windows,
}


@functools.lru_cache(maxsize=None)
def reference(network: str, optimizer: str = "sgd", precision: str = "fp32") -> Reference:
    return make_reference(NETWORKS[network](), Questions(optimizer=optimizer), precision)


def ratios(asked: Reference, **how: Any) -> Dict[int, float]:
    """The largest ratio of each level, of a float32 oracle as it stands now."""
    batches = [(moved(inputs, 7), target) for inputs, target in asked.batches]
    said = answer(asked, batches, np.float32, **how)
    off = errors(said, asked.exact, asked.initial, asked.precision)
    return {level: max(ratios_of(off[level], asked.yardstick[level], asked.precision).values()) for level in off}


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop", "nadam"])
@pytest.mark.parametrize("network", NETWORKS)
def test_an_honest_float32_run_passes(network, optimizer):
    found = ratios(reference(network, optimizer), plain_sums=True)
    assert max(found.values()) < TOLERANCE, found


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
@pytest.mark.parametrize("network", ["lstm", "gru", "bilstm_tagger", "conv_tagger", "quanv_fixed"])
def test_an_honest_run_of_a_narrower_precision_passes(network, precision):
    asked = reference(network, "sgd", precision)
    found = ratios(asked, rounding=rounding_of(precision, 1))
    assert max(found.values()) < TOLERANCE, found
    assert ratios(asked)[1] < max(found.values())  # float32 is closer than what rounds


class Mistake(NamedTuple):
    network: str
    level: int  # the first that fails
    table: Any  # OPS, LOSSES or OPTIMIZERS of the oracle, or the class Oracle for a method of it
    name: str
    put: Callable[..., Any]  # from the right function to the wrong one
    optimizer: str = "sgd"


def weights_first(change):
    """An op that takes its weights otherwise, and gives their gradients back in the order they came in."""

    def wrong(right):
        def op(node, weights, inputs, mode):
            places = {name: change(np.arange(len(array))) for name, array in weights.items()}
            y, backward = right(node, {name: weights[name][place] for name, place in places.items()}, inputs, mode)

            def turned(dy):
                dx, gradients = backward(dy)
                return dx, {name: gradient[np.argsort(places[name])] for name, gradient in gradients.items()}

            return y, turned

        return op

    return wrong


def gates(*order):
    return weights_first(lambda places: np.concatenate([np.split(places, len(order))[k] for k in order]))


def gates_of_the_gradient(right):
    """What one gets who registers for an LSTM the gradient of another with gates in the order i, g, f, o."""

    def op(node, weights, inputs, mode):
        y, backward = right(node, weights, inputs, mode)

        def wrong(dy):
            dx, gradients = backward(dy)
            swapped = [np.split(gradients["weight_ih"], 4)[k] for k in (0, 2, 1, 3)]
            return dx, {**gradients, "weight_ih": np.concatenate(swapped)}

        return y, wrong

    return op


def with_attrs(**attrs):
    def wrong(right):
        return lambda node, *others: right(dataclasses.replace(node, attrs={**node.attrs, **attrs}), *others)

    return wrong


def with_inputs(change):
    return lambda right: lambda node, weights, inputs, mode: right(node, weights, change(inputs), mode)


def no_padding_row(right):
    """The row of token 0 is not trained."""

    def op(node, weights, inputs, mode):
        y, backward = right(node, weights, inputs, mode)

        def wrong(dy):
            dx, gradients = backward(dy)
            gradients["weight"][inputs[0][0, 0]] = 0
            return dx, gradients

        return y, wrong

    return op


def bias_outside_the_reset_gate(right):
    def op(node, weights, inputs, mode):
        hidden = node.attrs["hidden_size"]
        outer, inner = weights["bias_ih"].copy(), weights["bias_hh"].copy()
        outer[-hidden:] += inner[-hidden:]
        inner[-hidden:] = 0
        return right(node, {**weights, "bias_ih": outer, "bias_hh": inner}, inputs, mode)

    return op


def flipped_kernel(right):
    return lambda node, weights, *others: right(node, {**weights, "weight": weights["weight"][:, :, ::-1]}, *others)


def last_of_time_zero(right):
    def op(node, weights, inputs, mode):
        return right(node, weights, (inputs[0][:, ::-1],), mode)

    return op


def strided_groups(right):
    def op(node, weights, inputs, mode):
        (x,), pieces = inputs, node.attrs["pieces"]
        apart = x.reshape(*x.shape[:-1], pieces, -1).swapaxes(-1, -2)
        return right(node, weights, (apart.reshape(x.shape),), mode)

    return op


def unbiased_variance(right):
    def op(node, weights, inputs, mode):
        features = node.attrs["features"]
        shrunk = {**weights, "weight": weights["weight"] * np.float32(np.sqrt((features - 1) / features))}
        return right(node, shrunk, inputs, mode)

    return op


def hard(low, high, slope, middle):
    def wrong(right):
        def op(node, weights, inputs, mode):
            y = np.clip(slope * inputs[0] + middle, low, high).astype(inputs[0].dtype)
            return y, lambda dy: ((dy * slope * ((y > low) & (y < high)),), {})

        return op

    return wrong


def swapped_qubits(right):
    """Pixels of a patch by columns."""
    return lambda node, weights, inputs, mode: right(node, weights, (inputs[0].swapaxes(2, 3),), mode)


def half_angle(right):
    def op(node, weights, inputs, mode):
        y, backward = right(node, weights, inputs, mode)
        return y, lambda dy: (backward(dy)[0], {"angles": backward(dy)[1]["angles"] / 2})

    return op


def divided_by_all_tokens(right):
    def loss(logits, labels):
        value, gradient = right(logits, labels)
        share = (labels != -1).mean().astype(logits.dtype)
        return value * share, gradient * share

    return loss


def pads_are_labels(right):
    return lambda logits, labels: right(logits, np.maximum(labels, 0))


def half_mse(right):
    return lambda outputs, target: tuple(part / 2 for part in right(outputs, target))


def probabilities_for_logits(right):
    return lambda logits, target: right(logistic(logits), target)


def eps_hat(right):
    """eps beside the root before its correction, as in Keras and in MXNet."""

    def step(weight, gradient, slots, number, settings):
        shrunk = {**settings, "eps": settings["eps"] / np.sqrt(1 - settings["beta2"] ** number)}
        right(weight, gradient, slots, number, shrunk)

    return step


def eps_outside(right):
    def step(weight, gradient, slots, number, settings):
        before = weight.copy()
        right(weight, gradient, slots, number, {**settings, "rate": 0.0})
        weight[...] = before - settings["rate"] * gradient / (np.sqrt(slots["v"]) + settings["eps"])

    return step


def option(**changed):
    return lambda right: (
        lambda weight, gradient, slots, number, settings: right(
            weight, gradient, slots, number, {**settings, **changed}
        )
    )


def shared_product(right):
    """One product of momenta for all arrays, taken on once for each."""
    shared = {}

    def step(weight, gradient, slots, number, settings):
        slots["product"] = shared.setdefault("product", np.ones(()))
        right(weight, gradient, slots, number, settings)
        shared["product"] = slots["product"]

    return step


def lazy_rows(right):
    """Rows without a gradient do not move, nor do their moments decay."""

    def step(weight, gradient, slots, number, settings):
        absent = ~gradient.any(axis=-1) if gradient.ndim == 2 and len(gradient) == 40 else np.zeros(0, int)
        before = weight.copy()
        right(weight, gradient, slots, number, settings)
        weight[absent] = before[absent]

    return step


def second_bias(right):
    """A bias that is held twice, each half with the gradient of the whole, moves twice as fast."""

    def apply(self, gradients: Dict[str, Any], optimizer: Optimizer) -> None:
        before = {name: self.weights[name].copy() for name in gradients}
        right(self, gradients, optimizer)
        for node in self.graph.nodes:
            if node.op == "LSTM":
                name = f"{node.name}.bias"
                self.weights[name] += self.weights[name] - before[name]

    return apply


def steps_not_counted(right):
    """The number of the step is not counted: each is corrected as if it were the first."""
    return lambda weight, gradient, slots, number, settings: right(weight, gradient, slots, 1, settings)


def with_weights(change):
    return lambda right: lambda node, weights, *others: right(node, change(weights), *others)


def with_outputs(change):
    """Another output with the gradient of the right one."""

    def wrong(right):
        def op(*arguments):
            y, backward = right(*arguments)
            return change(y), backward

        return op

    return wrong


def one_gradient(place, factor):
    """The gradient of one input, or of one of the op's arrays, is wrong by a factor."""

    def wrong(right):
        def op(*arguments):
            y, backward = right(*arguments)

            def turned(dy):
                found, parameters = backward(dy)
                if isinstance(place, str):
                    return found, {**parameters, place: parameters[place] * np.float32(factor)}
                return tuple(g * np.float32(factor) if i == place else g for i, g in enumerate(found)), parameters

            return y, turned

        return op

    return wrong


def other_op(table, name):
    return lambda right: table[name]


def only(condition, wrong):
    """The mistake in those nodes only of which the condition holds."""

    def put(right):
        mistaken = wrong(right)
        return lambda node, *others: (mistaken if condition(node) else right)(node, *others)

    return put


def rectangular(node):
    return not isinstance(node.attrs["kernel"], int)


def flipped(weights):
    """The window turned by half a circle."""
    return {name: array[..., ::-1, ::-1] if array.ndim == 4 else array for name, array in weights.items()}


def overhang_counts(right):
    """What a rounded-up window has behind the padding counts as padding does."""

    def op(node, weights, inputs, mode):
        y, backward = right(node, weights, inputs, mode)
        window = Window.of(node.attrs)
        areas = window.areas(inputs[0].shape[2:], with_pads=node.attrs["count_include_pad"])
        return y * (areas / np.float32(np.prod(window.kernel))), backward

    return op


def zeros_win(right):
    """Where a window is rounded up, what it has behind the image are zeros."""

    def op(node, weights, inputs, mode):
        y, backward = right(node, weights, inputs, mode)
        y = y.copy()
        y[:, :, -1] = np.maximum(y[:, :, -1], 0)
        return y, backward

    return op


def next_row(inputs):
    return (np.roll(inputs[0], -1, axis=2),)


def reversed_roll(node):
    return dataclasses.replace(node, attrs={"shifts": [-shift for shift in node.attrs["shifts"]]})


MISTAKES = {
    "LSTM gates in the order i, g, f, o": Mistake("lstm", 1, oracle.OPS, "LSTM", gates(0, 2, 1, 3)),
    "LSTM output gate first": Mistake("text_rnn", 1, oracle.OPS, "LSTM", gates(3, 0, 1, 2)),
    "LSTM gradients of other gates": Mistake("lstm", 2, oracle.OPS, "LSTM", gates_of_the_gradient),
    "LSTM with a second bias that is trained": Mistake("lstm", 3, Oracle, "apply", second_bias),
    "GRU gates in the order z, r, n": Mistake("gru", 1, oracle.OPS, "GRU", gates(1, 0, 2)),
    "GRU bias outside the reset gate": Mistake("gru", 1, oracle.OPS, "GRU", bias_outside_the_reset_gate),
    "last step taken from t = 0": Mistake("lstm", 1, oracle.OPS, "Last", last_of_time_zero),
    "no second Reverse": Mistake("bilstm_tagger", 1, oracle.OPS, "Reverse", with_inputs(lambda x: (x[0][:, ::-1],))),
    "Concat the other way round": Mistake("bilstm_tagger", 1, oracle.OPS, "Concat", with_inputs(lambda x: x[::-1])),
    "Embedding with a row that is not trained": Mistake("text_rnn", 2, oracle.OPS, "Embedding", no_padding_row),
    "Conv1d with its kernel flipped": Mistake("conv_tagger", 1, oracle.OPS, "Conv1d", flipped_kernel),
    "Maxout of features far apart": Mistake("conv_tagger", 1, oracle.OPS, "Maxout", strided_groups),
    "LayerNorm by the unbiased variance": Mistake("conv_tagger", 1, oracle.OPS, "LayerNorm", unbiased_variance),
    "LayerNorm with another eps": Mistake("conv_tagger", 1, oracle.OPS, "LayerNorm", with_attrs(eps=1e-3)),
    "a hard Tanh": Mistake("squashed", 1, oracle.OPS, "Tanh", hard(-1, 1, 1, 0)),
    "a hard Sigmoid": Mistake("squashed", 1, oracle.OPS, "Sigmoid", hard(0, 1, 0.2, 0.5)),
    "AvgPool2d that does not count its padding": Mistake(
        "pooled", 1, oracle.OPS, "AvgPool2d", with_attrs(count_include_pad=False)
    ),
    "Quanv2d with pixels by columns": Mistake("quanv_fixed", 1, oracle.OPS, "Quanv2d", swapped_qubits),
    "Quanv2d without its CNOT": Mistake(
        "quanv_fixed", 1, oracle.OPS, "Quanv2d", with_attrs(gates=[g for g in circuit.DEMO if g[0] != "CNOT"])
    ),
    "Quanv2d with half the gradient of an angle": Mistake("quanv_trained", 2, oracle.OPS, "Quanv2d", half_angle),
    "Add whose first input gets no gradient": Mistake("gated", 2, oracle.OPS, "Add", one_gradient(0, 0)),
    "Mul with the gradient of an Add": Mistake("gated", 2, oracle.OPS, "Mul", one_gradient(0, 0.5)),
    "SiLU of a larger slope": Mistake(
        "gated", 1, oracle.OPS, "SiLU", with_inputs(lambda x: (x[0] * np.float32(1.01),))
    ),
    "HardSigmoid with the slope .2": Mistake("gated", 1, oracle.OPS, "HardSigmoid", hard(0, 1, 0.2, 0.5)),
    "HardSigmoid with the gradient of a Sigmoid": Mistake("gated", 2, oracle.OPS, "HardSigmoid", one_gradient(0, 1.5)),
    "HardSwish with half its slope": Mistake("gated", 2, oracle.OPS, "HardSwish", one_gradient(0, 0.5)),
    "SiLU for HardSwish": Mistake("gated", 1, oracle.OPS, "HardSwish", other_op(oracle.OPS, "SiLU")),
    "Conv2d padded on the other side": Mistake(
        "gated", 1, oracle.OPS, "Conv2d", only(lambda n: n.name == "stem", with_attrs(padding=[1, 0, 1, 0]))
    ),
    "Conv2d with its window upside down": Mistake(
        "gated", 1, oracle.OPS, "Conv2d", only(rectangular, with_weights(flipped))
    ),
    "Conv2d that leaves out its dilation": Mistake(
        "gated", 1, oracle.OPS, "Conv2d", only(lambda n: n.name == "dilated", with_attrs(dilation=1, padding=1))
    ),
    "AdaptiveAvgPool2d that gives sums": Mistake(
        "gated", 1, oracle.OPS, "AdaptiveAvgPool2d", with_outputs(lambda y: 2 * y)
    ),
    "AvgPool2d whose rounding up counts what is not there": Mistake(
        "joined", 1, oracle.OPS, "AvgPool2d", overhang_counts
    ),
    "MaxPool2d that pads with zeros": Mistake("joined", 1, oracle.OPS, "MaxPool2d", zeros_win),
    "Concat of channels the other way round": Mistake(
        "joined", 1, oracle.OPS, "Concat", with_outputs(lambda y: y[:, ::-1])
    ),
    "Split into other sizes": Mistake(
        "joined", 1, oracle.OPS, "Split", with_inputs(lambda x: (np.roll(x[0], 1, axis=1),))
    ),
    "Slice that starts one later": Mistake(
        "windows", 1, oracle.OPS, "Slice", only(lambda n: n.attrs["start"] == 0, with_inputs(next_row))
    ),
    "ChannelShuffle the other way round": Mistake("joined", 1, oracle.OPS, "ChannelShuffle", with_attrs(groups=10)),
    "LayerNorm over the places of an image": Mistake("attention", 1, oracle.OPS, "LayerNorm", with_attrs(eps=1e-2)),
    "Linear of channels without its bias": Mistake(
        "attention", 1, oracle.OPS, "Linear", with_weights(lambda w: {**w, "bias": 0 * w["bias"]} if "bias" in w else w)
    ),
    "GELU by tanh for the exact one": Mistake("attention", 1, oracle.OPS, "GELU", with_attrs(approximate="tanh")),
    "exact GELU for that by tanh": Mistake("attention", 1, oracle.OPS, "GELU", with_attrs(approximate="none")),
    "Parameter with the gradient of one sample": Mistake(
        "attention", 2, oracle.OPS, "Parameter", one_gradient("value", 0.5)
    ),
    "Tokens by columns": Mistake("attention", 1, oracle.OPS, "Tokens", with_inputs(lambda x: (x[0].swapaxes(2, 3),))),
    "Attention by another scale": Mistake("attention", 1, oracle.OPS, "Attention", with_attrs(scale=0.25)),
    "Attention without the gradient of its keys": Mistake("windows", 2, oracle.OPS, "Attention", one_gradient(1, 0)),
    "Attention with other heads": Mistake("attention", 1, oracle.OPS, "Attention", with_attrs(heads=2)),
    "Attention that sees beyond the edge": Mistake(
        "windows", 1, oracle.OPS, "Attention", only(lambda n: "mask_shift" in n.attrs, with_attrs(mask_shift=[0, 1]))
    ),
    "RelativeBias of the distance backward": Mistake(
        "windows", 1, oracle.OPS, "RelativeBias", with_outputs(lambda y: y.swapaxes(2, 3))
    ),
    "Select of the last step": Mistake("attention", 1, oracle.OPS, "Select", with_attrs(index=-1)),
    "Pad on the other sides": Mistake("windows", 1, oracle.OPS, "Pad", with_attrs(padding=[1, 0, 0, 1])),
    "Roll the other way": Mistake(
        "windows", 1, oracle.OPS, "Roll", lambda right: lambda n, *o: right(reversed_roll(n), *o)
    ),
    "Windows by columns": Mistake("windows", 1, oracle.OPS, "Windows", with_outputs(lambda y: y.swapaxes(1, 2))),
    "FromWindows by columns": Mistake(
        "windows", 1, oracle.OPS, "FromWindows", with_inputs(lambda x: (x[0].swapaxes(1, 2),))
    ),
    "half the MSE": Mistake("lstm", 2, oracle.LOSSES, "mse", half_mse),
    "pads in the divisor": Mistake("bilstm_tagger", 2, oracle.LOSSES, "token_cross_entropy", divided_by_all_tokens),
    "pads counted as a tag": Mistake("bilstm_tagger", 2, oracle.LOSSES, "token_cross_entropy", pads_are_labels),
    "probabilities for logits": Mistake(
        "diabetes_mlp", 2, oracle.LOSSES, "binary_cross_entropy", probabilities_for_logits
    ),
    "eps-hat in Adam": Mistake("diabetes_mlp", 3, oracle.OPTIMIZERS, "adam", eps_hat, "adam"),
    "Adam that does not count its steps": Mistake("lstm", 3, oracle.OPTIMIZERS, "adam", steps_not_counted, "adam"),
    "Adam that leaves out absent tokens": Mistake("text_rnn", 3, oracle.OPTIMIZERS, "adam", lazy_rows, "adam"),
    "eps outside the root of RMSProp": Mistake("lstm", 3, oracle.OPTIMIZERS, "rmsprop", eps_outside, "rmsprop"),
    "rho .99 for .9": Mistake("lstm", 3, oracle.OPTIMIZERS, "rmsprop", option(rho=0.99), "rmsprop"),
    "psi .004 for 1": Mistake("lstm", 3, oracle.OPTIMIZERS, "nadam", option(psi=0.004), "nadam"),
    "one NAdam product for all arrays": Mistake("lstm", 3, oracle.OPTIMIZERS, "nadam", shared_product, "nadam"),
    "eps-hat in NAdam": Mistake("lstm", 3, oracle.OPTIMIZERS, "nadam", eps_hat, "nadam"),
    "a frozen BatchNorm in training mode": Mistake(
        "frozen", 1, oracle.OPS, "BatchNorm2d", lambda right: lambda n, w, x, mode: right(n, w, x, oracle.Mode(True))
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught_at_its_level(mistake, monkeypatch):
    network, level, table, name, put, optimizer = MISTAKES[mistake]
    asked = reference(network, optimizer)
    if table is Oracle:
        monkeypatch.setattr(Oracle, name, put(getattr(Oracle, name)))
    else:
        monkeypatch.setitem(table, name, put(table[name]))
    found = ratios(asked)
    failed = [number for number in sorted(found) if not found[number] <= TOLERANCE]
    assert failed and failed[0] == level, found


def test_a_frozen_layer_that_is_trained_is_caught(monkeypatch):
    asked = reference("frozen")
    right = Oracle.apply

    def apply(self, gradients, optimizer):
        right(self, gradients, optimizer)
        self.weights["base.conv.weight"] *= np.float32(0.999)

    monkeypatch.setattr(Oracle, "apply", apply)
    found = ratios(asked)
    assert found[3] > TOLERANCE and found[2] < TOLERANCE
