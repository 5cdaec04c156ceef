"""Test models: mean colour, then a linear layer. Nine weights and three biases for three classes."""

import functools
from typing import Any

from framework_compare.graph import Graph, GraphBuilder


def build(num_classes: int = 3, image_size: int = 224, name: str = "linear") -> Graph:
    g = GraphBuilder(name, num_classes=num_classes, image_size=image_size)
    g.global_avgpool("avgpool")
    g.linear("fc", num_classes)
    return g.build()


def __getattr__(name: str) -> Any:
    """The same model by another name, such as that of a fault of tests/plugins/faulty.py."""
    if name.startswith("_"):
        raise AttributeError(name)
    return functools.partial(build, name=name)
