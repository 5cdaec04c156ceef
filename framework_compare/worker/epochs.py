"""Parts of an epoch that the runner needs: losses read a few steps late, when to end, quality, times of a device.

An epoch may end early: a sample of a long one is steps until a time has passed, then its input pipeline without any steps.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Deque, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from framework_compare.protocol import Batch, DeviceTimes, TrainConfig, Trainer

if TYPE_CHECKING:
    from framework_compare.batches.arrays import SplitArrays

# Of a sample: the first step fills the loader's queue; the others are what the rest of the epoch is made of.
LEAST_STEPS = 5
# Of times that are taken in isolation.
ROUNDS = 3
IN_A_ROW = 4  # steps: what handing over the first one takes is hidden behind a busy device in an epoch, too
LONG_NS = 100_000_000  # a step of that length is timed alone


class LossSum:
    """Mean loss per image, read a few steps late so that reading never drains the device."""

    def __init__(self, trainer: Trainer, lag: int) -> None:
        self.samples = 0
        self._trainer = trainer
        self._lag = lag
        self._total = 0.0
        self._pending: Deque[Tuple[object, int]] = collections.deque()

    def add(self, loss: object, size: int) -> None:
        self._pending.append((loss, size))
        if len(self._pending) > self._lag:
            self._read(1)

    def _read(self, count: int) -> None:
        taken = [self._pending.popleft() for _ in range(count)]
        for value, (_, size) in zip(self._trainer.read_losses([loss for loss, _ in taken]), taken):
            self._total += value * size
            self.samples += size

    def mean(self) -> float:
        self._read(len(self._pending))
        return self._total / self.samples


class Outputs:
    """In place of losses where nothing is trained: the samples that were answered; outputs are dropped unread.

    A device is waited for after every few steps, so that outputs do not fill its memory.
    """

    def __init__(self, trainer: Trainer, lag: int) -> None:
        self.samples = 0
        self._trainer, self._lag, self._ahead = trainer, lag, 0

    def add(self, outputs: object, size: int) -> None:
        self.samples, self._ahead = self.samples + size, self._ahead + 1
        if self._ahead > self._lag:
            self._trainer.synchronize()
            self._ahead = 0

    def mean(self) -> None:
        """There is no loss."""


class EarlyStopping:
    """Keras' rule: after an epoch whose loss is not the lowest yet, `patience` times in a row, but never after the first."""

    def __init__(self, patience: int) -> None:
        self._patience, self._best, self._waited = patience, math.inf, 0

    def ends(self, epoch: int, loss: Optional[float]) -> bool:
        if loss is not None and loss < self._best:
            self._best, self._waited = loss, 0
            return False
        self._waited += 1
        return 0 < self._patience <= self._waited and epoch > 1


class Validation:
    """The quality of a network on the validation split, by our own metrics; its time is no part of training's.

    A trainer is asked batch by batch, in the order of the split.
    """

    def __init__(self, trainer: Trainer, split: SplitArrays, config: TrainConfig) -> None:
        from framework_compare.batches.arrays import ArrayPipeline

        self._trainer = trainer
        self._split = split
        self._pipeline = ArrayPipeline(self._split, batch_size=config.batch_size, layout=trainer.layout, shuffle=False)

    def measure(self) -> Dict[str, Optional[float]]:
        """Loss and metrics of the task by name; None where one cannot be computed."""
        from framework_compare.batches import quality

        trainer = self._trainer
        split, batches = self._split, self._pipeline.epoch(1)
        parts = ((trainer.forward(trainer.to_device_batch(inputs, target)), target) for inputs, target in batches)
        if set(split.task.metrics).issubset(quality.OF_TOKENS) and split.task.loss == "token_cross_entropy":
            found = quality.evaluate_parts(split.task, parts)  # the outputs of all are gigabytes
        else:
            outputs = np.concatenate([part for part, _ in parts])
            found = quality.evaluate(split.task, outputs, split.target, extras=split.extras, facts=split.facts)
        return {name: value if np.isfinite(value) else None for name, value in found.items()}


