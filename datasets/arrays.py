"""Data sets that are arrays (tokens, series, rows, small images), prepared once and written as one file for all.

Parent side. A reader (prices.py, tweets.py, ...) makes an ArrayData; `write` makes its file; batches/arrays.py reads it
in the worker.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import io
import json
import math
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Callable, ClassVar, Iterator, Mapping

import numpy as np

from framework_compare import registry
from framework_compare.batches import quality
from framework_compare.batches.arrays import DOCUMENT, SPLITS, VERSION, Pixels
from framework_compare.errors import DataError, UnknownNameError, UsageError
from framework_compare.graph import Field, Task
from framework_compare.protocol import Document, Fields, TrainConfig

_NAMED = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip file can state: bytes depend on the data only


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Samples of one split: an array per input field, the target, and arrays that metrics need beside."""

    inputs: Mapping[str, np.ndarray]
    target: np.ndarray
    extras: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.target)

    def chosen(self, rows: np.ndarray) -> Split:
        inputs, extras = ({name: array[rows] for name, array in of.items()} for of in (self.inputs, self.extras))
        return Split(inputs, self.target[rows], extras)


@dataclasses.dataclass(frozen=True, eq=False)
class Baseline:
    """Answers for the validation split that need no network, in the form of a network's output."""

    name: str  # "last day's price", "majority class"
    outputs: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayData:
    """A Dataset of arrays: its task, two splits, facts for the study, a trivial baseline.

    facts are JSON: `generated` (bool), `source` (files with sha256), counts, and what metrics need (`scaling`, `tags`,
    `classes`, `groups`). pixels names the image inputs that are stored as uint8. DataError where the arrays are not
    what the task says.
    """

    name: str
    task: Task
    train: Split
    validation: Split
    facts: Document
    baseline: Baseline
    pixels: Mapping[str, Pixels] = dataclasses.field(default_factory=dict)

    suffix: ClassVar[str] = ".npz"
    bytes_to_make: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for name in SPLITS:
            self._check(name, getattr(self, name))
        expected = (len(self.validation), *self.task.output_shape)
        if self.baseline.outputs.shape != expected:
            raise DataError(
                f"{self.name}: the baseline's outputs are {self.baseline.outputs.shape}, must be {expected}"
            )

    def __len__(self) -> int:
        return len(self.train)

    def configured(self, config: TrainConfig) -> TrainConfig:
        """Return the config for one loader that serves all frameworks, with nothing beside the trainer."""
        return dataclasses.replace(
            config,
            loss=self.task.loss,
            num_classes=self.task.outputs,
            image_size=self.task.image_size,
            flip="none",
            crop="none",
            loader_workers=0,
            pipeline="memory" if config.pipeline == "memory" else "shared",
        )

    def describe(self) -> Fields:
        """Return name, task, counts, facts, checksum and what the baseline reaches."""
        return {
            "name": self.name,
            "task": self.task.to_dict(),
            "samples": {"train": len(self.train), "validation": len(self.validation)},
            "baseline": self.baseline.name,
            "facts": dict(self.facts),
            "images": len(self),  # readers count samples by this name
            "checksum": self.checksum(),
            "baseline_quality": self.baseline_quality(),
        }

    def baseline_quality(self) -> dict[str, float]:
        """Return the metrics of the baseline on the validation split; no loss, as it gives no probabilities."""
        held = self.validation
        found = quality.evaluate(self.task, self.baseline.outputs, held.target, extras=held.extras, facts=self.facts)
        return {name: found[name] for name in self.task.metrics}

    def remarks(self) -> Iterator[str]:
        """Yield the samples and their origin, then what needs no model reaches."""
        origin = "read from files" if self.facts.get("source") else "given as arrays"
        origin = "generated, a stand-in for the real data" if self.facts.get("generated") else origin
        those = self.task.unit if len(self) == 1 else f"{self.task.unit}s"
        yield f"{self.name}: {len(self)} {those} to train on, {len(self.validation)} to validate; {origin}"
        for note in self.facts.get("notes", ()):
            yield f"{self.name}: {note}"
        unit = self.facts.get("scaling", {}).get("unit", "")
        answers = ", ".join(
            f"{name} {value:.4g}" + (f" {unit}" if unit and quality.METRICS[name].unit == "data" else "")
            for name, value in self.baseline_quality().items()
            if math.isfinite(value)
        )
        if answers:
            yield f"{self.name}: without a model, by {self.baseline.name}: {answers}"

    def limited(self, count: int) -> ArrayData:
        """At most `count` samples to train on, and as large a part of those to validate with; drawn evenly, in order."""
        share, kept = min(1.0, count / len(self.train)), []
        for size in (len(self.train), len(self.validation)):
            # Spread over the whole: sets that are sorted by class keep all classes.
            kept.append(np.unique(np.linspace(0, size - 1, max(1, round(size * share))).round().astype(int)))
        same = self.baseline.outputs.strides[0] == 0  # one answer for all samples, of which a choice is no copy
        outputs = self.baseline.outputs[: len(kept[1])] if same else self.baseline.outputs[kept[1]]
        return dataclasses.replace(
            self,
            train=self.train.chosen(kept[0]),
            validation=self.validation.chosen(kept[1]),
            baseline=Baseline(self.baseline.name, outputs),
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file that workers read, the same bytes for the same data; nothing is left of one that fails."""
        target = Path(os.path.abspath(path))
        try:
            with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as half:
                self._write(f"{half}/{target.name}")
                os.replace(f"{half}/{target.name}", target)
        except OSError as error:
            raise DataError(f"data set {self.name!r} cannot be written to {str(target)!r}: {error}") from error

    def checksum(self) -> str:
        """sha256 of the bytes that `write` would write."""
        file = io.BytesIO()
        self._write(file)
        return hashlib.sha256(file.getbuffer()).hexdigest()

    def _write(self, path: str | io.BytesIO) -> None:
        document = {
            "version": VERSION,
            "task": self.task.to_dict(),
            "pixels": {name: pixels._asdict() for name, pixels in self.pixels.items()},
            "facts": dict(self.facts),
        }
        with zipfile.ZipFile(path, "w") as archive:
            text = json.dumps(document, sort_keys=True, allow_nan=False)
            archive.writestr(_member(DOCUMENT), text.encode())
            members = {}
            for split in SPLITS:
                arrays: Split = getattr(self, split)
                members.update({f"{split}.input.{name}": array for name, array in arrays.inputs.items()})
                members[f"{split}.target.{self.task.target.name}"] = arrays.target
                members.update({f"{split}.extra.{name}": array for name, array in arrays.extras.items()})
            for name, array in sorted(members.items()):
                with archive.open(_member(name + ".npy"), "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)

    def _check(self, split: str, arrays: Split) -> None:
        where = f"data set {self.name!r}, {split} split"
        if not len(arrays):
            raise DataError(f"{where}: it has no samples; at least one is needed")
        names = [field.name for field in self.task.inputs]
        if sorted(arrays.inputs) != sorted(names):
            raise DataError(f"{where}: its inputs are {sorted(arrays.inputs)}, the task asks for {sorted(names)}")
        for field in self.task.inputs:
            _check_field(where, field, arrays.inputs[field.name], len(arrays), field.name in self.pixels)
        _check_field(where, self.task.target, arrays.target, len(arrays), False)
        target, loss = arrays.target, self.task.loss
        if loss == "binary_cross_entropy" and not np.isin(target, (0, 1)).all():
            raise DataError(f"{where}: {self.task.target.name} has values that are neither 0 nor 1")
        least = {"cross_entropy": 0, "token_cross_entropy": -1}.get(loss)
        if least is not None and (target.min() < least or target.max() >= self.task.outputs):
            raise DataError(
                f"{where}: {self.task.target.name} has labels from {target.min()} to {target.max()}, "
                f"allowed: {least} to {self.task.outputs - 1}"
            )
        for name, extra in arrays.extras.items():
            if len(extra) != len(arrays):
                raise DataError(f"{where}: extra {name!r} has {len(extra)} samples, must be {len(arrays)}")


def load(name: str, path: str | os.PathLike[str] | None = None, **options: object) -> ArrayData:
    """A data set of registry.DATASETS that is arrays: from the user's file or folder, or generated where no path is given.

    UsageError for an unknown name or option, DataError for a path that is missing or cannot be read as asked.
    """
    function, allowed = _function(name), options_of(name)
    for option in options:
        if option not in allowed:
            raise UsageError(f"data set {name!r} has no option {option!r}; allowed: {', '.join(allowed)}")
    if path is None:
        return function(None, **options)
    expanded = Path(os.path.abspath(os.path.expanduser(path)))
    if not expanded.exists():
        raise DataError(f"data set path {str(path)!r} does not exist; without a path the data are generated")
    return function(expanded, **options)


def options_of(name: str) -> list[str]:
    """The options that such a data set takes."""
    return [option for option in inspect.signature(_function(name)).parameters if option != "path"]


def _function(name: str) -> Callable[..., ArrayData]:
    source = registry.data_source(name)
    if source is None or not source.arrays:
        raise UnknownNameError("data set", name, [name for name, one in registry.DATASETS.items() if one.arrays])
    return registry.load(source.make)


def split_indices(count: int, validation: int, seed: int, *, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the train and the validation split, drawn by `seed`, each in rising order."""
    if not 0 < validation < count:
        raise DataError(
            f"{name}: validation takes {validation} of {count} samples; it must leave both splits at least one"
        )
    order = np.random.RandomState(seed & 0xFFFFFFFF).permutation(count)
    return np.sort(order[validation:]), np.sort(order[:validation])


def majority_outputs(train: np.ndarray, count: int, classes: int) -> np.ndarray:
    """Logits (count, classes) that always answer with the most frequent label of `train`, the first of equals."""
    outputs = np.zeros((count, classes), np.float32)
    outputs[:, np.bincount(train, minlength=classes).argmax()] = 1
    return outputs


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _NAMED)
    info.create_system = 3  # else the operating system's number is among the bytes
    return info


def _check_field(where: str, field: Field, array: np.ndarray, count: int, is_pixels: bool) -> None:
    dtype = "uint8" if is_pixels else field.dtype
    if array.dtype != dtype or array.shape != (count, *field.shape):
        raise DataError(
            f"{where}: {field.name} is {array.dtype} {array.shape}, the task asks for {dtype} {(count, *field.shape)}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array.reshape(count, -1)).all(axis=1))[0])
        raise DataError(f"{where}: {field.name} of sample {row} has a value that is not finite; remove or replace it")
    if field.vocabulary and (array.min() < 0 or array.max() >= field.vocabulary):
        raise DataError(
            f"{where}: {field.name} holds tokens from {array.min()} to {array.max()}, "
            f"allowed: 0 to {field.vocabulary - 1}"
        )
