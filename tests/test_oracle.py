"""The oracle against finite differences, hand-worked values and published formulas, in functions and whole networks."""

import numpy as np
import pytest
from bounds import rounding, standard_errors
from slopes import slope

from framework_compare import registry
from framework_compare.graph import OPS as GRAPH_OPS
from framework_compare.graph import (
    Field,
    GraphBuilder,
    Node,
    Task,
    image_classification,
    initial_weights,
    trainable_names,
    weights_size,
)
from framework_compare.graph.task import SMOOTHED
from framework_compare.graph.window import Window
from framework_compare.parity.network.oracle import LOSSES, OPS, Mode, Oracle
from framework_compare.parity.network.oracle.image_ops import columns, fold
from framework_compare.parity.network.oracle.losses import binary_cross_entropy, cross_entropy, mse, token_cross_entropy

RNG = np.random.default_rng


def conv_node(**changed):
    attrs = {"in_channels": 4, "out_channels": 6, "kernel": 3, "stride": 2, "padding": 1, "groups": 1, "bias": True}
    return Node("layer", "Conv2d", ("input",), {**attrs, **changed})


def node(op, **attrs):
    return Node("layer", op, ("input",), attrs)


CASES = {
    "conv": conv_node(),
    "conv-depthwise": conv_node(groups=4, out_channels=4, bias=False),
    "conv-grouped": conv_node(groups=2),
    "conv-1x1-stride": conv_node(kernel=1, padding=0),
    "conv-wide": conv_node(kernel=5, stride=1, padding=2),
    "batchnorm": node("BatchNorm2d", channels=4, eps=1e-5, momentum=0.1),
    "relu": node("ReLU"),
    "relu6": node("ReLU6"),
    "maxpool-overlap": node("MaxPool2d", kernel=3, stride=2, padding=1),
    "maxpool": node("MaxPool2d", kernel=2, stride=2, padding=0),
    "adaptive": node("AdaptiveAvgPool2d", output=3),
    "global": node("GlobalAvgPool"),
    "flatten": node("Flatten"),
}


