"""Arrays as batches: tokens, series, rows, small images, read from the one .npz that the parent wrote.

Worker side: standard library and numpy. A member of the file is `<split>.<role>.<name>.npy`; document.json is its task,
its facts and how its uint8 images become float32.
"""

import json
import math
import os
import zipfile
from typing import Any, ContextManager, Dict, Iterator, NamedTuple, Optional, Tuple, Union

import numpy as np

from framework_compare.batches.images import LAYOUTS, Allocate
from framework_compare.batches.order import epoch_order, epoch_sizes, share_of
from framework_compare.errors import DataError, UsageError, check_count, check_name
from framework_compare.graph import Task
from framework_compare.protocol import Fields, Replicas

VERSION = 1  # of the file's form
DOCUMENT = "document.json"
SPLITS = ("train", "validation")
Inputs = Union[np.ndarray, Tuple[np.ndarray, ...]]  # an only input, or several in the task's order
ArrayBatch = Tuple[Inputs, np.ndarray]


class Pixels(NamedTuple):
    """Conversion of uint8 images (C, H, W) to float32: value * scale + bias, one number per channel each."""

    scale: Tuple[float, ...]
    bias: Tuple[float, ...]


class SplitArrays(NamedTuple):
    """One split of a data set; all arrays have the same first axis, the samples.

    inputs and target are as the fields of the task say; images that `pixels` names are uint8 instead.
    extras are for metrics only and never reach a model; facts are what metrics need beside (scaling, tags, groups).
    """

    task: Task
    inputs: Tuple[np.ndarray, ...]
    target: np.ndarray
    extras: Dict[str, np.ndarray]
    pixels: Dict[str, Pixels]
    facts: Fields

    def __len__(self) -> int:
        return len(self.target)

    def prompts(self, new_tokens: int) -> "SplitArrays":
        """Sequences without as many tokens at their end, and all targets."""
        return SplitArrays(self.task, tuple(tokens[:, :-new_tokens] for tokens in self.inputs), *self[2:])


def read_split(path: "str | os.PathLike[str]", split: str) -> SplitArrays:
    """Read "train" or "validation" of a file that the parent wrote; DataError names a missing or damaged file."""
    check_name("split", split, SPLITS)
    try:
        with zipfile.ZipFile(path) as archive:
            document = json.loads(archive.read(DOCUMENT))
            if document["version"] != VERSION:
                raise ValueError(f"it has format version {document['version']}; this program reads version {VERSION}")
            arrays = {}
            for name in archive.namelist():
                if name.startswith(split + "."):
                    with archive.open(name) as file:
                        arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        reason = str(error) or type(error).__name__
        raise DataError(
            f"data set file {os.fspath(path)!r} cannot be read: {reason}; prepare the study again"
        ) from error
    return _split_of(document, split, arrays)


def _split_of(document: Fields, split: str, arrays: Dict[str, np.ndarray]) -> SplitArrays:
    task = Task.from_dict(document["task"])
    extra = f"{split}.extra."
    return SplitArrays(
        task,
        tuple(arrays[f"{split}.input.{field.name}.npy"] for field in task.inputs),
        arrays[f"{split}.target.{task.target.name}.npy"],
        {name[len(extra) : -len(".npy")]: array for name, array in arrays.items() if name.startswith(extra)},
        {name: Pixels(tuple(p["scale"]), tuple(p["bias"])) for name, p in document["pixels"].items()},
        document["facts"],
    )


