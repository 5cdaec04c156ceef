"""The oracle's losses and whole networks against finite differences, hand-worked values and published formulas."""

import numpy as np
import pytest
from bounds import rounding
from slopes import slope

from framework_compare.graph import (
    Field,
    GraphBuilder,
    Task,
    image_classification,
    initial_weights,
    trainable_names,
    weights_size,
)
from framework_compare.graph.task import SMOOTHED
from framework_compare.parity.network.oracle import LOSSES, Oracle
from framework_compare.parity.network.oracle.losses import binary_cross_entropy, cross_entropy, mse, token_cross_entropy

RNG = np.random.default_rng


def test_losses_by_hand():
    loss, gradient = cross_entropy(np.zeros((2, 3)), np.array([0, 2]))
    assert loss == pytest.approx(np.log(3))
    np.testing.assert_allclose(gradient, np.array([[-2, 1, 1], [1, 1, -2]]) / 6)
    assert mse(np.array([[2.0], [0.0]]), np.zeros((2, 1)))[0] == 2.0
    with pytest.raises(ValueError, match=r"output \(2, 1\) and target \(2,\) differ in shape"):
        mse(np.zeros((2, 1)), np.zeros(2))
    loss, gradient = binary_cross_entropy(np.array([[1000.0], [-1000.0]]), np.array([[0.0], [0.0]]))
    assert loss == 500
    assert gradient.tolist() == [[0.5], [0.0]]
    assert binary_cross_entropy(np.zeros((1, 1)), np.ones((1, 1)))[0] == pytest.approx(np.log(2))


def residual_graph():
    g = GraphBuilder("residual", num_classes=3, image_size=12)
    g.conv("conv1", 6, 3, stride=2, padding=1)
    g.batchnorm("bn1")
    shortcut = g.relu6("relu1")
    g.conv("conv2", 6, 3, padding=1, groups=6)
    branch = g.batchnorm("bn2")
    g.add("add", branch, shortcut)
    g.relu("relu2")
    g.maxpool("pool", 3, stride=2, padding=1)
    g.flatten("flatten")
    g.linear("fc", 3)
    return g.build()


def prepared(graph):
    weights = initial_weights(graph, 0, np.empty(weights_size(graph), np.float32))
    rng = RNG(6)
    return Oracle(graph, weights), rng.standard_normal((4, *graph.input_shape)), np.array([0, 1, 2, 1])


def check_gradients(oracle, batch, target, loss_of):
    _, _, gradients, _ = oracle.gradients(batch, target)
    assert set(gradients) == set(trainable_names(oracle.graph))
    for name, gradient in gradients.items():
        held, direction = oracle.weights[name], RNG(7).standard_normal(gradient.shape)

        def loss(values, name=name):
            oracle.weights[name] = values
            return loss_of(oracle.forward(batch, training=True), target)[0]

        expected = slope(loss, held, direction)
        oracle.weights[name] = held
        assert (gradient * direction).sum() == expected, name


def test_gradient_of_a_whole_network_is_the_derivative_of_its_loss():
    check_gradients(*prepared(residual_graph()), cross_entropy)
    graph, rng = two_inputs(), RNG(11)
    oracle = Oracle(graph, {p.name: rng.standard_normal(p.shape) for p in graph.parameters()})
    batch = rng.integers(0, 7, (4, 5)), rng.standard_normal((4, 3))
    check_gradients(oracle, batch, rng.standard_normal((4, 1)), mse)


def test_train_step_is_the_published_momentum_rule_and_forward_changes_nothing():
    oracle, images, labels = prepared(residual_graph())
    before = oracle.weights["fc.weight"].copy()
    _, _, first = oracle.train_step(images, labels, learning_rate=0.1, momentum=0.9, weight_decay=0.01)
    middle = oracle.weights["fc.weight"].copy()
    _, _, second = oracle.train_step(images, labels, learning_rate=0.1, momentum=0.9, weight_decay=0.01)
    velocity = first["fc.weight"] + 0.01 * before
    np.testing.assert_allclose(middle, before - 0.1 * velocity)
    velocity = 0.9 * velocity + second["fc.weight"] + 0.01 * middle
    np.testing.assert_allclose(oracle.weights["fc.weight"], middle - 0.1 * velocity)
    oracle, images, _ = prepared(residual_graph())
    held = {name: array.copy() for name, array in oracle.weights.items()}
    oracle.forward(images, training=True)
    assert all(np.array_equal(held[name], array) for name, array in oracle.weights.items())
    narrow = Oracle(oracle.graph, held, np.float32)
    seen = {}
    logits = narrow.forward(images, training=True, watch=lambda name, value: seen.update({name: value.dtype}))
    assert set(seen.values()) == {np.dtype(np.float32)}
    expected = oracle.forward(images, training=True)
    allowed = rounding(oracle.weights["fc.weight"].shape[1], np.float32)  # the longest of its sums
    np.testing.assert_allclose(logits, expected, rtol=0, atol=allowed * np.abs(expected).max())


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


def test_smoothed_and_masked_labels_by_hand():
    logits, labels = RNG(12).standard_normal((5, 4)), np.array([0, 3, 1, 1, 2])
    spread = 0.9 * np.eye(4)[labels] + 0.1 / 4
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss, gradient = cross_entropy(logits, labels, 0.1)
    assert loss == pytest.approx(-(spread * np.log(shares)).sum(axis=1).mean())
    assert gradient == pytest.approx((shares - spread) / 5)
    logits, labels = RNG(10).standard_normal((2, 3, 4)), np.array([[1, -1, -1], [-1, 2, -1]])
    kept = np.stack([logits[0, 0], logits[1, 1]])
    loss, gradient = token_cross_entropy(logits, labels)
    assert loss == pytest.approx(cross_entropy(kept, np.array([1, 2]))[0])
    assert not gradient[labels == -1].any()
    loss, gradient = token_cross_entropy(logits, np.full((2, 3), -1))
    assert loss == 0 and not gradient.any()


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
