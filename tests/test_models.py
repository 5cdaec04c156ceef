"""The networks: their published figures, their sizes, what is trained of them, and that the oracle runs each."""

import json

import numpy as np
import pytest
from bounds import rounding, standard_errors

from framework_compare import registry
from framework_compare.errors import UsageError
from framework_compare.graph import (
    Field,
    Graph,
    Task,
    image_classification,
    initial_weights,
    weight_views,
    weights,
    weights_size,
)
from framework_compare.models import (
    bilstm_tagger,
    conv_tagger,
    diabetes_mlp,
    lstm,
    quanv,
    small_cnns,
    text_rnn,
    tiny_cnn,
    vgg16,
)
from framework_compare.parity.network.oracle import Oracle
from framework_compare.registry import MODELS, load

# parameters with 3 and with 1000 classes, and forward MACs of one 224x224 image with 1000 (torchvision's tables)
PUBLISHED = {
    "alexnet": (57_016_131, 61_100_840, 0.71e9),
    "mobilenet_v2": (2_227_715, 3_504_872, 0.30e9),
    "resnet50": (23_514_179, 25_557_032, 3.86e9),
    "resnet50_v1_5": (23_514_179, 25_557_032, 4.09e9),
    "vgg16": (134_272_835, 138_357_544, 15.47e9),
}


def build(model: str, **options: int) -> Graph:
    return registry.load(registry.MODELS[model].build)(**options)


@pytest.mark.parametrize("model", PUBLISHED)
def test_parameters_and_macs_are_the_published_numbers_and_those_of_other_sizes_the_same(model):
    three, thousand, macs = PUBLISHED[model]
    large = build(model, num_classes=1000)
    assert build(model).parameter_count() == three and large.parameter_count() == thousand
    assert round(large.macs() / 1e9, 2) == round(macs / 1e9, 2)
    for size in (96, 160, 288):
        graph = build(model, image_size=size)
        assert graph.shapes()[graph.nodes[-1].name] == (3,) and graph.parameter_count() == three


def test_resnet50_versions_differ_in_where_a_stage_strides_and_feature_maps_shrink_as_published():
    v1, v1_5 = build("resnet50"), build("resnet50_v1_5")
    strides = {g.name: [n.attrs["stride"] for n in g.nodes if n.name.startswith("layer2.0.conv")] for g in (v1, v1_5)}
    assert strides == {"resnet50": [2, 1, 1], "resnet50_v1_5": [1, 2, 1]}
    shapes = build("resnet50").shapes()
    assert (shapes["conv1"], shapes["maxpool"]) == ((64, 112, 112), (64, 56, 56))
    assert (shapes["layer1.2.relu"], shapes["layer4.2.relu"]) == ((256, 56, 56), (2048, 7, 7))
    assert build("vgg16").shapes()["features.30"] == (512, 7, 7)
    assert build("alexnet").shapes()["features.12"] == (256, 6, 6)
    assert build("mobilenet_v2").shapes()["features.18.2"] == (1280, 7, 7)


@pytest.mark.parametrize("model, size", [("alexnet", 32), ("vgg16", 16), ("vgg16", 0)])
def test_an_image_size_that_does_not_fit_is_named(model, size):
    with pytest.raises(UsageError, match=f"(image_size {size}|image_size is {size})"):
        build(model, image_size=size)


def filled(model: str, seed: int) -> dict:
    graph = build(model)
    return initial_weights(graph, seed, np.empty(weights_size(graph), np.float32))


def test_weights_depend_on_the_seed_alone(monkeypatch):
    first, again, other = filled("mobilenet_v2", 0), filled("mobilenet_v2", 0), filled("mobilenet_v2", 1)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["features.0.0.weight"], other["features.0.0.weight"])
    whole = filled("mobilenet_v2", 0)
    monkeypatch.setattr(weights, "PIECE", 1001)
    pieces = filled("mobilenet_v2", 0)
    assert all(np.array_equal(whole[name], pieces[name]) for name in whole)