class ArrayPipeline(ContextManager["ArrayPipeline"]):
    """Shuffled batches of arrays, the same whatever the framework; the order is that of the images' `shared` pipeline.

    Batches are new C-contiguous arrays, ready to adopt. `layout` is that of images: (N, C, H, W) or (N, H, W, C).
    `shuffle=False` keeps the order of the file, for validation. `allocate` makes the float32 arrays of inputs: in
    memory that a device copies from fastest, for instance. `growth` and `limit` are of `epoch_sizes`. Of several
    `replicas`, whose batches do not grow, it makes those of this process. Nothing runs beside the caller. Close it, or
    use it in a `with`.
    """

    def __init__(
        self,
        split: SplitArrays,
        *,
        batch_size: int,
        seed: int = 0,
        layout: str = "NCHW",
        shuffle: bool = True,
        allocate: Allocate = lambda shape: np.empty(shape, dtype=np.float32),
        replicas: Optional[Replicas] = None,
        growth: float = 1.0,
        limit: float = math.inf,
    ) -> None:
        check_count("batch_size", batch_size)
        check_name("layout", layout, LAYOUTS)
        self._batch_size, self._growth, self._limit = batch_size, growth, limit
        self._seed, self._shuffle = seed, shuffle
        self._target, self._replicas = split.target, replicas
        self._inputs = [
            _Input(array, split.pixels.get(field.name), layout, allocate)
            for field, array in zip(split.task.inputs, split.inputs)
        ]
        self._closed = False

    def epoch(self, number: int) -> Iterator[ArrayBatch]:
        """Batches of one pass, every sample once, the last batch with the remaining ones: (inputs, target)."""
        count = len(self._target)
        order = epoch_order(self._seed, number, count) if self._shuffle else np.arange(count)
        order = share_of(order, self._batch_size, self._replicas)
        start = 0
        for size in epoch_sizes(len(order), self._batch_size, self._growth, self._limit):
            if self._closed:
                raise UsageError("the input pipeline is closed; open another one")
            indices, start = order[start : start + size], start + size
            inputs = tuple(field.take(indices) for field in self._inputs)
            yield inputs if len(inputs) > 1 else inputs[0], np.take(self._target, indices, axis=0)

    def close(self) -> None:
        """Let go of the arrays; a second call does nothing."""
        self._closed = True
        self._inputs = []

    def __exit__(self, *raised: object) -> None:
        self.close()


class _Input:
    """One input array: its samples in the layout asked for, and how they become what the task says."""

    def __init__(self, array: np.ndarray, pixels: Optional[Pixels], layout: str, allocate: Allocate) -> None:
        image = array.ndim == 4
        # Once for all epochs: a transposition in every batch would cost more than the batch.
        self._array = np.ascontiguousarray(array.transpose(0, 2, 3, 1) if image and layout == "NHWC" else array)
        self._allocate = allocate
        self._rows: Tuple[int, ...] = self._array.shape[1:]
        self._scale: Optional[np.ndarray] = None
        self._bias: Optional[np.ndarray] = None
        if pixels is not None:
            self._set_pixels(pixels, layout)

    def _set_pixels(self, pixels: Pixels, layout: str) -> None:
        scale, bias = (np.array(values, np.float32) for values in pixels)
        if layout == "NCHW":
            self._scale, self._bias = scale[:, None, None], bias[:, None, None]
            return
        # Whole rows: an inner loop of 3 takes eight times as long.
        height, width, channels = self._array.shape[1:]
        self._rows = (height, width * channels)
        self._scale, self._bias = np.tile(scale, width), np.tile(bias, width)

    def take(self, indices: np.ndarray) -> np.ndarray:
        shape = (len(indices), *self._array.shape[1:])
        if self._scale is None or self._bias is None:
            out = self._allocate(shape) if self._array.dtype == np.float32 else np.empty(shape, self._array.dtype)
            # mode: with `out`, the default makes another copy to be safe from indices out of range.
            return np.take(self._array, indices, axis=0, out=out, mode="clip")
        out = self._allocate(shape)
        flat = out.reshape(len(indices), *self._rows)
        chosen = np.take(self._array, indices, axis=0).reshape(flat.shape)
        # Multiply, then add, never fused: bit for bit the same in both layouts.
        np.multiply(chosen, self._scale, out=flat, dtype=np.float32)
        np.add(flat, self._bias, out=flat)
        return out


def memory_batch(split: SplitArrays, **settings: Any) -> ArrayBatch:
    """The one batch of the `memory` pipeline: the first of epoch 0 of the shared one of these settings."""
    with ArrayPipeline(split, **settings) as pipeline:
        return next(pipeline.epoch(0))
