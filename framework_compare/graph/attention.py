"""Shapes, parameters and constants of attention, within windows too (Liu et al. 2021), of its positions and of tied heads."""

import math
from typing import List, Optional, Sequence, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph.node import Node, Parameter, Shape, arrays
from framework_compare.json_types import Document

AWAY = -100.0  # added to the score of two places that a shifted window brings together, as in Swin


def attention_shape(node: Node, *shapes: Shape) -> Shape:
    """Return the shape for queries, keys and values as one input or three: (..., steps, features)."""
    a = node.attrs
    operands = shapes[:-1] if a.get("bias") else shapes
    first, kv_heads = operands[0], a.get("kv_heads", a["heads"])
    if a.get("causal") and (a.get("bias") or len(first) != 2):
        raise UsageError(f"layer {node.name}: causal attention takes sequences, without a bias; gets shapes {shapes}")
    if kv_heads != a["heads"]:
        return _grouped_shape(node, operands, kv_heads)
    if len(operands) not in (1, 3) or any(shape != first for shape in operands):
        raise UsageError(f"layer {node.name}: expects queries, keys and values of one shape, gets {shapes}")
    parts = 3 if len(operands) == 1 else 1
    if len(first) not in (2, 4) or first[-1] % (parts * a["heads"]):
        raise UsageError(f"layer {node.name}: cannot cut the features of shape {first} into {parts} x {a['heads']}")
    steps = first[-2]
    if a.get("bias") and shapes[-1] != (a["heads"], steps, steps):
        raise UsageError(f"layer {node.name}: expects a bias {(a['heads'], steps, steps)}, gets shape {shapes[-1]}")
    if "mask_shift" in a and (len(first) != 4 or math.prod(a["window"]) != steps):
        raise UsageError(f"layer {node.name}: expects windows of {a['window']} places, gets shape {first}")
    return (*first[:-1], first[-1] // parts)


def _grouped_shape(node: Node, operands: Sequence[Shape], kv_heads: int) -> Shape:
    """Return the shape for grouped queries (Ainslie et al. 2023): key/value head j serves query group j."""
    first, heads = operands[0], node.attrs["heads"]
    if len(operands) != 3 or len(first) != 2 or heads % kv_heads or first[-1] % heads:
        raise UsageError(f"layer {node.name}: expects three sequences and {heads} query heads in {kv_heads} groups")
    wanted = (first[0], first[1] // heads * kv_heads)
    if any(shape != wanted for shape in operands[1:]):
        raise UsageError(f"layer {node.name}: expects keys and values of shape {wanted}, gets {tuple(operands[1:])}")
    return first


def attention_macs(node: Node, out: Shape) -> int:
    """Scores of all pairs of steps, and the sums of values that they weigh."""
    return 2 * math.prod(out) * out[-2]


def relative_bias_shape(node: Node) -> Shape:
    places = math.prod(node.attrs["window"])
    return (node.attrs["heads"], places, places)


def relative_bias_parameters(node: Node) -> List[Parameter]:
    down, across = node.attrs["window"]
    shape = ((2 * down - 1) * (2 * across - 1), node.attrs["heads"])
    return arrays(node, weight=(shape, node.attrs["init"]))


def relative_index(window: Sequence[int]) -> np.ndarray:
    """Row of the table for each pair of places of a window, int32 (places, places): by their distance down and across."""
    down, across = window
    rows, columns = (axis.ravel() for axis in np.meshgrid(np.arange(down), np.arange(across), indexing="ij"))
    apart_down = rows[:, None] - rows + down - 1
    apart_across = columns[:, None] - columns + across - 1
    return (apart_down * (2 * across - 1) + apart_across).astype(np.int32)


def shift_mask(attrs: Document, rows: int, across: int) -> Optional[np.ndarray]:
    """Return what is added to scores in windows of a map rolled back by `mask_shift`; None if it was not.

    float32 (rows, across, 1, places, places): AWAY for two places that lie on both sides of the map's edge.
    """
    if "mask_shift" not in attrs:
        return None
    regions = np.zeros((rows * attrs["window"][0], across * attrs["window"][1]), np.int64)
    for axis, (size, shift) in enumerate(zip(attrs["window"], attrs["mask_shift"])):
        behind = np.arange(regions.shape[axis])
        last = regions.shape[axis] - size  # of the last window the part before the edge, and that behind it
        part = (behind >= last).astype(np.int64) + (behind >= regions.shape[axis] - shift) if shift else 0 * behind
        regions = 3 * regions + (part[:, None] if axis == 0 else part)
    down, wide = attrs["window"]
    places = regions.reshape(rows, down, across, wide).transpose(0, 2, 1, 3).reshape(rows, across, 1, down * wide)
    return np.where(places[..., :, None] == places[..., None, :], np.float32(0), np.float32(AWAY))


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
