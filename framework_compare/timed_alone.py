"""What a step and a copy take by themselves, for frameworks that give a program no clock of the device's."""

from __future__ import annotations

import statistics
import time
from typing import Callable, Dict, Sequence

from framework_compare.protocol import Batch, DeviceTimes, Trainer

ROUNDS = 3
IN_A_ROW = 4  # steps: what handing over the first one takes is hidden behind a busy device in an epoch, too


class TimedAlone:
    """Times of one batch of each size that an epoch has, taken between moments at which the device is idle."""

    def __init__(
        self, trainer: Trainer, held: Sequence[Batch], *, copies: bool, now: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._trainer = trainer
        self._now = now
        self._full = held[0].size
        self._times: Dict[int, DeviceTimes] = {batch.size: self._of(batch, copies) for batch in held}

    def epoch(self, steps: int, images: int) -> DeviceTimes:
        """Of an epoch of that many steps, of which the last alone may be smaller than the others."""
        last = images - (steps - 1) * self._full
        full, rest = self._times[self._full], self._times.get(last, self._times[self._full])
        return DeviceTimes((steps - 1) * full.copy_ns + rest.copy_ns, (steps - 1) * full.compute_ns + rest.compute_ns)

    def _of(self, batch: Batch, copies: bool) -> DeviceTimes:
        computing = self._median(lambda: [self._trainer.train_step(batch) for _ in range(IN_A_ROW)]) // IN_A_ROW
        if not copies:
            return DeviceTimes(0, computing)
        images, labels = self._trainer.read_batch(batch)
        copied, one = self._trainer.adopt, self._trainer.train_step
        # one after the other, as a step cannot begin before its batch is there
        both = self._median(lambda: one(copied(images, labels)))
        return DeviceTimes(max(0, both - self._median(lambda: one(batch))), computing)

    def _median(self, work: Callable[[], object]) -> int:
        taken = []
        for _ in range(ROUNDS):
            self._trainer.synchronize()
            start = self._now()
            work()
            self._trainer.synchronize()
            taken.append(self._now() - start)
        return int(statistics.median(taken))
