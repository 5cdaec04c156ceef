"""The arrays of a network in one flat float32 array: their places, and the seeded values they start from."""

from __future__ import annotations

import hashlib
import math
from typing import Callable, Dict, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph.network import Graph
from framework_compare.graph.node import Parameter

CONSTANTS = {"zeros": 0.0, "ones": 1.0, "constant_1e-6": 1e-6}


def _fans(parameter: Parameter) -> Tuple[int, int]:
    """Fan-in and fan-out of a weight (out, in, window...)."""
    receptive = math.prod(parameter.shape[2:])
    return parameter.shape[1] * receptive, parameter.shape[0] * receptive


def _std(parameter: Parameter) -> float:
    receptive = math.prod(parameter.shape[2:])
    gains = {
        "kaiming_normal_fan_out": math.sqrt(2.0 / (parameter.shape[0] * receptive)),
        "kaiming_normal_fan_in": math.sqrt(2.0 / math.prod(parameter.shape[1:])),
        "normal_0.01": 0.01,
        "normal_0.02": 0.02,
    }
    return gains[parameter.init]


def _fill_normal(parameter: Parameter, generator: np.random.Generator, view: np.ndarray) -> None:
    generator.standard_normal(out=view, dtype=np.float32)
    np.multiply(view, np.float32(_std(parameter)), out=view)


def _fill_constant(parameter: Parameter, generator: np.random.Generator, view: np.ndarray) -> None:
    view.fill(CONSTANTS[parameter.init])


def _fill_glorot(parameter: Parameter, generator: np.random.Generator, view: np.ndarray) -> None:
    """Glorot and Bengio 2010: uniform up to sqrt(6 / (fan-in + fan-out)), the four gates of an LSTM as one weight."""
    limit = math.sqrt(6 / sum(_fans(parameter)))
    view[...] = generator.uniform(-limit, limit, parameter.shape)


def _fill_embedding(parameter: Parameter, generator: np.random.Generator, view: np.ndarray) -> None:
    view[...] = generator.uniform(-0.05, 0.05, parameter.shape)


def _fill_orthogonal(parameter: Parameter, generator: np.random.Generator, view: np.ndarray) -> None:
    """Orthonormal columns (Saxe et al. 2014): QR in float64, the signs such that R has a positive diagonal."""
    q, r = np.linalg.qr(generator.standard_normal(parameter.shape))
    view[...] = q * np.sign(np.diag(r))


def _fill_forget(parameter: Parameter, generator: np.random.Generator, view: np.ndarray) -> None:
    """An LSTM's bias: 1 for the forget gate, the second of four (Jozefowicz et al. 2015), else 0."""
    view.fill(0.0)
    quarter = len(view) // 4
    view[quarter : 2 * quarter] = 1.0


def _fill_circle(parameter: Parameter, generator: np.random.Generator, view: np.ndarray) -> None:
    view[...] = generator.uniform(0, 2 * math.pi, parameter.shape)


INITIALISERS: Dict[str, Callable[[Parameter, np.random.Generator, np.ndarray], None]] = {
    "zeros": _fill_constant,
    "constant_1e-6": _fill_constant,
    "ones": _fill_constant,
    "kaiming_normal_fan_out": _fill_normal,
    "kaiming_normal_fan_in": _fill_normal,
    "normal_0.01": _fill_normal,
    "normal_0.02": _fill_normal,
    "glorot_uniform": _fill_glorot,
    "uniform_0.05": _fill_embedding,
    "orthogonal": _fill_orthogonal,
    "forget_ones": _fill_forget,
    "uniform_circle": _fill_circle,
}


def initial_weights(graph: Graph, seed: int, out: np.ndarray) -> Dict[str, np.ndarray]:
    """Fill `out`, float32 of shape (weights_size(graph),), and return views of it by parameter name.

    The same numbers for the same (graph, seed): one generator a parameter, seeded by its name, so that a layer
    added or renamed does not change the others. Kaiming normal: He et al. 2015, gain sqrt(2). Recurrent layers
    start as Keras has them: Glorot uniform, orthogonal, forget bias 1.
    """
    views = weight_views(graph, out)
    for parameter in graph.parameters():
        digest = hashlib.sha256(f"{graph.name}/{parameter.name}/{seed}".encode()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        INITIALISERS[parameter.init](parameter, generator, views[parameter.name])
    return views


def weights_size(graph: Graph) -> int:
    """Number of float32 that all arrays of the graph take."""
    return sum(parameter.size for parameter in graph.parameters())


def weight_views(graph: Graph, flat: np.ndarray) -> Dict[str, np.ndarray]:
    """Views of a flat float32 array as the graph's parameters, in graph order."""
    if flat.shape != (weights_size(graph),):
        raise UsageError(f"weights of {graph.name}: {flat.shape[0]} numbers, expected {weights_size(graph)}")
    views, start = {}, 0
    for parameter in graph.parameters():
        views[parameter.name] = flat[start : start + parameter.size].reshape(parameter.shape)
        start += parameter.size
    return views
