"""The arrays of a network in one flat float32 array: their places, and the seeded values they start from."""

from __future__ import annotations

import hashlib
import math
from typing import Dict

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph.network import Graph
from framework_compare.graph.ops import Parameter


def _std(parameter: Parameter) -> float:
    receptive = math.prod(parameter.shape[2:])
    gains = {
        "kaiming_normal_fan_out": math.sqrt(2.0 / (parameter.shape[0] * receptive)),
        "kaiming_normal_fan_in": math.sqrt(2.0 / math.prod(parameter.shape[1:])),
        "normal_0.01": 0.01,
    }
    return gains[parameter.init]


def initial_weights(graph: Graph, seed: int, out: np.ndarray) -> Dict[str, np.ndarray]:
    """Fill `out`, float32 of shape (weights_size(graph),), and return views of it by parameter name.

    The same numbers for the same (graph, seed): one generator a parameter, seeded by its name, so that a layer
    added or renamed does not change the others. Kaiming normal: He et al. 2015, gain sqrt(2).
    """
    views = weight_views(graph, out)
    for parameter in graph.parameters():
        view = views[parameter.name]
        if parameter.init in ("zeros", "ones"):
            view.fill(1.0 if parameter.init == "ones" else 0.0)
            continue
        digest = hashlib.sha256(f"{graph.name}/{parameter.name}/{seed}".encode()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        generator.standard_normal(out=view, dtype=np.float32)
        np.multiply(view, np.float32(_std(parameter)), out=view)
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
