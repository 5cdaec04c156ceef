"""Stacked LSTM or GRU layers, each with dropout, the last one's last step to the numbers that are forecast.

With 4 LSTM layers of 50 the network of the Kaggle notebook on IBM's price, with 2 that on Google's.
"""

from framework_compare.graph import Graph, GraphBuilder, Task


def build(task: Task, layers: int = 4, hidden: int = 50, dropout: float = 0.2, kind: str = "lstm") -> Graph:
    """kind: "lstm" or "gru", which is also the graph's name."""
    g = GraphBuilder(kind, task)
    layer = {"lstm": g.lstm, "gru": g.gru}[kind]
    for index in range(layers):
        layer(f"{kind}.{index}", hidden)
        if index == layers - 1:
            g.last_step("last")
        if dropout:  # of the last layer those values only that go on
            g.dropout(f"dropout.{index}", dropout)
    g.linear("fc", task.outputs, init="glorot_uniform")
    return g.build()
