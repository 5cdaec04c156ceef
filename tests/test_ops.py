"""The ops of the oracle: derivatives, hand-worked values, published identities."""

import numpy as np
import pytest
from bounds import decimals, rounding, standard_errors
from slopes import slope

from framework_compare.errors import UsageError
from framework_compare.graph import OPS as GRAPH_OPS
from framework_compare.graph import Node, circuit
from framework_compare.graph.attention import relative_index, shift_mask
from framework_compare.graph.window import Window, plain
from framework_compare.parity.network.oracle import OPS, Mode
from framework_compare.parity.network.oracle.image_ops import columns, fold

RNG = np.random.default_rng
UNIT = 16  # roundings of a recurrent unit's step, from its sums through two functions to its state


def node(op, *inputs, **attrs):
    return Node("layer", op, inputs or ("input",), attrs)


QUANV = {"gates": circuit.DEMO}
POOL = {"kernel": 3, "stride": 2, "padding": 1}
CEIL = {**POOL, "ceil_mode": True}
PAIRS = {"kernel": [3, 2], "stride": [1, 2], "padding": [1, 0]}
CHANNELS = {"in_channels": 3, "out_channels": 4, "groups": 1, "bias": True, "init": "zeros"}
DEPTHWISE = {**CHANNELS, "out_channels": 6, "groups": 3, "bias": False}
GROUPS = {"heads": 4, "kv_heads": 2, "scale": 0.5, "causal": True}
SHIFTED = {"heads": 2, "scale": 0.5, "bias": True, "window": [2, 2], "mask_shift": [1, 1]}
OF_STEPS, WINDOWS = {"in_channels": 6, "out_channels": 4, "init": "zeros"}, (2, 2, 3, 4, 6)
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
    "conv1d": (node("Conv1d", **OF_STEPS, kernel=3, padding=1, bias=True), [SEQUENCE]),
    "conv1d-valid": (node("Conv1d", **OF_STEPS, kernel=4, padding=0, bias=False), [SEQUENCE]),
    "layernorm": (node("LayerNorm", features=6, eps=1e-5), [SEQUENCE]),
    "layernorm-vector": (node("LayerNorm", features=6, eps=1e-5), [VECTOR]),
    "maxout": (node("Maxout", pieces=3), [SEQUENCE]),
    "linear-steps": (node("Linear", in_features=6, out_features=4, init="zeros"), [SEQUENCE]),
    "avgpool": (node("AvgPool2d", **POOL, count_include_pad=False), [IMAGE]),
    "avgpool-with-padding": (node("AvgPool2d", **POOL, count_include_pad=True), [IMAGE]),
    "avgpool-ceil": (node("AvgPool2d", **CEIL, count_include_pad=False), [IMAGE]),
    "avgpool-ceil-with-padding": (node("AvgPool2d", **CEIL, count_include_pad=True), [IMAGE]),
    "avgpool-of-pairs": (node("AvgPool2d", **PAIRS, count_include_pad=False), [IMAGE]),
    "maxpool": (node("MaxPool2d", **POOL), [IMAGE]),
    "maxpool-apart": (node("MaxPool2d", kernel=2, stride=2, padding=0), [IMAGE]),
    "maxpool-ceil": (node("MaxPool2d", **CEIL), [IMAGE]),
    "maxpool-of-pairs": (node("MaxPool2d", **PAIRS), [IMAGE]),
    "adaptive-avgpool": (node("AdaptiveAvgPool2d", output=[3, 2]), [IMAGE]),
    "adaptive-avgpool-to-one": (node("AdaptiveAvgPool2d", output=1), [IMAGE]),
    "global-avgpool": (node("GlobalAvgPool"), [IMAGE]),
    "global-avgpool-steps": (node("GlobalAvgPool"), [SEQUENCE]),
    "conv": (node("Conv2d", **CHANNELS, **POOL), [IMAGE]),
    "conv-depthwise": (node("Conv2d", **DEPTHWISE, **POOL), [IMAGE]),
    "conv-grouped": (node("Conv2d", **{**CHANNELS, "in_channels": 4, "groups": 2}, **POOL), [(2, 4, 7, 8)]),
    "conv-1x1-stride": (node("Conv2d", **CHANNELS, kernel=1, stride=2, padding=0), [IMAGE]),
    "conv-wide": (node("Conv2d", **CHANNELS, kernel=5, stride=1, padding=2), [IMAGE]),
    "conv-of-pairs": (node("Conv2d", **CHANNELS, **PAIRS), [IMAGE]),
    "conv-dilated": (node("Conv2d", **CHANNELS, **{**POOL, "dilation": [1, 2]}), [IMAGE]),
    "conv-asymmetric": (node("Conv2d", **CHANNELS, **{**POOL, "padding": [0, 1, 2, 0]}), [IMAGE]),
    "conv-depthwise-dilated": (node("Conv2d", **DEPTHWISE, **{**POOL, "dilation": 2}), [IMAGE]),
    "linear-channels": (node("Linear", in_features=3, out_features=4, init="zeros", bias=False), [IMAGE]),
    "linear-windows": (node("Linear", in_features=6, out_features=4, init="zeros"), [WINDOWS]),
    "layernorm-channels": (node("LayerNorm", features=3, eps=1e-5), [IMAGE]),
    "add": (node("Add", "a", "b"), [IMAGE, IMAGE]),
    "add-to-every-sample": (node("Add", "a", "b"), [SEQUENCE, (1, 5, 6)]),
    "mul": (node("Mul", "a", "b"), [IMAGE, IMAGE]),
    "mul-by-channel": (node("Mul", "a", "b"), [(2, 3, 1, 1), IMAGE]),
    "mul-by-parameter": (node("Mul", "a", "b"), [IMAGE, (1, 3, 1, 1)]),
    "batchnorm": (node("BatchNorm2d", channels=3, eps=1e-5, momentum=0.1), [IMAGE]),
    "relu": (node("ReLU"), [IMAGE]),
    "relu6": (node("ReLU6"), [(2, 40, 6)]),
    "flatten": (node("Flatten"), [IMAGE]),
    "silu": (node("SiLU"), [IMAGE]),
    "hardsigmoid": (node("HardSigmoid"), [(2, 40, 6)]),
    "hardswish": (node("HardSwish"), [(2, 40, 6)]),
    "gelu": (node("GELU", approximate="none"), [SEQUENCE]),
    "gelu-by-tanh": (node("GELU", approximate="tanh"), [SEQUENCE]),
    "concat-channels": (node("Concat", "a", "b"), [IMAGE, (2, 2, 7, 8)]),
    "concat-steps": (node("Concat", "a", "b", axis=0), [(1, 1, 6), SEQUENCE]),
    "split": (node("Split", axis=0, sizes=[1, 2], index=1), [IMAGE]),
    "slice": (node("Slice", axis=2, start=1, end=8, step=2), [IMAGE]),
    "select": (node("Select", index=1), [SEQUENCE]),
    "channel-shuffle": (node("ChannelShuffle", groups=3), [(2, 6, 2, 3)]),
    "parameter": (Node("layer", "Parameter", (), {"shape": [5, 6], "init": "zeros"}), []),
    "tokens": (node("Tokens"), [IMAGE]),
    "attention": (node("Attention", heads=2, scale=0.7), [(2, 5, 12)]),
    "attention-of-three": (node("Attention", "q", "k", "v", heads=2, scale=0.5), [(2, 5, 4)] * 3),
    "attention-with-bias": (node("Attention", "x", "b", heads=2, scale=0.7, bias=True), [(2, 5, 12), (1, 2, 5, 5)]),
    "attention-of-windows": (node("Attention", "x", "b", **SHIFTED), [(2, 2, 3, 4, 12), (1, 2, 4, 4)]),
    "attention-causal": (node("Attention", heads=2, scale=0.7, causal=True), [(2, 5, 12)]),
    "attention-of-groups": (node("Attention", "q", "k", "v", **GROUPS), [(2, 5, 8), (2, 5, 4), (2, 5, 4)]),
    "rotary": (node("Rotary", heads=2, theta=100.0), [(2, 5, 8)]),
    "rmsnorm": (node("RMSNorm", features=6, eps=1e-5), [SEQUENCE]),
    "unembedding": (node("Unembedding", num_embeddings=7, embedding_dim=6, init="normal_0.02"), [SEQUENCE]),
    "pad": (node("Pad", padding=[0, 1, 2, 3]), [IMAGE]),
    "roll": (node("Roll", shifts=[-1, 2]), [IMAGE]),
    "windows": (node("Windows", window=[2, 3]), [(2, 3, 4, 6)]),
    "from-windows": (node("FromWindows", window=[2, 3]), [(2, 2, 1, 6, 3)]),
    "relative-bias": (Node("layer", "RelativeBias", (), {"window": [2, 3], "heads": 2, "init": "zeros"}), []),
    "quanv": (node("Quanv2d", **QUANV, trained=False), [(2, 1, 4, 6)]),
    "quanv-odd": (node("Quanv2d", **QUANV, trained=False), [(2, 1, 5, 7)]),
    "quanv-trained": (node("Quanv2d", **QUANV, trained=True), [(2, 1, 4, 6)]),
}


