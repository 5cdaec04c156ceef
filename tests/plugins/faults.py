"""Models named after the faults of tests/plugins/faulty.py: one linear layer each."""

from typing import Any, Callable

from framework_compare.graph import Graph, GraphBuilder


def named(name: str) -> Callable[..., Graph]:
    def build(num_classes: int = 3, image_size: int = 224) -> Graph:
        g = GraphBuilder(name, num_classes=num_classes, image_size=image_size)
        g.global_avgpool("avgpool")
        g.linear("fc", num_classes)
        return g.build()

    return build


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return named(name)
