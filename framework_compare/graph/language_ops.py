"""Shapes and constants of what language models add: rotary positions, a head tied to an embedding."""

from __future__ import annotations

import math
from typing import Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph.node import Node, Shape


def rotary_shape(node: Node, shape: Shape, *positions: Shape) -> Shape:
    heads = node.attrs["heads"]
    if len(shape) != 2 or shape[1] % (2 * heads):
        raise UsageError(f"layer {node.name}: expects (steps, {heads} heads of an even width), gets shape {shape}")
    return shape


def rotary_tables(steps: int, width: int, theta: float) -> Tuple[np.ndarray, np.ndarray]:
    """Return the cosines and the signed sines of a head's angles, float32 (steps, 1, width) each.

    Su et al. 2021 in the half-split order: pair (i, i + width / 2) turns by step / theta^(2i / width), so that
    [lo, hi] becomes [lo, hi] * cosines + [hi, lo] * sines with -sin in front and sin behind.
    """
    frequencies = theta ** (-np.arange(0, width, 2) / width)
    angles = np.arange(steps)[:, None, None] * frequencies
    cosines, sines = np.cos(angles), np.sin(angles)
    both = np.concatenate([cosines, cosines], -1), np.concatenate([-sines, sines], -1)
    return both[0].astype(np.float32), both[1].astype(np.float32)


def unembedding_shape(node: Node, shape: Shape) -> Shape:
    if len(shape) != 2 or shape[1] != node.attrs["embedding_dim"]:
        raise UsageError(f"layer {node.name}: expects (steps, {node.attrs['embedding_dim']}), gets shape {shape}")
    return (shape[0], node.attrs["num_embeddings"])


def unembedding_macs(node: Node, out: Shape) -> int:
    return math.prod(out) * int(node.attrs["embedding_dim"])
