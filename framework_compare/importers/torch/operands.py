"""Values of a program as operands of primitives: brought to one rank, reduced, normalised."""

from __future__ import annotations

import math
from typing import Any, Sequence

import numpy as np

from framework_compare.importers.common.axes import (
    Operand,
    common_patterns,
    is_batch,
    materialised,
    program_axes,
    reshaped_node,
    sizes_in,
    without_repeats,
)
from framework_compare.importers.common.views import BATCH, NotExpressible, Value
from framework_compare.importers.torch.operators import Arguments, Handler

LARGE = 1e30  # in place of infinity, which no gradient passes


def value_of(reading: Any, node: Any, x: Any) -> Value:
    """An operand as a value: a parameter becomes a node of its own, a constant one that is not trained."""
    if isinstance(x, Value):
        return numbers(reading, x)
    (name,), (view, _) = joined(reading, node, [x])
    return Value(name, view)


def numbers(reading: Any, value: Value) -> Value:
    """Whole numbers become those that the network computes with."""
    if value.node not in reading.whole_numbers:
        return value
    return Value(reading.reader.once(f"{value.node}.numbers", "Cast", [value.node], {}), value.view)


def operand(reading: Any, x: Any) -> Operand:
    if isinstance(x, Value):
        return Operand(materialised(reading.reader, numbers(reading, x)))
    if hasattr(x, "target"):
        return Operand(None, x)
    array = np.asarray(x.detach().cpu().numpy() if hasattr(x, "detach") else x)
    return Operand(None, np.asarray(np.clip(array.astype(np.float64), -LARGE, LARGE)))


def joined(reading: Any, node: Any, given: Sequence[Any]) -> Any:
    """Nodes of one rank, whose axes stand alike; the view of what they give together, by the shape of its node."""
    reader, operands = reading.reader, [operand(reading, x) for x in given]
    rank = max(len(one.shape) for one in operands)
    patterns = common_patterns(reader, operands, rank)
    names = []
    for one in operands:
        sizes, repeats = sizes_in(one, patterns, reader.batch)
        names.append(node_of(reading, node, one, sizes, repeats, patterns))
    sizes = [max(column) for column in zip(*(reader.shapes[name] for name in names))]
    return names, (program_axes(reader, patterns, sizes), patterns)


def node_of(reading: Any, node: Any, one: Operand, sizes: Any, repeats: Any, patterns: Any) -> str:
    reader = reading.reader
    if one.value is not None:
        return reshaped_node(reader, one.value.node, sizes)
    if isinstance(one.array, np.ndarray):
        array = without_repeats(one.array, repeats, patterns, reader.batch)
        return reading.constant_node(node, array.reshape(tuple(sizes)))
    if math.prod(one.array.shape) != math.prod(sizes):
        raise NotExpressible("a parameter that differs among the samples of a batch")
    attrs = {"shape": list(sizes), "init": "normal_0.02"}
    return reading.node(node, "Parameter", [], attrs, value=one.array.through(lambda t: t.reshape(tuple(sizes))))


def emit(reading: Any, node: Any, op: str, *given: Any, **attrs: Any) -> Value:
    """A primitive of values that broadcast."""
    names, (view, _) = joined(reading, node, given)
    return Value(reading.node(node, op, names, attrs), view)


def each(reading: Any, node: Any, op: str, x: Any, **attrs: Any) -> Value:
    """An op to which it does not matter how axes are folded."""
    x = value_of(reading, node, x)
    return Value(reading.node(node, op, [x.node], attrs), x.view)


def where(reading: Any, node: Any, condition: Any, first: Any, second: Any) -> Value:
    return emit(reading, node, "Where", condition, first, second)


def reduced(reading: Any, node: Any, op: str, x: Any, dims: Any = None, keepdim: bool = False) -> Value:
    """Over axes of the program, none of which has the batch."""
    x = materialised(reading.reader, value_of(reading, node, x))
    rank = len(x.shape)
    dims = [dims] if isinstance(dims, int) else list(dims or range(rank))
    dims = {dim % rank for dim in dims} if rank else set()
    axes = [axis_of(x, dim) for dim in sorted(dims)]
    made = reading.node(node, op, [x.node], {"axes": axes}) if axes else x.node
    view = tuple(() if dim in dims else group for dim, group in enumerate(x.view))
    return Value(made, view if keepdim else tuple(group for dim, group in enumerate(view) if dim not in dims))


def axis_of(value: Value, dim: int) -> int:
    """The node's axis that one of the program's is, of a value that is materialised."""
    dim %= len(value.view)
    if any(atom.axis == BATCH for atom in value.view[dim]):
        raise NotExpressible("an operation across the samples of a batch")
    return sum(not is_batch(group) for group in value.view[:dim])


def along(op: str) -> Handler:
    def handler(reading: Any, node: Any, a: Arguments) -> Value:
        x = materialised(reading.reader, value_of(reading, node, a["self"]))
        return Value(reading.node(node, op, [x.node], {"axis": axis_of(x, a["dim"])}), x.view)

    return handler


def normal(reading: Any, node: Any, x: Any, dims: Sequence[int], eps: float) -> Value:
    """With mean 0 and variance 1 over these axes."""
    apart = emit(reading, node, "Sub", x, reduced(reading, node, "ReduceMean", x, dims, True))
    mean = reduced(reading, node, "ReduceMean", emit(reading, node, "Mul", apart, apart), dims, True)
    root = each(reading, node, "Sqrt", emit(reading, node, "Add", mean, eps))
    return emit(reading, node, "Div", apart, root)


def affine(reading: Any, node: Any, x: Value, weight: Any, bias: Any, shape: Sequence[int]) -> Value:
    """Times one array and plus another, in a shape that meets the value's."""
    for op, array in (("Mul", weight), ("Add", bias)):
        if array is not None:
            x = emit(reading, node, op, x, reading.reshape(array, tuple(shape)))
    return x
