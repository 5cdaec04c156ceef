"""gluon's DataLoader and transforms, JPEGs read by MXNet's own decoder."""

import functools
import random
from typing import Any, Optional

import numpy as np

from framework_compare.adapters.common.pipeline import MEAN, STD, ImageDataset, read_rgb, vision_transforms
from framework_compare.batches.order import EpochOrder, start_loader
from framework_compare.batches.preprocess import draw_crop
from framework_compare.protocol import ImageFiles, Replicas, TrainConfig

FLIPS = {"horizontal": "RandomFlipLeftRight", "vertical": "RandomFlipTopBottom"}


def open_loader(
    mx: Any, files: ImageFiles, config: TrainConfig, gpu: Optional[int], replicas: Optional[Replicas]
) -> Any:
    """`gpu`: the number of that for whose copies memory is pinned."""
    mx.nd.waitall()  # the loader forks, which is safe only while the engine is idle
    vision, crop = mx.gluon.data.vision.transforms, functools.partial(_random_crop, mx)
    rest = vision.ToTensor(), vision.Normalize(MEAN, STD)
    transform = vision_transforms(vision, config, *rest, random_crop=crop, flips=FLIPS)
    loader = mx.gluon.data.DataLoader(
        ImageDataset(files, transform, np.int32, _read),
        batch_size=config.batch_size,
        sampler=EpochOrder(len(files), config.seed, config.batch_size, replicas),
        last_batch="keep",
        num_workers=config.loader_workers,
        pin_memory=gpu is not None,
        pin_device_id=gpu or 0,
    )
    start_loader(loader)
    return loader


def _read(path: str, kind: str) -> Any:
    import mxnet

    return mxnet.image.imread(path) if kind == "JPEG" else mxnet.nd.array(read_rgb(path), dtype="uint8")


def _random_crop(mx: Any, size: int) -> Any:
    class RandomCrop(mx.gluon.Block):
        """MXNet's RandomResizedCrop, except for images that no crop drawn fits into: of wide ones MXNet then takes the
        middle `size` x `size` pixels (1.9.1), the protocol all of their height."""

        def __init__(self) -> None:
            super().__init__()
            self._state = np.random.RandomState()

        def forward(self, image: Any) -> Any:
            self._state.seed(random.getrandbits(32))  # numpy's state is the same in all forked processes, this is not
            crop = draw_crop(self._state, image.shape[1], image.shape[0], flip="none")
            bilinear = 1
            return mx.image.fixed_crop(image, crop.left, crop.top, crop.width, crop.height, (size, size), bilinear)

    return RandomCrop()
