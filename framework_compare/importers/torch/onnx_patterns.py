"""Nodes of an ONNX program that are one layer together: what exporters take apart where an opset has no such operator."""

import math
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from framework_compare.importers.common.onnx_program import OnnxNode, OnnxProgram

GATES = {"Sigmoid": "Swish", "HardSigmoid": "HardSwish"}  # of x * gate(x)


def simplified(program: OnnxProgram) -> List[OnnxNode]:
    """The nodes, with Linear, Swish, HardSwish and Gelu where several are one of these."""
    nodes = list(program.nodes)
    for pattern in (_linear, _gated, _gelu):
        nodes = _Rewriting(nodes, program).by(pattern)
    return nodes


class _Rewriting:
    """Nodes by what they give and by what they read."""

    def __init__(self, nodes: Sequence[OnnxNode], program: OnnxProgram) -> None:
        self.nodes, self.program = nodes, program
        self.maker = {output: node for node in nodes for output in node.outputs}
        self.readers: Dict[str, List[OnnxNode]] = {}
        for node in nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)

    def by(self, pattern: Any) -> List[OnnxNode]:
        """Return the nodes with each end of a pattern replaced; nodes that nobody reads any more are left out."""
        nodes = [pattern(self, node) or node for node in self.nodes]
        needed, kept = {self.program.output}, []
        for node in reversed(nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                kept.append(node)
        return kept[::-1]

    def alone(self, name: str) -> bool:
        """Return whether one node reads a value."""
        return len(self.readers.get(name, ())) == 1 and name != self.program.output

    def constant(self, name: str, value: float) -> bool:
        """Return whether a value is this one number, up to what float32 keeps of it."""
        array = self.program.arrays.get(name)
        if array is None or array.size != 1 or name in self.program.trained:
            return False
        return math.isclose(float(np.ravel(array)[0]), value, rel_tol=1e-6)

    def other(self, node: OnnxNode, name: str) -> str:
        """The operand beside one."""
        return node.inputs[1] if node.inputs[0] == name else node.inputs[0]

    def trained(self, name: str, rank: int) -> bool:
        """Return whether a value is an array that is trained, perhaps transposed."""
        node = self.maker.get(name)
        name = node.inputs[0] if node is not None and node.op == "Transpose" else name
        return name in self.program.trained and self.program.arrays[name].ndim == rank


def _linear(graph: _Rewriting, node: OnnxNode) -> Optional[OnnxNode]:
    """MatMul(x, weight) + bias."""
    if node.op != "Add":
        return None
    for product in node.inputs:
        matmul, bias = graph.maker.get(product), graph.other(node, product)
        if matmul is None or matmul.op != "MatMul" or not graph.alone(product) or not graph.trained(bias, 1):
            continue
        if graph.trained(matmul.inputs[1], 2):
            return OnnxNode("Linear", matmul.name, (*matmul.inputs, bias), node.outputs, {})
    return None


def _gated(graph: _Rewriting, node: OnnxNode) -> Optional[OnnxNode]:
    """x * Sigmoid(x), x * HardSigmoid(x)."""
    if node.op != "Mul":
        return None
    for name in node.inputs:
        gate = graph.maker.get(name)
        if gate is None or gate.op not in GATES or gate.inputs[0] != graph.other(node, name) or not graph.alone(name):
            continue
        if gate.op == "Sigmoid" or (gate.attrs.get("alpha") == 1 / 6 and gate.attrs.get("beta", 0.5) == 0.5):
            return OnnxNode(GATES[gate.op], node.name, gate.inputs, node.outputs, {})
    return None


def _gelu(graph: _Rewriting, node: OnnxNode) -> Optional[OnnxNode]:
    """x * (1 + Erf(x / sqrt 2)) * 0.5, whichever product is first."""
    factors = _factors(graph, node)
    if factors is None:
        return None
    halves = [name for name in factors if graph.constant(name, 0.5)]
    sums = [name for name in factors if name in graph.maker and graph.maker[name].op == "Add"]
    rest = [name for name in factors if name not in (*halves, *sums)]
    if not (len(halves) == len(sums) == len(rest) == 1):
        return None
    erf = graph.maker.get(next((n for n in graph.maker[sums[0]].inputs if not graph.constant(n, 1)), ""))
    scaled = graph.maker.get(erf.inputs[0]) if erf is not None and erf.op == "Erf" else None
    if scaled is None or scaled.inputs[0] != rest[0]:
        return None
    by = {"Div": math.sqrt(2), "Mul": math.sqrt(0.5)}.get(scaled.op)
    if by is None or not graph.constant(scaled.inputs[1], by):
        return None
    return OnnxNode("Gelu", node.name, (rest[0],), node.outputs, {})


def _factors(graph: _Rewriting, node: OnnxNode) -> Optional[List[str]]:
    """Three values of which a node is the product."""
    if node.op != "Mul":
        return None
    for name in node.inputs:
        inner = graph.maker.get(name)
        if inner is not None and inner.op == "Mul" and graph.alone(name):
            return [graph.other(node, name), *inner.inputs]
    return None
