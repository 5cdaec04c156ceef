"""A grid search: many networks trained one after the other in one process. The whole of it is what is timed, as one epoch.

A candidate is built anew, trained from its weights on each fold, and judged on the rest of the fold. Candidates of other
settings have a trainer of their own, as adapters take settings when they are made.
"""

from __future__ import annotations

import dataclasses
import math
import time
from array import array
from typing import Dict, List, Mapping, NamedTuple, Optional, Type

import numpy as np

from framework_compare.batches import quality
from framework_compare.batches.arrays import ArrayPipeline, SplitArrays, read_split
from framework_compare.errors import Unsupported
from framework_compare.events import BUILD, CANDIDATE, FIRST_STEP, JUDGING, SEARCH, WHOLE, EventWriter
from framework_compare.graph import Graph, weight_views
from framework_compare.protocol import Job, Replicas, Trainer
from framework_compare.worker import runner
from framework_compare.worker.epochs import LossSum, Validation
from framework_compare.worker.placement import make_trainer
from framework_compare.worker.refusal import refuse_undeclared

TRAINED = "training_loss"  # mean per sample of a candidate's last epoch
Values = Dict[str, Optional[float]]


class Fold(NamedTuple):
    """The rows that a candidate is trained on, and those that it is judged by."""

    train: SplitArrays
    validation: SplitArrays


class SearchRunner(runner.Runner):
    """One search in one framework; the job's tasks are the candidates: graph, settings, file of weights."""

    def __init__(
        self, job: Job, trainer: Type[Trainer], events: EventWriter, replicas: Optional[Replicas] = None
    ) -> None:
        super().__init__(job, trainer, events, replicas)
        self.graphs = [Graph.from_dict(task["graph"]) for task in job.tasks]
        self._waits, self._ends = array("q"), array("q")
        self._images, self._mark, self._told = 0, 0, 0
        self._spent = dict.fromkeys((BUILD, FIRST_STEP, JUDGING), 0)

    def run(self) -> None:
        if self.replicas:
            raise Unsupported("a search trains one small model after another, so it runs on one device")
        refuse_undeclared(self.trainer_class, self.config, self.graphs)
        super().run()

    def _train(self) -> None:
        with self.phase("open-data"):
            folds = read_folds((self.job.data or {})["path"])
        with self.phase("epochs"):
            self._search(folds)
        if self.job.profile:
            self.events.send("warning", message="no profile: only cells that train one model have one")

    def _search(self, folds: List[Fold]) -> None:
        start = self._mark = self._told = time.monotonic_ns()
        own = self.config
        found: List[Values] = []
        for task, graph in zip(self.job.tasks, self.graphs):
            config = dataclasses.replace(self.config, **task["settings"])
            began, before = time.monotonic_ns(), dict(self._spent)
            if config != own:
                self.trainer.release()
                self.trainer, own = make_trainer(self.trainer_class, config, None), config
            self.trainer.build(graph)
            self._spent[BUILD] += time.monotonic_ns() - began
            weights = weight_views(graph, np.load(task["weights"], mmap_mode="r"))
            values = mean_of([self._fit(fold, weights, number == 0) for number, fold in enumerate(folds)])
            spent = {name: (self._spent[name] - before[name]) / 1e9 for name in self._spent}
            found.append({**values, **spent, WHOLE: (time.monotonic_ns() - began) / 1e9})
        end = time.monotonic_ns()
        task_metrics = folds[0].train.task.metrics
        best = found[best_of(found, task_metrics[0] if task_metrics else "loss")]
        if best[TRAINED] is None:
            raise runner.Diverged("the best candidate's mean loss is not finite")
        event = runner.epoch_event(1, start, end, self._waits, self._ends, self._images, best[TRAINED])
        self._keep_steps(start, self._ends)
        self.events.send("epoch", **event)
        self._tell("validation", {name: best[name] for name in ("loss", *task_metrics)})
        self._tell(SEARCH, {**{name: spent / 1e9 for name, spent in self._spent.items()}, WHOLE: (end - start) / 1e9})
        for number, values in enumerate(found, 1):
            self._tell(f"{CANDIDATE} {number}", values)

    def _tell(self, split: str, values: Values) -> None:
        self.events.send("quality", epoch=1, split=split, values=values)

    def _fit(self, fold: Fold, weights: Mapping[str, np.ndarray], is_first: bool) -> Values:
        """Train on a fold from these weights; TRAINED, and loss and metrics on the rest of it, None where not finite."""
        trainer, config, now = self.trainer, self.config, time.monotonic_ns
        trained = math.nan
        trainer.load_weights(weights)
        pipeline = ArrayPipeline(
            fold.train,
            batch_size=config.batch_size,
            seed=config.seed,
            layout=trainer.layout,
            allocate=trainer.host_array,
        )
        lag = runner.LOSSES_IN_FLIGHT if config.device == "cpu" else runner.LOSSES_IN_FLIGHT_ON_DEVICE
        for number in range(1, config.epochs + 1):
            losses = LossSum(trainer, lag)
            for inputs, target in pipeline.epoch(number):
                began = now()
                self._waits.append(began - self._mark)
                losses.add(trainer.train_step(trainer.to_device_batch(inputs, target)), len(target))
                if is_first:
                    trainer.synchronize()
                    is_first = False
                    self._spent[FIRST_STEP] += now() - began
                self._mark = now()
                self._ends.append(self._mark)
                if self._mark - self._told > runner.PROGRESS_NS:
                    self._told = self._mark
                    self.events.send("progress", epoch=1, steps=len(self._ends))
            trained = losses.mean()
            self._images += losses.samples
        trainer.synchronize()
        began = now()
        values = Validation(trainer, fold.validation, config).measure()
        self._mark = now()
        self._spent[JUDGING] += self._mark - began
        return {**values, TRAINED: trained if math.isfinite(trained) else None}


def read_folds(path: str) -> List[Fold]:
    """The folds of a file of arrays, whose facts say how many rows each has in both splits, one behind the other."""
    splits = {name: read_split(path, name) for name in ("train", "validation")}
    counts = splits["train"].facts["folds"]
    parts = {name: _parts(split, counts[name]) for name, split in splits.items()}
    return [Fold(*pair) for pair in zip(parts["train"], parts["validation"])]


def _parts(split: SplitArrays, counts: List[int]) -> List[SplitArrays]:
    rows = [slice(end - count, end) for count, end in zip(counts, np.cumsum(counts))]
    return [
        SplitArrays(
            split.task,
            tuple(array[part] for array in split.inputs),
            split.target[part],
            {name: array[part] for name, array in split.extras.items()},
            *split[4:],
        )
        for part in rows
    ]


def mean_of(folds: List[Values]) -> Values:
    """Return the mean over folds of each value, None where a fold has none."""
    means: Values = {}
    for name in folds[0]:
        values = [fold[name] for fold in folds]
        known = [value for value in values if value is not None and math.isfinite(value)]
        means[name] = sum(known) / len(known) if len(known) == len(values) else None
    return means


def best_of(found: List[Values], metric: str) -> int:
    """The place of the candidate that is best by a metric, the first of several."""
    higher = metric != "loss" and quality.METRICS[metric].higher_is_better
    worst = -math.inf if higher else math.inf
    values = [one[metric] for one in found]
    known = [worst if value is None else value for value in values]
    return known.index(max(known) if higher else min(known))
