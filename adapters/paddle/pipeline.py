"""torchvision's ImageNet recipe in paddle.io's loader, decoded by Pillow, paddle.vision's default backend."""

from typing import Any, Optional

import numpy as np

from framework_compare.adapters.common.pipeline import MEAN, STD, ImageDataset, vision_transforms
from framework_compare.batches.order import EpochOrder, start_loader
from framework_compare.protocol import ImageFiles, Replicas, TrainConfig


def open_loader(paddle: Any, files: ImageFiles, config: TrainConfig, replicas: Optional[Replicas] = None) -> Any:
    io, order = paddle.io, EpochOrder(len(files), config.seed, config.batch_size, replicas)
    loader = io.DataLoader(
        ImageDataset(files, _transforms(paddle.vision.transforms, config), np.int64),
        batch_sampler=io.BatchSampler(sampler=order, batch_size=config.batch_size, drop_last=False),
        num_workers=config.loader_workers,
        persistent_workers=config.loader_workers > 0,
    )
    start_loader(loader)
    return loader


def _transforms(transforms: Any, config: TrainConfig) -> Any:
    # arrays, not ToTensor: a loader's process seems to free a batch of tensors while its queue still writes it, which
    # crashed it or stopped it for ever in about one of a hundred epochs (seen in 3.3.1)
    rest = transforms.Transpose(), transforms.Normalize([255 * m for m in MEAN], [255 * s for s in STD])
    return vision_transforms(transforms, config, *rest, random_crop=transforms.RandomResizedCrop)
