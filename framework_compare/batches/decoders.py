"""Processes that read images for the `shared` pipeline beside a GPU, where threads would hold up the step.

Handing a step to a GPU is some hundred short calls from Python, and each has to win the interpreter's lock from the
threads that decode. A decoder is a fresh interpreter, without the framework and its GPU; pixels come back in memory
it shares with its owner. Worker side.
"""

import contextlib
import json
import mmap
import os
import queue
import subprocess
import sys
from typing import BinaryIO, List, Sequence, cast

import numpy as np

from framework_compare.batches.preprocess import Reading
from framework_compare.errors import DataError
from framework_compare.protocol import Fields

READY = b"ready\n"


class Decoders:
    """`count` decoders that take tasks of at most `most` images; whoever fills an array uses one that is idle."""

    def __init__(self, count: int, most: int, reading: Fields, shape: Sequence[int]) -> None:
        self._all = [_Decoder(most, reading, shape) for _ in range(count)]
        self._idle: "queue.SimpleQueue[_Decoder]" = queue.SimpleQueue()
        for decoder in self._all:  # all have begun: they import at the same time
            decoder.wait()
            self._idle.put(decoder)

    def fill(self, images: np.ndarray, tasks: List[Fields]) -> None:
        """Read one image a task into `images`; blocks outside the interpreter's lock. DataError as they raise it."""
        decoder = self._idle.get()
        try:
            decoder.fill(images, tasks)
        finally:
            self._idle.put(decoder)

    def close(self) -> None:
        """End all of them."""
        for decoder in self._all:
            decoder.close()


class _Decoder:
    """One process and the memory it shares with this one."""

    def __init__(self, most: int, reading: Fields, shape: Sequence[int]) -> None:
        descriptor = os.memfd_create("images", 0)  # memory that two processes can map
        size = most * 4 * int(np.prod(shape))
        os.ftruncate(descriptor, size)
        self._pixels = np.frombuffer(mmap.mmap(descriptor, size), np.float32).reshape(most, *shape)
        start = {"descriptor": descriptor, "most": most, "shape": list(shape), "reading": reading}
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENTRY, json.dumps(sys.path), json.dumps(start)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,),
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        os.close(descriptor)
        self._to, self._from = cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout)

    def wait(self) -> None:
        if self._from.readline() != READY:
            raise DataError(f"a process that reads images did not start; exit code {self._process.wait()}")

    def fill(self, images: np.ndarray, tasks: List[Fields]) -> None:
        with contextlib.suppress(OSError):  # it has ended, as the missing answer will say
            self._to.write(json.dumps(tasks).encode() + b"\n")
            self._to.flush()
        answer = self._from.readline()
        if not answer:
            raise DataError(f"a process that reads images ended with code {self._process.wait()}")
        error = json.loads(answer)
        if error:
            raise DataError(error)
        np.copyto(images, self._pixels[: len(images)])

    def close(self) -> None:
        """Its end of file is its end."""
        with contextlib.suppress(BrokenPipeError):  # it had ended already, with a task on its way
            self._to.close()
        self._from.close()
        self._process.wait()


# the same places to import from as here, so that a staged worker's decoders are staged too
ENTRY = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from framework_compare.batches import decoders; \
decoders.serve(json.loads(sys.argv[2]))"


def serve(start: Fields) -> None:
    """A decoder: reads tasks, a line each, until there are no more."""
    size = start["most"] * 4 * int(np.prod(start["shape"]))
    pixels = np.frombuffer(mmap.mmap(start["descriptor"], size), np.float32).reshape(start["most"], *start["shape"])
    reading = Reading(**start["reading"])
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    answers.write(READY)
    for line in sys.stdin.buffer:
        error = ""
        try:
            for image, task in zip(pixels, json.loads(line)):
                reading.fill(image, **task)
        except DataError as raised:
            error = str(raised)
        answers.write(json.dumps(error).encode() + b"\n")
