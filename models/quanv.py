"""A simulated circuit of four qubits on 2x2 patches, then one linear layer (PennyLane's demo, Mari 2020).

`classical` is the demo's counterpart: the same layer on the pixels themselves. `head` is what is left to train where
the fixed circuit is done once, ahead of training.
"""

from framework_compare.graph import Graph, GraphBuilder, Task
from framework_compare.graph.circuit import DEMO


def build(task: Task, trained: bool = False) -> Graph:
    """trained: the circuit's angles are learnt with the rest."""
    g = GraphBuilder("quanv_trained" if trained else "quanv_fixed", task)
    g.quanv("quanv", DEMO, trained=trained)
    return _head(g, task)


def classical(task: Task) -> Graph:
    return _head(GraphBuilder("quanv_classical", task), task)


def head(task: Task) -> Graph:
    """Return the head for a task whose images are the circuit's outputs, (4, height / 2, width / 2)."""
    return _head(GraphBuilder("quanv_head", task), task)


def _head(g: GraphBuilder, task: Task) -> Graph:
    g.flatten("flatten")
    g.linear("fc", task.outputs, init="glorot_uniform")
    return g.build()
