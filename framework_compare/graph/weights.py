"""The arrays of a network in one flat float32 array: their places, and the seeded values they start from."""

import hashlib
import math
import mmap
from typing import Callable, Dict, Iterable, Iterator, Optional

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph.network import Graph
from framework_compare.graph.node import Parameter

CONSTANTS = {"zeros": 0.0, "ones": 1.0, "constant_1e-6": 1e-6}
NORMAL = "normal_"  # with the standard deviation behind it
PIECE = 1 << 20  # numbers; a network's weights may be more than the memory that the parent should take


def _std(parameter: Parameter) -> float:
    receptive = math.prod(parameter.shape[2:])
    gains = {
        "kaiming_normal_fan_out": math.sqrt(2.0 / (parameter.shape[0] * receptive)),
        "kaiming_normal_fan_in": math.sqrt(2.0 / math.prod(parameter.shape[1:])),
    }
    return gains[parameter.init] if parameter.init in gains else float(parameter.init[len(NORMAL) :])


Values = Iterable[np.ndarray]  # of one parameter, in order, in one piece or several


def _normal(parameter: Parameter, generator: np.random.Generator) -> Values:
    std = np.float32(_std(parameter))
    for start in range(0, parameter.size, PIECE):
        piece = generator.standard_normal(min(PIECE, parameter.size - start), dtype=np.float32)
        yield np.multiply(piece, std, out=piece)


def _glorot(parameter: Parameter, generator: np.random.Generator) -> Values:
    """Glorot and Bengio 2010: uniform up to sqrt(6 / (fan-in + fan-out)), the four gates of an LSTM as one weight."""
    limit = math.sqrt(6 / (sum(parameter.shape[:2]) * math.prod(parameter.shape[2:])))
    return [generator.uniform(-limit, limit, parameter.shape)]


def _orthogonal(parameter: Parameter, generator: np.random.Generator) -> Values:
    """Orthonormal columns (Saxe et al. 2014): QR in float64, the signs such that R has a positive diagonal."""
    q, r = np.linalg.qr(generator.standard_normal(parameter.shape))
    return [q * np.sign(np.diag(r))]


INITIALISERS: Dict[str, Callable[[Parameter, np.random.Generator], Values]] = {
    **dict.fromkeys(CONSTANTS, lambda parameter, _: [np.full(parameter.size, CONSTANTS[parameter.init])]),
    **dict.fromkeys(("kaiming_normal_fan_out", "kaiming_normal_fan_in"), _normal),
    "glorot_uniform": _glorot,
    "uniform_0.05": lambda parameter, generator: [generator.uniform(-0.05, 0.05, parameter.shape)],
    "uniform_circle": lambda parameter, generator: [generator.uniform(0, 2 * math.pi, parameter.shape)],
    "orthogonal": _orthogonal,
    # an LSTM's bias: 1 for the forget gate, the second of four (Jozefowicz et al. 2015)
    "forget_ones": lambda parameter, _: [np.repeat([0.0, 1.0, 0.0, 0.0], parameter.size // 4)],
}


def initial_pieces(graph: Graph, seed: int) -> Iterator[np.ndarray]:
    """All arrays of the graph at the start of training, float32, flat and in graph order, a few megabytes at a time.

    The same numbers for the same (graph, seed): one generator a parameter, seeded by its name, so that a layer
    added or renamed does not change the others. Kaiming normal: He et al. 2015, gain sqrt(2). Recurrent layers
    start as Keras has them: Glorot uniform, orthogonal, forget bias 1.
    """
    for parameter in graph.parameters():
        yield from initial_values(graph, parameter, seed)


def initial_values(graph: Graph, parameter: Parameter, seed: int) -> Iterator[np.ndarray]:
    """The part of `initial_pieces` that is of one parameter."""
    digest = hashlib.sha256(f"{graph.name}/{parameter.name}/{seed}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    fill = _normal if parameter.init.startswith(NORMAL) else INITIALISERS[parameter.init]
    for piece in fill(parameter, generator):
        yield np.ascontiguousarray(piece, np.float32).reshape(-1)


def pieces_of(flat: np.ndarray, start: int = 0, size: Optional[int] = None) -> Iterator[np.ndarray]:
    """A part of a flat array, a few megabytes at a time; what a mapped file holds does not stay in memory."""
    end = flat.size if size is None else start + size
    for first in range(start, end, PIECE):
        yield flat[first : min(first + PIECE, end)]
        if isinstance(flat.base, mmap.mmap):
            flat.base.madvise(mmap.MADV_DONTNEED)


def initial_flat(graph: Graph, seed: int) -> np.ndarray:
    """All arrays of the graph at the start of training, in one flat float32 array."""
    flat = np.empty(weights_size(graph), np.float32)
    initial_weights(graph, seed, flat)
    return flat


def initial_weights(graph: Graph, seed: int, out: np.ndarray) -> Dict[str, np.ndarray]:
    """Fill `out`, float32 of shape (weights_size(graph),), with `initial_pieces`; returns views of it by name."""
    views, start = weight_views(graph, out), 0
    for piece in initial_pieces(graph, seed):
        out[start : start + piece.size] = piece
        start += piece.size
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