def test_weights_start_as_stated():
    found = filled("resnet50", 0)
    conv = found["layer4.0.conv2.weight"]
    for array, deviation in ((conv, np.sqrt(2 / (512 * 9))), (found["fc.weight"], 0.01)):
        assert array.std() == pytest.approx(deviation, rel=standard_errors(np.sqrt(1 / 2), array.size))
    assert set(np.unique(found["bn1.weight"])) == {1.0}
    assert not found["bn1.running_mean"].any() and not found["fc.bias"].any()
    graph = preset("gpt_nano")
    arrays = initial_weights(graph, 0, np.empty(weights_size(graph), np.float32))
    last = ("attn.proj.weight", "mlp.proj.weight")
    matrices = {name: array for name, array in arrays.items() if array.ndim == 2}
    for name, array in matrices.items():
        wanted = 0.02 / np.sqrt(8) if name.endswith(last) else 0.02
        assert abs(array.std() / wanted - 1) < 6 / np.sqrt(2 * array.size), name
    assert len(matrices) == 18 and sum(name.endswith(last) for name in matrices) == 8
    graph = lstm.build(forecast(5), layers=1)
    weights = initial_weights(graph, 0, np.empty(weights_size(graph), np.float32))
    square = weights["lstm.0.weight_hh"].T @ weights["lstm.0.weight_hh"]
    np.testing.assert_allclose(square, np.eye(50), rtol=0, atol=rounding(50, np.float32))
    assert weights["lstm.0.bias"].tolist() == [0.0] * 50 + [1.0] * 50 + [0.0] * 100
    limit = np.sqrt(6 / 201)
    assert 0.9 * limit < np.abs(weights["lstm.0.weight_ih"]).max() <= limit
    assert not weights["fc.bias"].any()


def test_frozen_layers_are_counted_apart_and_what_freezes_nothing_is_refused():
    with pytest.raises(UsageError, match="expected"):
        weight_views(build("alexnet"), np.zeros(3, np.float32))
    graph = small_cnns.cifar_cnn(image_classification(10, 32))
    with pytest.raises(UsageError, match="cifar_cnn: no layer with parameters starts with 'backbone.'"):
        graph.frozen("backbone.")
    graph = vgg16.build_transfer(image_classification(10, 224))
    kinds = {parameter.kind for parameter in graph.parameters()}
    frozen = sum(p.size for p in graph.parameters() if p.frozen)
    assert (kinds, frozen) == ({"trained", "frozen"}, 14_714_688)
    assert graph.backward_nodes() == {"head.0", "head.1", "head.2"}
    first, last = 25_088 * 256, 256 * 10
    assert graph.backward_macs() == first + 2 * last  # nothing in front of the head wants its input's gradient
    assert graph.macs() > 1000 * graph.backward_macs()
    graph = small_cnns.cifar_cnn(image_classification(10, 32))
    assert graph.backward_macs() == 2 * graph.macs() - 30 * 30 * 3 * 9 * 32
    graph = lstm.build(forecast(60), layers=1)
    assert graph.macs() == 60 * 200 * (1 + 50) + 50
    assert graph.backward_macs() == 2 * graph.macs() - 60 * 200  # the prices' own gradient is not needed


def forecast(steps):
    return Task((Field("prices", (steps, 1)),), Field("price", (1,)), 1, "mse", ("rmse",), "sequence")


def tags(steps, kinds, vocabulary=8000):
    tokens = Field("tokens", (steps,), "int32", vocabulary)
    return Task((tokens,), Field("tags", (steps,), "int64"), kinds, "token_cross_entropy", ("f1",), "sequence")


def grey(size, classes=10):
    return Task((Field("image", (1, size, size)),), Field("label", (), "int64"), classes, "cross_entropy")


def text(window, vocabulary):
    tokens = Field("tokens", (window,), "int32", vocabulary)
    target = Field("next", (window,), "int64")
    return Task((tokens,), target, vocabulary, "token_cross_entropy", ("perplexity",), "sequence")


def preset(name):
    own = MODELS[name]
    return load(own.build)(text(own.options.get("window", 128), own.options.get("vocabulary", 256)), **own.size)


WORDS = Task((Field("words", (20,), "int32", 1000),), Field("word", (), "int64"), 1000, "cross_entropy", (), "sequence")
ROWS = Task((Field("row", (8,)),), Field("diabetic", (1,)), 1, "binary_cross_entropy", ("auc",), "row")
FILTERED = Task((Field("image", (4, 14, 14)),), Field("label", (), "int64"), 10, "cross_entropy")

