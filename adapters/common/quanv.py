"""The simulated circuit of Quanv2d by whatever a framework calls its functions."""

from __future__ import annotations

import math
import operator
from typing import Any, Callable, List, NamedTuple, Sequence

import numpy as np

from framework_compare.graph import circuit
from framework_compare.graph.circuit import QUBITS, Gate


class Functions(NamedTuple):
    """A framework's own, over its arrays of two axes; `times` broadcasts, `join` is along the last axis."""

    cos: Callable[[Any], Any]
    sin: Callable[[Any], Any]
    join: Callable[[List[Any]], Any]
    matmul: Callable[[Any, Any], Any]
    times: Callable[[Any, Any], Any] = operator.mul
    column: Callable[[Any, int], Any] = lambda array, i: array[:, i : i + 1]  # (rows, 1) of (rows, columns)


def rotations(gates: Sequence[Gate]) -> int:
    """Return how many angles a circuit has."""
    return len(circuit.angles_of(gates))


def constants(gates: Sequence[Gate], trained: bool) -> List[np.ndarray]:
    """Return what `expectations` takes beside pixels and angles, float32, transposed: signs, then the circuit's own.

    Of a circuit of constants that is one matrix (16, 32); of one whose angles are learnt what selects the 16 real
    amplitudes (16, 32), the unit matrix (32, 32), and for each gate its K or, of a CNOT, its own matrix.
    """
    if trained:
        unit = np.eye(2 * 2**QUBITS)
        arrays = [unit[: 2**QUBITS], unit, *(constant.T for _, constant in circuit.gate_constants(gates))]
    else:
        arrays = [circuit.circuit_matrix(gates).T]
    return [np.ascontiguousarray(array, np.float32) for array in (circuit.signs().T, *arrays)]


def expectations(of: Functions, pixels: Any, gates: Sequence[Gate], known: Sequence[Any], angles: Any = None) -> Any:
    """(patches, 4) expectations of Z from (patches, 4) pixels in [0, 1].

    known: `constants` as the framework's arrays. angles: (1, rotations), or None for those of the gates.
    """
    signs, *matrices = known
    half = pixels * (math.pi / 2)
    cos, sin = of.cos(half), of.sin(half)
    amplitudes = None
    for qubit in reversed(range(QUBITS)):  # the first is the most significant
        here = [of.column(cos, qubit), of.column(sin, qubit)]
        amplitudes = of.join(here if amplitudes is None else [of.times(amplitudes, factor) for factor in here])
    state = of.matmul(amplitudes, matrices[0] if angles is None else _circuit(of, gates, matrices, angles))
    return of.matmul(state * state, signs)


def _circuit(of: Functions, gates: Sequence[Gate], matrices: Sequence[Any], angles: Any) -> Any:
    """(16, 32): the circuit's matrix, transposed, from the angles."""
    state, unit, *of_gates = matrices
    cos, sin = of.cos(angles * 0.5), of.sin(angles * 0.5)
    rotation = 0
    for (name, _, _), matrix in zip(gates, of_gates):
        if name != "CNOT":
            matrix = of.times(unit, of.column(cos, rotation)) + of.times(matrix, of.column(sin, rotation))
            rotation += 1
        state = of.matmul(state, matrix)
    return state
