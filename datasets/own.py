"""A user's own data: inputs and target chosen from a Source, the tasks that they may be for, and the arrays of each.

Parent side. What is inferred is said (`remarks`), and another choice is an option.
"""

import dataclasses
import re
from typing import Mapping, Sequence

import numpy as np

from framework_compare.batches.arrays import Pixels
from framework_compare.datasets.arrays import ArrayData, Split, split_indices
from framework_compare.datasets.columns import Arrays, Source, is_text, names_of, scaling_of, to_float32
from framework_compare.datasets.targets import Target, baseline_of
from framework_compare.errors import DataError, UsageError
from framework_compare.graph import Field, Task
from framework_compare.protocol import Document

Inputs = None | str | Sequence[str] | Mapping[str, str | Sequence[str]]
TARGETS = ("y", "next_tokens", "target", "targets", "label", "labels", "class", "classes")
SCALINGS = ("none", "standard", "minmax")
SHARE = 0.2  # of the samples that validate, where the data have no part of their own for it
IMAGE_CHANNELS = (1, 3, 4)


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """A user's choices for their own data.

    inputs: names of arrays or columns; those of single numbers together are one input. A mapping names each input: its
        value is one array as it is, or columns side by side. Default: all but the target.
    target: the array or column that is learnt, or several columns. Default: the one called y, target, label or class.
    loss: one of LOSSES, in place of what the target suggests.
    validation: the share of the samples that is drawn to validate with, where the data have no such part.
    normalize: "standard" or "minmax", by the training part alone, of inputs that are numbers and of one numeric target.
    window, tokenizer: of text, the tokens of a sample, and the JSON file of a tokenizer in place of bytes.
    """

    inputs: Inputs = None
    target: None | str | Sequence[str] = None
    loss: str | None = None
    validation: float | None = None
    normalize: str = "none"
    window: int | None = None
    tokenizer: str | None = None
    seed: int = 0

    def check(self) -> None:
        """UsageError for a value that is not allowed."""
        if self.normalize not in SCALINGS:
            raise UsageError(f"normalize is {self.normalize!r}; allowed: {', '.join(SCALINGS)}")
        share = self.validation
        if share is not None and not (isinstance(share, float) and 0 < share < 1):
            raise UsageError(f"validation is {share!r}; allowed: a share between 0 and 1")


@dataclasses.dataclass(frozen=True, eq=False)
class OwnData:
    """A user's data before a model decides their task.

    tasks: those that the target allows, with the same inputs, the likeliest first; `outputs` is 0 where a model may have
    more classes than there are labels.
    """

    name: str
    tasks: tuple[Task, ...]
    inputs: Mapping[str, tuple[np.ndarray, np.ndarray]]  # of both parts
    target: tuple[np.ndarray, np.ndarray]  # labels, or numbers
    facts: Document
    pixels: Mapping[str, Pixels]

    def settled(self, task: Task) -> Task:
        """The task with as many outputs as there are classes; of tokens a model may have more."""
        classes = len(self.facts.get("classes", ()))
        if task.loss == "cross_entropy" or not task.outputs:
            return dataclasses.replace(task, outputs=classes)
        if task.loss == "token_cross_entropy" and task.outputs < classes:
            raise UsageError(
                f"{self.name} has {classes} labels, but the model has {task.outputs} outputs; give it as many"
            )
        return task

    def for_task(self, task: Task) -> ArrayData:
        """The data set of one of the tasks, settled."""
        dtype = "int64" if task.target.dtype == "int64" else "float32"
        train, held = (part.astype(dtype).reshape(len(part), *task.target.shape) for part in self.target)
        parts = [
            Split({field.name: self.inputs[field.name][i] for field in task.inputs}, target)
            for i, target in enumerate((train, held))
        ]
        baseline = baseline_of(task, train, len(held))
        shapes = ", ".join(f"{field.name} {field.shape}" for field in task.inputs)
        learns = f"{self.facts['target']} is learnt from {shapes} by {task.loss}"
        facts = {**self.facts, "notes": [learns, *self.facts["notes"]]}
        return ArrayData(self.name, task, parts[0], parts[1], facts, baseline, self.pixels)


