"""The ladder's comparison catches each seeded mistake in the ops, losses and optimisers of the workloads, at its level.

The framework is the oracle in float32, run in this process with one thing of it replaced.
"""

import dataclasses
import functools
from typing import Any, Callable, Dict

import numpy as np
import pytest
from op_mistakes import (
    Mistake,
    attrs,
    check_caught,
    check_honest,
    eps_hat,
    first,
    gradient,
    inputs,
    output,
    ratios,
    renamed,
    scaled,
    settings,
    weights,
)
from sequences import ROWS, SERIES, TAGS, WORDS

from framework_compare.conformance import graphs
from framework_compare.graph import Field, Graph, GraphBuilder, Optimizer, Task, circuit
from framework_compare.graph.window import Window
from framework_compare.models import bilstm_tagger, conv_tagger, diabetes_mlp, lstm, quanv, small_cnns, text_rnn
from framework_compare.parity.network import oracle
from framework_compare.parity.network.ladder import TOLERANCE
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.oracle.elementwise import logistic
from framework_compare.parity.network.questions import Questions
from framework_compare.parity.network.reference import Reference, make_reference
from framework_compare.parity.network.rounding import rounding_of

DIGITS = Task((Field("image", (1, 12, 12)),), Field("label", (), "int64"), 10, "cross_entropy")


def squashed() -> Graph:
    g = GraphBuilder("squashed", ROWS)
    g.linear("first", 16, init="glorot_uniform")
    g.tanh("tanh")
    g.linear("second", 16, init="glorot_uniform")
    g.sigmoid("sigmoid")
    g.linear("fc", 1, init="glorot_uniform")
    return g.build()


