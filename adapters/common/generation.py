"""Generation by a trainer: the prompt at once, then one token after the other."""

from __future__ import annotations

import abc
from typing import Any, Callable, Iterator, List, Tuple

import numpy as np

from framework_compare.protocol import Batch, TrainConfig

Step = Callable[[Any, int], Tuple[Any, Any]]


class Generates(abc.ABC):
    config: TrainConfig
    _network: Any
    _prepared: Tuple[Any, ...] = (None, 0)

    @abc.abstractmethod
    def _prepare(self, prompt: int) -> Tuple[int, Step]:
        """The window, and a function of tokens (N, steps) and the position of the first of them.

        It is given the prompt at 0, then one token at a time, and returns the next tokens (N, 1) and their logits.
        """

    def generate(self, batch: Batch) -> Iterator[Tuple[Any, Any]]:
        tokens, prompt = batch.images, batch.images.shape[1]
        if self._prepared[:2] != (self._network, prompt):
            self._prepared = (self._network, prompt, *self._prepare(prompt))
        *_, window, step = self._prepared
        for at in (0, *range(prompt, window - 1)):
            tokens, logits = step(tokens, at)
            yield tokens, logits

    _on_host: Callable[[Any], np.ndarray] = staticmethod(np.asarray)

    def read_generated(self, steps: List[Any]) -> Tuple[np.ndarray, np.ndarray]:
        tokens, logits = zip(*steps)
        return np.concatenate([*map(self._on_host, tokens)], 1), np.stack([*map(self._on_host, logits)], 1)
