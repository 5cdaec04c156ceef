"""Further ONNX operators in torch: what frameworks have no layer of their own for, and layers of segmentation nets."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Callable, Dict, List, Optional

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.importers.torch.onnx_ops import Call, Given, binary, unary
from framework_compare.json_types import JSON

if TYPE_CHECKING:
    from torch import Tensor


def conv_transpose(c: Call, x: Given, weight: Given, bias: Given = None) -> Given:
    """Only with equal padding on both sides, as torch exports it."""
    kernel = list(weight.shape[2:])
    pads = c.numbers("pads") or [0] * 2 * len(kernel)
    first, last = pads[: len(kernel)], pads[len(kernel) :]
    if first != last or c.attrs.get("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in c.attrs:
        raise UsageError("a ConvTranspose with unequal padding or an output_shape cannot be expressed")
    if isinstance(bias, np.ndarray):  # made up by the exporter for a layer without one
        bias = c.tensor(bias, x) if bias.any() else None
    one = [1] * len(kernel)
    run = getattr(c.functional, f"conv_transpose{len(kernel)}d")
    more = c.numbers("output_padding") or [0] * len(kernel)
    group, dilations = c.attrs.get("group", 1), c.numbers("dilations") or one
    return run(x, weight, bias, c.numbers("strides") or one, first, more, group, dilations)


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
    """Of sizes or scales of some axes, those behind the channels; None where none are given."""
    if given is None or not np.size(given):
        return None
    by_axis = {axis % rank: one for axis, one in zip(axes, np.ravel(given).tolist())}
    return [by_axis[axis] for axis in range(2, rank)]


def tile(c: Call, x: Given, repeats: Given) -> Given:
    tensor: "Tensor" = c.tensor(x)
    return tensor.repeat(c.numbers("repeats", repeats) or [])


def power(c: Call, x: Given, y: Given) -> Given:
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return np.power(x, y).astype(x.dtype)
    return binary(operator.pow)(c, x, y)


def folded(name: str) -> Callable[..., Given]:
    """A function of two values, over any number of them."""

    def run(c: Call, *values: Given) -> Given:
        like = next((value for value in values if not isinstance(value, np.ndarray)), None)
        result, *others = (c.tensor(value, like) for value in values)
        for other in others:
            result = getattr(c.torch, name)(result, other)
        return result

    return run


def instance_norm(c: Call, x: Given, scale: Given, shift: Given) -> Given:
    scale, shift = c.tensor(scale, x), c.tensor(shift, x)
    return c.functional.instance_norm(x, weight=scale, bias=shift, eps=c.attrs.get("epsilon", 1e-5))


def group_norm(c: Call, x: Given, scale: Given, shift: Given) -> Given:
    scale, shift = c.tensor(scale, x), c.tensor(shift, x)
    if scale.numel() != x.shape[1]:
        raise UsageError("a GroupNormalization with one scale for each group cannot be expressed")
    return c.functional.group_norm(x, c.attrs["num_groups"], scale, shift, c.attrs.get("epsilon", 1e-5))


def depth_to_space(c: Call, x: Given) -> Given:
    if c.attrs.get("mode", "DCR") != "CRD":
        raise UsageError("a DepthToSpace in the order DCR cannot be expressed; torch.onnx exports PixelShuffle as CRD")
    return c.functional.pixel_shuffle(x, c.attrs["blocksize"])


def norm(order: int) -> Callable[..., Given]:
    def run(c: Call, x: "Tensor", axes: Given = None) -> Given:
        along, keep = c.numbers("axes", axes) or list(range(x.ndim)), bool(c.attrs.get("keepdims", 1))
        return x.abs().sum(along, keepdim=keep) if order == 1 else (x * x).sum(along, keepdim=keep).sqrt()

    return run


FURTHER: Dict[str, Callable[..., Given]] = {
    "ConvTranspose": conv_transpose,
    "DepthToSpace": depth_to_space,
    "GreaterOrEqual": binary(lambda x, y: x >= y),
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LessOrEqual": binary(lambda x, y: x <= y),
    "Max": folded("maximum"),
    "Min": folded("minimum"),
    "Mish": lambda c, x: c.functional.mish(x),
    "Or": folded("logical_or"),
    "Pow": power,
    "ReduceL1": norm(1),
    "ReduceL2": norm(2),
    "Resize": resize,
    "Sign": unary("sign"),
    "Tile": tile,
}
