"""The ops of sequences, tables and circuits in the oracle: derivatives, hand-worked values, published identities."""

from __future__ import annotations

import numpy as np
import pytest

from framework_compare.errors import UsageError
from framework_compare.graph import OPS as GRAPH_OPS
from framework_compare.graph import Field, GraphBuilder, Node, Task, circuit, image_classification
from framework_compare.parity.network.oracle import (
    LOSSES,
    OPS,
    Mode,
    Oracle,
    binary_cross_entropy,
    cross_entropy,
    mse,
    token_cross_entropy,
)

RNG = np.random.default_rng
STEP = 1e-6


def node(op, *inputs, **attrs):
    return Node("layer", op, inputs or ("input",), attrs)


QUANV = {"gates": circuit.DEMO}
POOL = {"kernel": 3, "stride": 2, "padding": 1}
SEQUENCE, VECTOR, IMAGE = (2, 5, 6), (3, 6), (2, 3, 7, 8)
# op, shapes of its inputs with the batch
CASES = {
    "lstm": (node("LSTM", input_size=6, hidden_size=4), [SEQUENCE]),
    "gru": (node("GRU", input_size=6, hidden_size=4), [SEQUENCE]),
    "reverse": (node("Reverse"), [SEQUENCE]),
    "last": (node("Last"), [SEQUENCE]),
    "concat-sequences": (node("Concat", "a", "b", "c"), [SEQUENCE, (2, 5, 1), (2, 5, 3)]),
    "concat-vectors": (node("Concat", "a", "b"), [VECTOR, (3, 2)]),
    "tanh": (node("Tanh"), [SEQUENCE]),
    "sigmoid": (node("Sigmoid"), [VECTOR]),
    "conv1d": (node("Conv1d", in_channels=6, out_channels=4, kernel=3, padding=1, bias=True, init="zeros"), [SEQUENCE]),
    "conv1d-valid": (
        node("Conv1d", in_channels=6, out_channels=4, kernel=4, padding=0, bias=False, init="zeros"),
        [SEQUENCE],
    ),
    "layernorm": (node("LayerNorm", features=6, eps=1e-5), [SEQUENCE]),
    "layernorm-vector": (node("LayerNorm", features=6, eps=1e-5), [VECTOR]),
    "maxout": (node("Maxout", pieces=3), [SEQUENCE]),
    "linear-steps": (node("Linear", in_features=6, out_features=4, init="zeros"), [SEQUENCE]),
    "avgpool": (node("AvgPool2d", **POOL, count_include_pad=False), [IMAGE]),
    "avgpool-with-padding": (node("AvgPool2d", **POOL, count_include_pad=True), [IMAGE]),
    "quanv": (node("Quanv2d", **QUANV, trained=False), [(2, 1, 4, 6)]),
    "quanv-odd": (node("Quanv2d", **QUANV, trained=False), [(2, 1, 5, 7)]),
    "quanv-trained": (node("Quanv2d", **QUANV, trained=True), [(2, 1, 4, 6)]),
}


def arrays_of(case):
    one, shapes = CASES[case]
    rng = RNG(1)
    inputs = tuple(rng.standard_normal(shape) for shape in shapes)
    weights = {p.name.rpartition(".")[2]: rng.standard_normal(p.shape) for p in GRAPH_OPS[one.op].parameters(one)}
    return one, weights, inputs


def slope(function, array, direction):
    return (function(array + STEP * direction) - function(array - STEP * direction)) / (2 * STEP)


@pytest.mark.parametrize("case", CASES)
def test_backward_is_the_derivative_of_forward(case):
    one, weights, inputs = arrays_of(case)
    y, backward = OPS[one.op](one, weights, inputs, Mode(True))
    upstream = RNG(2).standard_normal(y.shape)
    gradients, by_weight = backward(upstream)
    assert set(by_weight) == set(weights)

    def run(weights, inputs):
        return (OPS[one.op](one, weights, inputs, Mode(True))[0] * upstream).sum()

    for index, gradient in enumerate(gradients):
        direction = RNG(3).standard_normal(gradient.shape)

        def of_input(x, index=index):
            return run(weights, (*inputs[:index], x, *inputs[index + 1 :]))

        expected = slope(of_input, inputs[index], direction)
        assert (gradient * direction).sum() == pytest.approx(expected, rel=1e-7, abs=1e-8)
    for name, gradient in by_weight.items():
        for place in np.ndindex(*gradient.shape) if gradient.size <= 100 else [None]:
            direction = RNG(4).standard_normal(gradient.shape)
            if place is not None:  # number by number, so that no wrong two cancel
                direction = np.zeros(gradient.shape)
                direction[place] = 1
            expected = slope(lambda w, name=name: run({**weights, name: w}, inputs), weights[name], direction)
            assert (gradient * direction).sum() == pytest.approx(expected, rel=1e-6, abs=1e-7), (name, place)


