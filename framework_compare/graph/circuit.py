"""The simulated circuit of Quanv2d in real numbers: four qubits, one a pixel of a 2x2 patch.

A state of 16 complex amplitudes is 32 real numbers, first the real parts, then the imaginary ones; qubit 0 is the
most significant. A gate is a real 32 x 32 matrix: CNOT a permutation, a rotation by an angle t about an axis
cos(t / 2) I + sin(t / 2) K, with K a constant. The pixels rotate |0000> about Y, which leaves real amplitudes, so a
circuit of constants is one 32 x 16 matrix.
"""

import functools
import math
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

QUBITS = 4
Gate = Sequence[Any]  # name, qubits, angle (None for CNOT): lists, as they pass through JSON
PAULI = {
    "RX": np.array([[0, 1], [1, 0]], complex),
    "RY": np.array([[0, -1j], [1j, 0]], complex),
    "RZ": np.array([[1, 0], [0, -1]], complex),
}

# PennyLane's demo "Quanvolutional Neural Networks" (Mari 2020): RandomLayers with seed 42, angles of numpy's seed 0,
# written out so that no random generator matters.
DEMO: List[Gate] = [
    ["RY", [1], 3.448296944257913],
    ["RX", [2], 4.493667318642264],
    ["CNOT", [1, 3], None],
    ["RZ", [2], 3.787273988239316],
    ["RX", [2], 3.4236020095353483],
]


def rotation(name: str, qubit: int) -> np.ndarray:
    """K of a rotation "RX", "RY" or "RZ" of one qubit, (32, 32): its gate is cos(t / 2) I + sin(t / 2) K."""
    factors = [PAULI[name] if number == qubit else np.eye(2) for number in range(QUBITS)]
    return _real(-1j * functools.reduce(np.kron, factors))


def cnot(control: int, target: int) -> np.ndarray:
    """(32, 32): flips the target where the control is 1."""
    states = np.arange(2**QUBITS)
    flips = (states >> (QUBITS - 1 - control) & 1) << (QUBITS - 1 - target)
    return _real(np.eye(2**QUBITS)[states ^ flips].astype(complex))


def _real(matrix: np.ndarray) -> np.ndarray:
    return np.block([[matrix.real, -matrix.imag], [matrix.imag, matrix.real]])


def gate_constants(gates: Sequence[Gate]) -> List[Tuple[bool, np.ndarray]]:
    """Return for each gate whether it takes an angle, and its constant: K of a rotation, the matrix of a CNOT."""
    return [(name != "CNOT", cnot(*qubits) if name == "CNOT" else rotation(name, *qubits)) for name, qubits, _ in gates]


def angles_of(gates: Sequence[Gate]) -> np.ndarray:
    return np.array([angle for name, _, angle in gates if name != "CNOT"], dtype=np.float64)


def matrices(gates: Sequence[Gate], angles: Optional[np.ndarray] = None) -> List[np.ndarray]:
    """Each gate as a (32, 32) float64 matrix, at its own angle or at those given, one for each rotation in order."""
    left = iter(angles_of(gates) if angles is None else np.asarray(angles, np.float64))
    found = []
    for turns, constant in gate_constants(gates):
        if turns:
            half = next(left) / 2
            constant = math.cos(half) * np.eye(len(constant)) + math.sin(half) * constant
        found.append(constant)
    return found


def circuit_matrix(gates: Sequence[Gate], angles: Optional[np.ndarray] = None) -> np.ndarray:
    """(32, 16) float64: what takes the 16 real amplitudes of the pixels to the 32 numbers of the last state."""
    state = np.eye(2 * 2**QUBITS)[:, : 2**QUBITS]
    for matrix in matrices(gates, angles):
        state = matrix @ state
    return state


def signs() -> np.ndarray:
    """(4, 32) of +1 and -1: row q makes the expectation of Z on qubit q of the squares of a state's numbers."""
    states = np.arange(2**QUBITS)
    rows = [1.0 - 2.0 * (states >> (QUBITS - 1 - qubit) & 1) for qubit in range(QUBITS)]
    return np.concatenate([rows, rows], axis=1)
