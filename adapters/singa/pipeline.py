"""Pillow and numpy, as in SINGA's examples; that several processes hand over whole batches is ours.

The recipe is torchvision's, as for all. SINGA's own iterator has one process, shuffles without a seed, and runs over the
end of an epoch in its last batch.
"""

import collections
import concurrent.futures
import multiprocessing
from typing import Any, Deque, Iterator, List, Tuple

import numpy as np

from framework_compare.adapters.common.pipeline import read_normalised
from framework_compare.batches.order import epoch_order
from framework_compare.batches.preprocess import image_state
from framework_compare.protocol import ImageFiles, TrainConfig

Arrays = Tuple[np.ndarray, np.ndarray]
_source: List[Tuple[ImageFiles, TrainConfig]] = []  # in a process of the pool, which has one


def read(files: ImageFiles, config: TrainConfig, epoch: int, numbers: List[int]) -> Arrays:
    """Make a batch, images float32 (N, 3, S, S) and labels int64 (N,), from the numbers of its images."""
    images = np.empty((len(numbers), 3, config.image_size, config.image_size), np.float32)
    for image, number in zip(images, numbers):
        read_normalised(image, files.paths[number], image_state(config.seed, epoch, number), config, "NCHW")
    return images, np.array([files.labels[number] for number in numbers], np.int64)


class NativePipeline:
    """Batches of all epochs; its processes start with it and read no epoch before it has begun."""

    def __init__(self, files: ImageFiles, config: TrainConfig) -> None:
        self._files, self._config = files, config
        self._pool: Any = None
        if config.loader_workers:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                config.loader_workers, multiprocessing.get_context("fork"), _source.append, ((files, config),)
            )
            concurrent.futures.wait([self._pool.submit(int) for _ in range(config.loader_workers)])

    def epoch(self, number: int) -> Iterator[Arrays]:
        size = self._config.batch_size
        order = epoch_order(self._config.seed, number, len(self._files)).tolist()
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        if self._pool is None:
            yield from (read(self._files, self._config, number, part) for part in parts)
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


def _read(epoch: int, numbers: List[int]) -> Arrays:
    return read(*_source[0], epoch, numbers)