@pytest.mark.parametrize("case", CASES)
def test_shapes_of_the_graph_are_those_of_the_arrays(case):
    one, weights, inputs = arrays_of(case)
    y, _ = OPS[one.op](one, weights, inputs, Mode(False))
    assert y.shape[1:] == GRAPH_OPS[one.op].shape(one, *(x.shape[1:] for x in inputs))


@pytest.mark.parametrize("case", CASES)
def test_float32_stays_float32(case):
    one, weights, inputs = arrays_of(case)
    narrow = {name: array.astype(np.float32) for name, array in weights.items()}
    y, backward = OPS[one.op](one, narrow, tuple(x.astype(np.float32) for x in inputs), Mode(True))
    gradients, by_weight = backward(y)
    assert {array.dtype for array in (y, *gradients, *by_weight.values())} == {np.dtype(np.float32)}


def squash(x):
    return 1 / (1 + np.exp(-x))


def test_lstm_by_hand():
    """Two steps of one unit, gate by gate from the published equations."""
    one = node("LSTM", input_size=1, hidden_size=1)
    weights = {
        "weight_ih": np.array([[0.1], [0.2], [0.3], [0.4]]),
        "weight_hh": np.array([[0.5], [-0.6], [0.7], [-0.8]]),
        "bias": np.array([0.01, 1.0, -0.02, 0.03]),
    }
    y, _ = OPS["LSTM"](one, weights, (np.array([[[1.0], [2.0]]]),), Mode(False))
    c = squash(0.11) * np.tanh(0.28)
    h = squash(0.43) * np.tanh(c)
    assert y[0, 0, 0] == pytest.approx(h, rel=1e-14)
    c = squash(0.41 - 0.6 * h + 0.99) * c + squash(0.21 + 0.5 * h) * np.tanh(0.58 + 0.7 * h)
    assert y[0, 1, 0] == pytest.approx(squash(0.83 - 0.8 * h) * np.tanh(c), rel=1e-14)


def test_gru_by_hand():
    """The second bias of n stands inside the reset gate."""
    one = node("GRU", input_size=1, hidden_size=1)
    weights = {
        "weight_ih": np.array([[0.1], [0.2], [0.3]]),
        "weight_hh": np.array([[0.5], [-0.6], [0.7]]),
        "bias_ih": np.array([0.01, 0.02, 0.03]),
        "bias_hh": np.array([0.04, 0.05, 0.6]),
    }
    y, _ = OPS["GRU"](one, weights, (np.array([[[1.0], [2.0]]]),), Mode(False))
    first = (1 - squash(0.27)) * np.tanh(0.33 + squash(0.15) * 0.6)
    assert y[0, 0, 0] == pytest.approx(first, rel=1e-14)
    reset, update = squash(0.25 + 0.5 * first), squash(0.47 - 0.6 * first)
    second = (1 - update) * np.tanh(0.63 + reset * (0.7 * first + 0.6)) + update * first
    assert y[0, 1, 0] == pytest.approx(second, rel=1e-14)


def test_embedding_trains_every_row_that_occurs_and_no_other():
    one, rows = node("Embedding", num_embeddings=4, embedding_dim=2, init="zeros"), np.arange(8.0).reshape(4, 2)
    y, backward = OPS["Embedding"](one, {"weight": rows}, (np.array([[0, 3, 3]]),), Mode(True))
    assert y.tolist() == [[[0, 1], [6, 7], [6, 7]]]
    _, gradients = backward(np.array([[[1.0, 2], [3, 4], [5, 6]]]))
    assert gradients["weight"].tolist() == [[1, 2], [0, 0], [0, 0], [8, 10]]


def test_conv1d_is_numpys_correlation():
    one, weights, (x,) = arrays_of("conv1d-valid")
    y, _ = OPS["Conv1d"](one, weights, (x,), Mode(False))
    expected = sum(np.correlate(x[1, :, i], weights["weight"][2, i], "valid") for i in range(6))
    np.testing.assert_allclose(y[1, :, 2], expected)


