"""Parts of networks that several frameworks lack or name otherwise."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Tuple

import numpy as np

from framework_compare.graph import Node


def adaptive_matrix(size: int, output: int) -> np.ndarray:
    """The windows of torch's adaptive average pooling along one axis: float32 (output, size)."""
    matrix = np.zeros((output, size), np.float32)
    for i in range(output):
        start, end = i * size // output, -(-(i + 1) * size // output)
        matrix[i, start:end] = 1 / (end - start)
    return matrix


AS_STORED = ("Embedding", "Unembedding", "Parameter", "RelativeBias")  # ops whose arrays all have as the graph does
ORDERS = {2: (1, 0), 3: (2, 1, 0), 4: (2, 3, 1, 0)}


def order_of(node: Node, axes: int) -> Tuple[int, ...]:
    """The order of an array's axes where outputs come last, as channels do; () where it is the graph's."""
    return () if node.op in AS_STORED else ORDERS.get(axes, ())


def identifier(name: str) -> str:
    """A layer's name as frameworks take it that allow neither dots nor slashes."""
    return name.replace(".", "_").replace("/", "_")


def named(space: Callable[[Any], Any], *names: str, prefix: str = "", **others: str) -> Dict[str, Callable[..., Any]]:
    """Functions that a framework has in one place, by ops: under numpy's names behind a prefix, `others` under their own."""

    def function(name: str) -> Callable[..., Any]:
        return lambda framework, a, *inputs: getattr(space(framework), name)(*inputs)

    own = {**{name.capitalize(): prefix + name for name in names}, **others}
    return {op: function(name) for op, name in own.items()}


NUMPY = ("exp", "log", "sqrt", "abs", "sign", "sin", "cos", "maximum", "minimum")
# Of a framework, attributes and inputs, where arrays are as numpy's in this.
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "Add": lambda framework, a, x, y: x + y,
    "Mul": lambda framework, a, x, y: x * y,
    "Sub": lambda framework, a, x, y: x - y,
    "Div": lambda framework, a, x, y: x / y,
    "Power": lambda framework, a, x: x ** a["exponent"],
    # one matrix for all samples has no copies
    "MatMul": lambda framework, a, x, y: x @ (y.reshape(y.shape[-2:]) if a["shared"] else y),
    "Reshape": lambda framework, a, x: x.reshape(a["shape"]),
    "Slice": lambda framework, a, x: x[a["at"]],
    "Select": lambda framework, a, x: x[(slice(None),) * a["axis"] + (a["index"],)],
}


def by_graph_name(
    layers: Mapping[str, Any], arrays_of: Callable[[Any], Mapping[str, Any]], graph_names: Mapping[str, str]
) -> Dict[str, Any]:
    """The arrays of all layers by graph name; `graph_names` has those that the framework calls otherwise."""
    return {
        f"{layer_name}.{graph_names.get(name, name)}": array
        for layer_name, layer in layers.items()
        for name, array in arrays_of(layer).items()
    }
