"""A parameter that is not to be trained stays as it was loaded, and has no gradient; the others are trained."""

import pytest
from nightly import some_nightly

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax", "singa", "flax", "lightning"]
BODY = """
FROZEN = {frozen}
import dataclasses
from framework_compare.graph import Graph, GraphBuilder, initial_weights, weights_size

class Frozen(Graph):
    def parameters_of(self, node):
        own = super().parameters_of(node)
        return [dataclasses.replace(p, trainable=p.trainable and p.name not in FROZEN) for p in own]

g = GraphBuilder("frozen", num_classes=3, image_size=64)
g.conv("conv1", 8, 3, stride=2, padding=1)
g.batchnorm("bn1")
g.relu("relu1")
g.conv("conv2", 8, 3, stride=2, bias=True)
g.batchnorm("bn2")
g.relu("relu2")
g.global_avgpool("avgpool")
g.linear("fc1", 8)
g.linear("fc2", 3)
built = g.build()
graph = Frozen(**{field.name: getattr(built, field.name) for field in dataclasses.fields(built)})
"""
STEPS = """
weights = initial_weights(graph, 0, np.empty(weights_size(graph), np.float32))
trainer.build(graph)
trainer.load_weights(weights)
rng = np.random.default_rng(0)
shape = (4, 3, 64, 64) if trainer.layout == "NCHW" else (4, 64, 64, 3)
batch = trainer.to_device_batch(rng.standard_normal(shape, dtype=np.float32), np.array([0, 1, 2, 0]))
gradients = trainer.gradients(batch)
for _ in range(2):
    trainer.read_losses([trainer.train_step(batch)])
trainer.synchronize()
after = trainer.weights()
answer = {
    "names": sorted(after),
    "still": sorted(name for name in after if np.array_equal(after[name], weights[name])),
    "without gradient": sorted(set(after) - set(gradients)),
}
"""
FROZEN = ["conv1.weight", "conv2.bias", "conv2.weight", "fc1.bias", "fc1.weight"]
STATISTICS = ["bn1.running_mean", "bn1.running_var", "bn2.running_mean", "bn2.running_var"]


LIBRARIES = ["flax", "lightning"]  # by day what trains under them is tested


@pytest.mark.parametrize("framework", some_nightly(FRAMEWORKS, LIBRARIES))
def test_what_is_frozen_stays_and_the_rest_is_trained(framework, trainer_script, images):
    body = BODY.replace("{frozen}", str(FROZEN)) + STEPS
    found = trainer_script(framework, "mobilenet_v2", body, images=images, build=False, weight_decay=0.01)
    assert found["still"] == FROZEN
    assert found["without gradient"] == sorted(FROZEN + STATISTICS)


# A part of a network, and a constant.
PARTS = """
from framework_compare.graph import GraphBuilder, initial_weights, weights_size
g = GraphBuilder("parts", num_classes=3, image_size=64)
g.conv("base.conv", 8, 3, stride=2, padding=1, bias=True)
base = g.relu("base.relu")
scale = g.parameter("scale", [8, 1, 1], init="ones", trained=False)
g.mul("scaled", base, scale)
g.conv("conv", 8, 3, stride=2, bias=True)
g.global_avgpool("avgpool")
g.linear("fc", 3)
graph = g.build().frozen("base.")
"""
OTHERS = [*(name for name in FRAMEWORKS if name != "singa"), "keras-tensorflow", "keras-jax", "keras-torch"]


# By day one framework and one library: that parameters stay is tested above with each framework.
@pytest.mark.parametrize("framework", some_nightly(OTHERS, {*OTHERS} - {"torch", "keras-tensorflow"}))
def test_a_frozen_part_and_a_constant_stay(framework, trainer_script, images):
    found = trainer_script(framework, "mobilenet_v2", PARTS + STEPS, images=images, build=False)
    assert found["still"] == found["without gradient"] == ["base.conv.bias", "base.conv.weight", "scale.value"]


REFUSED = """
from framework_compare.errors import Unsupported
try:
    trainer.build(graph)
except Unsupported as error:
    answer = str(error)
"""


def test_mxnet_refuses_to_train_half_a_layer(trainer_script, images):
    """Without its weight's, oneDNN gives a bias no gradient: it would stay as it is, and nobody be told."""
    made = BODY.replace("{frozen}", "['fc1.weight']")
    found = trainer_script("mxnet", "mobilenet_v2", made + REFUSED, images=images, build=False)
    assert found == "layer fc1: MXNet trains all arrays of a layer or none"
