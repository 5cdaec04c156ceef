"""The input pipeline that every framework can share: identical batches, read by threads, in numpy arrays.

Worker side: standard library, numpy, Pillow and simplejpeg.
"""

import collections
import concurrent.futures
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Deque, Iterator, List, Optional, Tuple

import numpy as np

from framework_compare.batches.order import epoch_order, share_of
from framework_compare.batches.preprocess import Reading
from framework_compare.errors import UsageError, check_count, check_name
from framework_compare.protocol import CROPS, FLIPS, ImageFiles, Replicas, TrainConfig

if TYPE_CHECKING:
    from framework_compare.batches.decoders import Decoders

LAYOUTS = ("NCHW", "NHWC")
Arrays = Tuple[np.ndarray, np.ndarray]
Filling = Tuple[Arrays, List["concurrent.futures.Future[None]"]]  # arrays being filled, and the tasks that fill them
Allocate = Callable[[Tuple[int, ...]], np.ndarray]  # a float32 array of a shape, its contents not set
PREFETCH = 2
MOST_PER_TASK = 4  # images: handing a task over costs some 3 % of decoding one


class SharedPipeline(ContextManager["SharedPipeline"]):
    """Shuffled, augmented batches of a set of images, the same whatever the framework and number of workers.

    `workers` threads decode (simplejpeg, Pillow and numpy release the GIL), or with `processes` as many processes; 0
    decodes in the caller. PREFETCH batches are made ahead of the one in use, so that memory does not grow with the
    number of images. What an image looks like depends on (seed, epoch, its index) only. `allocate` makes the arrays of
    images: in memory that a device copies from fastest, for instance. Of several `replicas` it makes the batches of this
    process. Close it, or use it in a `with`.
    """

    def __init__(
        self,
        files: ImageFiles,
        *,
        batch_size: int,
        image_size: int = 224,
        seed: int = 0,
        flip: str = "horizontal",
        crop: str = "random",
        layout: str = "NCHW",
        workers: int = 1,
        processes: bool = False,
        allocate: Allocate = lambda shape: np.empty(shape, dtype=np.float32),
        replicas: Optional[Replicas] = None,
    ) -> None:
        check_name("flip", flip, FLIPS)
        check_name("crop", crop, CROPS)
        check_name("layout", layout, LAYOUTS)
        check_count("batch_size", batch_size, 1)
        check_count("image_size", image_size, 1)
        check_count("workers", workers, 0)
        self._files = files
        self._batch_size, self._seed = batch_size, seed
        self._replicas = replicas
        self._reading = Reading(image_size, seed, flip, crop, layout)
        self._workers = workers
        self._allocate = allocate
        # Small batches: enough of them in flight to keep every worker busy.
        self._ahead = max(PREFETCH, -(-2 * workers // batch_size))
        self._pool = concurrent.futures.ThreadPoolExecutor(workers, "images") if workers else None
        self._decoders: Optional["Decoders"] = None
        if processes and workers:
            from framework_compare.batches.decoders import Decoders

            self._decoders = Decoders(workers, MOST_PER_TASK, self._reading._asdict(), self._reading.shape)
        self._closed = False

    @classmethod
    def of(cls, files: ImageFiles, config: TrainConfig, **given: Any) -> "SharedPipeline":
        """Return the pipeline of a config; arguments that are given take precedence."""
        own = {name: getattr(config, name) for name in ("batch_size", "image_size", "seed", "flip", "crop")}
        return cls(files, **{"workers": config.loader_workers, **own, **given})

    def epoch(self, number: int) -> Iterator[Arrays]:
        """Batches of one pass, every image once, the last batch with the remaining ones.

        Yields new arrays: images float32 (N, 3, S, S) or (N, S, S, 3), C-contiguous, and labels int64 (N,).
        DataError names an image that cannot be read.
        """
        order = share_of(epoch_order(self._seed, number, len(self._files)), self._batch_size, self._replicas)
        parts = (order[start : start + self._batch_size] for start in range(0, len(order), self._batch_size))
        pending: Deque[Filling] = collections.deque()
        try:
            for indices in parts:
                pending.append(self._start(number, indices))
                if self._pool is None or len(pending) > self._ahead:
                    yield self._finish(pending.popleft())
            while pending:
                yield self._finish(pending.popleft())
        finally:
            for _, tasks in pending:
                for task in tasks:
                    task.cancel()

    def close(self) -> None:
        """Stop the threads and wait for them; a second call does nothing."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self._decoders is not None:
            self._decoders.close()
            self._decoders = None

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _start(self, number: int, indices: np.ndarray) -> Filling:
        if self._closed:
            raise UsageError("the input pipeline is closed; open another one")
        labels = np.array([self._files.labels[i] for i in indices], dtype=np.int64)
        images = self._allocate((len(indices), *self._reading.shape))
        if self._pool is None:
            self._fill(images, number, indices)
            return (images, labels), []
        tasks = []
        step = max(1, min(MOST_PER_TASK, len(indices) // (2 * self._workers)))  # enough tasks for all workers
        for start in range(0, len(indices), step):
            part = slice(start, start + step)
            tasks.append(self._pool.submit(self._fill, images[part], number, indices[part]))
        return (images, labels), tasks

    def _finish(self, filling: Filling) -> Arrays:
        arrays, tasks = filling
        for task in tasks:
            task.result()
        if self._closed:
            raise UsageError("the input pipeline was closed before the end of the epoch")
        return arrays

    def _fill(self, images: np.ndarray, number: int, indices: np.ndarray) -> None:
        tasks = [{"path": self._files.paths[i], "epoch": number, "index": int(i)} for i in indices]
        if self._closed:
            return
        if self._decoders is not None:
            self._decoders.fill(images, tasks)
            return
        for image, task in zip(images, tasks):
            if self._closed:
                return
            self._reading.fill(image, **task)


def memory_batch(files: ImageFiles, config: TrainConfig, **given: Any) -> Arrays:
    """The one batch of the `memory` pipeline: the first of epoch 0 of the shared one."""
    with SharedPipeline.of(files, config, workers=0, **given) as pipeline:
        return next(pipeline.epoch(0))
