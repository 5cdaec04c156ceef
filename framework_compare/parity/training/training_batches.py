"""What all frameworks train on for a loss curve: the first batches of a folder of images, or of a workload's arrays."""

import dataclasses
import json
from pathlib import Path
from typing import Dict, NamedTuple, Sequence, Tuple

import numpy as np

from framework_compare.batches.arrays import ArrayPipeline, Inputs, read_split
from framework_compare.datasets.arrays import ArrayData
from framework_compare.parity.pipeline.scenes import first_batches, shared_batches
from framework_compare.protocol import ImageFiles, TrainConfig

Array = np.ndarray
Batches = Sequence[Tuple[Inputs, Array]]


class TrainingBatches(NamedTuple):
    """The batches as the reference trains on them, and how a worker is to open the same: {"images": file}."""

    dataset: str
    batches: Batches
    opened_by: Dict[str, str]


def of_images(folder: Path, name: str, files: ImageFiles, steps: int, config: TrainConfig) -> TrainingBatches:
    path = folder / "images.json"
    path.write_text(json.dumps(dataclasses.asdict(files)), encoding="utf-8")
    return TrainingBatches(name, shared_batches(files, config, steps), {"images": str(path)})


def of_arrays(folder: Path, data: ArrayData, steps: int, config: TrainConfig) -> TrainingBatches:
    path = folder / "data.npz"
    data.write(path)
    with ArrayPipeline(read_split(path, "train"), batch_size=config.batch_size, seed=config.seed) as pipeline:
        return TrainingBatches(data.name, first_batches(pipeline.epoch, steps), {"data": str(path)})
