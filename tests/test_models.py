"""The networks against their published figures."""

import numpy as np
import pytest
from bounds import standard_errors

from framework_compare import registry
from framework_compare.errors import UsageError
from framework_compare.graph import Graph, initial_weights, weight_views, weights, weights_size

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
def test_parameters_are_the_published_number(model):
    three, thousand, _ = PUBLISHED[model]
    assert build(model).parameter_count() == three
    assert build(model, num_classes=1000).parameter_count() == thousand


@pytest.mark.parametrize("model", PUBLISHED)
def test_macs_round_to_the_published_number(model):
    published = PUBLISHED[model][2]
    assert round(build(model, num_classes=1000).macs() / 1e9, 2) == round(published / 1e9, 2)


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("size", [96, 160, 288])
def test_other_image_sizes_change_neither_parameters_nor_output(model, size):
    graph = build(model, image_size=size, num_classes=5)
    assert graph.shapes()[graph.nodes[-1].name] == (5,)
    assert graph.parameter_count() == build(model, num_classes=5).parameter_count()


def test_resnet50_versions_differ_in_where_a_stage_strides():
    v1, v1_5 = build("resnet50"), build("resnet50_v1_5")
    strides = {g.name: [n.attrs["stride"] for n in g.nodes if n.name.startswith("layer2.0.conv")] for g in (v1, v1_5)}
    assert strides == {"resnet50": [2, 1, 1], "resnet50_v1_5": [1, 2, 1]}


def test_feature_maps_shrink_as_published():
    shapes = build("resnet50").shapes()
    assert [shapes[name] for name in ("conv1", "maxpool", "layer1.2.relu", "layer4.2.relu")] == [
        (64, 112, 112),
        (64, 56, 56),
        (256, 56, 56),
        (2048, 7, 7),
    ]
    assert build("vgg16").shapes()["features.30"] == (512, 7, 7)
    assert build("alexnet").shapes()["features.12"] == (256, 6, 6)
    assert build("mobilenet_v2").shapes()["features.18.2"] == (1280, 7, 7)


@pytest.mark.parametrize("model, size", [("alexnet", 32), ("vgg16", 16), ("vgg16", 0)])
def test_an_image_size_that_does_not_fit_is_named(model, size):
    with pytest.raises(UsageError, match=f"(image_size {size}|image_size is {size})"):
        build(model, image_size=size)


def test_graph_survives_json():
    graph = build("mobilenet_v2")
    assert Graph.from_dict(graph.to_dict()) == graph


def filled(model: str, seed: int) -> dict:
    graph = build(model)
    return initial_weights(graph, seed, np.empty(weights_size(graph), np.float32))


def test_weights_depend_on_the_seed_alone():
    first, again, other = filled("mobilenet_v2", 0), filled("mobilenet_v2", 0), filled("mobilenet_v2", 1)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["features.0.0.weight"], other["features.0.0.weight"])


def test_weights_have_the_named_distribution():
    found = filled("resnet50", 0)
    conv = found["layer4.0.conv2.weight"]
    for array, deviation in ((conv, np.sqrt(2 / (512 * 9))), (found["fc.weight"], 0.01)):
        assert array.std() == pytest.approx(deviation, rel=standard_errors(np.sqrt(1 / 2), array.size))
    assert set(np.unique(found["bn1.weight"])) == {1.0}
    assert not found["bn1.running_mean"].any() and not found["fc.bias"].any()


def test_views_of_a_wrong_number_of_weights_are_refused():
    with pytest.raises(UsageError, match="expected"):
        weight_views(build("alexnet"), np.zeros(3, np.float32))


def test_weights_do_not_depend_on_the_pieces_they_are_made_in(monkeypatch):
    whole = filled("mobilenet_v2", 0)
    monkeypatch.setattr(weights, "PIECE", 1001)
    pieces = filled("mobilenet_v2", 0)
    assert all(np.array_equal(whole[name], pieces[name]) for name in whole)