def arrays_of(case):
    """The node of a case, weights, and inputs large enough for every part of a function with corners."""
    one, shapes = CASES[case]
    rng = RNG(1)
    inputs = tuple(3 * rng.standard_normal(shape) for shape in shapes)
    draw = (lambda shape: rng.uniform(0.5, 2, shape)) if one.op == "BatchNorm2d" else rng.standard_normal
    weights = {p.name.rpartition(".")[2]: draw(p.shape) for p in GRAPH_OPS[one.op].parameters(one)}
    return one, weights, inputs


@pytest.mark.parametrize("case, training", [*((case, True) for case in CASES), ("batchnorm", False)])
def test_backward_is_the_derivative_of_forward(case, training):
    one, weights, inputs = arrays_of(case)
    y, backward = OPS[one.op](one, weights, inputs, Mode(training))
    upstream = RNG(2).standard_normal(y.shape)
    gradients, by_weight = backward(upstream)
    trained = {p.name.rpartition(".")[2] for p in GRAPH_OPS[one.op].parameters(one) if p.trainable}
    assert set(by_weight) == trained and set(OPS) == set(GRAPH_OPS)
    assert y.shape[1:] == GRAPH_OPS[one.op].shape(one, *(x.shape[1:] for x in inputs))

    def run(weights, inputs):
        return OPS[one.op](one, weights, inputs, Mode(training))[0] * upstream

    for k, gradient in enumerate(gradients):
        direction = RNG(3).standard_normal(gradient.shape)
        expected = slope(lambda x, k=k: run(weights, (*inputs[:k], x, *inputs[k + 1 :])), inputs[k], direction)
        assert (gradient * direction).sum() == expected
    for name, gradient in by_weight.items():
        for place in np.ndindex(*gradient.shape) if gradient.size <= 100 else [None]:
            direction = RNG(4).standard_normal(gradient.shape)
            if place is not None:  # number by number, so that no wrong two cancel
                direction = np.zeros(gradient.shape)
                direction[place] = 1
            expected = slope(lambda w, name=name: run({**weights, name: w}, inputs), weights[name], direction)
            assert (gradient * direction).sum() == expected, (name, place)


