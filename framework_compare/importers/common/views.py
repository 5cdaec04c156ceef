"""Arrays of a foreign program as views of a graph's values: which parts of which axes stand where.

A program folds, splits and permutes axes, the batch's among them; the graph has images, sequences and vectors. So each
axis of a program's array is a product of atoms, each a part of one axis of the value, outermost first: of an image
(C, H, W) "flatten(2).transpose(1, 2)" is ((N), (H, W), (C)).
"""

import math
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from framework_compare.errors import UsageError
from framework_compare.graph.node import Shape

BATCH = -1  # as an axis


class NotExpressible(UsageError):
    """Error for a layer that the graph has no op for; the message names the layer and the part at fault."""


class Atom(NamedTuple):
    """Places of an axis in steps of `stride`, `size` of them; the whole axis has stride 1."""

    axis: int
    stride: int
    size: int


Group = Tuple[Atom, ...]
View = Tuple[Group, ...]


class Value(NamedTuple):
    """An array of the program: the node of the graph that gives it, and how its axes are made of that node's."""

    node: str
    view: View

    @property
    def shape(self) -> Shape:
        return shape_of(self.view)


def shape_of(view: View) -> Shape:
    return tuple(math.prod(atom.size for atom in group) for group in view)


def whole(axis: int, size: int) -> Group:
    """An axis as it is; one of a single place needs no atom."""
    return (Atom(axis, 1, size),) if size > 1 else ()


def plain(batch: int, shape: Shape) -> View:
    """The batch, then the axes of the value in their order."""
    return (whole(BATCH, batch), *(whole(axis, size) for axis, size in enumerate(shape)))


def joined(atoms: Iterable[Atom]) -> Group:
    """Neighbours that are parts of one axis in its own order become one."""
    group: List[Atom] = []
    for atom in atoms:
        if atom.size == 1:
            continue
        if group and group[-1].axis == atom.axis and group[-1].stride == atom.stride * atom.size:
            atom = Atom(atom.axis, atom.stride, group.pop().size * atom.size)
        group.append(atom)
    return tuple(group)


def reshaped(view: View, shape: Sequence[int]) -> View:
    """The same numbers in another shape; NotExpressible where an axis would be cut in no whole parts."""
    atoms = [atom for group in view for atom in group]
    groups = []
    for size in shape:
        taken, left = [], size
        while left > 1:
            if not atoms:
                raise NotExpressible(f"reshape of {shape_of(view)} to {tuple(shape)}")
            atom = atoms.pop(0)
            if left % atom.size == 0:
                taken.append(atom)
                left //= atom.size
            elif atom.size % left == 0:
                rest = atom.size // left
                taken.append(Atom(atom.axis, atom.stride * rest, left))
                atoms.insert(0, Atom(atom.axis, atom.stride, rest))
                left = 1
            else:
                raise NotExpressible(f"reshape of {shape_of(view)} to {tuple(shape)}")
        groups.append(joined(taken))
    return tuple(groups)


def moved(view: View, axes: Sequence[Optional[int]]) -> View:
    """The view of a value whose axis i has become axes[i]; None for an axis that is gone."""

    def move(atom: Atom) -> Atom:
        if atom.axis == BATCH:
            return atom
        axis = axes[atom.axis]
        if axis is None:
            raise NotExpressible("an axis that is reduced and used")
        return Atom(axis, atom.stride, atom.size)

    return tuple(tuple(move(atom) for atom in group) for group in view)