class LastStep:
    """The step after which a sample of an epoch ends: the same for all ranks, which train step in step.

    Each has a clock of its own, so rank 0 chooses, and writes it into the run's folder for the others. A process that
    trains alone follows its own clock. folder: the same for all ranks.
    """

    def __init__(self, folder: Path, rank: int, ranks: int) -> None:
        self._file, self._rank, self._alone = folder / "last-step", rank, ranks == 1
        self._number: Optional[int] = None

    def sample_ends(self, steps: int, enough: bool, in_flight: int) -> bool:
        """Return whether the sample ends here, asked after every step; enough: this process's clock would end it.

        No rank is further ahead than the losses in flight allow: it waits for the loss of an earlier step, which needs
        the weights that all made in the step before that. So rank 0 chooses one that none has reached.
        """
        if self._alone:
            return enough
        if self._number is None:
            if self._rank:
                with contextlib.suppress(FileNotFoundError):
                    self._number = int(self._file.read_text(encoding="ascii"))
            elif enough:
                self._number = steps + in_flight + 3
                half = self._file.with_suffix(".half")
                half.write_text(str(self._number), encoding="ascii")
                os.replace(half, self._file)
        return self._number is not None and steps >= self._number


def pipeline_ns(batches: Iterator[Batch], most: int, most_ns: int) -> Optional[int]:
    """Nanoseconds per batch where nothing trains on them, of the later half of at most `most` batches.

    The earlier half empties what the pipeline had ready. It is a lower bound: a trainer takes cores from the pipeline.
    None where the epoch had too few batches left.
    """
    start = time.monotonic_ns()
    ends: List[int] = []
    for _ in batches:
        ends.append(time.monotonic_ns())
        if len(ends) >= most or ends[-1] - start > most_ns:
            break
    half = len(ends) // 2
    return (ends[-1] - ends[half - 1]) // (len(ends) - half) if half else None


class IsolatedTimes:
    """Times of one batch of each size that an epoch has, taken between moments at which the device is idle."""

    def __init__(
        self, trainer: Trainer, held: Sequence[Batch], *, copies: bool, now: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._trainer = trainer
        self._now = now
        self._full = held[0].size
        self._times: Dict[int, DeviceTimes] = {batch.size: self._of(batch, copies) for batch in held}

    def epoch(self, sizes: Iterable[int], elapsed_ns: int) -> DeviceTimes:
        """Return the device times of an epoch with a step of each of these sizes; neither is more than it lasted.

        A size that was not timed takes as long as a full batch: a loader's own last batch, for instance.
        """
        steps = collections.Counter(sizes)
        parts = [(count, self._times.get(size, self._times[self._full])) for size, count in steps.items()]
        copying = sum(count * times.copy_ns for count, times in parts)
        computing = sum(count * times.compute_ns for count, times in parts)
        return DeviceTimes(min(copying, elapsed_ns), min(computing, elapsed_ns))

    def _of(self, batch: Batch, copies: bool) -> DeviceTimes:
        alone = computing = self._median(lambda: self._trainer.train_step(batch))
        if alone < LONG_NS:
            computing = self._median(lambda: [self._trainer.train_step(batch) for _ in range(IN_A_ROW)]) // IN_A_ROW
        if not copies:
            return DeviceTimes(0, computing)
        images, labels = self._trainer.read_batch(batch)
        # one after the other, as a step cannot begin before its batch is there
        both = self._median(lambda: self._trainer.train_step(self._trainer.to_device_batch(images, labels)))
        return DeviceTimes(max(0, both - alone), computing)

    def _median(self, work: Callable[[], object]) -> int:
        taken = []
        for _ in range(ROUNDS):
            self._trainer.synchronize()
            start = self._now()
            work()
            self._trainer.synchronize()
            taken.append(self._now() - start)
        return int(statistics.median(taken))
