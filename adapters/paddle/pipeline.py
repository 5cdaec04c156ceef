"""torchvision's ImageNet recipe in paddle.io's loader, decoded by Pillow, paddle.vision's default backend."""

from typing import Any, Optional

import numpy as np

from framework_compare.adapters.common.pipeline import MEAN, STD, ImageDataset, vision_transforms
from framework_compare.batches.order import EpochOrder, start_loader
from framework_compare.protocol import ImageFiles, Replicas, TrainConfig


def open_loader(paddle: Any, files: ImageFiles, config: TrainConfig, replicas: Optional[Replicas]) -> Any:
    io, order = paddle.io, EpochOrder(len(files), config.seed, config.batch_size, replicas)
    vision = paddle.vision.transforms
    # arrays, not ToTensor: a loader's process seems to free a batch of tensors while its queue still writes it, which
    # crashed it or stopped it for ever in about one of a hundred epochs (seen in 3.3.1)
    rest = vision.Transpose(), vision.Normalize([255 * m for m in MEAN], [255 * s for s in STD])
    transform = vision_transforms(vision, config, *rest, random_crop=vision.RandomResizedCrop)
    loader = io.DataLoader(
        ImageDataset(files, transform, np.int64),
        batch_sampler=io.BatchSampler(sampler=order, batch_size=config.batch_size, drop_last=False),
        num_workers=config.loader_workers,
        persistent_workers=config.loader_workers > 0,
    )
    start_loader(loader)
    return loader
