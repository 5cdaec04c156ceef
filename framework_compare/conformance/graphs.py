"""Small networks that hold all ops of GraphBuilder between them, and one that takes a while to compute."""

from __future__ import annotations

from framework_compare import registry
from framework_compare.graph import Graph, GraphBuilder

NAMES = ("conformance-branched", "conformance-plain")


def register() -> None:
    """Make the small networks known by name."""
    for name in NAMES:
        registry.register_model(name, f"{__name__}:{name.rpartition('-')[2]}")


def branched(num_classes: int = 3, image_size: int = 32) -> Graph:
    """Strides, BatchNorm, a depthwise convolution, ReLU6, a shortcut, global average pooling, dropout."""
    g = GraphBuilder(NAMES[0], num_classes=num_classes, image_size=image_size)
    g.conv("stem", 8, 3, stride=2, padding=1)
    g.batchnorm("stem_bn")
    g.relu("stem_relu")
    shortcut = g.maxpool("pool", 3, stride=2, padding=1)
    g.conv("widen", 24, 1)
    g.batchnorm("widen_bn", eps=1e-3, momentum=0.01)
    g.relu6("widen_relu6")
    g.conv("depthwise", 24, 3, padding=1, groups=24)
    g.batchnorm("depthwise_bn")
    g.relu6("depthwise_relu6")
    g.conv("narrow", 8, 1)
    branch = g.batchnorm("narrow_bn")
    g.add("add", branch, shortcut)
    g.relu("relu")
    g.global_avgpool("avgpool")
    g.dropout("dropout", 0.2)
    g.linear("fc", num_classes)
    return g.build()


def plain(num_classes: int = 3, image_size: int = 32) -> Graph:
    """Biases, groups, pooling without padding, adaptive pooling to windows that overlap, Flatten, two dropouts.

    Its logits are large, so that rounding moves the loss by more than a softmax kernel of few exact digits does.
    """
    g = GraphBuilder(NAMES[1], num_classes=num_classes, image_size=image_size)
    g.conv("conv1", 8, 5, stride=2, padding=2, bias=True)
    g.relu("relu1")
    g.maxpool("pool1", 3, stride=2)
    g.conv("conv2", 12, 3, padding=1, groups=2, bias=True)
    g.relu("relu2")
    g.adaptive_avgpool("avgpool", 3)
    g.flatten("flatten")
    g.dropout("dropout1", 0.5)
    g.linear("fc1", 32, init="kaiming_normal_fan_in")
    g.relu("relu3")
    g.dropout("dropout2", 0.5)
    g.linear("fc2", num_classes, init="kaiming_normal_fan_in")
    return g.build()


def heavy(num_classes: int = 3, image_size: int = 64) -> Graph:
    """Convolutions that keep a core busy for tens of milliseconds a step, so that a second thread would have work."""
    g = GraphBuilder("conformance-heavy", num_classes=num_classes, image_size=image_size)
    g.conv("conv1", 32, 3, padding=1)
    g.relu("relu1")
    g.conv("conv2", 64, 3, padding=1)
    g.relu("relu2")
    g.global_avgpool("avgpool")
    g.linear("fc", num_classes)
    return g.build()