@pytest.mark.parametrize("case", CASES)
def test_float32_stays_float32(case):
    one, weights, inputs = arrays_of(case)
    narrow = {name: array.astype(np.float32) for name, array in weights.items()}
    y, backward = OPS[one.op](one, narrow, tuple(x.astype(np.float32) for x in inputs), Mode(True))
    gradients, by_weight = backward(y)
    assert {array.dtype for array in (y, *gradients, *by_weight.values())} == {np.dtype(np.float32)}


def test_windows_of_equal_numbers_are_written_as_one_and_rounded_up_to_but_not_behind_the_image():
    """torch's rule: a last window that starts behind the image and its first pads is left out."""
    for pixels, count in ((7, 4), (8, 5), (9, 5), (10, 6)):
        assert Window.of(CEIL).output((pixels, pixels)) == (count, count)
    assert Window.of({"kernel": 1, "stride": 3, "padding": 0, "ceil_mode": True}).output((6, 7)) == (2, 3)
    y, _ = OPS["AvgPool2d"](CASES["avgpool-ceil-with-padding"][0], {}, (np.ones((1, 1, 8, 8)),), Mode(False))
    assert y[0, 0, 0].tolist() == pytest.approx([4 / 9, 2 / 3, 2 / 3, 2 / 3, 1 / 3])
    assert y.shape == (1, 1, 5, 5) and y[0, 0, 4, 4] == pytest.approx(1 / 4)
    windows = [
        (3, 3),
        ([3, 3], 3),
        ([1, 2], [1, 2]),
        ([1, 1, 1, 1], 1),
        ([1, 1, 2, 2], [1, 2]),
        ([0, 1, 0, 1], [0, 1, 0, 1]),
    ]
    assert all(plain(value) == written for value, written in windows)


