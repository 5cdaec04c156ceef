"""torchvision's ImageNet recipe in a torch DataLoader, decoded by Pillow as torchvision's ImageFolder does."""

from __future__ import annotations

import sys
from typing import Any, List, Optional

from framework_compare.adapters.common.pipeline import MEAN, STD, ImageDataset, vision_transforms
from framework_compare.batches.order import EpochOrder, start_loader
from framework_compare.errors import Unsupported
from framework_compare.protocol import ImageFiles, Replicas, TrainConfig


def open_loader(torch: Any, files: ImageFiles, config: TrainConfig, replicas: Optional[Replicas], pinned: bool) -> Any:
    transforms = import_torchvision(torch).transforms
    rest = transforms.ToTensor(), transforms.Normalize(MEAN, STD)
    transform = vision_transforms(transforms, config, *rest, random_crop=transforms.RandomResizedCrop)
    loader = torch.utils.data.DataLoader(
        ImageDataset(files, transform, int),
        batch_size=config.batch_size,
        sampler=EpochOrder(len(files), config.seed, config.batch_size, replicas),
        num_workers=config.loader_workers,
        persistent_workers=config.loader_workers > 0,
        pin_memory=pinned,
    )
    start_loader(loader)
    return loader


def import_torchvision(torch: Any) -> Any:
    """Import torchvision beside a CPU build of torch.

    PyPI's torchvision wheel is built for CUDA: its C++ library does not load with a CPU torch, so its operators
    are not defined, and the import stops at registering a shape function for one (seen with 0.28.0). Defining the
    two lets it import; neither is used in a classification pipeline.
    """
    try:
        import torchvision
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise Unsupported("pipeline 'native' needs torchvision beside torch; install it, or use 'shared'") from None
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept_alive.append(library)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        import torchvision
    return torchvision


_kept_alive: List[Any] = []