def test_maxout_takes_neighbours():
    y, _ = OPS["Maxout"](node("Maxout", pieces=2), {}, (np.array([[1.0, 5, 7, 2]]),), Mode(False))
    assert y.tolist() == [[5, 7]]


def test_layernorm_normalises_each_row_by_its_biased_variance():
    x = RNG(5).standard_normal((2, 3, 50))
    one = node("LayerNorm", features=50, eps=0.0)
    y, _ = OPS["LayerNorm"](one, {"weight": np.ones(50), "bias": np.zeros(50)}, (x,), Mode(False))
    np.testing.assert_allclose(y.mean(axis=-1), 0, atol=1e-14)
    np.testing.assert_allclose(y.var(axis=-1), 1)


def test_an_average_at_the_edge_divides_by_what_is_stated():
    ones = (np.ones((1, 1, 4, 4)),)
    y, _ = OPS["AvgPool2d"](CASES["avgpool"][0], {}, ones, Mode(False))
    np.testing.assert_allclose(y, np.ones((1, 1, 2, 2)))
    y, _ = OPS["AvgPool2d"](CASES["avgpool-with-padding"][0], {}, ones, Mode(False))
    np.testing.assert_allclose(y, np.array([[[[4, 6], [6, 9]]]]) / 9)


def test_the_demo_circuit_gives_pennylanes_numbers():
    """Of the first test digit of MNIST, by PennyLane 0.45.1's default.qubit."""
    patch = np.array([[[[0, 0], [0.3294, 0.7255]]]])
    y, _ = OPS["Quanv2d"](node("Quanv2d", **QUANV, trained=False), {}, (patch,), Mode(False))
    np.testing.assert_allclose(y.ravel(), [1, -0.953334, 0.361191, 0.620256], atol=1e-4)


def test_gates_keep_lengths_and_a_cnot_flips_its_target():
    for matrix in circuit.matrices(circuit.DEMO):
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(32), atol=1e-15)
    state = np.zeros(32)
    state[0b1000] = 1
    assert np.flatnonzero(circuit.cnot(0, 3) @ state).tolist() == [0b1001]
    state[:] = np.eye(32)[0b0001]
    assert np.flatnonzero(circuit.cnot(0, 3) @ state).tolist() == [0b0001]


def test_gradients_of_angles_are_those_of_the_parameter_shift():
    one, weights, inputs = arrays_of("quanv-trained")
    upstream = RNG(6).standard_normal((2, 4, 2, 3))

    def value(angles):
        return (OPS["Quanv2d"](one, {"angles": angles}, inputs, Mode(True))[0] * upstream).sum()

    gradients = OPS["Quanv2d"](one, weights, inputs, Mode(True))[1](upstream)[1]["angles"]
    shifts = np.pi / 2 * np.eye(4)
    expected = [(value(weights["angles"] + s) - value(weights["angles"] - s)) / 2 for s in shifts]
    np.testing.assert_allclose(gradients, expected, rtol=1e-12)


