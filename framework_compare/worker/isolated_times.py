"""What a step and a copy take by themselves, for frameworks that give a program no clock of the device's."""

from __future__ import annotations

import collections
import statistics
import time
from typing import Callable, Dict, Iterable, Sequence

from framework_compare.protocol import Batch, DeviceTimes, Trainer

ROUNDS = 3
IN_A_ROW = 4  # steps: what handing over the first one takes is hidden behind a busy device in an epoch, too
LONG_NS = 100_000_000  # a step of that length is timed by itself


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
