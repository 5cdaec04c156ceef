"""Each ONNX operator that is no layer, in torch. An operator: (call, values) -> a tensor, or a list of them.

A value is a tensor, None where it is left out, or an array of numpy if it depends on no image and is not trained. Over
the opsets arguments have moved from attributes to such arrays, so both are read.
"""

import functools
import math
import operator
from types import ModuleType
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Union

import numpy as np

from framework_compare.json_types import JSON, Document

if TYPE_CHECKING:
    from torch import Tensor

Given = Union["Tensor", np.ndarray, None]  # None: left out; an array: it depends on no image and is not trained
Operand = Union["Tensor", np.ndarray, int, float, bool]


class Call(NamedTuple):
    """One node that runs: torch, its attributes, how many outputs it has, and what is known beside it."""

    torch: ModuleType
    attrs: Document
    outputs: int
    signless: bool  # its first input is never below zero
    batch: int  # images that the file is fixed to, 0 for any
    training: bool

    @property
    def functional(self) -> ModuleType:
        return self.torch.nn.functional

    def given(self, name: str, value: Given = None, default: JSON = None) -> JSON:
        """An argument that is an attribute or, in later opsets, an input."""
        return self.attrs[name] if name in self.attrs else default if value is None else value

    def numbers(self, name: str, value: Given = None) -> Optional[List[int]]:
        found = self.given(name, value)
        return None if found is None else [int(one) for one in np.ravel(found)]

    def tensor(self, value: Given, like: Given = None) -> Given:
        """A value as a tensor; an array of floats in the precision of `like`."""
        if not isinstance(value, np.ndarray):
            return value
        floats = value.dtype.kind == "f" and isinstance(like, self.torch.Tensor)
        return self.torch.tensor(value, dtype=like.dtype if floats else None)


def _operand(value: Given) -> Operand:
    """An array of one number as that number."""
    return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value


# -- functions of single numbers ----------------------------------------------------------------------------------------


def clip(c: Call, x: Given, low: Given = None, high: Given = None) -> Given:
    low, high = (c.given(name, value) for name, value in (("min", low), ("max", high)))
    low, high = (None if one is None else float(np.ravel(one)[0]) for one in (low, high))
    if low == 0 and high is None:
        return c.torch.relu(x)
    return x.clamp(low, high) if low is None or high is None else c.functional.hardtanh(x, low, high)


def hard_sigmoid(c: Call, x: Given) -> Given:
    slope, offset = c.attrs.get("alpha", 0.2), c.attrs.get("beta", 0.5)
    return c.functional.hardsigmoid(x) if (slope, offset) == (1 / 6, 0.5) else (x * slope + offset).clamp(0, 1)


def swish(c: Call, x: Given) -> Given:
    slope = c.attrs.get("alpha", 1)
    return c.functional.silu(x) if slope == 1 else x * c.torch.sigmoid(x * slope)


def unary(name: str) -> Callable[..., Given]:
    def run(c: Call, x: Given) -> Given:
        alike = isinstance(x, np.ndarray) and name in ROUNDED
        return getattr(np, name)(x) if alike else getattr(c.torch, name)(c.tensor(x))

    return run


ROUNDED = ("cos", "exp", "log", "sin", "tanh")  # of numbers known from shapes, as onnx's evaluator rounds them


def binary(apply: Callable[[Operand, Operand], Operand]) -> Callable[..., Given]:
    def run(c: Call, x: Given, y: Given) -> Given:
        x, y = _operand(x), _operand(y)
        return apply(c.tensor(x, y), c.tensor(y, x))

    return run


def _minus(x: Operand, y: Operand) -> Operand:
    return y * -1 + x if isinstance(x, (int, float)) else x - y


def _over(x: Operand, y: Operand) -> Operand:
    """Divide; of whole numbers return the whole part, as shapes need it."""
    return x / y if _is_float(x) or _is_float(y) else x // y


def _is_float(value: Operand) -> bool:
    return isinstance(value, float) or (not isinstance(value, (int, bool)) and bool(value.is_floating_point()))


# -- axes ---------------------------------------------------------------------------------------------------------------


def reshape(c: Call, x: Given, shape: Given = None) -> Given:
    x = c.tensor(x)
    sizes = c.numbers("shape", shape) or []
    if not c.attrs.get("allowzero"):
        sizes = [x.shape[place] if size == 0 else size for place, size in enumerate(sizes)]
    # a file that is fixed to a number of images has it in shapes; here it is the number there is
    fixed = c.batch and sizes and sizes[0] == c.batch and x.shape and x.shape[0] != c.batch
    return x.reshape([x.shape[0], *sizes[1:]] if fixed else sizes)