LOSS_CASES = {
    "cross_entropy": ((4, 3), np.array([0, 2, 1, 1])),
    "token_cross_entropy": ((2, 4, 3), np.array([[0, -1, 2, -1], [1, 1, -1, -1]])),
    "mse": ((4, 2), RNG(7).standard_normal((4, 2))),
    "binary_cross_entropy": ((4, 1), np.array([[0.0], [1], [1], [0]])),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_of_a_loss_is_its_derivative(loss):
    shape, target = LOSS_CASES[loss]
    outputs, direction = RNG(8).standard_normal(shape), RNG(9).standard_normal(shape)
    gradient = LOSSES[loss](outputs, target)[1]
    expected = slope(lambda values: LOSSES[loss](values, target)[0], outputs, direction)
    assert (gradient * direction).sum() == pytest.approx(expected, rel=1e-8)


def test_masked_tokens_count_neither_in_the_sum_nor_in_the_divisor():
    logits, labels = RNG(10).standard_normal((2, 3, 4)), np.array([[1, -1, -1], [-1, 2, -1]])
    kept = np.stack([logits[0, 0], logits[1, 1]])
    loss, gradient = token_cross_entropy(logits, labels)
    assert loss == pytest.approx(cross_entropy(kept, np.array([1, 2]))[0])
    assert not gradient[labels == -1].any()
    loss, gradient = token_cross_entropy(logits, np.full((2, 3), -1))
    assert loss == 0 and not gradient.any()


def test_mse_is_not_halved_and_does_not_broadcast():
    assert mse(np.array([[2.0], [0.0]]), np.zeros((2, 1)))[0] == 2.0
    with pytest.raises(ValueError, match=r"output \(2, 1\) and target \(2,\) differ in shape"):
        mse(np.zeros((2, 1)), np.zeros(2))


def test_binary_cross_entropy_of_large_logits_is_finite():
    loss, gradient = binary_cross_entropy(np.array([[1000.0], [-1000.0]]), np.array([[0.0], [0.0]]))
    assert loss == 500
    assert gradient.tolist() == [[0.5], [0.0]]
    assert binary_cross_entropy(np.zeros((1, 1)), np.ones((1, 1)))[0] == pytest.approx(np.log(2))


def two_inputs():
    fields = (Field("words", (5,), "int32", 7), Field("row", (3,)))
    g = GraphBuilder("two", Task(fields, Field("y", (1,)), 1, "mse", (), "row"))
    g.embedding("embedding", 4, source="words")
    g.gru("gru", 6)
    words = g.last_step("last")
    g.concat("both", words, "row")
    g.tanh("tanh")
    g.linear("fc", 1)
    return g.build()


def test_a_network_of_two_inputs_has_the_derivative_of_its_loss():
    graph, rng = two_inputs(), RNG(11)
    oracle = Oracle(graph, {p.name: rng.standard_normal(p.shape) for p in graph.parameters()})
    batch, target = (rng.integers(0, 7, (4, 5)), rng.standard_normal((4, 3))), rng.standard_normal((4, 1))
    _, _, gradients, _ = oracle.gradients(batch, target)
    for name, gradient in gradients.items():
        weight, direction = oracle.weights[name], RNG(12).standard_normal(gradient.shape)

        def loss(values, name=name):
            oracle.weights[name] = values
            return mse(oracle.forward(batch, training=True), target)[0]

        expected = slope(loss, weight, direction)
        oracle.weights[name] = weight
        assert (gradient * direction).sum() == pytest.approx(expected, rel=1e-6, abs=1e-8), name


def frozen_base():
    g = GraphBuilder("frozen", image_classification(3, 8))
    g.conv("base.conv", 4, 3)
    g.batchnorm("base.bn")
    g.dropout("base.dropout", 0.5)
    g.flatten("flatten")
    g.linear("fc", 3)
    return g.build()


def test_a_frozen_part_runs_in_evaluation_mode_and_stays_as_it_is():
    graph, rng = frozen_base().frozen("base."), RNG(13)
    oracle = Oracle(graph, {p.name: rng.uniform(0.5, 1, p.shape) for p in graph.parameters()})
    before = {name: array.copy() for name, array in oracle.weights.items()}
    images, labels = rng.standard_normal((4, 3, 8, 8)), np.array([0, 1, 2, 0])
    assert np.array_equal(oracle.forward(images, training=True, dropout=RNG(14)), oracle.forward(images))
    _, _, gradients = oracle.train_step(images, labels, learning_rate=0.1, dropout=RNG(14))
    assert set(gradients) == {"fc.weight", "fc.bias"}
    changed = {name for name, array in oracle.weights.items() if not np.array_equal(array, before[name])}
    assert changed == {"fc.weight", "fc.bias"}
    whole = Oracle(frozen_base(), before).gradients(images, labels)[2]
    assert set(whole) == {"base.conv.weight", "base.bn.weight", "base.bn.bias", "fc.weight", "fc.bias"}


@pytest.mark.parametrize(
    "one, shapes, message",
    [
        (node("LSTM", input_size=3, hidden_size=2), [(5, 4)], r"expects a sequence \(steps, 3\), gets shape \(5, 4\)"),
        (node("Last"), [(4,)], r"expects a sequence \(steps, features\), gets shape \(4,\)"),
        (node("Concat", "a", "b"), [(5, 2), (4, 2)], r"cannot join the features of shapes \(5, 2\), \(4, 2\)"),
        (node("Maxout", pieces=3), [(5, 4)], r"cannot group the features of shape \(5, 4\) by 3"),
        (node("Embedding", num_embeddings=3, embedding_dim=2), [(5, 4)], r"expects tokens \(steps,\), gets shape"),
        (CASES["conv1d-valid"][0], [(3, 6)], "a window of 4 steps does not fit 3"),
        (node("AvgPool2d", kernel=2, stride=2, padding=2, count_include_pad=True), [(3, 8, 8)], "more than half"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(one, shapes, message):
    with pytest.raises(UsageError, match=f"layer layer: .*{message}"):
        GRAPH_OPS[one.op].shape(one, *shapes)