def prepare(source: Source, options: DataOptions) -> OwnData:
    """Choose inputs and target from a source; DataError, in one line, where they cannot be."""
    options.check()
    target = _target_names(source, options.target)
    chosen = _input_names(source, options.inputs, target)
    parts, rows = _parts(source, options)
    fields, arrays, pixels = [], {}, {}
    notes: list[str] = []
    for name, columns in chosen.items():
        made = [_input(source, part, columns, index) for part, index in zip(parts, rows)]
        field, pair, scale = _as_field(source, name, made, options.normalize, notes)
        fields.append(field)
        arrays[name] = pair
        pixels.update({} if scale is None else {name: scale})
    both = [_target(source, part, target, index) for part, index in zip(parts, rows)]
    kind = Target(source, target, both, options.loss, options.normalize)
    facts = {
        "generated": False,
        **source.facts,
        "inputs": {name: [columns] if isinstance(columns, str) else list(columns) for name, columns in chosen.items()},
        "target": ", ".join(target),
        "normalize": options.normalize,
        "notes": notes,
        **kind.facts,
    }
    rank = len(fields[0].shape)
    unit = "image" if rank == 3 else "sequence" if rank == 2 or (rank == 1 and fields[0].vocabulary) else "row"
    if options.loss == "mean_output":
        field, arrays[field.name] = kind.as_input()
        fields.append(field)
    tasks = tuple(dataclasses.replace(task, inputs=tuple(fields), unit=unit) for task in kind.tasks)
    return OwnData(source.name, tasks, arrays, kind.values, facts, pixels)


def _target_names(source: Source, given: None | str | Sequence[str]) -> list[str]:
    if given is not None:
        names = [given] if isinstance(given, str) else list(given)
        if not names:
            raise UsageError("target is an empty list; at least one name is needed")
        return [source.check_name(name, "target") for name in names]
    by_lower = {name.lower(): name for name in reversed(list(source.train))}
    found = next((by_lower[name] for name in TARGETS if name in by_lower), None)
    if found is None:
        marks = [mark for mark in (";", "|") if len(source.train) == 1 and mark in next(iter(source.train))]
        remedy = f"separate its columns by commas, not {marks[0]!r}" if marks else "name the target"
        raise DataError(f"{source.where}: {remedy}; it has {names_of(source.train)}")
    return [found]


def _input_names(source: Source, given: Inputs, target: Sequence[str]) -> dict[str, str | list[str]]:
    """Return the array of each input, or the columns that it consists of, by the input's name."""
    if isinstance(given, Mapping):
        named = {str(name): one if isinstance(one, str) else list(one) for name, one in given.items()}
        for one in named.values():
            for name in [one] if isinstance(one, str) else one:
                _check_input(source, name, target)
        if not named:
            raise UsageError("inputs is empty; at least one name is needed")
        return {_plain(name): one for name, one in named.items()}
    names = [given] if isinstance(given, str) else list(given or [name for name in source.train if name not in target])
    for name in names:
        _check_input(source, name, target)
    if not names:
        raise DataError(f"{source.where} has nothing but the target {', '.join(target)}; inputs are needed, too")
    kinds = ((name, source.train[name]) for name in names)  # one number, or one text, for each sample, is a column
    columns = [name for name, one in kinds if one.ndim == 1 or (one.shape[1:] == (1,) and one.dtype.kind != "O")]
    if isinstance(given, str) or (len(names) == 1 and not columns):
        return {_plain(names[0]): names[0]}
    chosen: dict[str, str | list[str]] = {"features": columns} if columns else {}
    chosen.update({_plain(name): name for name in names if name not in columns})
    return chosen


def _check_input(source: Source, name: str, target: Sequence[str]) -> None:
    source.check_name(name, "input")
    if name in target:
        raise UsageError(f"{name!r} is an input and the target; allowed: one of the two")


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_") or "input"


def _parts(source: Source, options: DataOptions) -> tuple[tuple[Arrays, Arrays], tuple[np.ndarray, np.ndarray]]:
    """The arrays of which both parts are, and their rows there."""
    count = len(next(iter(source.train.values())))
    if source.validation is not None:
        if options.validation is not None:
            raise UsageError(f"validation is {options.validation}; {source.where} has a part to validate with")
        held = len(next(iter(source.validation.values())))
        return (source.train, source.validation), (np.arange(count), np.arange(held))
    share = SHARE if options.validation is None else options.validation
    rows = split_indices(count, max(1, round(share * count)), options.seed, name=source.name)
    return (source.train, source.train), rows


