"""The runner every adapter shares: phases, warm-up, the epoch loop and its clock. No adapter times itself."""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import time
from array import array
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Type

import numpy as np

from framework_compare.batches.order import distinct, epoch_sizes
from framework_compare.errors import FrameworkCompareError, Unsupported
from framework_compare.events import EventWriter
from framework_compare.graph import Graph, weight_views
from framework_compare.protocol import Batch, Fields, ImageFiles, Job, Replicas, Trainer
from framework_compare.worker.epochs import (
    LEAST_STEPS,
    EarlyStopping,
    IsolatedTimes,
    LastStep,
    LossSum,
    Outputs,
    Validation,
    pipeline_ns,
)
from framework_compare.worker.placement import make_trainer
from framework_compare.worker.processes import pss_bytes
from framework_compare.worker.refusal import refuse_undeclared, untested
from framework_compare.worker.sources import Source, open_source, read_data
from framework_compare.worker.turns import Stopped, Turns

# Steps a framework may run ahead of the reading of their losses on a CPU. Without a bound an asynchronous engine
# (MXNet) would take the whole epoch's batches into memory; with none ahead it could not overlap anything.
LOSSES_IN_FLIGHT = 1
# Steps of an epoch that are waited for one by one in mode "inference", as many as fit into the time but a few at least.
LATENCY_STEPS, LEAST_LATENCY_STEPS, LATENCY_NS = 200, 5, 2_000_000_000
# Steps a device may be behind the host: enough that it never waits for the host to hand over the next one, and few
# enough that prefetched batches do not pile up in its memory.
LOSSES_IN_FLIGHT_ON_DEVICE = 8
PROGRESS_NS = 500_000_000


class Diverged(FrameworkCompareError):
    """The loss is not finite any more."""

    status = "diverged"