def test_attention_and_its_shifted_windows_by_hand():
    q, k, v = (np.array([[[1.0], [2.0]]]), np.array([[[0.0], [1.0]]]), np.array([[[3.0], [5.0]]]))
    one = node("Attention", "q", "k", "v", heads=1, scale=0.5)
    y, _ = OPS["Attention"](one, {}, (q, k, v), Mode(False))
    assert y.ravel().tolist() == pytest.approx([3 + 2 * squash(0.5), 3 + 2 * squash(1.0)])
    mask = shift_mask({"window": [2, 2], "mask_shift": [1, 1]}, 2, 2)[:, :, 0]
    assert not mask[0, 0].any()
    assert (mask[0, 1] == np.array([[0, -100, 0, -100], [-100, 0, -100, 0]] * 2)).all()
    assert (mask[1, 1] == 100 * (np.eye(4) - 1)).all()
    index = relative_index([2, 2])
    assert index.tolist() == [[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]]


def test_stochastic_depth_drops_whole_samples_and_embeddings_train_every_row_that_occurs():
    one, x = node("StochasticDepth", p=0.25), RNG(15).standard_normal((400, 2, 3))
    y, backward = OPS["StochasticDepth"](one, {}, (x,), Mode(True, dropout=RNG(16)))
    scales = (y / x).reshape(400, -1)
    assert set(np.round(scales.ravel(), 9)) == {0.0, round(4 / 3, 9)}
    np.testing.assert_allclose(scales, np.broadcast_to(scales[:, :1], scales.shape))
    assert 60 < (scales[:, 0] == 0).sum() < 140
    np.testing.assert_allclose(backward(x)[0][0], y)
    assert OPS["StochasticDepth"](one, {}, (x,), Mode(False))[0] is x
    one, rows = node("Embedding", num_embeddings=4, embedding_dim=2, init="zeros"), np.arange(8.0).reshape(4, 2)
    y, backward = OPS["Embedding"](one, {"weight": rows}, (np.array([[0, 3, 3]]),), Mode(True))
    assert y.tolist() == [[[0, 1], [6, 7], [6, 7]]]
    _, gradients = backward(np.array([[[1.0, 2], [3, 4], [5, 6]]]))
    assert gradients["weight"].tolist() == [[1, 2], [0, 0], [0, 0], [8, 10]]


def squash(x):
    return 1 / (1 + np.exp(-x))


