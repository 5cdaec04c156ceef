"""A causal language model on a part of its window, as it generates: the prompt first, then one token after the other.

Keys and values of earlier steps are no part of such a graph: an adapter's attention caches them.
"""

import dataclasses
from typing import List

from framework_compare.graph.network import Graph
from framework_compare.graph.node import Node
from framework_compare.graph.task import INPUT, Field

POSITIONS = "positions in the window"  # the second input: (1, steps) int32, for all sequences alike
# Ops that compute each step separately, and those that are given its position. Attention must be causal.
BY_STEP = (
    *("Embedding", "Unembedding", "Linear", "LayerNorm", "RMSNorm", "Dropout", "Add", "Mul"),
    *("GELU", "SiLU", "ReLU", "Sigmoid", "Tanh"),
)
PLACED = ("Attention", "Rotary", "Parameter")


def refusal(graph: Graph, new_tokens: int) -> str:
    """Return why a model generates no such number of tokens, in words that follow its name; "" where it does."""
    task, loss, (first, *others) = graph.task, graph.task.loss, graph.task.inputs
    if others or not first.vocabulary or loss != "token_cross_entropy" or task.outputs != first.vocabulary:
        return "predicts no next token of a sequence; use a language model such as gpt_nano"
    window = first.shape[0]
    unknown = dict.fromkeys(node.op for node in graph.nodes if not _is_known(node, window))
    if unknown:
        return f"has layers that do not run token by token here: {', '.join(unknown)}"
    if not 0 < new_tokens < window:
        return f"has a window of {window} tokens and new_tokens is {new_tokens}; allowed: 1 to {window - 1}"
    return ""


def _is_known(node: Node, window: int) -> bool:
    if node.op == "Attention":
        return bool(node.attrs.get("causal"))
    if node.op == "Parameter":  # a row for each position
        return len(node.attrs["shape"]) == 2 and node.attrs["shape"][0] == window
    return node.op in BY_STEP or node.op in PLACED


def at_positions(graph: Graph, steps: int) -> Graph:
    """The same model on `steps` tokens at positions that are its second input; its output is that of the last step."""
    tokens, window = dataclasses.replace(graph.task.inputs[0], shape=(steps,)), graph.input_shape[0]
    task = dataclasses.replace(graph.task, inputs=(tokens, Field(POSITIONS, (steps,), "int32", window)))
    nodes: List[Node] = []
    renamed = {INPUT: tokens.name}
    for node in graph.nodes[:-1]:
        inputs = tuple(renamed.get(name, name) for name in node.inputs)
        if node.op == "Parameter":
            rows = renamed[node.name] = f"{node.name} rows"
            nodes += [node, Node(rows, "Gather", (node.name, POSITIONS), {})]
        elif node.op == "Rotary":
            nodes.append(Node(node.name, node.op, (*inputs, POSITIONS), {**node.attrs, "window": window}))
        else:
            nodes.append(Node(node.name, node.op, inputs, node.attrs))
    head = graph.nodes[-1]
    last = Node(f"{head.name} step", "Slice", head.inputs, {"axis": 0, "start": steps - 1, "end": steps})
    return dataclasses.replace(graph, task=task, nodes=(*nodes, last, dataclasses.replace(head, inputs=(last.name,))))
