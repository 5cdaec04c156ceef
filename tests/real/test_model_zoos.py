"""Numbers of trainable parameters of our graphs and of each framework's own model zoo, 3 classes.

Where a zoo has another variant of a network, `MORE` says by how many parameters, and why.
"""

import pytest
from nightly import some_nightly

TORCHVISION = """
import torch
from framework_compare.adapters.torch.pipeline import import_torchvision
network = import_torchvision(torch).models.{name}(num_classes=3)
theirs = sum(p.numel() for p in network.parameters())
"""
PADDLE = """
import paddle
network = paddle.vision.models.{name}(num_classes=3)
theirs = sum(int(np.prod(p.shape)) for p in network.parameters() if not p.stop_gradient)
"""
GLUON = """
import mxnet
network = mxnet.gluon.model_zoo.vision.{name}(classes=3)
network.initialize()
network(mxnet.nd.zeros((1, 3, 224, 224)))  # shapes are known from here on
theirs = sum(int(np.prod(p.shape)) for p in network.collect_params().values() if p.grad_req != "null")
"""
KERAS = """
import tensorflow
network = tensorflow.keras.applications.{name}(weights=None, classes=3, input_shape=(224, 224, 3))
theirs = sum(int(np.prod(w.shape)) for w in network.trainable_weights)
"""
COUNT = "answer = [graph.parameter_count(), theirs]\n"

# (framework, our model): how to make the zoo's network, its name there. Keras has no AlexNet.
SAME = {name: name for name in ("alexnet", "mobilenet_v2", "vgg16")}
NAMES = {
    **dict.fromkeys(("torch", "paddle"), {**SAME, "resnet50_v1_5": "resnet50"}),
    "mxnet": {**SAME, "mobilenet_v2": "mobilenet_v2_1_0", "resnet50": "resnet50_v1"},
    "tensorflow": {"mobilenet_v2": "MobileNetV2", "resnet50": "ResNet50", "vgg16": "VGG16"},
}
BODIES = {"torch": TORCHVISION, "paddle": PADDLE, "mxnet": GLUON, "tensorflow": KERAS}
ZOOS = {(zoo, ours): (BODIES[zoo], theirs) for zoo, names in NAMES.items() for ours, theirs in names.items()}
BOTTLENECKS = [(3, 64), (4, 128), (6, 256), (3, 512)]  # blocks of each stage of ResNet-50, and their width
# Gluon's ResNet-50 v1 has biases in the first and the last 1x1 convolution of each block.
GLUON_RESNET_BIASES = sum(blocks * (width + 4 * width) for blocks, width in BOTTLENECKS)
# Keras' has one in each of its 53 convolutions: also in the 3x3 ones, the stem and the four shortcuts.
KERAS_RESNET_BIASES = (
    GLUON_RESNET_BIASES + sum(blocks * width for blocks, width in BOTTLENECKS) + 64 + sum(4 * w for _, w in BOTTLENECKS)
)
# Gluon's MobileNetV2 expands its first block too, 32 to 32 channels with a BatchNorm; its classifier has no bias.
GLUON_MOBILENET = 32 * 32 + 2 * 32 - 3
MORE = {
    ("mxnet", "resnet50"): GLUON_RESNET_BIASES,
    ("mxnet", "mobilenet_v2"): GLUON_MOBILENET,
    ("tensorflow", "resnet50"): KERAS_RESNET_BIASES,
}


# Versions are pinned and counts of ours are in test_models.py: one of each zoo by day, those with quirks.
DAILY = [("torch", "resnet50_v1_5"), ("paddle", "mobilenet_v2"), ("mxnet", "mobilenet_v2"), ("tensorflow", "resnet50")]


@pytest.mark.parametrize("key", some_nightly(ZOOS, [key for key in ZOOS if key not in DAILY]), ids="-".join)
def test_parameters_are_those_of_the_frameworks_own_network(trainer_script, images, key):
    body, name = ZOOS[key]
    code = body.format(name=name) + COUNT
    ours, theirs = trainer_script(*key, code, images=images, image_size=224, build=False)
    assert theirs - ours == MORE.get(key, 0)


STRIDES = {
    "torch": "[layer.stride[0] for name, layer in network.named_modules() if 'layer2.0.conv' in name]",
    "paddle": "[layer._stride[0] for name, layer in network.named_sublayers() if 'layer2.0.conv' in name]",
}
OURS = "[node.attrs['stride'] for node in graph.nodes if 'layer2.0.conv' in node.name]"


@pytest.mark.parametrize("framework", STRIDES)
def test_the_resnet50_of_torchvision_and_paddle_is_v1_5(trainer_script, images, framework):
    """Counts do not tell v1 from v1.5: the stride is on the first 1x1 convolution in one, on the 3x3 in the other."""
    make = ZOOS[framework, "resnet50_v1_5"][0].format(name="resnet50")
    body = f"{make}\nanswer = [{OURS}, {STRIDES[framework]}]\n"
    ours, theirs = trainer_script(framework, "resnet50_v1_5", body, images=images, build=False)
    assert ours == theirs == [1, 2, 1]
