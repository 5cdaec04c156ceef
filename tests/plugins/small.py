"""A test model with every kind of layer the ladder has to see through: a strided pair, a branch, a cap, dropout."""

from framework_compare.graph import Graph, GraphBuilder
from framework_compare.parity.network import surgery


def build(num_classes: int = 3, image_size: int = 32) -> Graph:
    g = GraphBuilder("small", num_classes=num_classes, image_size=image_size)
    g.conv("conv1", 8, 3, padding=1)
    g.batchnorm("bn1")
    g.relu("relu1")
    g.maxpool("pool", 3, stride=2, padding=1)
    g.conv("conv2", 16, 1, stride=2)
    g.batchnorm("bn2")
    shortcut = g.relu6("relu2")
    g.conv("conv3", 16, 3, padding=1)
    branch = g.batchnorm("bn3")
    g.add("add", branch, shortcut)
    g.relu("relu3")
    g.flatten("flatten")
    g.dropout("dropout", 0.5)
    g.linear("fc", num_classes)
    return g.build()


def without_dropout(num_classes: int = 3, image_size: int = 32) -> Graph:
    """Return the model without dropout, whose losses are the same in all frameworks."""
    return surgery.without_dropout(build(num_classes, image_size))
