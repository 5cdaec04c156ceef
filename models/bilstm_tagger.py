"""A tag for each token: embedding, one LSTM forward and one backward, both to the logits of every step.

No packed sequences: pads are tokens like any other, and only the loss leaves them out.
"""

from framework_compare.graph import Graph, GraphBuilder, Task


def build(task: Task, width: int = 64, hidden: int = 64, dropout: float = 0.5) -> Graph:
    g = GraphBuilder("bilstm_tagger", task)
    tokens = g.embedding("embedding", width)
    forward = g.lstm("lstm_forward", hidden)
    g.reverse("reversed", source=tokens)
    g.lstm("lstm_backward", hidden)
    backward = g.reverse("backward_in_order")
    g.concat("both", forward, backward)
    if dropout:
        g.dropout("dropout", dropout)
    g.linear("fc", task.outputs, init="glorot_uniform")
    return g.build()
