"""A user's own data before inputs and target are chosen: named arrays of samples, and words for their faults.

Parent side. Readers of files and of objects make a Source; `own` chooses from it.
"""

import dataclasses
import difflib
from typing import Iterable, Mapping, Sequence

import numpy as np
import psutil

from framework_compare.errors import DataError
from framework_compare.graph.node import feature_axis
from framework_compare.protocol import Document

MEMORY_SHARE = 0.5  # of what is free: more is refused before it is read
Arrays = Mapping[str, np.ndarray]  # by name; the first axis is the samples. Text is an object array of str


class OtherType(str):
    """The type of a column that is read neither as numbers nor as text, in place of each of its values."""


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """Named arrays of a training part and, where the data have one, of a validation part.

    where: the file or the object, for messages. lines: of a text table the line of each sample of the training part.
    classes: names of a column's labels, where the source has them. vocabulary: the number of different tokens of an
    array, where the source says it.
    """

    name: str
    where: str
    train: Arrays
    validation: Arrays | None = None
    facts: Document = dataclasses.field(default_factory=dict)
    lines: Sequence[int] = ()
    classes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    vocabulary: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def check_name(self, name: str, what: str) -> str:
        """DataError for what no array is called, with what is near."""
        if name in self.train:
            return name
        near = difflib.get_close_matches(name, self.train, n=1, cutoff=0.6)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise DataError(f"{self.where} has no {what} {name!r}{meant}; it has {names_of(self.train)}")

    def numbers(self, name: str, split: Arrays) -> np.ndarray:
        """An array as float64, int64, bool or uint8; DataError where it holds text, a gap, or what is not a number."""
        array = split[name]
        if array.dtype.kind == "O":
            self._refuse_text(name, array, split)
        if array.dtype.kind not in "buif":
            raise DataError(f"{self.where}: {name} has the type {array.dtype}; allowed: numbers, or text as a target")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            sample = int(np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))[0])
            raise DataError(
                f"{self._place(sample, split)}: {name} has no finite number; fill or remove such samples, or leave {name} out"
            )
        if array.dtype.kind == "f":
            return array.astype(np.float64)
        if array.dtype == np.uint8 or array.dtype.kind == "b":
            return array
        if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise DataError(f"{self.where}: {name} contains integers beyond 64 bits; save it as floats")
        return array.astype(np.int64)

    def _place(self, sample: int, split: Arrays) -> str:
        if split is not self.train:
            return f"{self.where}, sample {sample} of the validation part"
        return f"{self.where}, line {self.lines[sample]}" if len(self.lines) else f"{self.where}, sample {sample}"

    def _refuse_text(self, name: str, array: np.ndarray, split: Arrays) -> None:
        bad = next((i for i, text in enumerate(array) if not is_number(text)), None)
        if bad is None:  # each is a number, but of no common kind
            raise DataError(f"{self.where}: {name} contains integers beyond 64 bits; write them as floats")
        if isinstance(array[bad], OtherType):
            raise DataError(
                f"{self.where}: {name} has the type {array[bad]}; allowed: numbers, lists of numbers of one length, or text"
                f" as a target; convert it, or name inputs without {name}"
            )
        what = "is empty" if not str(array[bad]).strip() else f"is {str(array[bad])[:20]!r}"
        mend = "encode the text as numbers" if is_text(array) else "fix or remove the row"
        raise DataError(
            f"{self._place(bad, split)}: {name} {what}, not a number; {mend}, or name inputs without {name}"
        )


def is_number(text: object) -> bool:
    """Return whether a text is a number, not "1_000" as Python takes it."""
    try:
        float(str(text).replace("_", "?"))
    except ValueError:
        return False
    return True


def is_text(array: np.ndarray) -> bool:
    """Return whether a column is text on purpose: at least half of it is not a number."""
    some = array[:1000] if array.dtype.kind == "O" else ()
    return len(some) > 0 and sum(map(is_number, some)) * 2 <= len(some)


def column_of(texts: Sequence[str]) -> np.ndarray:
    """A column of a text table: int64 or float64 where every text is a number, else an object array of the texts."""
    kept = text_array(texts)
    if any("_" in text for text in texts):
        return kept
    for kind in (np.int64, np.float64):
        try:
            found = kept.astype(kind)
        except (ValueError, OverflowError):
            continue
        return kept if kind is np.float64 and not np.isfinite(found).any() else found
    return kept


def stacked(rows: Sequence[object], name: str, where: str) -> np.ndarray:
    """Rows of one shape as an array; DataError names the first that has another, or that holds no numbers."""
    if all(isinstance(row, str) for row in rows):
        return text_array(rows)
    try:
        arrays = [np.asarray(row) for row in rows]
    except ValueError as error:
        raise DataError(f"{where}: {name} has a sample that is ragged ({error}); give all parts one length") from None
    for sample, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise DataError(
                f"{where}, sample {sample}: {name} has shape {array.shape}, but the first sample has {arrays[0].shape};"
                " pad or cut all to one shape"
            )
        if array.dtype.kind not in "buif":
            raise DataError(
                f"{where}, sample {sample}: {name} is {type(rows[sample]).__name__}, neither a number nor an array of numbers"
            )
    return np.stack(arrays)


def text_array(texts: Sequence[object]) -> np.ndarray:
    """An object array of texts, however long each is."""
    found = np.empty(len(texts), object)
    found[:] = texts
    return found


def check_lengths(arrays: Arrays, where: str) -> None:
    """DataError where arrays do not have the same number of samples, or none."""
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        words = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:8])
        raise DataError(
            f"{where}: its arrays have different numbers of samples ({words}); the first axis must be the samples"
        )
    if not counts or not next(iter(counts.values())):
        raise DataError(f"{where} has no samples; give one with data")


def check_memory(needed: float, where: str) -> None:
    """DataError for data that take more memory than there is to spare."""
    most = free_bytes()
    if needed > most:
        raise DataError(
            f"{where} would take {needed / 2**30:,.1f} GiB of memory, but {most / 2**30:,.1f} GiB may be used; use a part of it"
        )


def names_of(names: Iterable[object]) -> str:
    """The first twenty names, in words."""
    listed = [str(name)[:30] for name in names]
    more = f" and {len(listed) - 20} more" if len(listed) > 20 else ""
    return ", ".join(listed[:20]) + more


def free_bytes() -> int:
    """Bytes that data may take."""
    return int(MEMORY_SHARE * psutil.virtual_memory().available)


def to_float32(source: Source, name: str, array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        found = array.astype(np.float32)
    if not np.isfinite(found).all():
        raise DataError(f"{source.where}: {name} has numbers beyond float32; normalize or scale them")
    return found


def scaling_of(
    source: Source, name: str, train: np.ndarray, normalize: str
) -> tuple[np.ndarray | float, np.ndarray | float]:
    """Return what is subtracted from each feature and what it is divided by, by the training part."""
    if normalize == "none":
        return 0.0, 1.0
    kept = 1 + feature_axis(train.shape[1:])
    axes = tuple(axis for axis in range(train.ndim) if axis != kept)
    low, high = train.min(axis=axes, keepdims=True), train.max(axis=axes, keepdims=True)
    if (low == high).any():
        which = int(np.argmax((low == high).ravel()))
        raise DataError(f"{source.where}: feature {which} of {name} is the same in all training samples; leave it out")
    if normalize == "minmax":
        return low, high - low
    return train.mean(axis=axes, keepdims=True), train.std(axis=axes, keepdims=True)
