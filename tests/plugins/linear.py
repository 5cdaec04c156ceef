"""A test model: mean colour, then a linear layer. Nine weights and three biases for three classes."""

from framework_compare.graph import Graph, GraphBuilder


def build(num_classes: int = 3, image_size: int = 224, name: str = "linear") -> Graph:
    g = GraphBuilder(name, num_classes=num_classes, image_size=image_size)
    g.global_avgpool("avgpool")
    g.linear("fc", num_classes)
    return g.build()
