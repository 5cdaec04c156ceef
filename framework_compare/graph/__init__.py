"""Networks as framework-neutral graphs of layers. Both sides of the process boundary: stdlib and numpy only."""

from framework_compare.graph.builder import GraphBuilder
from framework_compare.graph.network import Graph, trainable_names
from framework_compare.graph.node import Node, Parameter, Shape
from framework_compare.graph.ops import OPS, Op
from framework_compare.graph.optimizer import OPTIMIZERS, Optimizer, Schedule
from framework_compare.graph.program import evaluate
from framework_compare.graph.task import INPUT, LOSSES, Field, Task, image_classification
from framework_compare.graph.weights import initial_flat, initial_pieces, initial_weights, weight_views, weights_size

__all__ = [
    "INPUT",
    "LOSSES",
    "OPS",
    "OPTIMIZERS",
    "Field",
    "Graph",
    "GraphBuilder",
    "Node",
    "Op",
    "Optimizer",
    "Parameter",
    "Schedule",
    "Shape",
    "Task",
    "evaluate",
    "image_classification",
    "initial_flat",
    "initial_pieces",
    "initial_weights",
    "trainable_names",
    "weight_views",
    "weights_size",
]
