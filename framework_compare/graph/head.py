"""The last layer of a network, replaced for another number of classes."""

import dataclasses
from typing import Dict, Optional

from framework_compare.errors import UsageError
from framework_compare.graph.network import Graph
from framework_compare.graph.node import Node

WIDTHS = {"Linear": "out_features", "Conv2d": "out_channels"}
# What may stand behind the last layer and leaves the number of classes as it is.
BEHIND = ("AdaptiveAvgPool2d", "AvgPool2d", "Dropout", "Flatten", "GlobalAvgPool", "MaxPool2d", "ReLU")


def head_of(graph: Graph) -> Optional[Node]:
    """The Linear or Conv2d that gives the logits, perhaps with pooling behind it; None where another layer does."""
    nodes: Dict[str, Node] = {node.name: node for node in graph.nodes}
    node = graph.nodes[-1]
    while node.op in BEHIND and node.inputs[0] in nodes:
        node = nodes[node.inputs[0]]
    alone = sum(other.arrays == node.arrays for other in graph.nodes) == 1
    return node if alone and node.op in WIDTHS and node.attrs[WIDTHS[node.op]] == graph.num_classes else None


def with_head(graph: Graph, classes: int) -> Graph:
    """The same network for another number of classes: its head has that many outputs; UsageError without a head."""
    if classes == graph.num_classes:
        return graph
    head = head_of(graph)
    if head is None:
        raise UsageError(
            f"{graph.name} has {graph.num_classes} classes from a {graph.nodes[-1].op}, but the data have {classes};"
            f" give it {classes} outputs, or end it with a Linear layer, which can be replaced"
        )
    wide = dataclasses.replace(head, attrs={**head.attrs, WIDTHS[head.op]: classes})
    nodes = tuple(wide if node.name == head.name else node for node in graph.nodes)
    changed = dataclasses.replace(graph, nodes=nodes, task=dataclasses.replace(graph.task, outputs=classes))
    changed.shapes()
    return changed
