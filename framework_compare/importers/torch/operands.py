"""The place that nodes are made for, and values of a program there as operands.

A handler first reads an operator as a layer, on values whose axes may be folded: `binary`, `select`, `part`. What no layer
is, it makes of primitives, on nodes whose axes are the program's: `emit`, `each`, `reduced`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from framework_compare.graph.primitives import constant_attrs
from framework_compare.importers.common import axes
from framework_compare.importers.common.axes import Operand, Pattern, is_batch, pattern, program_axes, reshaped_node
from framework_compare.importers.common.reading import Place, filled
from framework_compare.importers.common.views import BATCH, NotExpressible, Value, View, moved, shape_of, whole
from framework_compare.json_types import JSON, Document, Fields

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node as FxNode

Arguments = Document
LARGE = 1e30  # in place of infinity, which no gradient passes


class Learned(NamedTuple):
    """A parameter or a buffer of the module, or another shape of it: `form` makes that of the whole array."""

    target: str
    tensor: Tensor
    form: Callable[[Tensor], Tensor] = lambda tensor: tensor

    @property
    def shape(self) -> Tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def content(self) -> bytes:
        """The numbers; their order says how the array was reshaped."""
        return bytes(self.tensor.cpu().numpy().tobytes())

    @property
    def owner(self) -> str:
        """The name of its layer: "fc" of "fc.weight", "attn.in_proj" of "attn.in_proj_weight"."""
        module, _, part = self.target.rpartition(".")
        if part in ("weight", "bias"):
            return module or "layer"
        own = part[: -len("_weight")] if part.endswith("_weight") else part
        return f"{module}.{own}" if module else own

    def through(self, function: Callable[[Tensor], Tensor]) -> "Learned":
        form = self.form
        return Learned(self.target, function(self.tensor), lambda tensor: function(form(tensor)))


class At(Place):
    """The place in a program that nodes of the graph are made for: a Reading, and the program's node.

    shape: that of what the program's node gives, or, where one is given, as if it were that.
    """

    def __init__(self, reading: Any, node: FxNode, shape: Optional[Sequence[int]] = None) -> None:
        super().__init__(reading.reader)
        self.reading, self.node, self.torch = reading, node, reading.torch
        self._shape = shape

    @property
    def shape(self) -> Tuple[int, ...]:
        return tuple(self.node.meta["val"].shape if self._shape is None else self._shape)

    def sized(self, shape: Sequence[int]) -> "At":
        return At(self.reading, self.node, shape)

    # -- nodes ------------------------------------------------------------------------------------------------------

    def own(self, op: str, part: str, array: object) -> Learned:
        """An array of the module's; NotExpressible for one that is computed."""
        if not isinstance(array, Learned):
            raise NotExpressible(f"{op} with a computed {part}")
        return array

    def add(self, op: str, sources: Sequence[str], attrs: Document, **arrays: Optional[Learned]) -> str:
        """A node of the graph, named after its arrays where it has any; an array that is None is left out."""
        own = {part: self.own(op, part, array) for part, array in arrays.items() if array is not None}
        first = self._first_with(op, attrs, own)
        if first and op == "Parameter":
            return first
        if first:
            return self.reader.add(first, op, sources, {**attrs, "arrays": first})
        stem = next(iter(own.values())).owner if own else self.reading.stem(self.node)
        pairs = {part: (array.target, array.tensor.cpu().numpy()) for part, array in own.items()}
        made = self.reader.add(stem, op, sources, attrs, pairs)
        self.reading.forms.update({array.target: array.form for array in own.values()})
        return made

    def _first_with(self, op: str, attrs: Document, own: Mapping[str, Learned]) -> str:
        """The layer that has these arrays already: a module is called again; "" where none has.

        NotExpressible where it is another layer, or one whose running statistics two calls would move.
        """
        names = {target: name for name, target in self.reader.origin.items()}
        taken = {part: names[array.target] for part, array in own.items() if array.target in names}
        if not taken:
            return ""
        first = self.reader.nodes[next(iter(taken.values())).rpartition(".")[0]]
        alike = (first.op, first.attrs, taken) == (op, dict(attrs), {part: f"{first.name}.{part}" for part in own})
        alike = alike and all(self.reader.arrays[taken[part]].tobytes() == own[part].content for part in own)
        if not alike or op == "BatchNorm2d":
            self.reading.shared.update(own[part].target for part in taken)
            raise NotExpressible(f"{op} that shares its {' and '.join(taken)} with another layer")
        return first.name

    def layer(self, op: str, sources: Sequence[str], attrs: Document, **arrays: Optional[Learned]) -> Value:
        """A node whose output is the operator's as it stands."""
        value = self.reader.plain(self.add(op, sources, attrs, **arrays))
        if value.shape != self.shape:
            raise NotExpressible(f"{op} of {value.shape}, which is {self.shape} in torch")
        return value

    def constant(self, array: np.ndarray) -> str:
        return self.reader.once(f"{self.reading.stem(self.node)}.constant", "Constant", [], constant_attrs(array))

    # -- axes -------------------------------------------------------------------------------------------------------

    def reshape(self, value: Any, shape: Sequence[int]) -> Any:
        if isinstance(value, Learned):
            return value.through(lambda tensor: tensor.reshape(tuple(shape)))
        if not isinstance(value, Value):
            return self.torch.as_tensor(value).reshape(tuple(shape))
        try:
            return super().reshape(value, shape)
        except NotExpressible:
            return axes.recut(self.reader, value, shape)

    def permute(self, value: Any, order: Sequence[int]) -> Any:
        order = list(order)
        if isinstance(value, Learned):
            return value.through(lambda tensor: tensor.permute(order))
        if not isinstance(value, Value):
            return self.torch.as_tensor(value).permute(order)
        return super().permute(value, order)

    def expand(self, value: Any, shape: Sequence[int]) -> Any:
        """Broadcasting is left to the op that reads it."""
        if tuple(value.shape) == tuple(shape):
            return value
        return self.reshape(value, filled(value.shape, len(shape), 1))

    def select(self, value: Value, axis: int, index: int) -> Value:
        """One place of an axis, which is gone."""
        axis %= len(value.shape)
        size = value.shape[axis]
        index %= size
        rest = value.view[:axis] + value.view[axis + 1 :]
        if size == 1:
            return Value(value.node, rest)
        shape = self.reader.shapes[value.node]
        if len(shape) == 3:  # tokens of an image
            value = self.reader.tokens(value)
            shape, rest = self.reader.shapes[value.node], value.view[:axis] + value.view[axis + 1 :]
        if len(shape) == 2 and value.view[axis] == whole(0, shape[0]):
            return Value(self.add("Select", [value.node], {"index": index}), moved(rest, (None, 0)))
        part = self.part(value, axis, [1] * size, index)
        return Value(part.node, part.view[:axis] + part.view[axis + 1 :])

    def part(self, value: Value, axis: int, sizes: Sequence[int], index: int) -> Value:
        """A part of an axis, which is the outermost of an axis of the graph."""
        axis %= len(value.shape)
        (atom,) = value.view[axis] if len(value.view[axis]) == 1 else [None]
        shape = self.reader.shapes[value.node]
        if atom is None or atom.axis == BATCH or atom.stride * atom.size != shape[atom.axis]:
            raise NotExpressible(f"a part of folded axes {value.shape}")
        attrs = {"axis": atom.axis, "sizes": [size * atom.stride for size in sizes], "index": index}
        made = self.add("Split", [value.node], attrs)
        left = () if sizes[index] == 1 else (atom._replace(size=sizes[index]),)
        return Value(made, (*value.view[:axis], left, *value.view[axis + 1 :]))

    # -- several operands -------------------------------------------------------------------------------------------

    def binary(self, op: str, first: Any, second: Any) -> Any:
        """Add or Mul of two values, or of one and a parameter or a constant."""
        if not isinstance(first, Value):
            first, second = second, first
        if not isinstance(first, Value):
            raise NotExpressible(f"{op} of parameters alone")
        if isinstance(second, Value):
            return self.both(op, first, second)
        if not isinstance(second, Learned):
            exact = None if isinstance(second, self.torch.Tensor) else self.torch.float64
            second = self._without_batch(Learned("", self.torch.as_tensor(second, dtype=exact)), first)
        shape = filled(second.shape, len(first.view), 1)
        folded = any(size > 1 and len(group) > 1 for size, group in zip(shape, first.view))
        first = self.reader.tokens(first) if folded else first
        name = self._parameter(first, second.through(lambda one: one.reshape(shape)))
        return Value(self.add(op, [first.node, name], {}), first.view)

    def _without_batch(self, constant: Learned, value: Value) -> Learned:
        """A constant that was made for the whole batch, the same for each of it."""
        groups = filled(value.view, len(constant.shape))
        for axis, group in enumerate(groups[len(groups) - len(constant.shape) :]):
            if group == whole(BATCH, self.reader.batch) and constant.shape[axis] > 1:
                first = constant.tensor.narrow(axis, 0, 1)
                if not bool((constant.tensor == first).all()):
                    raise NotExpressible("a constant that differs among the images of a batch")
                constant = Learned("", first)
        return constant

    def _parameter(self, value: Value, array: Learned, free: Optional[int] = None) -> str:
        """A Parameter of the rank of a value, from an array whose axes stand as the value's do.

        free: an axis of the array whose size may be another than the value's.
        """
        rank = len(self.reader.shapes[value.node])
        sizes, kept = [1] * rank, []
        for axis, (size, group) in enumerate(zip(array.shape, value.view)):
            if size == 1 and axis != free:
                continue
            if len(group) != 1 or group[0].axis == BATCH or (size != shape_of((group,))[0] and axis != free):
                raise NotExpressible(f"a parameter of {array.shape} beside {value.shape}")
            kept.append((group[0].axis, axis))
            sizes[group[0].axis] = size
        order = [axis for _, axis in sorted(kept)]
        order = [*(axis for axis in range(len(array.shape)) if axis not in order), *order]
        array = array.through(lambda one: one.permute(order).reshape(tuple(sizes)))
        if not array.target:
            return self.constant(array.tensor.double().numpy())
        return self.add("Parameter", [], {"shape": sizes, "init": "normal_0.02"}, value=array)

    def concat(self, operands: Sequence[Any], axis: int) -> Value:
        return super().concat([one for one in operands if isinstance(one, Value) or math.prod(one.shape)], axis)

    def beside(self, like: Value, array: Any, axis: int) -> str:
        return self._parameter(like, array if isinstance(array, Learned) else Learned("", array), free=axis)

    # -- primitives -------------------------------------------------------------------------------------------------

    def plain(self, value: Value) -> Value:
        """The same array from a node whose axes are the program's."""
        return axes.materialised(self.reader, value)

    def value(self, x: Any) -> Value:
        """An operand as a value: a parameter becomes a node of its own, a constant one that is not trained."""
        if isinstance(x, Value):
            return self.numbers(x)
        for_samples = self.reading.way.of_samples and isinstance(x, self.torch.Tensor) and x.ndim > 1
        if for_samples and len(x) == self.reader.batch and bool((x == x[:1]).all()):  # the same for each of the batch
            name, view = self.value(x[0])
            return Value(name, (whole(BATCH, self.reader.batch), *view))
        (name,), view = self.joined([x])
        return Value(name, view)

    def numbers(self, value: Value) -> Value:
        """Whole numbers become those that the network computes with."""
        if value.node not in self.reading.whole_numbers:
            return value
        return Value(self.reader.once(f"{value.node}.numbers", "Cast", [value.node], {}), value.view)

    def operand(self, x: Any) -> Operand:
        if isinstance(x, Value):
            return Operand(self.plain(self.numbers(x)))
        if isinstance(x, Learned):
            return Operand(None, x)
        array = np.asarray(x.detach().cpu().numpy() if hasattr(x, "detach") else x)
        return Operand(None, np.asarray(np.clip(array.astype(np.float64), -LARGE, LARGE)))

    def joined(self, given: Sequence[Any]) -> Any:
        """Nodes of one rank, whose axes stand alike, and the view of what they give together."""
        operands = [self.operand(x) for x in given]
        patterns = axes.common_patterns(self.reader, operands, max(len(one.shape) for one in operands))
        names = [self.of_rank(one, patterns) for one in operands]
        sizes = [max(column) for column in zip(*(self.reader.shapes[name] for name in names))]
        return names, program_axes(self.reader, patterns, sizes)

    def of_rank(self, one: Operand, patterns: Sequence[Pattern]) -> str:
        """The node of an operand, with as many axes as these."""
        sizes, repeats = axes.sizes_in(one, patterns, self.reader.batch)
        if one.value is not None:
            return reshaped_node(self.reader, one.value.node, sizes)
        if isinstance(one.array, np.ndarray):
            array = axes.without_repeats(one.array, repeats, patterns, self.reader.batch)
            return self.constant(array.reshape(tuple(sizes)))
        if math.prod(one.array.shape) != math.prod(sizes):
            raise NotExpressible("a parameter that differs among the samples of a batch")
        attrs: Fields = {"shape": list(sizes), "init": "normal_0.02"}
        return self.add("Parameter", [], attrs, value=self.reshape(one.array, sizes))

    def like(self, view: View, made: str) -> Value:
        """A node whose axes stand as those of a value did from which it is made, whatever their sizes."""
        return Value(made, program_axes(self.reader, [pattern(group) for group in view], self.reader.shapes[made]))

    def emit(self, op: str, *given: Any, **attrs: Document) -> Value:
        """A primitive of values that broadcast."""
        names, view = self.joined(given)
        return Value(self.add(op, names, attrs), view)

    def each(self, op: str, x: Any, **attrs: JSON) -> Value:
        """An op to which it does not matter how axes are folded."""
        return self.elementwise(op, self.value(x), attrs)

    def squared(self, x: Value) -> Value:
        return Value(self.add("Mul", [x.node, x.node], {}), x.view)

    def reduced(self, op: str, x: Any, dims: Any = None, keepdim: bool = False) -> Value:
        """Over axes of the program, none of which has the batch."""
        x = self.plain(self.value(x))
        rank = len(x.shape)
        dims = [dims] if isinstance(dims, int) else list(dims or range(rank))
        dims = {dim % rank for dim in dims} if rank else set()
        gone = [axis_of(x, dim) for dim in sorted(dims)]
        made = self.add(op, [x.node], {"axes": gone}) if gone else x.node
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
