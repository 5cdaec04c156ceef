"""The next word of a text: embedding, LSTM, the last step's features to the logits of every word."""

from framework_compare.graph import Graph, GraphBuilder, Task


def build(task: Task, width: int = 128, hidden: int = 128) -> Graph:
    g = GraphBuilder("text_rnn", task)
    g.embedding("embedding", width)
    g.lstm("lstm", hidden)
    g.last_step("last")
    g.linear("fc", task.outputs, init="glorot_uniform")
    return g.build()