NETWORKS: Dict[str, Callable[[], Graph]] = {
    "lstm": lambda: lstm.build(SERIES, layers=2, hidden=8),
    "gru": lambda: lstm.build(SERIES, layers=2, hidden=8, kind="gru"),
    "bilstm_tagger": lambda: bilstm_tagger.build(TAGS, width=8, hidden=8),
    "conv_tagger": lambda: conv_tagger.build(TAGS, width=12, blocks=2),
    "text_rnn": lambda: text_rnn.build(WORDS, width=8, hidden=8),
    "diabetes_mlp": lambda: diabetes_mlp.build(ROWS),
    "squashed": squashed,
    "frozen": lambda: graphs.joined().frozen("stem"),
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


@pytest.mark.parametrize("network", NETWORKS)
def test_an_honest_float32_run_passes(network):
    for optimizer in ("sgd", "adam", "rmsprop", "nadam"):
        check_honest(reference(network, optimizer), plain_sums=True)


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
@pytest.mark.parametrize("network", ["lstm", "gru", "bilstm_tagger", "conv_tagger", "quanv_fixed"])
def test_an_honest_run_of_a_narrower_precision_passes(network, precision):
    asked = reference(network, "sgd", precision)
    found = check_honest(asked, rounding=rounding_of(precision, 1))
    assert ratios(asked)[1] < max(found.values())  # float32 is closer than what rounds


# -- what may be wrong with an op ------------------------------------------------------------------------------------------


def gates(*order):
    """An op that takes its gates in another order, and gives their gradients back in the order they came in."""

    def wrong(right):
        def op(node, own, *rest):
            def sort(array, order):
                return np.concatenate([np.split(array, len(order))[k] for k in order])

            y, backward = right(node, {name: sort(array, order) for name, array in own.items()}, *rest)

            def turned(dy):
                dx, found = backward(dy)
                return dx, {name: sort(array, np.argsort(order)) for name, array in found.items()}

            return y, turned

        return op

    return wrong


def hard(low, high, slope, middle):
    def wrong(right):
        def op(node, own, x, mode):
            y = np.clip(slope * x[0] + middle, low, high).astype(x[0].dtype)
            return y, lambda dy: ((dy * slope * ((y > low) & (y < high)),), {})

        return op

    return wrong


def only(condition, wrong):
    """The mistake in those nodes only of which the condition holds."""

    def put(right):
        mistaken = wrong(right)
        return lambda node, *rest: (mistaken if condition(node) else right)(node, *rest)

    return put


def named(name):
    return lambda node: node.name == name


def rectangular(node):
    return not isinstance(node.attrs["kernel"], int)


def by_columns(x):
    return x.swapaxes(2, 3)


def far_apart(x, pieces=2):
    return x.reshape(*x.shape[:-1], pieces, -1).swapaxes(-1, -2).reshape(x.shape)


def other_gates(g, x):
    """What one gets who registers for an LSTM the gradient of another with gates in the order i, g, f, o."""
    return np.concatenate([np.split(g, 4)[k] for k in (0, 2, 1, 3)])


def untrained_row(g, x):
    g[x[0][0, 0]] = 0
    return g


def unbiased(own):
    features = len(own["weight"])
    return own["weight"] * np.float32(np.sqrt((features - 1) / features))


def inner_bias(own):
    """The second bias of n alone, which stands inside the reset gate."""
    return own["bias_hh"] * np.repeat(np.float32([0, 0, 1]), len(own["bias_hh"]) // 3)


def overhang_counts(y, x, node):
    """What a rounded-up window has behind the padding counts as padding does."""
    window = Window.of(node.attrs)
    areas = window.areas(x[0].shape[2:], with_pads=node.attrs["count_include_pad"])
    return y * (areas / np.float32(np.prod(window.kernel)))


def zeros_win(y, x, node):
    """Where a window is rounded up, what it has behind the image are zeros."""
    y = y.copy()
    y[:, :, -1] = np.maximum(y[:, :, -1], 0)
    return y


def rolls_back(right):
    return lambda node, *rest: right(
        dataclasses.replace(node, attrs={"shifts": [-shift for shift in node.attrs["shifts"]]}), *rest
    )


# -- losses and optimisers -------------------------------------------------------------------------------------------------


def divided_by_all_tokens(right):
    def loss(logits, labels):
        share = (labels != -1).mean().astype(logits.dtype)
        return tuple(part * share for part in right(logits, labels))

    return loss


def eps_outside(right):
    def step(weight, gradient, slots, number, settings):
        before = weight.copy()
        right(weight, gradient, slots, number, {**settings, "rate": 0.0})
        weight[...] = before - settings["rate"] * gradient / (np.sqrt(slots["v"]) + settings["eps"])

    return step


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
        for name in (f"{node.name}.bias" for node in self.graph.nodes if node.op == "LSTM"):
            self.weights[name] += self.weights[name] - before[name]

    return apply


FLIPPED = weights(weight=lambda own: own["weight"][:, :, ::-1])
BIAS_OUTSIDE = weights(
    bias_ih=lambda own: own["bias_ih"] + inner_bias(own), bias_hh=lambda own: own["bias_hh"] - inner_bias(own)
)
NO_CNOT = [gate for gate in circuit.DEMO if gate[0] != "CNOT"]
MISTAKES = {
    "LSTM gates in the order i, g, f, o": Mistake("lstm", 1, "LSTM", gates(0, 2, 1, 3)),
    "LSTM output gate first": Mistake("text_rnn", 1, "LSTM", gates(3, 0, 1, 2)),
    "LSTM gradients of other gates": Mistake("lstm", 2, "LSTM", gradient("weight_ih", other_gates)),
    "LSTM with a second bias that is trained": Mistake("lstm", 3, "apply", second_bias, Oracle),
    "GRU gates in the order z, r, n": Mistake("gru", 1, "GRU", gates(1, 0, 2)),
    "GRU bias outside the reset gate": Mistake("gru", 1, "GRU", BIAS_OUTSIDE),
    "last step taken from t = 0": Mistake("lstm", 1, "Last", first(lambda x: x[:, ::-1])),
    "no second Reverse": Mistake("bilstm_tagger", 1, "Reverse", first(lambda x: x[:, ::-1])),
    "Concat the other way round": Mistake("bilstm_tagger", 1, "Concat", inputs(lambda x: x[::-1])),
    "Embedding with a row that is not trained": Mistake("text_rnn", 2, "Embedding", gradient("weight", untrained_row)),
    "Conv1d with its kernel flipped": Mistake("conv_tagger", 1, "Conv1d", FLIPPED),
    "Maxout of features far apart": Mistake("conv_tagger", 1, "Maxout", first(far_apart)),
    "LayerNorm by the unbiased variance": Mistake("conv_tagger", 1, "LayerNorm", weights(weight=unbiased)),
    "LayerNorm with another eps": Mistake("conv_tagger", 1, "LayerNorm", attrs(eps=1e-3)),
    "a hard Tanh": Mistake("squashed", 1, "Tanh", hard(-1, 1, 1, 0)),
    "a hard Sigmoid": Mistake("squashed", 1, "Sigmoid", hard(0, 1, 0.2, 0.5)),
    "AvgPool2d that does not count its padding": Mistake("joined", 1, "AvgPool2d", attrs(count_include_pad=False)),
    "Quanv2d with pixels by columns": Mistake("quanv_fixed", 1, "Quanv2d", first(by_columns)),
    "Quanv2d without its CNOT": Mistake("quanv_fixed", 1, "Quanv2d", attrs(gates=NO_CNOT)),
    "Quanv2d with half the gradient of an angle": Mistake("quanv_trained", 2, "Quanv2d", scaled("angles", 0.5)),
    "Add whose first input gets no gradient": Mistake("gated", 2, "Add", scaled(0, 0)),
    "Mul with the gradient of an Add": Mistake("gated", 2, "Mul", scaled(0, 0.5)),
    "SiLU of a larger slope": Mistake("gated", 1, "SiLU", first(lambda x: x * np.float32(1.01))),
    "HardSigmoid with the slope .2": Mistake("gated", 1, "HardSigmoid", hard(0, 1, 0.2, 0.5)),
    "HardSigmoid with the gradient of a Sigmoid": Mistake("gated", 2, "HardSigmoid", scaled(0, 1.5)),
    "HardSwish with half its slope": Mistake("gated", 2, "HardSwish", scaled(0, 0.5)),
    "SiLU for HardSwish": Mistake("gated", 1, "HardSwish", renamed("SiLU")),
    "Conv2d padded on the other side": Mistake("gated", 1, "Conv2d", only(named("stem"), attrs(padding=[1, 0, 1, 0]))),
    "Conv2d with its window upside down": Mistake(
        "gated", 1, "Conv2d", only(rectangular, weights(weight=lambda own: own["weight"][..., ::-1, ::-1]))
    ),
    "Conv2d that leaves out its dilation": Mistake(
        "gated", 1, "Conv2d", only(named("dilated"), attrs(dilation=1, padding=1))
    ),
    "AdaptiveAvgPool2d that gives sums": Mistake("gated", 1, "AdaptiveAvgPool2d", output(lambda y, *_: 2 * y)),
    "AvgPool2d whose rounding up counts what is not there": Mistake("joined", 1, "AvgPool2d", output(overhang_counts)),
    "MaxPool2d that pads with zeros": Mistake("joined", 1, "MaxPool2d", output(zeros_win)),
    "Concat of channels the other way round": Mistake("joined", 1, "Concat", output(lambda y, *_: y[:, ::-1])),
    "Split into other sizes": Mistake("joined", 1, "Split", first(lambda x: np.roll(x, 1, axis=1))),
    "Slice that starts one later": Mistake(
        "windows", 1, "Slice", only(lambda n: n.attrs["start"] == 0, first(lambda x: np.roll(x, -1, axis=2)))
    ),
    "ChannelShuffle the other way round": Mistake("joined", 1, "ChannelShuffle", attrs(groups=10)),
    "LayerNorm over the places of an image": Mistake("attention", 1, "LayerNorm", attrs(eps=1e-2)),
    "Linear of channels without its bias": Mistake("attention", 1, "Linear", weights(bias=lambda own: 0 * own["bias"])),
    "GELU by tanh for the exact one": Mistake("attention", 1, "GELU", attrs(approximate="tanh")),
    "exact GELU for that by tanh": Mistake("attention", 1, "GELU", attrs(approximate="none")),
    "Parameter with the gradient of one sample": Mistake("attention", 2, "Parameter", scaled("value", 0.5)),
    "Tokens by columns": Mistake("attention", 1, "Tokens", first(by_columns)),
    "Attention by another scale": Mistake("attention", 1, "Attention", attrs(scale=0.25)),
    "Attention without the gradient of its keys": Mistake("windows", 2, "Attention", scaled(1, 0)),
    "Attention with other heads": Mistake("attention", 1, "Attention", attrs(heads=2)),
    "Attention that sees beyond the edge": Mistake(
        "windows", 1, "Attention", only(lambda n: "mask_shift" in n.attrs, attrs(mask_shift=[0, 1]))
    ),
    "RelativeBias of the distance backward": Mistake("windows", 1, "RelativeBias", output(lambda y, *_: by_columns(y))),
    "Select of the last step": Mistake("attention", 1, "Select", attrs(index=-1)),
    "Pad on the other sides": Mistake("windows", 1, "Pad", attrs(padding=[1, 0, 0, 1])),
    "Roll the other way": Mistake("windows", 1, "Roll", rolls_back),
    "Windows by columns": Mistake("windows", 1, "Windows", output(lambda y, *_: y.swapaxes(1, 2))),
    "FromWindows by columns": Mistake("windows", 1, "FromWindows", first(lambda x: x.swapaxes(1, 2))),
    "half the MSE": Mistake("lstm", 2, "mse", lambda right: lambda *given: tuple(part / 2 for part in right(*given))),
    "pads in the divisor": Mistake("bilstm_tagger", 2, "token_cross_entropy", divided_by_all_tokens),
    "pads counted as a tag": Mistake(
        "bilstm_tagger",
        2,
        "token_cross_entropy",
        lambda right: lambda logits, labels: right(logits, np.maximum(labels, 0)),
    ),
    "probabilities for logits": Mistake(
        "diabetes_mlp", 2, "binary_cross_entropy", lambda right: lambda logits, target: right(logistic(logits), target)
    ),
    "eps-hat in Adam": Mistake("diabetes_mlp", 3, "adam", settings(eps_hat)),
    "Adam that does not count its steps": Mistake("lstm", 3, "adam", lambda right: lambda *a: right(*a[:3], 1, a[4])),
    "Adam that leaves out absent tokens": Mistake("text_rnn", 3, "adam", lazy_rows),
    "eps outside the root of RMSProp": Mistake("lstm", 3, "rmsprop", eps_outside),
    "rho .99 for .9": Mistake("lstm", 3, "rmsprop", settings(lambda *_: {"rho": 0.99})),
    "psi .004 for 1": Mistake("lstm", 3, "nadam", settings(lambda *_: {"psi": 0.004})),
    "one NAdam product for all arrays": Mistake("lstm", 3, "nadam", shared_product),
    "eps-hat in NAdam": Mistake("lstm", 3, "nadam", settings(eps_hat)),
    "a frozen BatchNorm in training mode": Mistake(
        "frozen", 1, "BatchNorm2d", only(named("stem_bn"), lambda right: lambda *a: right(*a[:3], oracle.Mode(True)))
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught_at_its_level(mistake, monkeypatch):
    network, _, name, *_ = MISTAKES[mistake]
    check_caught(reference(network, name if name in oracle.OPTIMIZERS else "sgd"), MISTAKES[mistake], monkeypatch)


def test_a_frozen_layer_that_is_trained_is_caught(monkeypatch):
    asked = reference("frozen")
    right = Oracle.apply

    def apply(self, gradients, optimizer):
        right(self, gradients, optimizer)
        self.weights["stem.weight"] *= np.float32(0.999)

    monkeypatch.setattr(Oracle, "apply", apply)
    found = ratios(asked)
    assert found[3] > TOLERANCE and found[2] < TOLERANCE