def flatten(c: Call, x: "Tensor") -> Given:
    axis = c.attrs.get("axis", 1)
    return x.flatten(1) if axis == 1 else x.reshape(math.prod(x.shape[:axis]), -1)


def transpose(c: Call, x: Given) -> Given:
    x = c.tensor(x)
    return x.permute(c.numbers("perm") or list(range(x.ndim))[::-1])


def squeeze(c: Call, x: Given, axes: Given = None) -> Given:
    x = c.tensor(x)
    gone = c.numbers("axes", axes)
    gone = [axis for axis, size in enumerate(x.shape) if size == 1] if gone is None else [a % x.ndim for a in gone]
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in gone])


def unsqueeze(c: Call, x: Given, axes: Given = None) -> Given:
    x = c.tensor(x)
    new = c.numbers("axes", axes) or []
    for axis in sorted(axis % (x.ndim + len(new)) for axis in new):
        x = x.unsqueeze(axis)
    return x


def concat(c: Call, *values: Given) -> Given:
    like = next((value for value in values if not isinstance(value, np.ndarray)), None)
    return c.torch.cat([c.tensor(value, like) for value in values], c.attrs["axis"])


def split(c: Call, x: Given, sizes: Given = None) -> Given:
    x, axis = c.tensor(x), c.attrs.get("axis", 0)
    return x.split(c.numbers("split", sizes) or -(-x.shape[axis] // c.outputs), axis)


def slice_(
    c: Call, x: "Tensor", starts: Given = None, ends: Given = None, axes: Given = None, steps: Given = None
) -> Given:
    x = c.tensor(x)
    first, last = c.numbers("starts", starts) or [], c.numbers("ends", ends) or []
    along, strides = c.numbers("axes", axes) or range(len(first)), c.numbers("steps", steps) or [1] * len(first)
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(along, first, last, strides):
        if step < 0:  # torch has no such slices
            places = range(*slice(start, end, step).indices(x.shape[axis]))
            x = x.index_select(axis, c.torch.tensor(list(places), dtype=c.torch.int64))
            continue
        index[axis] = slice(*slice(start, end, step).indices(x.shape[axis]))
    return x[tuple(index)]


def gather(c: Call, x: Given, index: Given) -> Given:
    x, axis = c.tensor(x), c.attrs.get("axis", 0)
    if isinstance(index, np.ndarray) and index.ndim == 0:
        return x.select(axis, int(index))
    places = c.tensor(index)
    if axis == 0 and x.ndim == 2 and not isinstance(index, np.ndarray):
        return c.functional.embedding(places, x)
    picked = x.index_select(axis, places.flatten() % x.shape[axis])
    return picked.unflatten(axis % x.ndim, tuple(places.shape)) if places.ndim != 1 else picked


def reduced(apply: Callable[..., "Tensor"]) -> Callable[..., Given]:
    """A function (tensor, axes, whether they are kept) of all axes where none are named."""

    def run(c: Call, x: Given, axes: Given = None) -> Given:
        x = c.tensor(x)
        along = c.numbers("axes", axes)
        if not along and c.attrs.get("noop_with_empty_axes"):
            return x
        return apply(x, along or list(range(x.ndim)), bool(c.attrs.get("keepdims", 1)))

    return run


def trilu(c: Call, x: Given, diagonal: Given = None) -> Given:
    keep = c.torch.triu if c.attrs.get("upper", 1) else c.torch.tril
    return keep(c.tensor(x), 0 if diagonal is None else int(diagonal))


def pad(c: Call, x: Given, pads: Given = None, value: Given = None, axes: Given = None) -> Given:
    amounts = c.numbers("pads", pads) or []
    along = c.numbers("axes", axes) or list(range(x.ndim))
    sides = {axis % x.ndim: (amounts[i], amounts[i + len(along)]) for i, axis in enumerate(along)}
    used = [axis for axis in sides if any(sides[axis])]
    flat = [side for axis in range(x.ndim - 1, min(used, default=x.ndim) - 1, -1) for side in sides.get(axis, (0, 0))]
    filler = float(np.ravel(c.given("value", value, 0.0))[0])
    mode = c.attrs.get("mode", "constant")
    if not used:
        return x
    if mode == "constant":
        return c.functional.pad(x, flat, value=filler)
    return c.functional.pad(x, flat, mode={"edge": "replicate", "wrap": "circular"}.get(mode, mode))


# -- shapes and constants -----------------------------------------------------------------------------------------------

KINDS = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float32, 11: np.float32, 16: np.float32}


def cast(c: Call, x: Given, like: Given = None) -> Given:
    if not isinstance(x, np.ndarray):
        return x  # one precision is chosen for all that is trained
    if like is not None:
        return x.astype(like.dtype) if isinstance(like, np.ndarray) else x
    return x.astype(KINDS[c.attrs["to"]])


def power(c: Call, x: Given, y: Given) -> Given:
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return np.power(x, y).astype(x.dtype)
    return binary(operator.pow)(c, x, y)


def folded(name: str) -> Callable[..., Given]:
    """A function of two values, over any number of them."""

    def run(c: Call, *values: Given) -> Given:
        like = next((value for value in values if not isinstance(value, np.ndarray)), None)
        return functools.reduce(getattr(c.torch, name), (c.tensor(value, like) for value in values))

    return run


UNARY = (
    *("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Log", "Reciprocal"),
    *("Relu", "Sigmoid", "Sign", "Sin", "Sqrt", "Tanh"),
)
BINARY = {
    **{"Add": operator.add, "Sub": _minus, "Mul": operator.mul, "Div": _over, "Mod": operator.mod},
    **{"And": operator.and_, "Equal": operator.eq, "Greater": operator.gt, "Less": operator.lt},
    **{"GreaterOrEqual": operator.ge, "LessOrEqual": operator.le},
}
REDUCED: Dict[str, Callable[..., "Tensor"]] = {
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).sqrt(),
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep),
}
FUNCTIONS: Dict[str, Callable[..., Given]] = {
    **{name: unary(name.lower()) for name in UNARY},
    **{name: binary(apply) for name, apply in BINARY.items()},
    **{name: reduced(apply) for name, apply in REDUCED.items()},
    "Cast": cast,
    "CastLike": cast,
    "Clip": clip,
    "Concat": concat,
    "ConstantOfShape": lambda c, shape: np.full([int(n) for n in shape], (c.attrs.get("value") or [0.0])[0]),
    "Dropout": lambda c, x, ratio=None, mode=None: c.functional.dropout(
        x, float(np.ravel(c.given("ratio", ratio, 0.5))[0]), c.training
    ),
    "Einsum": lambda c, *operands: c.torch.einsum(c.attrs["equation"], *map(c.tensor, operands)),
    "Elu": lambda c, x: c.functional.elu(x, c.attrs.get("alpha", 1.0)),
    "Expand": lambda c, x, shape: c.tensor(x).expand(np.broadcast_shapes(tuple(x.shape), tuple(map(int, shape)))),
    "Flatten": flatten,
    "Gather": gather,
    "Gelu": lambda c, x: c.functional.gelu(x, approximate=c.attrs.get("approximate", "none")),
    "HardSigmoid": hard_sigmoid,
    "HardSwish": lambda c, x: c.functional.hardswish(x),
    "Identity": lambda c, x: x,
    "LeakyRelu": lambda c, x: c.functional.leaky_relu(x, c.attrs.get("alpha", 0.01)),
    "LogSoftmax": lambda c, x: c.functional.log_softmax(x, c.attrs.get("axis", -1)),
    "Max": folded("maximum"),
    "Min": folded("minimum"),
    "Mish": lambda c, x: c.functional.mish(x),
    "Neg": lambda c, x: c.tensor(x) * -1,
    "Not": unary("logical_not"),
    "Or": folded("logical_or"),
    "PRelu": lambda c, x, slope: c.functional.prelu(x, slope.flatten()),
    "Pad": pad,
    "Pow": power,
    "RandomUniformLike": unary("rand_like"),
    "Range": lambda c, first, end, step: np.arange(first, end, step),
    "ReduceProd": lambda c, x, axes=None: np.prod(x, keepdims=bool(c.attrs.get("keepdims", 1))),
    "Reshape": reshape,
    "Selu": lambda c, x: c.functional.selu(x),
    "Shape": lambda c, x: np.array(x.shape, np.int64)[c.attrs.get("start", 0) : c.attrs.get("end")],
    "Size": lambda c, x: np.array(math.prod(x.shape)),
    "Slice": slice_,
    "Softmax": lambda c, x: c.functional.softmax(x, c.attrs.get("axis", -1)),
    "Softplus": lambda c, x: c.functional.softplus(x),
    "Split": split,
    "Squeeze": squeeze,
    "Sum": folded("add"),
    "Swish": swish,
    "Tile": lambda c, x, repeats: c.tensor(x).repeat(c.numbers("repeats", repeats) or []),
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
    "Where": lambda c, condition, x, y: c.torch.where(*map(c.tensor, (condition, x, y))),
}
