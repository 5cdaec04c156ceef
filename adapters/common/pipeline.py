"""torchvision's ImageNet recipe, for frameworks that have a data set to index and transforms after torchvision's."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

import numpy as np

from framework_compare.protocol import Pictures, TrainConfig

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLIPS = {"horizontal": "RandomHorizontalFlip", "vertical": "RandomVerticalFlip"}


def open_rgb(path: str) -> Any:
    """A picture decoded by Pillow."""
    from PIL import Image

    with Image.open(path) as image:
        return image.convert("RGB")


def read_rgb(path: str) -> np.ndarray:
    """The pixels of a picture, uint8 (height, width, 3), decoded by Pillow."""
    return np.asarray(open_rgb(path))


class PictureDataset:
    """Data set of (picture, label) by index, each decoded by Pillow, or by `read(path, format)`, then transformed."""

    def __init__(
        self,
        pictures: Pictures,
        transform: Callable[[Any], Any],
        label_type: Callable[[int], Any],
        read: Optional[Callable[[str, str], Any]] = None,
    ) -> None:
        self._pictures = pictures
        self._transform = transform
        self._label_type = label_type
        self._read = read

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> Any:
        pictures = self._pictures
        path = pictures.paths[index]
        picture = self._read(path, pictures.formats[index]) if self._read else open_rgb(path)
        return self._transform(picture), self._label_type(pictures.labels[index])


def vision_transforms(
    transforms: Any,
    config: TrainConfig,
    *rest: Any,
    random_crop: Callable[[int], Any],
    flips: Mapping[str, str] = FLIPS,
) -> Any:
    """Crop and flip by a framework's module of transforms, then the rest; `flips` are its names of flips there."""
    size = config.image_size
    crops = {"random": lambda: random_crop(size), "none": lambda: transforms.Resize((size, size))}
    flip = [] if config.flip == "none" else [getattr(transforms, flips[config.flip])()]
    return transforms.Compose([crops[config.crop](), *flip, *rest])
