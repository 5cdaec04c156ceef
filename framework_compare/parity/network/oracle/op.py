"""An op of the oracle: its arrays, its answer, and the mode of a pass.

Arrays are (N, C, H, W), (N, rows, across, steps, features) of an image's windows, (N, steps, features) or (N, features),
weights as in `torch.nn`.
"""

import dataclasses
import math
from typing import Callable, Mapping, Union

import numpy as np
from numpy.typing import DTypeLike

from framework_compare.graph import Node

Array = np.ndarray
Weights = Mapping[str, Array]  # of one node, by the last part of their names
Gradients = tuple[tuple[Array, ...], dict[str, Array]]  # of the inputs, of the node's parameters
Backward = Callable[[Array], Gradients]
Result = tuple[Array, Backward]
Inputs = Union[Array, tuple[Array, ...]]  # of a batch: the only input, or several in the task's order
Op = Callable[[Node, Weights, tuple[Array, ...], "Mode"], Result]


@dataclasses.dataclass
class Mode:
    """Mode of a pass; `statistics` takes the running statistics that BatchNorm leaves after a training pass.

    plain_sums: add one by one over images and places, as channels-last kernels do, where numpy and BLAS add in
    blocks and so round less. operand and operand_gradient: what a precision makes of a recurrent layer's state, and of
    its gradient, before each product. copies: numbers of the samples that make up the batch, each any number of times;
    None where each is in it once. A sample's copies have the same values, so that only batch statistics count them.
    """

    training: bool
    plain_sums: bool = False
    statistics: dict[str, Array] = dataclasses.field(default_factory=dict)
    dropout: np.random.Generator | None = None  # None: dropout is off
    operand: Callable[[Array], Array] = lambda x: x
    operand_gradient: Callable[[Array], Array] = lambda x: x
    copies: Array | None = None
    dtype: DTypeLike = np.float64  # of the pass

    def count(self, x: Array) -> int:
        """Values of a channel in the batch."""
        return (len(x) if self.copies is None else len(self.copies)) * math.prod(x.shape[2:])

    def shares(self, x: Array) -> float | Array:
        """Return what each value of a channel counts in a mean over the batch; (N, 1, 1, 1) where samples differ in it."""
        if self.copies is None:
            return 1 / self.count(x)
        times = np.bincount(self.copies, minlength=len(x)).astype(x.dtype)
        return times[:, None, None, None] / x.dtype.type(self.count(x))

    def mean(self, x: Array) -> Array:
        """Over all axes but channels."""
        return self.total(x) / x.dtype.type(self.count(x)) if self.copies is None else self.total(x * self.shares(x))

    def product(self, x: Array, matrix: Array) -> Array:
        """x times the transposed matrix; with plain sums in the other order, which rounds otherwise."""
        return x[..., ::-1] @ matrix[:, ::-1].T if self.plain_sums else x @ matrix.T

    def total(self, x: Array) -> Array:
        """Sum over all axes but channels."""
        if not self.plain_sums:
            return x.sum(axis=(0, 2, 3))
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(-1, x.shape[1]).sum(axis=0)  # row after row


def rows(x: Array) -> Array:
    """(..., features) as (rows, features)."""
    return x.reshape(-1, x.shape[-1])


def summed_to(gradient: Array, shape: tuple[int, ...]) -> Array:
    """The sum over the axes along which an array of that shape was repeated."""
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 != gradient.shape[axis])
    return gradient.sum(axis=axes, keepdims=True) if axes else gradient
