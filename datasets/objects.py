"""Data in hand: arrays by name, a pair of arrays, a data frame, or an iterable of samples, read once."""

import hashlib
import itertools
import os
from typing import Any, Iterable, Mapping

import numpy as np

from framework_compare.datasets.array_files import of_arrays
from framework_compare.datasets.columns import Source, check_memory, free_bytes, names_of, stacked, text_array
from framework_compare.datasets.source_files import one_line
from framework_compare.errors import DataError
from framework_compare.protocol import Fields

CHECKED_EVERY = 1024  # samples of an iterable, which may have no end


def is_data(given: object) -> bool:
    """Return whether an object is data, not the name or the path of some, nor a list of these."""
    if given is None or isinstance(given, (str, os.PathLike)):
        return False
    return not isinstance(given, (list, tuple)) or any(not isinstance(one, (str, os.PathLike)) for one in given)


def read(given: object) -> Source:
    """The arrays of an object; DataError where it is none of what is read."""
    where = f"the {type(given).__name__} given as data"
    arrays = _arrays(given, where)
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(name.encode() + str(array.dtype).encode() + str(array.shape).encode())
        digest.update(
            repr(array.tolist()).encode() if array.dtype.kind == "O" else np.ascontiguousarray(array).tobytes()
        )
    return of_arrays(f"arrays-{digest.hexdigest()[:8]}", where, arrays, {"source": [], "sha256": digest.hexdigest()})


def _arrays(given: Any, where: str) -> dict[str, np.ndarray]:
    if hasattr(given, "to_numpy") and hasattr(given, "columns"):  # a data frame
        return {str(name): _array(given[name].to_numpy(), str(name), where) for name in given.columns}
    if isinstance(given, Mapping):
        return {str(name): _array(array, str(name), where) for name, array in given.items()}
    if isinstance(given, (tuple, list)) and len(given) == 2:
        if all(isinstance(part, (tuple, list)) and len(part) == 2 and all(map(_is_array, part)) for part in given):
            parts = zip(("train", "test"), given)  # as keras.datasets gives them
            return {f"{n}_{part}": _array(a, n, where) for part, pair in parts for n, a in zip(("x", "y"), pair)}
        if _is_array(given[0]) and _is_array(given[1]):
            return {name: _array(array, name, where) for name, array in zip(("x", "y"), given)}
    if isinstance(given, Iterable) or hasattr(given, "__getitem__"):
        return _samples(given, where)
    raise DataError(f"data set is {type(given).__name__}; allowed: a path, arrays by name, a pair of arrays, samples")


def _is_array(given: object) -> bool:
    return hasattr(given, "shape") and len(given.shape) > 0


def _array(given: Any, name: str, where: str) -> np.ndarray:
    try:
        array = np.asarray(_plain(given))
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: {name} is not an array: {one_line(error)}") from None
    if array.dtype.kind in "OU":
        rows = list(given)
        return text_array(rows) if all(isinstance(row, str) for row in rows) else stacked(rows, name, where)
    if not array.ndim:
        raise DataError(f"{where}: {name} is a single number; the first axis must be the samples")
    return array


def _samples(given: Any, where: str) -> dict[str, np.ndarray]:
    """Samples that are pairs (x, y), longer tuples with the target last, or arrays by name."""
    rows: list[object] = []
    first_bytes, most = 0, free_bytes()
    # A map-style data set has places and a length only.
    iterator = iter(given) if isinstance(given, Iterable) else (given[number] for number in range(len(given)))
    for number in itertools.count():
        try:
            row = next(iterator)
        except (StopIteration, IndexError):
            break
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"{where} fails at sample {number}: {type(error).__name__}: {one_line(error)}") from error
        rows.append(row)
        first_bytes = first_bytes or sum(np.asarray(value).nbytes for value in _named(row, where, 0).values())
        if number % CHECKED_EVERY == 0 and number * first_bytes > most:
            check_memory(number * first_bytes * 2, where)
    if not rows:
        raise DataError(f"{where} has no samples; give one with data")
    named = [_named(row, where, number) for number, row in enumerate(rows)]
    for number, one in enumerate(named):
        if set(one) != set(named[0]):
            raise DataError(f"{where}, sample {number} has {names_of(one)}, but the first has {names_of(named[0])}")
    return {name: stacked([one[name] for one in named], name, where) for name in named[0]}


def _named(row: object, where: str, number: int) -> Fields:
    if isinstance(row, Mapping):
        return {str(name): _plain(value) for name, value in row.items()}
    if isinstance(row, (tuple, list)) and len(row) >= 2:
        inputs = ["x"] if len(row) == 2 else [f"x{i}" for i in range(1, len(row))]
        return {name: _plain(value) for name, value in zip([*inputs, "y"], row)}
    raise DataError(f"{where}, sample {number} is {type(row).__name__}; allowed: (x, y), or arrays by name")


def _plain(value: object) -> object:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value
