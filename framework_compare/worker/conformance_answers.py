"""Answers the conformance suite's questions in a worker: how a Trainer behaves, beyond what its network computes.

A job of kind "conformance" is answered as the parity probe answers its own: facts go to `answers.json`, the judgement
is the suite's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import time
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Type

import numpy as np

from framework_compare.events import EventWriter
from framework_compare.protocol import Batch, Fields, ImageFiles, Job, Trainer
from framework_compare.worker import processes
from framework_compare.worker.parity_answers import ParityAnswers
from framework_compare.worker.refusal import BY_DEVICE, fault_of
from framework_compare.worker.sources import Source, open_source, read_image_files, shared_pipeline

Arrays = Mapping[str, np.ndarray]
# Of the protocol, what training or the ladder can do without.
OPTIONAL = ("infer", "generate", "read_generated", "profile")
RELEASE_S = 5.0  # that processes have to end after `release`


class ConformanceAnswers(ParityAnswers):
    """A probe that also asks how the trainer behaves."""

    def __init__(self, job: Job, trainer: Type[Trainer], events: EventWriter) -> None:
        super().__init__(job, trainer, events)
        self.loaders: Dict[int, str] = {}  # processes of native pipelines, those of pipelines dropped since included

    def run(self) -> None:
        """The class first, as a trainer that lacks a method may not start; then as the probe does, if there are tasks."""
        self._answer({"ask": "methods"})
        self._answer({"ask": "declared"})
        if not self.tasks:
            return
        self.open_trainer()
        with self.phase("verify"):
            self._answer_all()

    def methods(self, task: Fields) -> Fields:
        """Return what is wrong with each method that cannot be called as the protocol has it."""
        methods = [name for name in vars(Trainer) if not name.startswith("_") and callable(getattr(Trainer, name))]
        faults = {name: fault(self.trainer_class, name) for name in methods if name not in OPTIONAL}
        return {name: words for name, words in faults.items() if words}

    def declared(self, task: Fields) -> Fields:
        """Return what is wrong with the class's `declared`, and what it declares, some of it by device."""
        declared = getattr(self.trainer_class, "declared", None)
        fault = fault_of(declared)
        if fault:
            return {"fault": fault}
        fields = {field: getattr(declared, field) for field in BY_DEVICE}
        common = {field: sorted(getattr(declared, field)) for field in ("ops", "losses", "optimizers")}
        return {
            "fault": "",
            **common,
            **{f: {kind: sorted(names) for kind, names in v.items()} for f, v in fields.items()},
        }

    def interface(self, task: Fields) -> Fields:
        trainer = self.trainer
        variables = self.trainer_class.environment(self.config)
        return {
            "name": value_of(getattr(trainer, "name", None)),
            "layout": value_of(getattr(trainer, "layout", None)),
            "version": value_of(trainer.version()),
            "unsupported": value_of(trainer.unsupported()),
            "settings": value_of(trainer.settings()),
            "environment": value_of(variables),
            "not text": [str(name) for name, value in dict(variables).items() if not isinstance(value, str)],
        }

    def arrays(self, task: Fields) -> Fields:
        """Shapes and types of all that comes out of the trainer; whether a batch is read back as it was adopted."""
        trainer, (batch, images, labels) = self.trainer, self._batch_and_arrays(task)
        back = trainer.read_batch(batch)
        read = {
            "images": {**array_of(back[0]), "exact": bool(np.array_equal(back[0], images))},
            "labels": {**array_of(back[1]), "exact": bool(np.array_equal(back[1], labels))},
        }
        losses = trainer.read_losses([trainer.train_step(batch), trainer.train_step(batch)])
        one, other = trainer.host_array((2, 3, 4, 5)), trainer.host_array((2, 3, 4, 5))
        return {
            "host_array": {**array_of(one), "shared": bool(np.shares_memory(one, other))},
            "batch": {"type": type(batch).__name__, "size": value_of(getattr(batch, "size", None))},
            **read,
            "evaluation": array_of(trainer.forward(batch)),
            "training": array_of(trainer.forward(batch, training=True)),
            "gradients": {name: array_of(array) for name, array in trainer.gradients(batch).items()},
            "weights": {name: array_of(array) for name, array in trainer.weights().items()},
            "losses": {"type": type(losses).__name__, "items": [type(loss).__name__ for loss in losses]},
        }

    def copies(self, task: Fields) -> Fields:
        """Names of arrays that are memory of the trainer's own: of those given to it, and of those it gave."""
        trainer, (batch, *_) = self.trainer, self._batch_and_arrays(task)
        given = {name: array.copy() for name, array in self.held.items()}
        trainer.load_weights(given)
        taken = trainer.weights()
        held = {name: array.copy() for name, array in taken.items()}
        trainer.read_losses([trainer.train_step(batch)])
        trainer.synchronize()
        return {"given": _changed(given, self.held), "taken": _changed(taken, held)}

    def source(self, task: Fields) -> Fields:
        """Two epochs of a pipeline, trained on: their labels and batch sizes; kinds of arrays; what was changed."""
        files = read_image_files(task["images"])
        config = dataclasses.replace(self.config, pipeline=task["pipeline"])
        self._before = processes.others()
        with contextlib.closing(open_source(self.trainer, files, config)) as source:
            epochs = [self._train_on(source, number) for number in (1, 2)]
        batches = [found for epoch in epochs for found in epoch]
        answer = {
            "labels": [[int(label) for _, labels, _ in epoch for label in labels] for epoch in epochs],
            "sizes": [[size for _, _, size in epoch] for epoch in epochs],
            "images": [array_of(images) for images, _, _ in batches],
            "label arrays": [array_of(labels) for _, labels, _ in batches],
        }
        if task["pipeline"] == "shared":
            answer["exact"] = self._is_shared(files, epochs[0])
        if task["pipeline"] == "memory":
            first = {found[2]: found for found in reversed(batches)}  # of each size
            answer["unlike"] = [i for i, found in enumerate(batches) if not _same(found, first[found[2]])]
        return answer

    def _train_on(self, source: Source, number: int) -> List[Tuple[np.ndarray, np.ndarray, int]]:
        """Batches read after the step on them, as a step may not change them."""
        found = []
        for batch in source.epoch(number):
            self.trainer.read_losses([self.trainer.train_step(batch)])
            self._note_loaders()
            images, labels = self.trainer.read_batch(batch)
            found.append((np.array(images), np.array(labels), int(batch.size)))
        return found

    def _is_shared(self, files: ImageFiles, epoch: Sequence[Tuple[np.ndarray, np.ndarray, int]]) -> bool:
        with shared_pipeline(self.trainer, files, self.config) as pipeline:
            wanted = [(images.copy(), labels.copy()) for images, labels in pipeline.epoch(1)]
        return len(wanted) == len(epoch) and all(_same(ours, theirs) for ours, theirs in zip(wanted, epoch))

    def threads(self, task: Fields) -> Fields:
        """CPU time of each thread during steps on one batch; no loader is open then, so all of them compute."""
        batch = self._batches(task)[0]
        self._step_for(batch, task["seconds"] / 4)
        before, start = processes.thread_times(), time.monotonic_ns()
        steps = self._step_for(batch, task["seconds"])
        wall_ns, after = time.monotonic_ns() - start, processes.thread_times()
        return {"wall_ns": wall_ns, "steps": steps, "threads": processes.gained(before, after)}

    def _step_for(self, batch: Batch, seconds: float) -> int:
        end, steps = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            self.trainer.read_losses([self.trainer.train_step(batch)])
            steps += 1
        self.trainer.synchronize()
        return steps

    def _note_loaders(self) -> None:
        self.loaders.update({pid: words for pid, words in processes.others().items() if pid not in self._before})

    def release(self, task: Fields) -> Fields:
        """Processes that native pipelines started, and those that are there after `release`."""
        self._before = processes.others()
        self._train_an_epoch(task)  # only the trainer holds the pipeline after it
        self.trainer.release()
        end = time.monotonic() + RELEASE_S
        while processes.others() and time.monotonic() < end:
            time.sleep(0.05)
        left = processes.others()
        return {
            "loaders": list(self.loaders.values()),
            "left of loaders": [words for pid, words in left.items() if pid in self.loaders],
            "left": [words for pid, words in left.items() if pid not in self.loaders],
        }

    def _train_an_epoch(self, task: Fields) -> None:
        pipeline = self.trainer.open_pipeline(read_image_files(task["images"]))
        for batch in self.trainer.epoch(pipeline, 1):
            self.trainer.read_losses([self.trainer.train_step(batch)])
            self._note_loaders()

    def _batch_and_arrays(self, task: Fields) -> Tuple[Batch, np.ndarray, np.ndarray]:
        held = np.load(task["batches"])
        images = self._own(held["images0"])
        return self.trainer.to_device_batch(images.copy(), held["labels0"]), images, held["labels0"]


