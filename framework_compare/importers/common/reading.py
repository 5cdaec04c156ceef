"""Values of a foreign program, and the ops on them, whatever its layers are called."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, List, Mapping, Sequence, Tuple, TypeVar

from framework_compare.importers.common.graph_reader import GraphReader
from framework_compare.importers.common.views import BATCH, NotExpressible, Value, View, reshaped, whole
from framework_compare.json_types import Document

if TYPE_CHECKING:
    import numpy as np

_T = TypeVar("_T")


def left_out(sizes: Mapping[str, int], separator: str) -> List[str]:
    """A note on arrays of the program that the graph has not, where there are any: how many numbers, and whose."""
    if not sizes:
        return []
    owners = ", ".join(sorted({name.partition(separator)[0] for name in sizes}))
    return [f"{sum(sizes.values()):,} parameters are removed, because the trained output does not need them: {owners}"]


def filled(view: Sequence[Any], width: int, filler: Any = ()) -> Tuple[Any, ...]:
    """Return the view with as many axes in front as are missing."""
    return (*[filler] * (width - len(view)), *view)


class Place(abc.ABC):
    """A place in a program that nodes are made for, and named after: ops on values whose axes stand as the program's do."""

    def __init__(self, reader: GraphReader) -> None:
        self.reader = reader

    @abc.abstractmethod
    def add(self, op: str, sources: Sequence[str], attrs: Document, **arrays: Any) -> str:
        """A node of the graph, and its arrays as the program has them."""

    def beside(self, like: Value, array: np.ndarray, axis: int) -> str:
        """The node of an array of the program that joins values along an axis."""
        raise NotExpressible("Concat of something that is not an array")

    def elementwise(self, op: str, value: Value, attrs: Document) -> Value:
        """An op to which it does not matter how axes are folded."""
        return Value(self.add(op, [value.node], attrs), value.view)

    def on_features(self, op: str, value: Value, attrs: Document, **arrays: object) -> Value:
        """An op on the last axis, which must be all features of a value; the other axes stay as they are."""
        name, view = self.reader.features_last(value)
        return self.with_features(self.add(op, [name], attrs, **arrays), view)

    def with_features(self, made: str, view: View) -> Value:
        """A node in whose view the last axis is its features."""
        return Value(made, (*view[:-1], whole(self.reader.feature_axis(made), self.reader.width(made))))

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        return self.reader.settled(Value(value.node, reshaped(value.view, shape)))

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        return Value(value.node, tuple(value.view[axis] for axis in order))

    def resized(self, value: Value, made: str) -> Value:
        """A value's view of a node whose axes are those of the value's, some of another size; none of these is folded."""
        new, old = self.reader.shapes[made], self.reader.shapes[value.node]
        groups = []
        for group in value.view:
            axes = {atom.axis for atom in group}
            if len(axes) == 1 and BATCH not in axes and group == whole(group[0].axis, old[group[0].axis]):
                group = whole(group[0].axis, new[group[0].axis])
            elif any(axis != BATCH and new[axis] != old[axis] for axis in axes):
                raise NotExpressible(f"a part of folded axes {value.shape}")
            groups.append(group)
        return Value(made, tuple(groups))

    def both(self, op: str, first: Value, second: Value) -> Value:
        """Add or Mul of two values; a vector beside an image becomes one of a pixel, an image beside a sequence steps."""
        reader = self.reader
        ranks = [len(reader.shapes[value.node]) for value in (first, second)]
        if sorted(ranks) == [1, 3]:
            reader.lift((first if ranks[0] == 1 else second).node)
        if sorted(ranks) == [2, 3]:
            first, second = reader.tokens(first), reader.tokens(second)
        width = max(len(first.view), len(second.view))
        pairs = list(zip(filled(first.view, width), filled(second.view, width)))
        if any(one and other and one != other for one, other in pairs):
            raise NotExpressible(f"{op} of {first.shape} and {second.shape}, folded differently")
        view = tuple(one or other for one, other in pairs)
        atoms = [atom for group in view for atom in group]
        if len(set(atoms)) < len(atoms):
            raise NotExpressible(
                f"{op} of {first.shape} and {second.shape}, an axis of one beside another of the other"
            )
        return Value(self.add(op, [first.node, second.node], {}), view)

    def concat(self, operands: Sequence[Any], axis: int) -> Value:
        """Values, and perhaps arrays beside them, one behind the other along an axis of the program."""
        if len({isinstance(one, Value) for one in operands}) > 1 or any(len(one.shape) == 3 for one in operands):
            operands = [self.reader.tokens(one) if isinstance(one, Value) else one for one in operands]
        if len({len(self.reader.shapes[one.node]) for one in operands if isinstance(one, Value)}) > 1:
            operands = [self.reader.vector(one) if isinstance(one, Value) else one for one in operands]
        like = next((one for one in operands if isinstance(one, Value)), None)
        if like is None:
            raise NotExpressible("Concat of parameters alone")
        axis %= len(like.view)
        along = self._along(like, axis)
        names = []
        for one in operands:
            if not isinstance(one, Value):
                names.append(self.beside(like, one, axis))
                continue
            ranks = {len(self.reader.shapes[value.node]) for value in (one, like)}
            if len(ranks) > 1 or _but(one.view, axis) != _but(like.view, axis):
                raise NotExpressible(f"Concat of {like.shape} and {one.shape}, folded differently")
            names.append(one.node)
        attrs = {} if along == self.reader.feature_axis(like.node) else {"axis": along}
        made = self.add("Concat", names, attrs)
        size = self.reader.shapes[made][along]
        return Value(made, (*like.view[:axis], whole(along, size), *like.view[axis + 1 :]))

    def _along(self, like: Value, axis: int) -> int:
        """The axis of the graph that one of the program's is, which may be of a single place."""
        group = like.view[axis]
        others = {atom.axis for one in _but(like.view, axis) for atom in one}
        left = [one for one in range(len(self.reader.shapes[like.node])) if one not in others]
        along = group[0].axis if len(group) == 1 else left[0] if not group and len(left) == 1 else BATCH
        if along == BATCH:
            raise NotExpressible(f"Concat along folded axes {like.shape}")
        return along


def _but(view: Sequence[_T], axis: int) -> List[_T]:
    return [group for place, group in enumerate(view) if place != axis]