def test_recurrent_layers_by_hand():
    """Two steps of one unit, gate by gate from the published equations."""
    one = node("LSTM", input_size=1, hidden_size=1)
    squares = {
        "weight_ih": np.array([[0.1], [0.2], [0.3], [0.4]]),
        "weight_hh": np.array([[0.5], [-0.6], [0.7], [-0.8]]),
    }
    weights = {**squares, "bias": np.array([0.01, 1.0, -0.02, 0.03])}
    y, _ = OPS["LSTM"](one, weights, (np.array([[[1.0], [2.0]]]),), Mode(False))
    c = squash(0.11) * np.tanh(0.28)
    h = squash(0.43) * np.tanh(c)
    assert y[0, 0, 0] == pytest.approx(h, rel=rounding(UNIT))
    c = squash(0.41 - 0.6 * h + 0.99) * c + squash(0.21 + 0.5 * h) * np.tanh(0.58 + 0.7 * h)
    assert y[0, 1, 0] == pytest.approx(squash(0.83 - 0.8 * h) * np.tanh(c), rel=rounding(2 * UNIT))
    # The second bias of n stands inside the reset gate.
    one = node("GRU", input_size=1, hidden_size=1)
    weights = {"weight_ih": np.array([[0.1], [0.2], [0.3]]), "weight_hh": np.array([[0.5], [-0.6], [0.7]])}
    weights.update(bias_ih=np.array([0.01, 0.02, 0.03]), bias_hh=np.array([0.04, 0.05, 0.6]))
    y, _ = OPS["GRU"](one, weights, (np.array([[[1.0], [2.0]]]),), Mode(False))
    first = (1 - squash(0.27)) * np.tanh(0.33 + squash(0.15) * 0.6)
    assert y[0, 0, 0] == pytest.approx(first, rel=rounding(UNIT))
    reset, update = squash(0.25 + 0.5 * first), squash(0.47 - 0.6 * first)
    second = (1 - update) * np.tanh(0.63 + reset * (0.7 * first + 0.6)) + update * first
    assert y[0, 1, 0] == pytest.approx(second, rel=rounding(2 * UNIT))


def test_conv1d_maxout_layernorm_and_pools_by_hand():
    one, weights, (x,) = arrays_of("conv1d-valid")
    y, _ = OPS["Conv1d"](one, weights, (x,), Mode(False))
    expected = sum(np.correlate(x[1, :, i], weights["weight"][2, i], "valid") for i in range(6))
    np.testing.assert_allclose(y[1, :, 2], expected)
    y, backward = OPS["Maxout"](node("Maxout", pieces=2), {}, (np.array([[1.0, 5, 7, 7]]),), Mode(False))
    assert y.tolist() == [[5, 7]] and backward(np.array([[1.0, 1]]))[0][0].tolist() == [[0, 1, 0.5, 0.5]]
    x = RNG(5).standard_normal((2, 3, 50))
    one = node("LayerNorm", features=50, eps=0.0)
    y, _ = OPS["LayerNorm"](one, {"weight": np.ones(50), "bias": np.zeros(50)}, (x,), Mode(False))
    np.testing.assert_allclose(y.mean(axis=-1), 0, atol=rounding(50))
    np.testing.assert_allclose(y.var(axis=-1), 1)
    ones = (np.ones((1, 1, 4, 4)),)
    y, _ = OPS["AvgPool2d"](CASES["avgpool"][0], {}, ones, Mode(False))
    np.testing.assert_allclose(y, np.ones((1, 1, 2, 2)))
    y, _ = OPS["AvgPool2d"](CASES["avgpool-with-padding"][0], {}, ones, Mode(False))
    np.testing.assert_allclose(y, np.array([[[[4, 6], [6, 9]]]]) / 9)