def _changed(found: Arrays, held: Arrays) -> List[str]:
    return [name for name, array in held.items() if not np.array_equal(found[name], array)]


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return bool(np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1]))


def fault(trainer: Type[Trainer], name: str) -> str:
    """Return why a method cannot be called as the protocol has it, or ""."""
    method = getattr(trainer, name, None)
    if not callable(method) or method is getattr(Trainer, name):  # inherited from the protocol: a stub
        return "it is missing"
    wanted, found = inspect.signature(getattr(Trainer, name)), inspect.signature(method)
    keywords = [p.name for p in wanted.parameters.values() if p.kind is p.KEYWORD_ONLY]
    try:
        found.bind(*range(len(wanted.parameters) - len(keywords)), **dict.fromkeys(keywords))
    except TypeError:
        names = [f"({', '.join(signature.parameters)})" for signature in (found, wanted)]
        return f"it takes {names[0]}, the protocol's takes {names[1]}"
    return ""


def value_of(value: object) -> Fields:
    """A value as JSON if it can be, else None; its type, and how it prints."""
    try:
        plain = json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        return {"type": type(value).__name__, "value": None, "repr": repr(value)[:200], "no JSON": str(error)}
    return {"type": type(value).__name__, "value": plain, "repr": repr(value)[:200]}


def array_of(array: object) -> Fields:
    if not isinstance(array, np.ndarray):
        return {"type": type(array).__name__, "shape": [], "dtype": ""}
    return {"type": "ndarray", "shape": list(array.shape), "dtype": str(array.dtype)}
