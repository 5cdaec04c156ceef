"""The quanvolution, a quantum circuit on each patch of an image."""

from typing import Sequence, Tuple

import numpy as np

from framework_compare.graph import Node, circuit
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Result, Weights


def quanv2d(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """The circuit's expectations of Z on each patch p: z = S (y y), y = U kron_q [cos(pi p_q / 2), sin(pi p_q / 2)].

    The gradient of an angle follows from its gate, cos(t / 2) I + sin(t / 2) K, whose derivative is as simple.
    """
    (x,), gates = inputs, node.attrs["gates"]
    rows, across = x.shape[2] // 2, x.shape[3] // 2
    pixels = x[:, 0, : 2 * rows, : 2 * across].reshape(-1, rows, 2, across, 2).transpose(0, 1, 3, 2, 4)
    half = pixels.reshape(-1, circuit.QUBITS) * x.dtype.type(np.pi / 2)
    factors = np.stack([np.cos(half), np.sin(half)], axis=-1)  # (patches, qubits, 2)
    angles = weights.get("angles")
    matrix, signs = circuit.circuit_matrix(gates, angles).astype(x.dtype), circuit.signs().astype(x.dtype)
    amplitudes = _kron(factors)
    state = amplitudes @ matrix.T
    y = (state * state) @ signs.T

    def backward(dy: Array) -> Gradients:
        dstate = 2 * state * (dy.transpose(0, 2, 3, 1).reshape(-1, circuit.QUBITS) @ signs)
        damplitudes = dstate @ matrix
        dhalf = np.empty_like(half)
        for qubit in range(circuit.QUBITS):
            turned = factors.copy()
            turned[:, qubit] = np.stack([-factors[:, qubit, 1], factors[:, qubit, 0]], axis=-1)
            dhalf[:, qubit] = (damplitudes * _kron(turned)).sum(axis=1)
        dpixels = (dhalf * x.dtype.type(np.pi / 2)).reshape(len(x), rows, across, 2, 2).transpose(0, 1, 3, 2, 4)
        dx = np.zeros_like(x)
        dx[:, 0, : 2 * rows, : 2 * across] = dpixels.reshape(len(x), 2 * rows, 2 * across)
        if angles is None:
            return (dx,), {}
        return (dx,), {"angles": _angle_gradients(gates, angles, dstate.T @ amplitudes)}

    return y.reshape(len(x), rows, across, circuit.QUBITS).transpose(0, 3, 1, 2), backward


def _kron(factors: Array) -> Array:
    """(patches, qubits, 2) to the (patches, 16) products, the first qubit the most significant."""
    product = factors[:, 0]
    for qubit in range(1, factors.shape[1]):
        product = (product[:, :, None] * factors[:, qubit, None, :]).reshape(len(product), -1)
    return product


def _angle_gradients(gates: Sequence[circuit.Gate], angles: Array, dmatrix: Array) -> Array:
    """Gradient by each rotation's angle, from that by the circuit's (32, 16) matrix."""
    steps, constants, gradients = circuit.matrices(gates, angles), circuit.gate_constants(gates), []
    for place, (turns, constant) in enumerate(constants):
        if turns:
            half = float(angles[len(gradients)]) / 2
            product = np.eye(len(constant))[:, : dmatrix.shape[1]]
            for number, step in enumerate(steps):
                derivative = (np.cos(half) * constant - np.sin(half) * np.eye(len(constant))) / 2
                product = (derivative if number == place else step) @ product
            gradients.append((dmatrix * product).sum())
    return np.array(gradients, dmatrix.dtype)
