"""Sources of the batches of a cell: the framework's own pipeline, ours, or one batch held on the device."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Callable, Iterator, List, NamedTuple, Optional, Union

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


class Source(NamedTuple):
    """Source of batches: by number one pass over the images. One batch is held in each size that an epoch has."""

    held: List[Batch]  # for the first steps
    epoch: Callable[[int], Iterator[Batch]]
    close: Callable[[], None] = lambda: None  # the trainer's `release` stops loader workers


def _memory_source(sizes: List[int], held: List[Batch]) -> Source:
    """One batch, on the device, as often as an epoch has steps: computing only."""
    of_size = dict(zip(distinct(sizes), held))
    return Source(held, lambda number: (of_size[size] for size in sizes))


def _shared_source(trainer: Trainer, pipeline: "Pipeline", held: List[Batch]) -> Source:
    def epoch(number: int) -> Iterator[Batch]:
        return (trainer.to_device_batch(images, labels) for images, labels in pipeline.epoch(number))

    return Source(held, epoch, pipeline.close)


def open_source(trainer: Trainer, data: Data, config: TrainConfig, replicas: Optional[Replicas] = None) -> Source:
    """The input pipeline that the config names, with its held batch decoded."""
    if not isinstance(data, ImageFiles):
        return _open_arrays(trainer, data, config, replicas)
    from framework_compare.batches.images import memory_batch

    images, labels = memory_batch(data, config, layout=trainer.layout, replicas=replicas)
    sizes = _epoch_sizes(data, config, replicas)
    held = [trainer.to_device_batch(images[:size], labels[:size]) for size in distinct(sizes)]
    if config.pipeline == "native":
        return Source(held, functools.partial(trainer.epoch, trainer.open_pipeline(data)))
    if config.pipeline == "shared":
        return _shared_source(trainer, shared_pipeline(trainer, data, config, replicas), held)
    return _memory_source(sizes, held)


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
        return _memory_source(sizes, held)
    reading.update(batch_size=config.batch_size, growth=config.batch_growth, limit=config.batch_size_limit)
    return _shared_source(trainer, ArrayPipeline(split, allocate=trainer.host_array, **reading), held)


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