def test_convolutions_and_pools_by_hand():
    image = np.arange(16.0).reshape(1, 1, 4, 4)
    attrs = {"in_channels": 1, "out_channels": 1, "groups": 1, "kernel": 3, "stride": 1, "padding": 0}
    one = node("Conv2d", **attrs, bias=False, init="zeros")
    y, _ = OPS["Conv2d"](one, {"weight": np.ones((1, 1, 3, 3))}, (image,), Mode(False))
    assert y.tolist() == [[[[45, 54], [81, 90]]]]
    y, _ = OPS["MaxPool2d"](CASES["maxpool"][0], {}, (-np.ones((1, 1, 4, 4)),), Mode(False))
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
    one, weights, (x,) = arrays_of("batchnorm")
    mode = Mode(True)
    y, _ = OPS["BatchNorm2d"](one, weights, (x,), mode)
    kept = 0.9 * weights["running_var"] + 0.1 * x.var(axis=(0, 2, 3), ddof=1)
    np.testing.assert_allclose(mode.statistics["layer.running_var"], kept)
    plain = (y - weights["bias"][:, None, None]) / weights["weight"][:, None, None]
    allowed, var = rounding(x[:, 0].size), x.var(axis=(0, 2, 3))
    np.testing.assert_allclose(plain.mean(axis=(0, 2, 3)), 0, atol=allowed * np.abs(plain).max())
    np.testing.assert_allclose(plain.var(axis=(0, 2, 3)), var / (var + one.attrs["eps"]), rtol=allowed)
    mean, variance, scale, bias = (
        weights[name][:, None, None] for name in ("running_mean", "running_var", "weight", "bias")
    )
    y, _ = OPS["BatchNorm2d"](one, weights, (x,), Mode(False))
    np.testing.assert_allclose(y, scale * (x - mean) / np.sqrt(variance + one.attrs["eps"]) + bias)
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


def test_the_demo_circuit_gives_pennylanes_numbers_by_gates_that_keep_lengths():
    """Of the first test digit of MNIST, by PennyLane 0.45.1's default.qubit."""
    patch = np.array([[[[0, 0], [84, 185]]]]) / 255
    y, _ = OPS["Quanv2d"](node("Quanv2d", **QUANV, trained=False), {}, (patch,), Mode(False))
    np.testing.assert_allclose(y.ravel(), [1, -0.953334, 0.361191, 0.620256], rtol=0, atol=decimals(6))
    for matrix in circuit.matrices(circuit.DEMO):
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(32), rtol=0, atol=rounding(4))
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
    np.testing.assert_allclose(gradients, expected, rtol=0, atol=rounding(upstream.size) * np.abs(upstream).sum())


@pytest.mark.parametrize(
    "one, shapes, message",
    [
        (node("LSTM", input_size=3, hidden_size=2), [(5, 4)], r"expects a sequence \(steps, 3\), gets shape \(5, 4\)"),
        (node("Last"), [(4,)], r"expects a sequence \(steps, features\), gets shape \(4,\)"),
        (node("Concat", "a", "b"), [(5, 2), (4, 2)], r"cannot join the features of shapes \(5, 2\), \(4, 2\)"),
        (node("Maxout", pieces=3), [(5, 4)], r"cannot group the features of shape \(5, 4\) by 3"),
        (node("Embedding", num_embeddings=3, embedding_dim=2), [(5, 4)], r"expects tokens \(steps,\), gets shape"),
        (CASES["conv1d-valid"][0], [(3, 6)], "a window of 4 steps does not fit 3"),
        (node("Mul", "a", "b"), [(5, 4), (4,)], r"Mul cannot broadcast \(5, 4\) and \(4,\)"),
        (node("Conv2d", **CHANNELS, kernel=3, stride=1, padding=0, dilation=4), [(3, 8, 8)], "9x9 window does not fit"),
        (node("MaxPool2d", kernel=2, stride=2, padding=[0, 1, 0, 1]), [(3, 8, 8)], "is not symmetric"),
        (node("Slice", axis=1, start=3, end=9), [(3, 8, 8)], "cannot take 3 to 9 of axis 1"),
        (node("Split", axis=0, sizes=[1, 1], index=0), [(3, 8, 8)], "cannot split axis 0"),
        (node("Select", index=5), [(5, 4)], "there is no step 5 of 5"),
        (node("Windows", window=[2, 3]), [(3, 4, 8)], "2x3 windows do not divide 4x8"),
        (node("Attention", heads=5, scale=1.0), [(4, 12)], "into 3 x 5"),
        (node("AvgPool2d", kernel=2, stride=2, padding=2, count_include_pad=True), [(3, 8, 8)], "more than half"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(one, shapes, message):
    with pytest.raises(UsageError, match=f"layer layer: .*{message}"):
        GRAPH_OPS[one.op].shape(one, *shapes)
