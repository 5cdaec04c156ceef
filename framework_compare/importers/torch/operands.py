"""The place that nodes are made for, and values of a program there as operands: of one rank, reduced, normalised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence, Tuple

import numpy as np

from framework_compare.importers.common.axes import (
    Operand,
    Pattern,
    common_patterns,
    is_batch,
    materialised,
    pattern,
    program_axes,
    reshaped_node,
    sizes_in,
    without_repeats,
)
from framework_compare.importers.common.graph_reader import GraphReader
from framework_compare.importers.common.views import BATCH, NotExpressible, Value, View, whole
from framework_compare.json_types import JSON, Document

if TYPE_CHECKING:
    from torch.fx import Node as FxNode

Arguments = Document
LARGE = 1e30  # in place of infinity, which no gradient passes


class _Sized:
    """A node of the program, as if its output had another shape."""

    def __init__(self, node: FxNode, shape: Sequence[int]) -> None:
        self.node, self.name, self.target = node, node.name, node.target
        self.meta = {**node.meta, "val": np.broadcast_to(np.float32(0), tuple(shape))}


class At(NamedTuple):
    """The place in a program that nodes of the graph are made for: a Reading, and the program's node."""

    reading: Any
    node: FxNode

    @property
    def reader(self) -> GraphReader:
        return self.reading.reader

    @property
    def shape(self) -> Tuple[int, ...]:
        """Return the shape of what the program's node gives."""
        return tuple(self.node.meta["val"].shape)

    def sized(self, shape: Sequence[int]) -> "At":
        """The same place, as if what the program's node gives had another shape."""
        return At(self.reading, _Sized(self.node, shape))

    def add(self, op: str, sources: Sequence[str], attrs: Document, **arrays: object) -> str:
        return self.reading.node(self.node, op, sources, attrs, **arrays)

    def layer(self, op: str, sources: Sequence[str], attrs: Document, **arrays: object) -> Value:
        return self.reading.layer(self.node, op, sources, attrs, **arrays)

    def elementwise(self, op: str, value: Value, attrs: Document) -> Value:
        return self.reading.elementwise(self.node, op, value, attrs)

    def binary(self, op: str, first: Any, second: Any) -> Value:
        return self.reading.binary(self.node, op, first, second)

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        return self.reading.reshape(x, shape)

    def permute(self, x: Any, order: Sequence[int]) -> Any:
        return self.reading.permute(x, order)

    def plain(self, value: Value) -> Value:
        """The same array from a node whose axes are the program's."""
        return materialised(self.reader, value)

    def value(self, x: Any) -> Value:
        """An operand as a value: a parameter becomes a node of its own, a constant one that is not trained."""
        if isinstance(x, Value):
            return self.numbers(x)
        if self.reading.constants_of_samples and self._repeats_for_samples(x):
            name, view = self.value(x[0])
            return Value(name, (whole(BATCH, self.reader.batch), *view))
        (name,), view = self.joined([x])
        return Value(name, view)

    def _repeats_for_samples(self, x: object) -> bool:
        """Return whether a constant array (N, ...) has the same numbers for each of the batch."""
        if not isinstance(x, self.reading.torch.Tensor) or x.ndim < 2 or len(x) != self.reader.batch:
            return False
        return bool((x == x[:1]).all())

    def numbers(self, value: Value) -> Value:
        """Whole numbers become those that the network computes with."""
        if value.node not in self.reading.whole_numbers:
            return value
        return Value(self.reader.once(f"{value.node}.numbers", "Cast", [value.node], {}), value.view)

    def operand(self, x: Any) -> Operand:
        if isinstance(x, Value):
            return Operand(self.plain(self.numbers(x)))
        if hasattr(x, "target"):
            return Operand(None, x)
        array = np.asarray(x.detach().cpu().numpy() if hasattr(x, "detach") else x)
        return Operand(None, np.asarray(np.clip(array.astype(np.float64), -LARGE, LARGE)))

    def joined(self, given: Sequence[Any]) -> Any:
        """Nodes of one rank, whose axes stand alike, and the view of what they give together."""
        operands = [self.operand(x) for x in given]
        patterns = common_patterns(self.reader, operands, max(len(one.shape) for one in operands))
        names = [self.of_rank(one, patterns) for one in operands]
        sizes = [max(column) for column in zip(*(self.reader.shapes[name] for name in names))]
        return names, program_axes(self.reader, patterns, sizes)

    def of_rank(self, one: Operand, patterns: Sequence[Pattern]) -> str:
        """The node of an operand, with as many axes as these."""
        sizes, repeats = sizes_in(one, patterns, self.reader.batch)
        if one.value is not None:
            return reshaped_node(self.reader, one.value.node, sizes)
        if isinstance(one.array, np.ndarray):
            array = without_repeats(one.array, repeats, patterns, self.reader.batch)
            return self.reading.constant_node(self.node, array.reshape(tuple(sizes)))
        if math.prod(one.array.shape) != math.prod(sizes):
            raise NotExpressible("a parameter that differs among the samples of a batch")
        attrs = {"shape": list(sizes), "init": "normal_0.02"}
        return self.add("Parameter", [], attrs, value=one.array.through(lambda t: t.reshape(tuple(sizes))))

    def like(self, view: View, made: str) -> Value:
        """A node whose axes stand as those of a value did from which it is made, whatever their sizes."""
        return Value(made, program_axes(self.reader, [pattern(group) for group in view], self.reader.shapes[made]))

    def emit(self, op: str, *given: Any, **attrs: Document) -> Value:
        """A primitive of values that broadcast."""
        names, view = self.joined(given)
        return Value(self.add(op, names, attrs), view)

    def each(self, op: str, x: Any, **attrs: JSON) -> Value:
        """An op to which it does not matter how axes are folded."""
        x = self.value(x)
        return Value(self.add(op, [x.node], attrs), x.view)

    def squared(self, x: Value) -> Value:
        return Value(self.add("Mul", [x.node, x.node], {}), x.view)

    def reduced(self, op: str, x: Any, dims: Any = None, keepdim: bool = False) -> Value:
        """Over axes of the program, none of which has the batch."""
        x = self.plain(self.value(x))
        rank = len(x.shape)
        dims = [dims] if isinstance(dims, int) else list(dims or range(rank))
        dims = {dim % rank for dim in dims} if rank else set()
        axes = [axis_of(x, dim) for dim in sorted(dims)]
        made = self.add(op, [x.node], {"axes": axes}) if axes else x.node
        view = tuple(() if dim in dims else group for dim, group in enumerate(x.view))
        return Value(made, view if keepdim else tuple(group for dim, group in enumerate(view) if dim not in dims))


