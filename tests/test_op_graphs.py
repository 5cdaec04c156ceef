"""Losses and whole networks in the oracle: derivatives of what is called twice, frozen, or has two inputs."""

from __future__ import annotations

import numpy as np
import pytest
from bounds import rounding
from slopes import slope

from framework_compare.graph import Field, GraphBuilder, Node, Task, image_classification
from framework_compare.graph.task import SMOOTHED
from framework_compare.parity.network.oracle import LOSSES, Oracle
from framework_compare.parity.network.oracle.losses import (
    binary_cross_entropy,
    cross_entropy,
    mse,
    token_cross_entropy,
)

RNG = np.random.default_rng


def node(op, *inputs, **attrs):
    return Node("layer", op, inputs or ("input",), attrs)


LOSS_CASES = {
    "cross_entropy": ((4, 3), np.array([0, 2, 1, 1])),
    "token_cross_entropy": ((2, 4, 3), np.array([[0, -1, 2, -1], [1, 1, -1, -1]])),
    "mse": ((4, 2), RNG(7).standard_normal((4, 2))),
    "mean_output": ((4, 1), np.zeros(4)),
    "binary_cross_entropy": ((4, 1), np.array([[0.0], [1], [1], [0]])),
}
LOSS_CASES.update({f"smoothed {name}": LOSS_CASES[name] for name in SMOOTHED})


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_of_a_loss_is_its_derivative(loss):
    shape, target = LOSS_CASES[loss]
    outputs, direction = RNG(8).standard_normal(shape), RNG(9).standard_normal(shape)
    how = {"smoothing": 0.2} if loss.startswith("smoothed") else {}
    gradient = LOSSES[loss](outputs, target, **how)[1]
    found = slope(lambda values: LOSSES[loss](values, target, **how)[0], outputs, direction)
    assert (gradient * direction).sum() == found


def test_a_smoothed_label_is_spread_over_all_classes():
    logits, labels = RNG(12).standard_normal((5, 4)), np.array([0, 3, 1, 1, 2])
    spread = 0.9 * np.eye(4)[labels] + 0.1 / 4
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss, gradient = cross_entropy(logits, labels, 0.1)
    assert loss == pytest.approx(-(spread * np.log(shares)).sum(axis=1).mean())
    assert gradient == pytest.approx((shares - spread) / 5)


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
        assert (gradient * direction).sum() == expected, name


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


def twice(shared):
    g = GraphBuilder("twice", num_classes=3, image_size=4)
    g.conv("first", 3, 3, padding=1, bias=True)
    g.tanh("between")
    if shared:
        g.again("second", "first")
    else:
        g.conv("second", 3, 3, padding=1, bias=True)
    g.flatten("flatten")
    g.linear("fc", 3)
    return g.build()


def test_gradients_of_a_layer_that_is_called_twice_add():
    rng, shared, apart = RNG(0), twice(True), twice(False)
    weights = {p.name: rng.standard_normal(p.shape) for p in shared.parameters()}
    same = {p.name: weights[p.name.replace("second", "first")] for p in apart.parameters()}
    assert set(weights) == {"first.weight", "first.bias", "fc.weight", "fc.bias"}
    images, labels = rng.standard_normal((2, 3, 4, 4)), np.arange(2)
    _, logits, gradients, _ = Oracle(shared, weights).gradients(images, labels)
    _, expected, parts, _ = Oracle(apart, same).gradients(images, labels)
    assert np.array_equal(logits, expected) and np.array_equal(gradients["fc.weight"], parts["fc.weight"])
    allowed = rounding(2 * 4 * 4)  # the places of both images that are summed
    for name in ("weight", "bias"):
        both = parts[f"first.{name}"] + parts[f"second.{name}"]
        np.testing.assert_allclose(gradients[f"first.{name}"], both, rtol=0, atol=allowed * np.abs(both).max())
