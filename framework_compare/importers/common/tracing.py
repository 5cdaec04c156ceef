"""Inputs and outputs of any program by their names, for tracing, and arrays that judges of the import start from."""

from typing import Sequence, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph import Field, Task

SEED = 0
IMAGES = 3  # that a model is judged by: not as many as it is read with, so that a batch taken for a constant shows
SAMPLES = 16  # of arrays, which may be vectors before a BatchNormalization


def in_order(names: Sequence[str], fields: Sequence[Field]) -> Tuple[Field, ...]:
    """Return what each input is given: the array of its name, or, where not all have one, those in their order."""
    named = {field.name: field for field in fields}
    if len(names) != len(fields):
        raise UsageError(
            f"it takes {len(names)} inputs ({', '.join(names)}), and the data have {len(fields)} ({', '.join(named)})"
        )
    return tuple(named[name] for name in names) if set(names) == set(named) else tuple(fields)


def output_number(names: Sequence[str], name: str) -> int:
    """The number of the output that is trained: one by its name or number, the first where none is named."""
    numbers = {"": 0, **{str(number): number for number in range(len(names))}}
    numbers.update({own: number for number, own in enumerate(names)})
    if name not in numbers:
        raise UsageError(f"it has no output {name!r}; allowed: {', '.join(names)}")
    return numbers[name]


def moved(rng: np.random.Generator, array: np.ndarray, *, positive: bool) -> np.ndarray:
    """The array from which a judged model starts: float32 numbers, in float64.

    Biases, scales and statistics are moved from their neutral values, so that one left out or taken for another shows; and
    what starts from equal numbers: behind a last layer of zeros every gradient is zero, whatever is there.
    """
    equal = array.size > 0 and bool((array == array.flat[0]).all())
    if array.size <= max(array.shape, default=1) or equal:
        noise = rng.random(array.shape)
        array = array * (0.8 + 0.4 * noise) if positive else array + 0.2 * (noise - 0.5)
    return array.astype(np.float32).astype(np.float64)


def drawn_inputs(task: Task, count: int, rng: np.random.Generator) -> Tuple[np.ndarray, ...]:
    """Float64 numbers, normally distributed, of data never below zero their sizes; tokens of the vocabulary; True and False."""
    found = []
    for field in task.inputs:
        shape = (count, *field.shape)
        if field.dtype == "float32":
            drawn = rng.standard_normal(shape)
            found.append(np.abs(drawn) if field.positive else drawn)
        elif field.dtype == "bool":
            found.append(rng.random(shape) < 0.5)
        else:
            found.append(rng.integers(0, field.vocabulary, shape))
            found[-1].flat[0] = field.vocabulary - 1  # a table with too few rows is found for certain
    return tuple(found)


def drawn_target(task: Task, count: int, rng: np.random.Generator) -> np.ndarray:
    """Labels in turn, numbers by chance."""
    shape = (count, *task.target.shape)
    if task.loss == "mean_output":
        return np.zeros(shape)
    if task.loss == "mse":
        return rng.standard_normal(shape)
    turn = np.arange(int(np.prod(shape))).reshape(shape)
    return (turn % 2).astype(np.float64) if task.loss == "binary_cross_entropy" else turn % task.outputs
