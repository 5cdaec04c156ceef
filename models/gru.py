"""Stacked GRU layers, each with dropout, the last one's last step to the numbers that are forecast."""

from framework_compare.graph import Graph, GraphBuilder, Task


def build(task: Task, layers: int = 4, hidden: int = 50, dropout: float = 0.2) -> Graph:
    g = GraphBuilder("gru", task)
    for index in range(layers):
        g.gru(f"gru.{index}", hidden)
        if index == layers - 1:
            g.last_step("last")
        if dropout:  # of the last layer those values only that go on
            g.dropout(f"dropout.{index}", dropout)
    g.linear("fc", task.outputs, init="glorot_uniform")
    return g.build()
