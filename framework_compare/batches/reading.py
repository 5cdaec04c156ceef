"""How one image is read from its file: decoded, cropped, resized, normalised. Worker side."""

from typing import NamedTuple, Tuple

import numpy as np

from framework_compare.batches import preprocess
from framework_compare.errors import DataError


class Reading(NamedTuple):
    """How images are read: with an epoch and an index it decides every bit of one."""

    image_size: int
    seed: int
    flip: str
    crop: str
    layout: str

    @property
    def shape(self) -> Tuple[int, int, int]:
        """Return the shape of one image."""
        s = self.image_size
        return (3, s, s) if self.layout == "NCHW" else (s, s, 3)

    def fill(self, image: np.ndarray, path: str, epoch: int, index: int) -> None:
        """Read one image into a float32 array of `shape`; DataError names one that cannot be read."""
        try:
            with open(path, "rb") as file:
                data = file.read()
            state = preprocess.image_state(self.seed, epoch, index)
            size = preprocess.encoded_size(data)
            crop = preprocess.draw_crop(state, *size, flip=self.flip)
            if self.crop == "none":
                crop = preprocess.whole(*size)._replace(flip=crop.flip)
            pixels = preprocess.decode_crop_resize(data, crop, self.image_size)
        except Exception as error:
            raise DataError(f"image {path!r} cannot be read: {error}") from error
        preprocess.normalise_into(image, pixels, self.layout)
