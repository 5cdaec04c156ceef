"""Answers the parity ladder's questions in a worker: asks the Trainer, writes arrays, judges nothing.

A job of kind "verify" holds `tasks`, done in order: {"ask": a method's name, "name": of the answer, ...}. Small
answers go to `answers.json` in the run's folder, arrays to `<name>.npz` beside it. A question that raises is
answered by its error, and the next one is asked; after a build that failed, none until the next build.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import traceback
import zlib
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, Type

import numpy as np

from framework_compare.errors import Unsupported
from framework_compare.events import EventWriter
from framework_compare.graph import Graph, weight_views
from framework_compare.protocol import Batch, Fields, Job, Replicas, Trainer
from framework_compare.worker.placement import make_trainer
from framework_compare.worker.refusal import refuse_undeclared
from framework_compare.worker.sources import read_image_files, shared_pipeline

if TYPE_CHECKING:
    from framework_compare.protocol import Inputs
    from framework_compare.worker.sources import Pipeline

ANSWERS = "answers.json"


class ParityAnswers:
    """One worker's run through its tasks."""

    def __init__(
        self, job: Job, trainer: Type[Trainer], events: EventWriter, replicas: Optional[Replicas] = None
    ) -> None:
        self.replicas = replicas
        self.tasks: List[Fields] = [dict(task) for task in job.tasks]
        self.config = job.config
        self.events = events
        self.trainer_class = trainer
        self.answers: Fields = {}

    def run(self) -> None:
        """Import the framework, then answer; Unsupported where it cannot run such a cell."""
        self.open_trainer()
        self.events.send("framework", version=self.trainer.version(), settings=self.trainer.settings())
        with self.phase("verify"):
            self._answer_all()
        with self.phase("release"):
            self.trainer.release()

    def open_trainer(self) -> None:
        """Make the trainer; undeclared networks of the tasks are refused, as the runner does with a cell."""
        graphs = [Graph.from_dict(task["graph"]) for task in self.tasks if "graph" in task]
        refuse_undeclared(self.trainer_class, self.config, graphs, self.replicas)
        with self.phase("import"):
            self.trainer = make_trainer(self.trainer_class, self.config, self.replicas)
        reason = self.trainer.unsupported()
        if reason:
            raise Unsupported(str(reason))

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.events.send("phase", name=name, edge="start")
        yield
        self.events.send("phase", name=name, edge="end")

    def _answer_all(self) -> None:
        built = True
        for number, task in enumerate(self.tasks, start=1):
            if task["ask"] == "build":
                built = True
            if built:
                answer = self._answer(task)
                built = task["ask"] != "build" or "error" not in answer
            self.events.send("progress", epoch=number, steps=len(self.tasks))

    def _answer(self, task: Fields) -> Fields:
        try:
            answer: Fields = getattr(self, task["ask"])(task)
        except Exception as error:  # whatever a framework raises is the answer
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        self.answers[str(task.get("name", task["ask"]))] = answer
        with open(ANSWERS, "w", encoding="utf-8") as file:  # a crash in the next one leaves what is known
            json.dump(self.answers, file)
        return answer

    def build(self, task: Fields) -> Fields:
        """Make the network of task["graph"] and load its weights."""
        self.graph = Graph.from_dict(task["graph"])
        self.held = weight_views(self.graph, np.load(task["weights"], mmap_mode="r"))
        self.trainer.build(self.graph)
        self.trainer.load_weights(self.held)
        return {}

    def weights(self, task: Fields) -> Fields:
        """Shapes of all arrays by name, and the names of those that did not come back bit for bit."""
        found = self.trainer.weights()
        common = [name for name in found if name in self.held and found[name].shape == self.held[name].shape]
        changed = [name for name in common if not np.array_equal(found[name], self.held[name])]
        return {"shapes": {name: list(array.shape) for name, array in found.items()}, "changed": changed}

    def forward(self, task: Fields) -> Fields:
        """Logits of batch 0, or of its "samples" in this order, `times` over.

        A training pass may move the running statistics, so they are put back.
        """
        batch = self._batch(task, 0)
        passes = [self.trainer.forward(batch, training=task["training"]) for _ in range(task.get("times", 1))]
        self.trainer.load_weights(self.held)
        return _save(task, values=np.stack(passes))

    def generate(self, task: Fields) -> Fields:
        """Tokens behind the first "prompt" ones of each sequence of batch 0, and the logits of each."""
        steps = list(self.trainer.generate(self._batch(task, 0)))
        tokens, logits = self.trainer.read_generated(steps)
        return _save(task, tokens=tokens, logits=logits)

    def gradients(self, task: Fields) -> Fields:
        """Return gradients of the mean loss of batch 0, or of its "samples"."""
        found = self.trainer.gradients(self._batch(task, 0))
        self.trainer.load_weights(self.held)
        return _save(task, **found)

    def steps(self, task: Fields) -> Fields:
        """One training step a batch, or "count" of them, from the weights, loaded into whatever has been trained.

        Losses, and all arrays after the last step.
        """
        self.trainer.load_weights(self.held)
        batches = self._batches(task)[: task.get("count")]
        losses = [self.trainer.read_losses([self.trainer.train_step(batch)])[0] for batch in batches]
        self.trainer.synchronize()
        _save(task, **self.trainer.weights())
        return {"losses": losses}

    def train(self, task: Fields) -> Fields:
        """Train on held batches (task["order"]: their numbers) or, as a cell does, on all epochs of a pipeline.

        Saves images<i> and labels<i> of each step, and <name>@<step> of each array after it. `reloaded` names what
        differs from the weights after they were loaded once more.
        """
        losses: List[float] = []
        held: Dict[str, np.ndarray] = {}
        sizes: List[int] = []
        for batch in self._epochs(task):
            step = len(losses)
            held[f"images{step}"], held[f"labels{step}"] = map(np.array, self._read(batch))  # copies
            losses += self.trainer.read_losses([self.trainer.train_step(batch)])
            self.trainer.synchronize()
            sizes.append(batch.size)
            held.update({f"{name}@{step + 1}": np.array(array) for name, array in self.trainer.weights().items()})
        self.trainer.load_weights(self.held)
        after = self.trainer.weights()
        reloaded = [name for name in after if not np.array_equal(after[name], self.held[name])]
        _save(task, **held)
        return {"losses": losses, "sizes": sizes, "reloaded": reloaded}

    def _epochs(self, task: Fields) -> Iterator[Batch]:
        if "batches" in task:
            held = self._batches(task)
            yield from (held[number] for number in task.get("order", range(len(held))))
            return
        if "shared" in task:
            with shared_pipeline(self.trainer, read_image_files(task["shared"]), self.config, self.replicas) as shared:
                for number in range(1, self.config.epochs + 1):
                    # all of an epoch before its first step: read ahead, as a cell's are, but not by chance
                    yield from [self.trainer.to_device_batch(*batch) for batch in shared.epoch(number)]
            return
        pipeline = self.trainer.open_pipeline(read_image_files(task["images"]))
        for number in range(1, self.config.epochs + 1):
            yield from self.trainer.epoch(pipeline, number)

    def shared(self, task: Fields) -> Fields:
        """Losses of the first steps over the shared pipeline's batches, epoch after epoch, and checksums of these."""
        losses: List[float] = []
        checksums: List[int] = []
        with self._shared_pipeline(task) as pipeline:
            batches = itertools.chain.from_iterable(map(pipeline.epoch, itertools.count(1)))
            for images, labels in itertools.islice(batches, task["steps"]):
                checksums.append(self._checksum(images, labels))
                batch = self.trainer.to_device_batch(images, labels)
                losses += self.trainer.read_losses([self.trainer.train_step(batch)])
        return {"losses": losses, "checksums": checksums}

    def _shared_pipeline(self, task: Fields) -> "Pipeline":
        """Over images, or over the arrays of task["data"]."""
        if "data" not in task:
            return shared_pipeline(self.trainer, read_image_files(task["images"]), self.config, self.replicas)
        from framework_compare.batches.arrays import ArrayPipeline, read_split

        reading: Fields = {"batch_size": self.config.batch_size, "seed": self.config.seed}
        return ArrayPipeline(read_split(task["data"], "train"), layout=self.trainer.layout, **reading)

    def native(self, task: Fields) -> Fields:
        """All batches of the native pipeline's first epochs: images (NCHW), labels, and each epoch's batch sizes."""
        pipeline = self.trainer.open_pipeline(read_image_files(task["images"]))
        sizes, images, labels = [], [], []
        for number in range(1, task["epochs"] + 1):
            # copies: a loader may use its memory again
            batches = [tuple(map(np.array, self._read(batch))) for batch in self.trainer.epoch(pipeline, number)]
            sizes.append([len(found) for _, found in batches])
            images += [pixels for pixels, _ in batches]
            labels += [found for _, found in batches]
        _save(task, images=np.concatenate(images), labels=np.concatenate(labels))
        return {"sizes": sizes}

    def _read(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        images, labels = self.trainer.read_batch(batch)
        if batch.size != len(labels):
            raise ValueError(f"a batch says it has {batch.size} images and holds {len(labels)} labels")
        return images.transpose(0, 3, 1, 2) if self._channels_last(images) else images, labels

    def _checksum(self, images: Inputs, labels: np.ndarray) -> int:
        """CRC-32 of the images as (N, C, H, W), then the labels: the same in every layout."""
        found = 0
        for array in images if isinstance(images, tuple) else (images,):
            array = np.ascontiguousarray(array.transpose(0, 3, 1, 2)) if self._channels_last(array) else array
            found = zlib.crc32(array.data, found)
        return zlib.crc32(labels.data, found)

    def _batches(self, task: Fields) -> List[Batch]:
        names = np.load(task["batches"]).files
        return [self._batch(task, number) for number in range(sum(name.startswith("labels") for name in names))]

    def _batch(self, task: Fields, number: int) -> Batch:
        held = np.load(task["batches"])
        several = [name for name in held.files if name.startswith("input") and name.endswith(f"_{number}")]
        arrays = [held[name] for name in (*(sorted(several) or [f"images{number}"]), f"labels{number}")]
        if "samples" in task:
            arrays = [array[task["samples"]] for array in arrays]
        if "prompt" in task:
            arrays[0] = arrays[0][:, : task["prompt"]]
        *inputs, labels = map(self._part, arrays)
        inputs = list(map(self._own, inputs))
        batch: Batch = self.trainer.to_device_batch(inputs[0] if len(inputs) == 1 else tuple(inputs), labels)
        return batch

    def _part(self, array: np.ndarray) -> np.ndarray:
        """Return this process's part of a batch of all replicas."""
        if self.replicas is None or self.replicas.rank is None:
            return array
        return np.split(array, self.replicas.processes)[self.replicas.rank]

    def _own(self, array: np.ndarray) -> np.ndarray:
        """Return the array in the trainer's layout."""
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if self._channels_last(array) else array

    def _channels_last(self, images: np.ndarray) -> bool:
        """Return whether a batch holds images, and the trainer has their channels last."""
        return self.trainer.layout == "NHWC" and images.ndim == 4


def _save(task: Fields, **arrays: Any) -> Fields:
    np.savez(f"{task['name']}.npz", **arrays)
    return {}
