"""Primitives: what a program computes beside layers, on values of any rank; shapes and multiply-accumulates of each.

Axes in attributes are those of a shape without the batch. A reduction keeps its axes at length 1. Comparisons give 1.0 and
0.0; Where takes its second input where the first is not 0, else its third. Values that meet have one rank.
"""

import base64
import math
import zlib
from typing import TYPE_CHECKING, List, Sequence, Tuple, Union

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph.image_ops import conv2d_shape, image
from framework_compare.graph.node import Node, Shape
from framework_compare.graph.window import Window, pair
from framework_compare.json_types import Document, Fields

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

UNARY = ("Exp", "Log", "Sqrt", "Power", "Abs", "Sign", "Sin", "Cos", "Erf", "LeakyReLU", "Cast", "Detach")
BINARY = ("Add", "Mul", "Sub", "Div", "Maximum", "Minimum")
COMPARISONS = ("Equal", "Less", "LessEqual")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax")
ALONG = ("Softmax", "LogSoftmax", "CumSum")  # one axis
OTHERS = (
    *("Constant", "Where", "Reshape", "Permute", "Expand", "Take", "Gather", "PadAxes"),
    *("MatMul", "Convolve", "ConvTranspose"),
)


FEW = 64  # numbers of a constant that are written one by one


def constant_attrs(array: "ArrayLike") -> Fields:
    """A constant as attributes: its shape, and its numbers as a list, as one where all are the same, or as text."""
    array = np.asarray(array, np.float64)
    values: Union[List[float], str] = array.ravel().tolist()
    if array.size and (array == array.flat[0]).all():
        values = values[:1]
    elif array.size > FEW:
        values = base64.b64encode(zlib.compress(array.tobytes())).decode("ascii")
    return {"shape": list(array.shape), "values": values}


def constant_array(attrs: Document) -> np.ndarray:
    """float64."""
    shape, values = tuple(attrs["shape"]), attrs["values"]
    if isinstance(values, str):
        return np.frombuffer(zlib.decompress(base64.b64decode(values)), np.float64).reshape(shape)
    array = np.array(values, np.float64)
    return np.full(shape, array[0]) if array.size == 1 else array.reshape(shape)


def _refuse(node: Node, why: str) -> UsageError:
    return UsageError(f"layer {node.name}: {node.op} {why}")


def broadcast_shape(node: Node, *shapes: Shape) -> Shape:
    """All have one rank; each axis is the same in all, or 1."""
    out = tuple(map(max, zip(*shapes)))
    if any(len(shape) != len(out) or any(one not in (1, wide) for one, wide in zip(shape, out)) for shape in shapes):
        raise _refuse(node, f"cannot broadcast {' and '.join(map(str, shapes))}")
    return out


def _axes(node: Node, shape: Shape, axes: Sequence[int]) -> Sequence[int]:
    if any(not 0 <= axis < len(shape) for axis in axes):
        raise _refuse(node, f"along axes {list(axes)} of {shape}")
    return axes


def reduced_shape(node: Node, shape: Shape) -> Shape:
    axes = _axes(node, shape, node.attrs["axes"])
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def along_shape(node: Node, shape: Shape) -> Shape:
    _axes(node, shape, [node.attrs["axis"]])
    return shape


def reshape_shape(node: Node, shape: Shape) -> Shape:
    new = tuple(node.attrs["shape"])
    if math.prod(new) != math.prod(shape):
        raise _refuse(node, f"of {shape} to {new}")
    return new


def permute_shape(node: Node, shape: Shape) -> Shape:
    order = node.attrs["order"]
    if sorted(order) != list(range(len(shape))):
        raise _refuse(node, f"of {shape} to the order {order}")
    return tuple(shape[axis] for axis in order)


def expand_shape(node: Node, shape: Shape) -> Shape:
    new = tuple(node.attrs["shape"])
    if len(new) != len(shape) or any(size not in (1, wide) for size, wide in zip(shape, new)):
        raise _refuse(node, f"of {shape} to {new}")
    return new


def take_shape(node: Node, shape: Shape) -> Shape:
    """Places of one axis, by their numbers, in any order and any number of times."""
    axis, index = node.attrs["axis"], node.attrs["index"]
    _axes(node, shape, [axis])
    if not index or not all(0 <= place < shape[axis] for place in index):
        raise _refuse(node, f"of places outside axis {axis} of {shape}")
    return (*shape[:axis], len(index), *shape[axis + 1 :])


def gather_shape(node: Node, table: Shape, index: Shape) -> Shape:
    """Rows of a table (rows, features) that is the same for all samples, by numbers that each sample has."""
    if len(table) != 2:
        raise _refuse(node, f"from {table}; allowed: (rows, features)")
    return (*index, table[1])


def pad_axes_shape(node: Node, shape: Shape) -> Shape:
    pads = node.attrs["pads"]
    if len(pads) != len(shape) or any(side < 0 for sides in pads for side in sides):
        raise _refuse(node, f"of {shape} by {pads}")
    return tuple(size + sum(sides) for size, sides in zip(shape, pads))


def matmul_shape(node: Node, first: Shape, second: Shape) -> Shape:
    if len(first) != len(second) or len(first) < 2 or first[-1] != second[-2]:
        raise _refuse(node, f"of {first} and {second}")
    return (*broadcast_shape(node, first[:-2], second[:-2]), first[-2], second[-1])


def matmul_macs(node: Node, out: Shape) -> int:
    return math.prod(out) * int(node.attrs["inner"])


def convolve_shape(node: Node, shape: Shape, weight: Shape) -> Shape:
    """A Conv2d whose weight (out, in / groups, height, width) is a value, the same for all samples."""
    a = node.attrs
    if weight != (a["out_channels"], a["in_channels"] // a["groups"], *Window.of(a).kernel):
        raise _refuse(node, f"with a weight {weight}")
    return conv2d_shape(node, shape)


def convolve_macs(node: Node, out: Shape) -> int:
    a = node.attrs
    return math.prod(out) * math.prod(Window.of(a).kernel) * int(a["in_channels"]) // int(a["groups"])


def transposed_shape(node: Node, shape: Shape, weight: Shape) -> Shape:
    """The gradient of a convolution by its input, as a layer; weight (in, out / groups, height, width)."""
    a, kernel = node.attrs, Window.of(node.attrs).kernel
    if image(node, shape)[0] != weight[0] or weight[1:] != (a["out_channels"] // a["groups"], *kernel):
        raise _refuse(node, f"of {shape} with a weight {weight}")
    return (a["out_channels"], *transposed_size(a, shape[1:]))


def transposed_size(attrs: Document, size: Sequence[int]) -> Tuple[int, ...]:
    window, more = Window.of(attrs), pair(attrs.get("output_padding", 0))
    sides = zip(size, window.stride, window.pads, window.spans, more)
    return tuple((n - 1) * stride - sum(pads) + span + extra for n, stride, pads, span, extra in sides)


def transposed_macs(node: Node, out: Shape) -> int:
    a = node.attrs
    places = math.prod(out[1:]) // math.prod(Window.of(a).stride)
    channels = int(a["in_channels"]) * int(a["out_channels"])
    return places * math.prod(Window.of(a).kernel) * channels // int(a["groups"])


def groupnorm_shape(node: Node, shape: Shape) -> Shape:
    a = node.attrs
    if image(node, shape)[0] != a["channels"] or a["channels"] % a["groups"]:
        raise _refuse(node, f"of {a['channels']} channels in {a['groups']} groups, of {shape}")
    return shape
