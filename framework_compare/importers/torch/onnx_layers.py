"""The ONNX operators that are layers in torch: convolutions, products with weights, norms, pooling, resizing."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph.window import same_padding
from framework_compare.importers.torch.onnx_ops import Call, Given
from framework_compare.json_types import JSON

# What arrays are called in the layers that have them, by their position among the inputs.
_WEIGHT = {1: "weight", 2: "bias"}
PARTS: Dict[str, Dict[int, str]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "Linear", "MatMul", "LayerNormalization"), _WEIGHT),
    "BatchNormalization": {**_WEIGHT, 3: "running_mean", 4: "running_var"},
}


def conv(c: Call, x: Given, weight: Given, bias: Given = None) -> Given:
    kernel, bias = list(weight.shape[2:]), _bias(c, bias, x)
    x, *steps = _padded(c, x, kernel)
    return getattr(c.functional, f"conv{len(kernel)}d")(x, weight, bias, *steps, c.attrs.get("group", 1))


def _padded(c: Call, x: Given, kernel: Sequence[int], filler: float = 0.0) -> Tuple[Any, ...]:
    """The input, with unequal padding in front of it, and stride, padding and dilation that are left to the layer."""
    pairs, ones = _pads(c, x, kernel), [1] * len(kernel)
    padding = [first for first, _ in pairs]
    if any(first != last for first, last in pairs):
        x = c.functional.pad(x, [side for pair in reversed(pairs) for side in pair], value=filler)
        padding = [0] * len(kernel)
    return x, c.numbers("strides") or ones, padding, c.numbers("dilations") or ones


def _pads(c: Call, x: Given, kernel: Sequence[int]) -> List[Tuple[int, int]]:
    """Before and behind each axis."""
    auto = c.attrs.get("auto_pad", "NOTSET")
    if auto == "VALID":
        return [(0, 0)] * len(kernel)
    if auto == "NOTSET":
        pads = c.numbers("pads") or [0] * 2 * len(kernel)
        return list(zip(pads[: len(kernel)], pads[len(kernel) :]))
    ones = [1] * len(kernel)
    axes = zip(x.shape[2:], kernel, c.numbers("strides") or ones, c.numbers("dilations") or ones)
    pairs = [same_padding(*axis) for axis in axes]
    return pairs if auto == "SAME_UPPER" else [(behind, before) for before, behind in pairs]


def max_pool(c: Call, x: Given) -> Given:
    kernel = c.numbers("kernel_shape") or []
    # of values that are never below zero a zero beside them is never more than the largest
    x, *steps = _padded(c, x, kernel, 0.0 if c.signless else -math.inf)
    return getattr(c.functional, f"max_pool{len(kernel)}d")(x, kernel, *steps, bool(c.attrs.get("ceil_mode")))


def average_pool(c: Call, x: Given) -> Given:
    kernel, counted = c.numbers("kernel_shape") or [], bool(c.attrs.get("count_include_pad"))
    if not counted and any(first != last for first, last in _pads(c, x, kernel)):
        raise UsageError("an AveragePool with unequal padding and count_include_pad=0 cannot be expressed")
    x, stride, padding, _ = _padded(c, x, kernel)
    pool = getattr(c.functional, f"avg_pool{len(kernel)}d")
    return pool(x, kernel, stride, padding, bool(c.attrs.get("ceil_mode")), counted)


def batch_norm(c: Call, x: Given, scale: Given, shift: Given, mean: Given, variance: Given) -> Given:
    momentum = round(1 - c.attrs.get("momentum", 0.9), 9)  # ONNX has the share that is kept
    eps = c.attrs.get("epsilon", 1e-5)
    return c.functional.batch_norm(x, mean, variance, scale, shift, c.training, momentum, eps)


def layer_norm(c: Call, x: Given, scale: Given, shift: Given = None) -> Given:
    shape = x.shape[c.attrs.get("axis", -1) :]
    return c.functional.layer_norm(x, shape, scale, shift, c.attrs.get("epsilon", 1e-5))


def gemm(c: Call, x: Given, weight: Given, bias: Given = None) -> Given:
    if c.attrs.get("transA") or c.attrs.get("alpha", 1) != 1 or c.attrs.get("beta", 1) != 1:
        raise UsageError(f"attributes {dict(c.attrs)}; allowed: transB")
    return c.functional.linear(x, weight if c.attrs.get("transB") else weight.t(), _bias(c, bias, x))


def _bias(c: Call, bias: Given, x: Given) -> Given:
    """A bias; none where the exporter made one up for a layer without."""
    return c.tensor(bias, x) if isinstance(bias, np.ndarray) and bias.any() else None if bias is None else bias


def matmul(c: Call, x: Given, y: Given) -> Given:
    x, y = c.tensor(x, y), c.tensor(y, x)
    return c.functional.linear(x, y.t()) if y.ndim == 2 and x.ndim >= 2 else c.torch.matmul(x, y)


def conv_transpose(c: Call, x: Given, weight: Given, bias: Given = None) -> Given:
    """Only with equal padding on both sides, as torch exports it."""
    kernel = list(weight.shape[2:])
    uneven = any(first != last for first, last in _pads(c, x, kernel))
    if uneven or "output_shape" in c.attrs or "auto_pad" in c.attrs:
        raise UsageError("a ConvTranspose with unequal padding or an output_shape cannot be expressed")
    x, stride, padding, dilation = _padded(c, x, kernel)
    more, group = c.numbers("output_padding") or [0] * len(kernel), c.attrs.get("group", 1)
    transposed = getattr(c.functional, f"conv_transpose{len(kernel)}d")
    return transposed(x, weight, _bias(c, bias, x), stride, padding, more, group, dilation)


def instance_norm(c: Call, x: Given, scale: Given, shift: Given) -> Given:
    scale, shift = c.tensor(scale, x), c.tensor(shift, x)
    return c.functional.instance_norm(x, weight=scale, bias=shift, eps=c.attrs.get("epsilon", 1e-5))


def group_norm(c: Call, x: Given, scale: Given, shift: Given) -> Given:
    scale, shift = c.tensor(scale, x), c.tensor(shift, x)
    if scale.numel() != x.shape[1]:
        raise UsageError("a GroupNormalization with one scale for each group cannot be expressed")
    return c.functional.group_norm(x, c.attrs["num_groups"], scale, shift, c.attrs.get("epsilon", 1e-5))


def resize(c: Call, x: Given, region: Given = None, scales: Given = None, sizes: Given = None) -> Given:
    """As F.interpolate exports it; UsageError for other ways to place pixels."""
    mode, places = c.attrs.get("mode", "nearest"), c.attrs.get("coordinate_transformation_mode", "half_pixel")
    plain = {"nearest": ("asymmetric",), "linear": ("half_pixel", "pytorch_half_pixel", "align_corners")}
    nearest = c.attrs.get("nearest_mode", "round_prefer_floor") if mode == "nearest" else "floor"
    if x.ndim not in (3, 4) or places not in plain.get(mode, ()) or nearest != "floor" or c.attrs.get("antialias"):
        raise UsageError(f"a Resize by {mode} and {places} of {x.ndim} axes cannot be expressed")
    axes = c.numbers("axes") or list(range(x.ndim))
    size = _inner(c.numbers("sizes", sizes), axes, x.ndim)
    factor = None if size else _inner(c.given("scales", scales), axes, x.ndim)
    if mode == "nearest":
        return c.functional.interpolate(x, size, factor)
    kind = "linear" if x.ndim == 3 else "bilinear"
    return c.functional.interpolate(x, size, factor, kind, align_corners=places == "align_corners")


def _inner(given: JSON, axes: List[int], rank: int) -> Optional[List[float]]:
    """Return the sizes or scales of the axes behind the channels; None where none are given."""
    if given is None or not np.size(given):
        return None
    by_axis = {axis % rank: one for axis, one in zip(axes, np.ravel(given).tolist())}
    return [by_axis[axis] for axis in range(2, rank)]


def depth_to_space(c: Call, x: Given) -> Given:
    if c.attrs.get("mode", "DCR") != "CRD":
        raise UsageError("a DepthToSpace in the order DCR cannot be expressed; torch.onnx exports PixelShuffle as CRD")
    return c.functional.pixel_shuffle(x, c.attrs["blocksize"])


LAYERS: Dict[str, Callable[..., Given]] = {
    "AveragePool": average_pool,
    "BatchNormalization": batch_norm,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "DepthToSpace": depth_to_space,
    "Gemm": gemm,
    "GlobalAveragePool": lambda c, x: (
        c.functional.adaptive_avg_pool2d(x, 1) if x.ndim == 4 else x.mean(list(range(2, x.ndim)), True)
    ),
    "GlobalMaxPool": lambda c, x: c.functional.adaptive_max_pool2d(x, 1),
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LayerNormalization": layer_norm,
    "Linear": lambda c, x, weight, bias: c.functional.linear(x, weight.t(), bias),
    "MatMul": matmul,
    "MaxPool": max_pool,
    "Resize": resize,
}