def _input(source: Source, part: Arrays, columns: str | Sequence[str], rows: np.ndarray) -> np.ndarray:
    if isinstance(columns, str):
        array: np.ndarray = source.numbers(columns, part)[rows]
        return array.reshape(-1, 1) if array.ndim == 1 and array.dtype.kind == "f" else array
    arrays = [source.numbers(name, part)[rows] for name in columns]
    wide = next((name for name, array in zip(columns, arrays) if array.ndim > 2), None)
    if wide is not None:
        raise DataError(f"{source.where}: {wide} is an array for each sample; name it as an input of its own")
    return np.concatenate([array.reshape(len(rows), -1).astype(np.float64) for array in arrays], axis=1)


def _target(source: Source, part: Arrays, names: Sequence[str], rows: np.ndarray) -> np.ndarray:
    if len(names) == 1:
        whole = part[names[0]] if is_text(part[names[0]]) else source.numbers(names[0], part)
        taken: np.ndarray = whole[rows]
        return taken
    columns = [source.numbers(name, part)[rows] for name in names]
    if any(column.size != len(rows) for column in columns):
        raise DataError(f"{source.where}: the targets {', '.join(names)} are not one number per sample; name one array")
    return np.stack([column.reshape(len(rows)) for column in columns], axis=1)


def _as_field(
    source: Source, name: str, parts: list[np.ndarray], normalize: str, notes: list[str]
) -> tuple[Field, tuple[np.ndarray, np.ndarray], Pixels | None]:
    """The field of an input, its arrays in the form that is stored, and how stored pixels become numbers."""
    train, held = parts
    if train.shape[1:] != held.shape[1:]:
        raise DataError(
            f"{source.where}: {name} has shape {train.shape[1:]} in training, {held.shape[1:]} in validation; they must agree"
        )
    if train.dtype == np.uint8 and train.ndim in (3, 4):
        return _images(name, train, held, notes)
    if train.dtype.kind == "b":
        return Field(name, train.shape[1:], "bool"), (train, held), None
    if train.dtype.kind in "iu" and normalize == "none":
        low, high = min(train.min(), held.min()), max(train.max(), held.max())
        if low < 0 or high >= 2**31 - 1:
            raise DataError(
                f"{source.where}: {name} holds whole numbers from {low} to {high}; allowed for tokens: 0 to {2**31 - 2};"
                " save other numbers as floats, or normalize them"
            )
        kinds = source.vocabulary.get(name, int(high) + 1)
        if name not in source.vocabulary:
            notes.append(f"{name} is read as tokens of {kinds} kinds; save it as floats if it measures")
        return Field(name, train.shape[1:], "int32", kinds), (train.astype(np.int32), held.astype(np.int32)), None
    shift, scale = scaling_of(source, name, train, normalize)
    pair = tuple(to_float32(source, name, (part - shift) / scale) for part in parts)
    positive = all(bool((part >= 0).all()) for part in pair)
    return Field(name, train.shape[1:], positive=positive), (pair[0], pair[1]), None


def _images(
    name: str, train: np.ndarray, held: np.ndarray, notes: list[str]
) -> tuple[Field, tuple[np.ndarray, np.ndarray], Pixels | None]:
    """uint8 (N, H, W), (N, H, W, C) or (N, C, H, W), stored as the last, which becomes 0 to 1."""
    last = train.ndim == 4 and train.shape[3] in IMAGE_CHANNELS and train.shape[1] not in IMAGE_CHANNELS
    if last:
        notes.append(f"{name}: channels are moved to the front")
    train, held = (
        one[:, None] if one.ndim == 3 else np.ascontiguousarray(one.transpose(0, 3, 1, 2)) if last else one
        for one in (train, held)
    )
    notes.append(f"{name} is read as images; 0 to 255 becomes 0 to 1")
    channels = train.shape[1]
    return Field(name, train.shape[1:]), (train, held), Pixels((1 / 255,) * channels, (0.0,) * channels)
