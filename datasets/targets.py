"""Targets in a user's data: labels, numbers, yes or no, and the tasks that these may be for."""

import dataclasses
from typing import Sequence

import numpy as np

from framework_compare.datasets.arrays import Baseline, majority_outputs
from framework_compare.datasets.columns import Source, scaling_of, to_float32
from framework_compare.errors import DataError, UnknownNameError, UsageError
from framework_compare.graph import Field, Task
from framework_compare.graph.task import LOSSES
from framework_compare.protocol import Fields

MOST_CLASSES = 1000  # of whole numbers that are taken for labels


class Target:
    """The target of both parts, the tasks that it may be for, and what a study keeps of it."""

    def __init__(
        self, source: Source, names: Sequence[str], arrays: Sequence[np.ndarray], loss: str | None, normalize: str
    ) -> None:
        """arrays: of both parts. loss: that the user names, None for the one that the values suggest."""
        self._source, self._names, self._normalize = source, names, normalize
        self._own = loss == "mean_output"  # a function of the user's, which takes a target of any shape
        self._loss = loss = None if self._own else loss
        self.facts: Fields = {}
        self.tasks: Sequence[Task] = ()
        self.values: tuple[np.ndarray, np.ndarray]
        train, held = arrays
        if loss not in (None, *LOSSES):
            raise UnknownNameError("loss_function", loss, LOSSES)
        if loss == "cross_entropy" and train.size != len(train):
            shape = "x".join(map(str, train.shape[1:]))
            raise UsageError(
                f"loss_function is 'cross_entropy'; the target {names[0]} has {shape} values for each sample, and it takes"
                " one label"
            )
        if train.dtype.kind == "O":
            if loss not in (None, "cross_entropy", "binary_cross_entropy"):
                raise UsageError(
                    f"loss_function is {loss!r}; the target {names[0]} is text, which is for 'cross_entropy'"
                )
            self._labels(train, held)
        elif train.ndim > 2 and train.dtype.kind == "f":
            self._numbers(train, held)
        elif train.dtype.kind in "iub" and train.ndim >= 2 and train.shape[1:] != (1,) and loss is None:
            self._tokens(train, held)
        elif loss == "token_cross_entropy":
            self._tokens(train, held)
        elif loss == "mse" or (loss is None and not self._is_of_classes(train, held)):
            self._numbers(train, held)
        elif loss == "binary_cross_entropy" and train.ndim == 2 and train.shape[1] > 1:
            if not np.isin(np.concatenate([train, held]), (0, 1)).all():
                raise DataError(f"{source.where}: the target has values that are neither 0 nor 1")
            self.values, width = (train, held), train.shape[1]
            self.tasks = [Task((), Field("labels", (width,)), width, loss, ("accuracy", "auc"))]
        else:
            self._labels(train.reshape(len(train)), held.reshape(len(held)))

    def as_input(self) -> tuple[Field, tuple[np.ndarray, np.ndarray]]:
        """The target as the last input of a network that computes the losses itself, which has no other."""
        task, (train, held) = self.tasks[-1], self.values
        field, dtype = dataclasses.replace(task.target, name="target"), "float32"
        if task.target.dtype == "int64":
            if min(train.min(), held.min()) < 0:
                free = len(self.facts["classes"])
                raise DataError(
                    f"{self._source.where}: the target {self._names[0]} has labels below 0, which a loss function of your own"
                    f" cannot get; give places that it ignores another label, such as {free}, and ignore_index={free}"
                )
            dtype = "int32"
            field = Field("target", task.target.shape, dtype, len(self.facts["classes"]))
        self.tasks = [Task((), Field("loss", (1,)), 1, "mean_output")]
        self.values = np.zeros((len(train), 1), np.float32), np.zeros((len(held), 1), np.float32)
        return field, (train.astype(dtype), held.astype(dtype))

    def _is_of_classes(self, train: np.ndarray, held: np.ndarray) -> bool:
        if train.ndim == 2 and train.shape[1] > 1:
            return False
        values = np.unique(np.concatenate([train.ravel(), held.ravel()]))
        if train.dtype.kind == "f":
            return bool(np.isin(values, (0.0, 1.0)).all() and len(values) == 2)
        if len(values) > MOST_CLASSES:
            raise DataError(
                f"{self._source.where}: the target {self._names[0]} has {len(values):,} different whole numbers; give"
                " loss_function='mse' to predict a number, 'cross_entropy' for as many classes"
            )
        return True

    def _labels(self, train: np.ndarray, held: np.ndarray) -> None:
        """Classes in rising order: labels are their numbers."""
        both = np.concatenate([train, held])
        values, numbers = np.unique(both.astype(str) if both.dtype.kind == "O" else both, return_inverse=True)
        if both.dtype.kind in "if" and values[0] < 0 and values.tolist() != [-1, 1]:
            raise DataError(
                f"{self._source.where}: the target {self._names[0]} is {values[0]} in {np.sum(both == values[0]):,} of"
                f" {len(both):,} samples; allowed: labels from 0 on, or -1 and 1; remove samples without a label"
            )
        if len(values) < 2:
            raise DataError(
                f"{self._source.where}: the target {self._names[0]} has one class only, {str(values[0])[:20]!r}; two are"
                " needed at least"
            )
        names = self._source.classes.get(self._names[0], ())
        words = [names[int(v)] if names and 0 <= int(v) < len(names) else str(v) for v in values.tolist()]
        self.values = numbers[: len(train)], numbers[len(train) :]
        self.facts["classes"] = words
        classes = Task((), Field("label", (), "int64"), 0, "cross_entropy", ("accuracy",))
        two = Task((), Field("label", (1,)), 1, "binary_cross_entropy", ("accuracy", "auc"))
        loss = self._loss
        if loss == "binary_cross_entropy" and len(values) > 2:
            raise UsageError(
                f"loss_function is {loss!r}; the target has {len(values)} classes, which is for 'cross_entropy'"
            )
        self.tasks = [
            *([two] if len(values) == 2 and loss != "cross_entropy" else ()),
            *([classes] if loss != "binary_cross_entropy" else ()),
        ]

    def _tokens(self, train: np.ndarray, held: np.ndarray) -> None:
        """A label for each place; -1 or -100 where none counts."""
        if (train.ndim != 2 and not self._own) or train.dtype.kind not in "iub":
            raise DataError(
                f"{self._source.where}: the target {self._names[0]} has shape {train.shape[1:]} of {train.dtype} for a sample;"
                " allowed: a label, a label for each place (T,) of whole numbers, numbers; or any with a loss function of your"
                " own"
            )
        self.values = tuple(np.where(part == -100, -1, part.astype(np.int64)) for part in (train, held))  # type: ignore[assignment]
        both = [part.max() for part in self.values]
        if min(part.min() for part in self.values) < -1 or max(both) < 1:
            raise DataError(
                f"{self._source.where}: labels of places must be 0, 1, ..., and -1 or -100 where none counts"
            )
        count = self._source.vocabulary.get(self._names[0], int(max(both)) + 1)
        self.facts["classes"] = [str(label) for label in range(count)]
        field = Field("labels", train.shape[1:], "int64")
        self.tasks = [Task((), field, 0, "token_cross_entropy", ("token_accuracy",))]

    def _numbers(self, train: np.ndarray, held: np.ndarray) -> None:
        train, held = (part.reshape(len(part), -1) if part.ndim == 1 else part for part in (train, held))
        if train.ndim > 3 and not self._own:
            raise DataError(
                f"{self._source.where}: the target has shape {train.shape[1:]}; allowed: (outputs,), (T, outputs), or any with a"
                " loss function of your own"
            )
        source, name = self._source, ", ".join(self._names)
        if train.shape[1:] == (1,) and self._normalize != "none":
            shift, scale = (float(np.ravel(one)[0]) for one in scaling_of(source, name, train, self._normalize))
            train, held = (train - shift) / scale, (held - shift) / scale
            self.facts["scaling"] = {"minimum": shift, "maximum": shift + scale, "unit": ""}
        self.values = to_float32(source, name, train), to_float32(source, name, held)
        self.tasks = [Task((), Field("value", train.shape[1:]), train.shape[-1], "mse", ("rmse",))]


def baseline_of(task: Task, train: np.ndarray, count: int) -> Baseline:
    """Return what needs no model: the most frequent label, or the mean of the training part."""
    if task.loss == "mean_output":
        return Baseline("", np.zeros((count, 1), np.float32))
    if task.loss == "cross_entropy":
        return Baseline("majority class", majority_outputs(train, count, task.outputs))
    if task.loss == "mse":
        return Baseline("mean of the training part", np.broadcast_to(train.mean(axis=0), (count, *task.target.shape)))
    if task.loss == "binary_cross_entropy":
        sign = np.where(train.mean(axis=0) > 0.5, 1, -1).astype(np.float32)
        return Baseline("majority class", np.broadcast_to(sign, (count, *task.target.shape)))
    logits = majority_outputs(train[train >= 0], 1, task.outputs)[0]
    return Baseline("most frequent label", np.broadcast_to(logits, (count, *task.target.shape, task.outputs)))
