"""torchvision's ImageNet recipe: by a framework's transforms after torchvision's, or by Pillow and numpy where it has none."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping

import numpy as np

from framework_compare.batches import preprocess
from framework_compare.protocol import ImageFiles, TrainConfig

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLIPS = {"horizontal": "RandomHorizontalFlip", "vertical": "RandomVerticalFlip"}


def open_rgb(path: str, kind: str = "") -> Any:
    """An image decoded by Pillow, whatever its format is called."""
    from PIL import Image

    with Image.open(path) as image:
        return image.convert("RGB")


def read_rgb(path: str) -> np.ndarray:
    """The pixels of an image, uint8 (height, width, 3), decoded by Pillow."""
    return np.asarray(open_rgb(path))


def read_normalised(out: np.ndarray, path: str, state: np.random.RandomState, config: TrainConfig, layout: str) -> None:
    """Write an image into float32 `out` (3, S, S), or (S, S, 3) if `layout` is "NHWC": cropped, flipped, normalised."""
    from PIL import Image

    size = config.image_size
    with Image.open(path) as image:
        crop = preprocess.draw_crop(state, *image.size, flip=config.flip)
        if config.crop == "none":
            crop = preprocess.whole(*image.size)._replace(flip=crop.flip)
        box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
        pixels = np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=box))
    if crop.flip != "none":
        pixels = pixels[:, ::-1] if crop.flip == "horizontal" else pixels[::-1]
    preprocess.normalise_into(out, pixels, layout)


@dataclasses.dataclass(eq=False, repr=False)
class ImageDataset:
    """Data set of (image, label) by index, each decoded by Pillow, or by `read(path, format)`, then transformed."""

    files: ImageFiles
    transform: Callable[[Any], Any]
    label_type: Callable[[int], Any]
    read: Callable[[str, str], Any] = open_rgb

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        paths, labels, formats = self.files.paths, self.files.labels, self.files.formats
        return self.transform(self.read(paths[index], formats[index])), self.label_type(labels[index])


def vision_transforms(
    transforms: Any,
    config: TrainConfig,
    *rest: Any,
    random_crop: Callable[[int], Any],
    flips: Mapping[str, str] = FLIPS,
) -> Any:
    """Crop and flip by a framework's module of transforms, then the rest; `flips` are its names of flips there."""
    size = config.image_size
    crop = random_crop(size) if config.crop == "random" else transforms.Resize((size, size))
    flip = [] if config.flip == "none" else [getattr(transforms, flips[config.flip])()]
    return transforms.Compose([crop, *flip, *rest])
