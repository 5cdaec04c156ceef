"""Grain over our own reading of torchvision's ImageNet recipe: threads, or processes that live for all epochs."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import struct
import sys
import tempfile
import time
from typing import Any, Callable, Iterator, NamedTuple, Optional, Tuple

import numpy as np

from framework_compare.adapters.common.pipeline import read_normalised
from framework_compare.batches.order import share_of
from framework_compare.errors import Unsupported
from framework_compare.protocol import ImageFiles, Replicas, TrainConfig

# Loader workers that are processes and no threads: two threads use up what one interpreter reads (846 images/s of 224
# pixels a side on 2 cores, 700 by two processes; 590 to 650 by 16 threads on 16 cores).
PROCESSES_FROM = 3
CLOSED, GATE_S = -1, 0.002  # what a gate says to processes that are to end, and how long they wait between two looks


def import_part(module: str, why: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise Unsupported(f"this interpreter has JAX without {module}: {why}") from None


def import_grain() -> Any:
    return import_part("grain", "pipeline 'native' needs it; install it, or use 'shared'")


class Threads:
    """Batches from Grain's threads, which read single images up to two batches ahead."""

    def __init__(self, files: ImageFiles, config: TrainConfig, layout: str, replicas: Optional[Replicas]) -> None:
        self._grain, self._config = import_grain(), config
        once = make_images(self._grain, files, config, layout, replicas)
        self._count, self._all = len(once), once.repeat()

    def epoch(self, number: int) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        ahead = 2 * self._config.batch_size
        reading = self._grain.ReadOptions(num_threads=self._config.loader_workers, prefetch_buffer_size=ahead)
        epoch = self._all[(number - 1) * self._count : number * self._count].to_iter_dataset(reading)
        with contextlib.closing(iter(epoch.batch(self._config.batch_size))) as batches:
            yield from batches


class Processes:
    """Batches from Grain's processes, which live as long as this and read no epoch before it has begun.

    An iterator of Grain's starts its processes, which import all of JAX. One for each epoch would count that as waiting
    for data; one for all of them would read ahead while nothing is timed.
    """

    _next: int  # the epoch that the processes read next; 0 within one
    _iterator: Any

    def __init__(self, files: ImageFiles, config: TrainConfig, layout: str, replicas: Optional[Replicas]) -> None:
        self._grain, self._workers = import_grain(), config.loader_workers
        # Grain reads absl's flags where it starts processes, which absl refuses before a command line was parsed
        import_part("absl.flags", "Grain's processes need it").FLAGS.mark_as_parsed()
        once = make_images(self._grain, files, config, layout, replicas)
        self._batches = once.batch(config.batch_size)  # epochs apart
        self._gate = Gate.make()
        self._start(1)

    def epoch(self, number: int) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        """Any other than the next one, and one after an epoch not read to its end, starts the processes anew."""
        if number != self._next:
            self._stop()
            self._start(number)
        self._next = 0
        self._gate.open(number)
        yield from itertools.islice(self._iterator, len(self._batches))
        self._next = number + 1

    def close(self) -> None:
        self._stop()
        os.unlink(self._gate.path)

    def _stop(self) -> None:
        self._gate.open(CLOSED)
        self._iterator.close()

    def _start(self, first: int) -> None:
        """Return when each process has said that it is there."""
        grain, self._next = self._grain, first
        reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
        processes = grain.MultiprocessingOptions(num_workers=self._workers, per_worker_buffer_size=1)
        source = gated(grain, self._batches, self._gate, first, self._workers)
        self._gate.open(first - 1)
        self._iterator = iter(source.to_iter_dataset(reading).mp_prefetch(processes))
        for _ in range(self._workers):
            next(self._iterator)


class Gate(NamedTuple):
    """The number of the epoch that may be read, in a file, as it must reach processes that are spawned."""

    path: str
    owner: int  # the process that opens it

    @classmethod
    def make(cls) -> "Gate":
        memory = "/dev/shm"  # where the supervisor removes what has a worker's pid in its name
        folder, owner = memory if os.path.isdir(memory) else None, os.getpid()
        descriptor, path = tempfile.mkstemp(prefix=f"epoch_{owner}_", dir=folder)
        os.close(descriptor)
        return cls(path, owner)

    def open(self, epoch: int) -> None:
        with open(self.path, "r+b", buffering=0) as file:
            file.write(struct.pack("<q", epoch))

    def wait(self, epoch: int) -> None:
        with open(self.path, "rb", buffering=0) as file:
            while True:
                now = struct.unpack("<q", os.pread(file.fileno(), 8, 0))[0]
                if now == CLOSED or self.owner not in (os.getppid(), os.getpid()):
                    raise RuntimeError("the pipeline is closed")
                if now >= epoch:
                    return
                time.sleep(GATE_S)


def gated(grain: Any, batches: Any, gate: Gate, first: int, workers: int) -> Any:
    """All batches of all epochs from the first on, none before its epoch has begun, after a sign of each worker."""

    def batch(index: int) -> Any:
        if index < workers:
            return np.int64(index), np.int64(index)
        place = index - workers + (first - 1) * len(batches)
        gate.wait(place // len(batches) + 1)
        return batches[place]

    return mapped(grain, sys.maxsize, batch)


def mapped(grain: Any, length: int, element: Callable[[int], Any]) -> Any:
    """Return a dataset of so many elements, each made from its number."""

    class Mapped(grain.MapDataset):
        def __len__(self) -> int:
            return length

        def __getitem__(self, index: Any) -> Any:
            return self.slice(index) if isinstance(index, slice) else element(index)

    return Mapped()


def make_images(grain: Any, files: ImageFiles, config: TrainConfig, layout: str, replicas: Optional[Replicas]) -> Any:
    """Shuffled and drawn anew in each epoch by Grain's own rule; of several processes what this one trains on."""
    size = config.image_size

    def read(index: int, rng: Any) -> Tuple[np.ndarray, np.int64]:
        out = np.empty((size, size, 3) if layout == "NHWC" else (3, size, size), np.float32)
        state = np.random.RandomState(rng.integers(2**32))
        read_normalised(out, files.paths[index], state, config, layout)
        return out, np.int64(files.labels[index])

    order = grain.MapDataset.range(len(files)).seed(config.seed & 0xFFFFFFFF).shuffle()
    every, count = order.random_map(read), len(files)
    if replicas is None or replicas.processes == 1:
        return every
    places = share_of(np.arange(count), config.batch_size, replicas).tolist()

    def image(index: int) -> Any:
        epoch, place = divmod(index, len(places))
        return every[epoch * count + places[place]]

    return mapped(grain, len(places), image)