Handler = Callable[[At, Arguments], Any]


def axis_of(value: Value, dim: int) -> int:
    """The node's axis that one of the program's is, of a value that is materialised."""
    dim %= len(value.view)
    if any(atom.axis == BATCH for atom in value.view[dim]):
        raise NotExpressible("an operation across the samples of a batch")
    return sum(not is_batch(group) for group in value.view[:dim])


def along(op: str) -> Handler:
    def handler(at: At, a: Arguments) -> Value:
        x = at.plain(at.value(a["self"]))
        return Value(at.add(op, [x.node], {"axis": axis_of(x, a["dim"])}), x.view)

    return handler


def normal(at: At, x: Any, dims: Sequence[int], eps: float) -> Value:
    """Normalise to mean 0 and variance 1 over these axes."""
    apart = at.emit("Sub", x, at.reduced("ReduceMean", x, dims, True))
    mean = at.reduced("ReduceMean", at.emit("Mul", apart, apart), dims, True)
    return at.emit("Div", apart, at.each("Sqrt", at.emit("Add", mean, eps)))


def affine(at: At, x: Value, weight: Any, bias: Any, shape: Sequence[int]) -> Value:
    """Times one array and plus another, in a shape that meets the value's."""
    for op, array in (("Mul", weight), ("Add", bias)):
        if array is not None:
            x = at.emit(op, x, at.reshape(array, tuple(shape)))
    return x