def weights_of(one):
    rng, a = RNG(1), one.attrs
    if one.op == "Conv2d":
        shape = (a["out_channels"], a["in_channels"] // a["groups"], a["kernel"], a["kernel"])
        return {"weight": rng.standard_normal(shape), "bias": rng.standard_normal(a["out_channels"])}
    if one.op == "BatchNorm2d":
        names = ("weight", "bias", "running_mean", "running_var")
        return {name: rng.uniform(0.5, 2, a["channels"]) for name in names}
    return {}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("case", CASES)
def test_backward_is_the_derivative_of_forward(case, training):
    one, rng = CASES[case], RNG(2)
    x, weights = 3 * rng.standard_normal((2, 4, 7, 8)), weights_of(CASES[case])
    y, backward = OPS[one.op](one, weights, (x,), Mode(training))
    upstream = rng.standard_normal(y.shape)
    (dx,), dweights = backward(upstream)
    direction = rng.standard_normal(x.shape)

    def terms(values):
        return OPS[one.op](one, weights, (values,), Mode(training))[0] * upstream

    assert (dx * direction).sum() == slope(terms, x, direction)
    assert set(OPS) == set(GRAPH_OPS), "test_ops.py has the others"
    for name, gradient in dweights.items():
        direction = rng.standard_normal(gradient.shape)

        def by_weight(values, name=name):
            return OPS[one.op](one, {**weights, name: values}, (x,), Mode(training))[0] * upstream

        assert (gradient * direction).sum() == slope(by_weight, weights[name], direction)


def test_convolutions_and_pools_by_hand():
    image = np.arange(16.0).reshape(1, 1, 4, 4)
    one = conv_node(in_channels=1, out_channels=1, kernel=3, stride=1, padding=0, bias=False)
    y, _ = OPS["Conv2d"](one, {"weight": np.ones((1, 1, 3, 3))}, (image,), Mode(False))
    assert y.tolist() == [[[[45, 54], [81, 90]]]]
    y, _ = OPS["MaxPool2d"](CASES["maxpool-overlap"], {}, (-np.ones((1, 1, 4, 4)),), Mode(False))
    assert y.tolist() == [[[[-1, -1], [-1, -1]]]]
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    y, _ = OPS["AdaptiveAvgPool2d"](node("AdaptiveAvgPool2d", output=2), {}, (x,), Mode(False))
    assert y.tolist() == [[[[2, 3], [5, 6]]]]


def test_columns_and_fold_are_adjoint_and_dropout_keeps_the_expected_value():
    rng = RNG(3)
    x = rng.standard_normal((3, 9, 7))
    window = Window.of({"kernel": 3, "stride": 2, "padding": 1})
    cols = columns(x, window)
    other = rng.standard_normal(cols.shape)
    assert (cols * other).sum() == pytest.approx((x * fold(other, (9, 7), window)).sum())
    y, _ = OPS["Dropout"](node("Dropout", p=0.3), {}, (np.ones((100, 1000)),), Mode(True, dropout=RNG(5)))
    assert set(np.unique(y)) == {0.0, 1 / 0.7}
    assert y.mean() == pytest.approx(1, abs=standard_errors(np.sqrt(0.3 / 0.7), y.size))


def test_normalisations_by_their_statistics():
    one, x = CASES["batchnorm"], RNG(4).standard_normal((2, 4, 3, 3))
    weights, mode = weights_of(CASES["batchnorm"]), Mode(True)
    y, _ = OPS["BatchNorm2d"](one, weights, (x,), mode)
    kept = 0.9 * weights["running_var"] + 0.1 * x.var(axis=(0, 2, 3), ddof=1)
    np.testing.assert_allclose(mode.statistics["layer.running_var"], kept)
    plain = (y - weights["bias"][:, None, None]) / weights["weight"][:, None, None]
    allowed, var = rounding(2 * 3 * 3), x.var(axis=(0, 2, 3))
    np.testing.assert_allclose(plain.mean(axis=(0, 2, 3)), 0, atol=allowed * np.abs(plain).max())
    np.testing.assert_allclose(plain.var(axis=(0, 2, 3)), var / (var + one.attrs["eps"]), rtol=allowed)
    one, rng = node("GroupNorm", groups=2, channels=6, eps=1e-5), RNG(5)
    x, upstream = 3 + rng.standard_normal((2, 6, 5, 4)), rng.standard_normal((2, 6, 5, 4))
    weights = {"weight": rng.uniform(0.5, 2, 6), "bias": rng.uniform(0.5, 2, 6)}
    (exact,), of_weights = OPS["GroupNorm"](one, weights, (x,), Mode(True))[1](upstream)
    (by_sums,), found = OPS["GroupNorm"](one, weights, (x,), Mode(True, plain_sums=True))[1](upstream)
    allowed = rounding(6 * 5 * 4) * (3 + np.abs(x).max())
    np.testing.assert_allclose(by_sums, exact, atol=allowed * np.abs(exact).max())
    for name, gradient in of_weights.items():
        np.testing.assert_allclose(found[name], gradient, atol=allowed * np.abs(gradient).max())
    # As PyTorch does in channels_last: 1,024 times 0.1 has errors that do not cancel.
    one, x = node("GroupNorm", groups=1, channels=2, eps=1e-5), RNG(6).standard_normal((1, 2, 32, 32))
    weights, upstream = {"weight": np.ones(2, np.float32), "bias": np.zeros(2, np.float32)}, np.full(x.shape, 0.1)
    mode = Mode(True, plain_sums=True, dtype=np.float32)
    _, found = OPS["GroupNorm"](one, weights, (x.astype(np.float32),), mode)[1](upstream.astype(np.float32))
    assert list(found["bias"]) == [np.full(1024, 0.1, np.float32).cumsum()[-1]] * 2


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


@pytest.mark.parametrize("model", ["alexnet", "mobilenet_v2", "resnet50"])
def test_registered_models_run(model):
    graph = registry.load(registry.MODELS[model].build)(image_size=64)
    weights = initial_weights(graph, 0, np.empty(weights_size(graph), np.float32))
    oracle = Oracle(graph, weights, np.float32)
    loss, _, gradients, _ = oracle.gradients(RNG(8).standard_normal((2, *graph.input_shape)), np.array([0, 1]))
    assert np.isfinite(loss)
    trained = {p.name: p.shape for p in graph.parameters() if p.trainable}
    assert {name: array.shape for name, array in gradients.items()} == trained


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
