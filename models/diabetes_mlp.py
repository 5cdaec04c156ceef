"""A few linear layers with ReLU and dropout for rows of a table; layers, units and dropout are what a search varies."""

from framework_compare.graph import Graph, GraphBuilder, Task


def build(task: Task, layers: int = 2, units: int = 32, dropout: float = 0.2) -> Graph:
    g = GraphBuilder("diabetes_mlp", task)
    for index in range(layers):
        g.linear(f"layers.{index}.linear", units, init="glorot_uniform")
        g.relu(f"layers.{index}.relu")
        if dropout:
            g.dropout(f"layers.{index}.dropout", dropout)
    g.linear("fc", task.outputs, init="glorot_uniform")
    return g.build()
