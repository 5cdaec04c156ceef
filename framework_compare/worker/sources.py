"""Where the batches of a cell come from: the framework's own pipeline, ours, or one batch held on the device."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Iterator, List, Optional, Protocol, Union

from framework_compare.batches.order import distinct, epoch_sizes, share_size
from framework_compare.protocol import Batch, Fields, ImageFiles, Job, Replicas, TrainConfig, Trainer

if TYPE_CHECKING:
    from framework_compare.batches.arrays import ArrayPipeline, SplitArrays
    from framework_compare.batches.images import SharedPipeline

    Data = Union[ImageFiles, SplitArrays]
    Pipeline = Union[SharedPipeline, ArrayPipeline]  # ours, the same for all frameworks


def read_image_files(path: str) -> ImageFiles:
    """The list the planner wrote for this data set."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    return ImageFiles(**{name: tuple(document[name]) for name in ("classes", "paths", "labels", "formats")})


def read_data(job: Job) -> Data:
    """Return what a cell is trained on."""
    if job.data is None:
        return read_image_files(job.images)
    from framework_compare.batches.arrays import read_split

    return read_split(job.data["path"], "train")


class Source(Protocol):
    """Where batches come from, and one batch held, in each size that an epoch has, for the first steps."""

    held: List[Batch]

    def epoch(self, number: int) -> Iterator[Batch]:
        """Batches of one pass over the images."""

    def close(self) -> None:
        """Free what is held."""


class NativeSource:
    def __init__(self, trainer: Trainer, files: ImageFiles, held: List[Batch]) -> None:
        self.held = held
        self._trainer = trainer
        self._pipeline = trainer.open_pipeline(files)

    def epoch(self, number: int) -> Iterator[Batch]:
        return self._trainer.epoch(self._pipeline, number)

    def close(self) -> None:
        """The trainer's `release` stops its loader workers."""


class SharedSource:
    def __init__(self, trainer: Trainer, pipeline: "Pipeline", held: List[Batch]) -> None:
        self.held = held
        self._trainer = trainer
        self._pipeline = pipeline

    def epoch(self, number: int) -> Iterator[Batch]:
        return (self._trainer.to_device_batch(images, labels) for images, labels in self._pipeline.epoch(number))

    def close(self) -> None:
        self._pipeline.close()


class MemorySource:
    """One batch, on the device, as often as an epoch has steps: computing only."""

    def __init__(self, sizes: List[int], held: List[Batch]) -> None:
        self.held = held
        self._sizes, self._of_size = sizes, dict(zip(distinct(sizes), held))

    def epoch(self, number: int) -> Iterator[Batch]:
        return (self._of_size[size] for size in self._sizes)

    def close(self) -> None:
        """Nothing was opened."""


def open_source(trainer: Trainer, data: Data, config: TrainConfig, replicas: Optional[Replicas] = None) -> Source:
    """The input pipeline that the config names, with its held batch decoded."""
    if not isinstance(data, ImageFiles):
        return _open_arrays(trainer, data, config, replicas)
    held = _held_batches(trainer, data, config, replicas)
    if config.pipeline == "native":
        return NativeSource(trainer, data, held)
    if config.pipeline == "shared":
        return SharedSource(trainer, shared_pipeline(trainer, data, config, replicas), held)
    return MemorySource(_epoch_sizes(data, config, replicas), held)


def _open_arrays(trainer: Trainer, split: "SplitArrays", config: TrainConfig, replicas: Optional[Replicas]) -> Source:
    """One pipeline for all frameworks, or one batch of it."""
    from framework_compare.batches.arrays import ArrayPipeline, memory_batch

    reading: Fields = {"seed": config.seed, "layout": trainer.layout, "replicas": replicas}
    sizes = _epoch_sizes(split, config, replicas)
    inputs, target = memory_batch(split, batch_size=max([config.batch_size, *sizes]), **reading)
    arrays = inputs if isinstance(inputs, tuple) else (inputs,)
    held = []
    for size in distinct(sizes):
        parts = tuple(array[:size] for array in arrays)
        held.append(trainer.to_device_batch(parts if len(parts) > 1 else parts[0], target[:size]))
    if config.pipeline == "memory":
        return MemorySource(sizes, held)
    reading.update(batch_size=config.batch_size, growth=config.batch_growth, limit=config.batch_size_limit)
    return SharedSource(trainer, ArrayPipeline(split, allocate=trainer.host_array, **reading), held)


def _epoch_sizes(data: Data, config: TrainConfig, replicas: Optional[Replicas]) -> List[int]:
    """Samples of each batch that this process trains on in an epoch."""
    samples = share_size(len(data), config.batch_size, replicas)
    return epoch_sizes(samples, config.batch_size, config.batch_growth, config.batch_size_limit)


def shared_pipeline(
    trainer: Trainer, files: ImageFiles, config: TrainConfig, replicas: Optional[Replicas] = None
) -> "SharedPipeline":
    """Our own input pipeline in the layout that the trainer adopts without a copy."""
    from framework_compare.batches.images import SharedPipeline

    return SharedPipeline.of(
        files,
        config,
        layout=trainer.layout,
        processes=config.device != "cpu",
        allocate=trainer.host_array,
        replicas=replicas,
    )


def _held_batches(
    trainer: Trainer, files: ImageFiles, config: TrainConfig, replicas: Optional[Replicas]
) -> List[Batch]:
    from framework_compare.batches.images import memory_batch

    images, labels = memory_batch(files, config, layout=trainer.layout, replicas=replicas)
    sizes = distinct(_epoch_sizes(files, config, replicas))
    return [trainer.to_device_batch(images[:size], labels[:size]) for size in sizes]
