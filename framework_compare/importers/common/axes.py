"""Values as nodes whose axes are those of the program: what primitives read.

A program's axis is the batch, an axis of the node, or both folded into one; `materialised` makes it so.
"""

import itertools
import math
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from framework_compare.importers.common.graph_reader import GraphReader
from framework_compare.importers.common.views import BATCH, Atom, Group, NotExpressible, Value, View, whole

Pattern = Tuple[bool, ...]  # of a program's axis: for each of its parts whether it is the batch


def _inner(group: Group) -> List[Atom]:
    return [atom for atom in group if atom.axis != BATCH]


def size_of(group: Group) -> int:
    return math.prod(atom.size for atom in _inner(group))


def pattern(group: Group) -> Pattern:
    """Return how the batch stands in an axis; an axis that is split by it has no form here."""
    short = tuple(kind for kind, _ in itertools.groupby(atom.axis == BATCH for atom in group))
    if len(short) > 2:
        raise NotExpressible("an axis on both sides of the batch")
    return short


def is_batch(group: Group) -> bool:
    return pattern(group) == (True,)


def materialised(reader: GraphReader, value: Value) -> Value:
    """The same array from a node whose axes are the program's, in their order, without the batch."""
    name, view = value
    sizes = [size_of(group) for group in view if not is_batch(group)]
    atoms = [atom for group in view for atom in _inner(group)]
    places = sorted(range(len(atoms)), key=lambda place: (atoms[place].axis, -atoms[place].stride))
    cut = tuple(atoms[place].size for place in places)
    if math.prod(cut) != math.prod(reader.shapes[name]):
        raise NotExpressible(f"a part of {reader.shapes[name]}, folded to {value.shape}")
    order = [places.index(place) for place in range(len(atoms))]
    if order != sorted(order):
        name = reshaped_node(reader, name, cut)
        name = reader.once(f"{name}.permuted", "Permute", [name], {"order": order})
    name = reshaped_node(reader, name, sizes)
    return Value(name, program_axes(reader, [pattern(group) for group in view], sizes))


def program_axes(reader: GraphReader, patterns: Sequence[Pattern], sizes: Sequence[int]) -> View:
    """The axes of a program by those of a node, which has these sizes."""
    groups, left = [], list(enumerate(sizes))
    for how in patterns:
        axis, size = (0, 1) if how == (True,) else left.pop(0)
        parts = [whole(BATCH, reader.batch) if part else whole(axis, size) for part in (how or (False,))]
        groups.append(tuple(atom for part in parts for atom in part))
    return tuple(groups)


def reshaped_node(reader: GraphReader, name: str, shape: Sequence[int]) -> str:
    if tuple(shape) == reader.shapes[name]:
        return name
    return reader.once(f"{name}.reshaped", "Reshape", [name], {"shape": list(shape)})


def rows(reader: GraphReader, value: Value) -> Tuple[str, View]:
    """The value as a vector or a sequence whose features are the program's last axis, and the view of it."""
    value = materialised(reader, value)
    shape = reader.shapes[value.node]
    if not value.view or (value.view[-1] and any(atom.axis == BATCH for atom in value.view[-1])):
        raise NotExpressible(f"features of {value.shape} with the batch in them")
    if len(shape) < 2:
        return value.node, value.view
    name = reshaped_node(reader, value.node, (math.prod(shape[:-1]), shape[-1]))
    groups = []
    for group in value.view[:-1]:
        stride = {axis: math.prod(shape[axis + 1 : -1]) for axis in range(len(shape))}
        groups.append(tuple(atom if atom.axis == BATCH else Atom(0, stride[atom.axis], atom.size) for atom in group))
    return name, (*groups, whole(1, shape[-1]))


class Operand(NamedTuple):
    """A value, or an array without a batch that is yet to become a node."""

    value: Optional[Value]
    array: Any = None  # with .shape; numpy's or the program's own

    @property
    def shape(self) -> Tuple[int, ...]:
        return tuple(self.array.shape) if self.value is None else self.value.shape


def common_patterns(reader: GraphReader, operands: Sequence[Operand], rank: int) -> List[Pattern]:
    """Return how the batch stands in each axis of what several operands give together."""
    found: List[Pattern] = []
    for axis in range(-rank, 0):
        groups = [one.value.view[axis] for one in operands if one.value is not None and len(one.value.view) >= -axis]
        kinds = {pattern(group) for group in groups if True in pattern(group)}
        if len(kinds) > 1:
            raise NotExpressible("values with the batch on different axes")
        found.append(kinds.pop() if kinds else (False,))
    return found


def sizes_in(operand: Operand, patterns: Sequence[Pattern], batch: int) -> Tuple[List[int], List[int]]:
    """The node's shape that an operand needs, and the axes of its array that repeat it for each of the batch."""
    missing = len(patterns) - len(operand.shape)
    sizes, repeats = [], []
    for axis, how in enumerate(patterns):
        size = 1 if axis < missing else operand.shape[axis - missing]
        if True not in how:
            sizes.append(size)
            continue
        group: Group = () if axis < missing or operand.value is None else operand.value.view[axis - missing]
        own = size
        if any(atom.axis == BATCH for atom in group):
            own = size_of(group)
        elif size > 1 and operand.value is None:
            repeats.append(axis - missing)
            own = size // batch
        elif size > 1:
            raise NotExpressible("a value without a batch beside one that differs in it")
        if how != (True,):
            sizes.append(own)
    return sizes, repeats


def without_repeats(array: np.ndarray, axes: Sequence[int], patterns: Sequence[Pattern], batch: int) -> np.ndarray:
    """A constant that was made for the whole batch, the same for each of it, once."""
    missing = len(patterns) - array.ndim
    for axis in axes:
        how = patterns[axis + missing]
        shape = array.shape
        inner = shape[axis] // batch
        cut = (batch, inner) if how[0] else (inner, batch)
        split = array.reshape(*shape[:axis], *cut, *shape[axis + 1 :])
        place = axis if how[0] else axis + 1
        first = split.take([0], axis=place)
        if shape[axis] % batch or not (split == first).all():
            raise NotExpressible("a constant that differs among the samples of a batch")
        array = first.reshape(*shape[:axis], inner, *shape[axis + 1 :])
    return array


def recut(reader: GraphReader, value: Value, shape: Sequence[int]) -> Value:
    """The numbers in their order in another shape, whose axes are no parts of those there are."""
    value, batch = materialised(reader, value), reader.batch
    atoms = [atom for group in value.view for atom in group]
    if not any(atom.axis == BATCH for atom in atoms):
        return Value(reshaped_node(reader, value.node, shape), program_axes(reader, [(False,)] * len(shape), shape))
    place = next((axis for axis, size in enumerate(shape) if size > 1), 0)
    if atoms[0].axis != BATCH or not shape or shape[place] % batch:
        raise NotExpressible(f"reshape of {value.shape} to {tuple(shape)}")
    inner = [shape[place] // batch, *shape[place + 1 :]] if shape[place] > batch else [*shape[place + 1 :]]
    patterns: List[Pattern] = [(False,)] * len(shape)
    patterns[place] = (True, False) if shape[place] > batch else (True,)
    sizes = [*[1] * place, *inner]
    return Value(reshaped_node(reader, value.node, sizes), program_axes(reader, patterns, sizes))