class Runner:
    """One run of one cell, from import to release."""

    def __init__(
        self,
        job: Job,
        trainer: Type[Trainer],
        events: EventWriter,
        replicas: Optional[Replicas] = None,
        turns_from: Optional[int] = None,
    ) -> None:
        self.job = job
        self._turns_from = turns_from  # descriptor
        self.turns: Optional[Turns] = None  # where the worker does not have the machine to itself
        self.replicas = replicas
        self.ranks = replicas.processes if replicas else 1
        self.config = job.config
        self.events = events
        self.trainer_class = trainer
        self.graph = Graph.from_dict(job.graph or {})
        self.data = read_data(job)
        if self.config.mode == "generation" and not isinstance(self.data, ImageFiles):
            self.data = self.data.prompts(self.config.new_tokens)
        self._validation: Optional[Validation] = None
        self._alone: Optional[IsolatedTimes] = None

    def run(self) -> None:
        """All phases in order; the events say when each began and ended."""
        refuse_undeclared(self.trainer_class, self.config, [self.graph], self.replicas)
        with self.phase("import"):
            self.trainer = make_trainer(self.trainer_class, self.config, self.replicas)
        if self.job.written is not None:
            self.trainer.written = self.job.written  # an adapter of registry.AS_WRITTEN
        reason = self.trainer.unsupported()
        if reason:
            raise Unsupported(reason)
        executions = sorted(self.trainer_class.declared.executions.get(self.config.device.partition(":")[0], ()))
        settings = {**self.trainer.settings(), "executions": executions, **self._growing_batches()}
        self.events.send("framework", version=self.trainer.version(), settings=settings)
        remark = untested(self.trainer_class.declared, self.config.device, [self.config.precision])
        if remark and self._is_first_rank:
            self.events.send("warning", message=remark)
        try:
            self._train()
        finally:
            with self.phase("release"):
                self.trainer.release()

    def _growing_batches(self) -> Dict[str, str]:
        """Return what batches that grow add to a run's settings: how many shapes a compiler meets."""
        config = self.config
        if config.batch_growth == 1:
            return {}
        every = epoch_sizes(len(self.data), config.batch_size, config.batch_growth, config.batch_size_limit)
        sizes = distinct(every)
        return {
            "batch_sizes": f"{len(sizes)} sizes, {sizes[-1]} to {sizes[0]}; compiled steps are compiled once per size"
        }

    @property
    def _is_first_rank(self) -> bool:
        """Return whether this process is the only one, or rank 0."""
        return self.replicas is None or not self.replicas.rank

    def _train(self) -> None:
        with self.phase("build"):
            self.trainer.build(self.graph)
        with self.phase("load-weights"):
            self.load_weights()
        with self.phase("open-data"):
            source = open_source(self.trainer, self.data, self.config, self.replicas)
            if self.job.data is not None and self.config.mode == "train" and self._is_first_rank:
                from framework_compare.batches.arrays import read_split

                self._validation = Validation(
                    self.trainer, read_split(self.job.data["path"], "validation"), self.config
                )
        if self._turns_from is not None:
            self.turns = Turns(self._turns_from, self.events, self.trainer.synchronize)
        with contextlib.closing(source):
            self._warm_up(source.held)
            with self.phase("epochs"):
                self._epochs(source)
            if self.turns:
                self.turns.finish()
            if self.job.profile and (self.ranks > 1 or self.config.mode == "generation"):
                self.events.send(
                    "warning", message="no profile: cells with several processes, or in generation mode, have none"
                )
            elif self.job.profile:
                from framework_compare.worker import profiling

                with self.phase("profile"):
                    profiling.profile(self.trainer, source.held[0], self.events)

    def _epochs(self, source: Source) -> None:
        infers, stopping, took_ns = self.config.mode != "train", EarlyStopping(self.config.patience), 0
        for number in range(1, self.config.epochs + 1):
            event = self.run_epoch(source.epoch(number), number)
            if event is None:
                self.events.send("stopped", epoch=number - 1)
                return
            if infers:
                took = LATENCY_NS if number == 1 else event["end_ns"] - event["start_ns"] - event.get("waited_ns", 0)
                event["step_ns"] = self._latencies(source.held[0], min(took, LATENCY_NS))
            self.events.send("epoch", **event)
            if "whole_images" in event:  # of part of an epoch nothing was learnt that could be asked for
                self.events.send("stopped", epoch=number)
                return
            if self._validation:
                values = self._validation.measure()
                self.events.send("quality", epoch=number, split="validation", values=values)
                if stopping.ends(number, values["loss"]):
                    self.events.send("stopped", epoch=number)
                    return
            took_ns += event["end_ns"] - event["start_ns"]
            if 0 < self.job.sample_s * 1e9 <= took_ns and not self.job.turns:
                self.events.send("stopped", epoch=number)
                return

    def load_weights(self) -> None:
        flat = np.load(self.job.weights, mmap_mode="r")
        self.trainer.load_weights(weight_views(self.graph, flat))

    def _warm_up(self, held: List[Batch]) -> None:
        """First step and warm-up on held batches, in each shape an epoch has, then back to the initial weights.

        Where batches grow, their many shapes are the price of it: the first step is one of each.
        """
        first = 1 if self.config.batch_growth == 1 else len(held)
        with self.phase("first-step"):
            self._steps(held[:first])
        with self.phase("warm-up"):
            self._steps(held[first:])
            began = time.monotonic_ns()
            self._steps(held[:1] * self.config.warmup_steps)
            if self.turns:
                self.turns.steps = self.config.epochs * -(-len(self.data) // self.config.batch_size)
                if self.config.warmup_steps:
                    self.turns.step_ns = (time.monotonic_ns() - began) // self.config.warmup_steps
            # The host times a device that gives no clock, by as many steps as time allows; ranks train step in step.
            may_time = self.config.mode == "train" and self.config.device != "cpu" and self.ranks == 1
            if may_time and self.trainer.device_times() is None:
                self._alone = IsolatedTimes(self.trainer, held, copies=self.config.pipeline != "memory")
            self.load_weights()
            self.trainer.synchronize()

    def _steps(self, batches: List[Batch]) -> None:
        for batch in batches:
            if self.config.mode != "train":
                self._answer(batch)
            else:
                self.trainer.read_losses([self.trainer.train_step(batch)])
        self.trainer.synchronize()

    def _answer(self, batch: Batch, tokens: Optional[int] = None) -> Any:
        """Outputs of a batch; in mode "generation" its last new token, or that after so many."""
        if self.config.mode == "inference":
            return self.trainer.infer(batch)
        return collections.deque(itertools.islice(self.trainer.generate(batch), tokens), maxlen=1).pop()

    def _latencies(self, batch: Batch, most_ns: int) -> List[int]:
        """Percentiles 5, 50 and 95 of the nanoseconds of one step, each waited for, of a batch that is on the device.

        most_ns: after which no further step is taken, so that short epochs are not fewer for it.

        In mode "generation" that is the time to the first token.
        """
        trainer, now, times = self.trainer, time.monotonic_ns, []
        for _ in range(LATENCY_STEPS):
            start = now()
            self._answer(batch, 1)
            trainer.synchronize()
            times.append(now() - start)
            if sum(times) > most_ns and len(times) >= LEAST_LATENCY_STEPS:
                break
        return [int(value) for value in np.percentile(times, [5, 50, 95])]

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.events.send("phase", name=name, edge="start")
        yield
        self.events.send("phase", name=name, edge="end")
        self.events.send("memory", phase=name, pss_bytes=pss_bytes())

    def run_epoch(self, batches: Iterator[Batch], number: int) -> Optional[Fields]:
        """Time one pass; returns the fields of an epoch event, times in CLOCK_MONOTONIC nanoseconds.

        None for a later epoch than the first that the parent has stopped: what is left are whole epochs.
        """
        trainer, now = self.trainer, time.monotonic_ns
        lag = LOSSES_IN_FLIGHT if self.config.device == "cpu" else LOSSES_IN_FLIGHT_ON_DEVICE
        infers = self.config.mode != "train"
        losses = Outputs(trainer, lag) if infers else LossSum(trainer, lag)
        step = self._answer if infers else trainer.train_step
        waits, ends, sizes = array("q"), array("q"), array("q")
        trainer.synchronize()
        trainer.device_times()  # what came before this epoch is not its own
        cut, last_step = False, self._last_step(number)
        turns, waited = self.turns, 0
        if turns:
            turns.epoch_begins()
        start = mark = told = now()
        while True:
            try:
                away = turns.take() if turns else 0
            except Stopped as stop:
                if number > 1:
                    return None
                waited, cut = waited + stop.waited_ns, True
                break
            waited, mark = waited + away, mark + away
            batch = next(batches, None)
            if batch is None:
                break
            waits.append(now() - mark)
            losses.add(step(batch), batch.size)
            sizes.append(batch.size)
            if turns:
                turns.done(batch.size)
            mark = now()
            ends.append(mark - waited)
            if mark - told > PROGRESS_NS:
                told = mark
                self.events.send("progress", epoch=number, steps=len(ends))
            if last_step:
                enough = 0 < 1e9 * self.job.sample_s <= mark - start and len(ends) >= LEAST_STEPS
                cut = last_step.sample_ends(len(ends), enough, lag)
                if cut:
                    break
        loss = losses.mean()
        trainer.synchronize()
        end = now()
        if turns:
            turns.epoch_ends()
        if loss is not None and not math.isfinite(loss):
            raise Diverged(f"the mean loss of epoch {number} is {loss}")
        event = epoch_event(number, start, end, waits, ends, losses.samples * self.ranks, loss)
        if waited:
            event["waited_ns"] = waited
        self._keep_steps(start, ends)
        if not infers:
            device = self._alone.epoch(sizes, end - start - waited) if self._alone else trainer.device_times()
            event.update({} if device is None else device._asdict())
        if cut and losses.samples < len(self.data):
            event["whole_images"] = len(self.data)
            if self.config.pipeline != "memory" and not self.job.turns:
                event["pipeline_ns"] = pipeline_ns(batches, len(ends), (end - start) // 4)
        return event

    def _last_step(self, number: int) -> Optional[LastStep]:
        """Return what ends a sample of the first epoch by its length; in turns the parent does."""
        if number > 1 or not self.job.sample_s or self.job.turns:
            return None
        rank = self.replicas.rank or 0 if self.replicas else 0
        # other ranks than 0 work in a folder within the run's
        return LastStep(Path.cwd().parent if rank else Path.cwd(), rank, self.ranks)

    def _keep_steps(self, start: int, ends: "array[int]") -> None:
        """Append the step times of an epoch to the job's file; without room for them the run goes on."""
        if self.job.steps:
            with contextlib.suppress(OSError), open(self.job.steps, "ab") as file:
                file.write(_step_ns(start, ends).astype("<i8").tobytes())


def _step_ns(start: int, ends: "array[int]") -> np.ndarray:
    return np.diff(np.array(ends, dtype=np.int64), prepend=start)


def epoch_event(
    number: int, start: int, end: int, waits: "array[int]", ends: "array[int]", images: int, loss: Optional[float]
) -> Fields:
    p05, median, p95 = (int(v) for v in np.percentile(_step_ns(start, ends), [5, 50, 95]))
    return {
        "number": number,
        "start_ns": start,
        "end_ns": end,
        "data_wait_ns": sum(waits),
        "images": images,
        "steps": len(ends),
        "loss": loss,
        "step_ns": [p05, median, p95],
    }