# trainable scalars, as published or by the layers' formulas
SIZES = {
    "lstm_ibm": (lambda: lstm.build(forecast(60)), 71_051),
    "lstm_google": (lambda: lstm.build(forecast(30), layers=2), 30_651),
    "gru_ibm": (lambda: lstm.build(forecast(60), kind="gru"), 53_901),
    "tweet_span": (lambda: bilstm_tagger.build(tags(33, 2)), 578_306),
    "tweet_ner": (lambda: bilstm_tagger.build(tags(57, 7)), 578_951),
    "conv_tagger": (lambda: conv_tagger.build(tags(33, 2)), 8000 * 96 + 4 * (96 * 288 * 3 + 288 + 2 * 96) + 2 * 97),
    "diabetes": (lambda: diabetes_mlp.build(ROWS), 9 * 32 + 33 * 32 + 33),
    "diabetes-3x64": (lambda: diabetes_mlp.build(ROWS, layers=3, units=64), 9 * 64 + 2 * 65 * 64 + 65),
    "guava-224": (lambda: small_cnns.guava_cnn(image_classification(8, 224)), 11_179_560),
    "guava-128": (lambda: small_cnns.guava_cnn(image_classification(8, 128)), 3_315_240),
    "cifar": (lambda: small_cnns.cifar_cnn(image_classification(10, 32)), 122_570),
    "mnist": (lambda: small_cnns.mnist_cnn(grey(28)), 93_322),
    "tiny": (lambda: tiny_cnn.build(image_classification(200, 64)), 3_928_584),
    "text": (lambda: text_rnn.build(WORDS), 388_584),
    "vgg16_frozen": (lambda: vgg16.build_transfer(image_classification(10, 224)), 6_425_354),
    "quanv_fixed": (lambda: quanv.build(grey(28)), 7_850),
    "quanv_trained": (lambda: quanv.build(grey(28), trained=True), 7_854),
    "quanv_classical": (lambda: quanv.classical(grey(28)), 7_850),
    "quanv_head": (lambda: quanv.head(FILTERED), 7_850),
    "gpt_nano": (lambda: preset("gpt_nano"), 842_496),
    "llama_nano": (lambda: preset("llama_nano"), 803_968),
    "gpt2_small": (lambda: preset("gpt2_small"), 124_439_808),
    "llama_160m": (lambda: preset("llama_160m"), 162_417_408),
}


@pytest.mark.parametrize("name", SIZES)
def test_workloads_have_the_published_parameters_and_survive_json(name):
    build, parameters = SIZES[name]
    graph = build()
    assert graph.parameter_count() == parameters
    assert Graph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


LARGE = ("gpt2_small", "llama_160m")


def test_a_head_is_the_embedding_and_a_step_sees_none_behind_it():
    graph = preset("gpt_nano")
    oracle = Oracle(graph, initial_weights(graph, 0, np.empty(weights_size(graph), np.float32)), np.float32)
    assert "head.weight" not in oracle.weights
    tokens = np.random.default_rng(0).integers(0, 256, (1, 128))
    other = tokens.copy()
    other[0, 70:] = (other[0, 70:] + 1) % 256
    first, second = (oracle.forward(one)[0] for one in (tokens, other))
    np.testing.assert_array_equal(first[:70], second[:70])
    assert np.abs(first[70:] - second[70:]).max() > rounding(tokens.size**2, np.float32) * np.abs(first).max()


def batch_of(graph, count, seed=0):
    """A random batch and target of the graph's task."""
    rng, task = np.random.default_rng(seed), graph.task
    arrays = [
        rng.integers(0, f.vocabulary, (count, *f.shape)) if f.vocabulary else rng.random((count, *f.shape))
        for f in task.inputs
    ]
    if task.loss == "token_cross_entropy":
        target = rng.integers(-1, task.outputs, (count, *task.target.shape))
    elif task.loss == "cross_entropy":
        target = rng.integers(0, task.outputs, count)
    else:
        target = rng.integers(0, 2, (count, *task.target.shape)).astype(float)
    return tuple(arrays), target


OF_IMAGES = ("alexnet", "mobilenet_v2", "resnet50")


@pytest.mark.parametrize(
    "name", [*OF_IMAGES, *(name for name in SIZES if name not in ("guava-224", "vgg16_frozen", *LARGE))]
)
def test_the_oracle_trains_each(name):
    graph = build(name, image_size=64) if name in OF_IMAGES else SIZES[name][0]()
    oracle = Oracle(graph, initial_weights(graph, 0, np.empty(weights_size(graph), np.float32)), np.float32)
    inputs, target = batch_of(graph, 2)
    loss, _, gradients = oracle.train_step(inputs, target, learning_rate=1e-3)
    assert 0 < loss < 50
    trained = [p for p in graph.parameters() if p.trainable]
    assert {name: a.shape for name, a in gradients.items()} == {p.name: p.shape for p in trained}
    assert all(gradient.dtype == np.float32 and gradient.any() for gradient in gradients.values())


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: text_rnn.build(tags(20, 5)), r"text_rnn: the last layer gives \(5,\); token_cross_.* \(20, 5\)"),
        (lambda: lstm.build(ROWS), r"lstm: layer lstm.0: expects a sequence \(steps, 8\), gets shape \(8,\)"),
        (lambda: bilstm_tagger.build(forecast(5)), "bilstm_tagger: layer embedding: expects an input of tokens"),
        (lambda: quanv.build(image_classification(3, 28)), r"layer quanv: expects a grey image"),
        (lambda: small_cnns.cifar_cnn(image_classification(10, 8)), "cifar_cnn: layer features.1.pool: a 2x2 window"),
    ],
)
def test_a_task_that_does_not_fit_is_named(build, message):
    with pytest.raises(UsageError, match=message):
        build()
