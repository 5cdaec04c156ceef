"""Pillow and numpy, as in SINGA's examples; that several processes hand over whole batches is ours.

The recipe is torchvision's, as for all. SINGA's own iterator has one process, shuffles without a seed, and runs over the
end of an epoch in its last batch.
"""

from __future__ import annotations

import collections
import concurrent.futures
import multiprocessing
from typing import Any, Deque, Iterator, List, Optional, Tuple

import numpy as np

from framework_compare.adapters.common.pipeline import read_normalised
from framework_compare.batches.order import epoch_order
from framework_compare.batches.preprocess import image_state
from framework_compare.protocol import ImageFiles, TrainConfig

Arrays = Tuple[np.ndarray, np.ndarray]
_reader: Optional["Reader"] = None  # of a process


class Reader:
    """Makes batches, images float32 (N, 3, S, S) and labels int64 (N,), from the numbers of their images."""

    def __init__(self, files: ImageFiles, config: TrainConfig) -> None:
        self._files, self._config = files, config

    def read(self, epoch: int, numbers: List[int]) -> Arrays:
        config, files = self._config, self._files
        images = np.empty((len(numbers), 3, config.image_size, config.image_size), np.float32)
        for image, number in zip(images, numbers):
            state = image_state(config.seed, epoch, number)
            read_normalised(image, files.paths[number], state, config, "NCHW")
        return images, np.array([files.labels[number] for number in numbers], np.int64)


class NativePipeline:
    """Batches of all epochs; its processes start with it and read no epoch before it has begun."""

    def __init__(self, files: ImageFiles, config: TrainConfig) -> None:
        self._count, self._config = len(files), config
        self._reader = Reader(files, config)
        self._pool: Any = None
        if config.loader_workers:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                config.loader_workers,
                mp_context=multiprocessing.get_context("fork"),
                initializer=_start,
                initargs=(self._reader,),
            )
            wait = [self._pool.submit(int) for _ in range(config.loader_workers)]
            concurrent.futures.wait(wait)

    def epoch(self, number: int) -> Iterator[Arrays]:
        size = self._config.batch_size
        order = epoch_order(self._config.seed, number, self._count).tolist()
        parts = [order[start : start + size] for start in range(0, self._count, size)]
        if self._pool is None:
            yield from (self._reader.read(number, part) for part in parts)
            return
        pending: Deque[Any] = collections.deque()
        try:
            for part in parts:
                pending.append(self._pool.submit(_read, number, part))
                if len(pending) > 2 * self._config.loader_workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for batch in pending:
                batch.cancel()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def _start(reader: Reader) -> None:
    global _reader
    _reader = reader


def _read(epoch: int, numbers: List[int]) -> Arrays:
    assert _reader is not None, "a process of the pool begins with _start"
    return _reader.read(epoch, numbers)
