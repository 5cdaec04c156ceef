"""The losses of an epoch, read a few steps late, and the rule that ends training by them."""

from __future__ import annotations

import collections
import math
from typing import Deque, Optional, Tuple

from framework_compare.protocol import Trainer


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
