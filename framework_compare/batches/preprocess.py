"""Preprocessing of an image before a network sees it: the `lerat2021` protocol, the same bits for every framework.

Random resized crop, random flip, normalisation by the ImageNet statistics. Both sides of the process boundary;
standard library, numpy and Pillow, and simplejpeg where it is installed. EXIF orientation is ignored: the
native decoders of the frameworks disagree about it.
"""

import io
import math
import threading
from typing import NamedTuple, Optional, Tuple

import numpy as np
from PIL import Image

from framework_compare.batches.order import seed_words
from framework_compare.errors import DataError

try:
    import simplejpeg
except ImportError:  # pragma: no cover - slower, not different
    simplejpeg = None

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SCALE = (0.08, 1.0)  # area of the crop, as a share of the image's
RATIO = (3 / 4, 4 / 3)  # width over height of the crop
TRIES = 10

_SCALE = (1 / (255 * np.array(STD))).astype(np.float32)
_BIAS = (-np.array(MEAN) / np.array(STD)).astype(np.float32)
_JPEG = b"\xff\xd8\xff"
_FLIPS = {"horizontal": Image.Transpose.FLIP_LEFT_RIGHT, "vertical": Image.Transpose.FLIP_TOP_BOTTOM}
_local = threading.local()


class Crop(NamedTuple):
    """A rectangle of an image, in its own pixels, and the axis it is flipped along ("horizontal" mirrors x)."""

    left: int
    top: int
    width: int
    height: int
    flip: str = "none"


def image_state(seed: int, epoch: int, index: int) -> np.random.RandomState:
    """The random state of one image in one epoch; valid until this thread asks for the next."""
    # NEP 19 freezes RandomState's stream, so that numpy 1.23 and numpy 2 draw the same crops. Making one takes
    # ten times as long as seeding one.
    state = getattr(_local, "state", None)
    if state is None:
        state = _local.state = np.random.RandomState(0)
    state.seed(seed_words(seed, epoch, index))
    return state


def draw_crop(state: np.random.RandomState, width: int, height: int, *, flip: str = "horizontal") -> Crop:
    """A crop as torchvision's RandomResizedCrop draws it, flipped along `flip` with probability 1/2.

    Area uniform in SCALE of the image, ratio log-uniform in RATIO, ten tries, else the largest centred crop
    whose ratio is allowed. It always takes the same number of draws from `state`.
    """
    draws = state.random_sample(4 * TRIES + 1).tolist()
    flip = flip if draws.pop() < 0.5 else "none"
    for attempt in range(TRIES):
        crop = _try_crop(draws[4 * attempt : 4 * attempt + 4], width, height, flip)
        if crop is not None:
            return crop
    return _centre_crop(width, height, flip)


def _try_crop(draws: "list[float]", width: int, height: int, flip: str) -> Optional[Crop]:
    area = width * height * (SCALE[0] + draws[0] * (SCALE[1] - SCALE[0]))
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    ratio = math.exp(low + draws[1] * (high - low))
    w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
    if not (0 < w <= width and 0 < h <= height):
        return None
    return Crop(int(draws[2] * (width - w + 1)), int(draws[3] * (height - h + 1)), w, h, flip)


def _centre_crop(width: int, height: int, flip: str) -> Crop:
    w = min(width, max(1, round(height * RATIO[1])))
    h = min(height, max(1, round(width / RATIO[0])))
    return Crop((width - w) // 2, (height - h) // 2, w, h, flip)


def whole(width: int, height: int) -> Crop:
    """The crop of evaluation and of a run without augmentation: all of the image, stretched."""
    return Crop(0, 0, width, height)


def encoded_size(data: bytes) -> Tuple[int, int]:
    """(width, height) in pixels of an encoded image, from its header; OSError if it is not an image."""
    if simplejpeg is not None and data[:3] == _JPEG:
        try:
            height, width = simplejpeg.decode_jpeg_header(data)[:2]
            return width, height
        except ValueError:
            pass
    with Image.open(io.BytesIO(data)) as image:
        return image.size


def decode_crop_resize(data: bytes, crop: Crop, size: int) -> np.ndarray:
    """Decode an image, cut `crop` out, resize it to `size` x `size` (antialiased bilinear), flip it.

    Returns uint8 (size, size, 3), RGB, C-contiguous. JPEG files are decoded at 1/2, 1/4 or 1/8 where the crop
    stays at least `size` wide and high. OSError or ValueError if the image does not decode.
    """
    divisor = _divisor(crop, size)
    image = _decode_jpeg(data, crop, divisor)
    if image is None:
        image, divisor = _decode_any(data, crop, divisor)
    left, top, _, _ = _region(crop, divisor)
    x, y = crop.left / divisor - left, crop.top / divisor - top
    box = (x, y, x + crop.width / divisor, y + crop.height / divisor)
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    if crop.flip != "none":
        image = image.transpose(_FLIPS[crop.flip])
    return np.asarray(image)


def normalise_into(out: np.ndarray, pixels: np.ndarray, layout: str) -> None:
    """Write `pixels`, uint8 (S, S, 3), normalised into `out`, float32 (3, S, S) if `layout` is "NCHW" or (S, S, 3)."""
    # Multiply, then add, never fused: bit for bit the same in both layouts. dtype is stated because numpy 1
    # would look at the value of a scalar and might compute in float16.
    if layout == "NCHW":
        for c in range(3):
            np.multiply(pixels[:, :, c], _SCALE[c : c + 1], out=out[c], dtype=np.float32)
            np.add(out[c], _BIAS[c : c + 1], out=out[c])
        return
    width = pixels.shape[1]
    rows = out.reshape(-1, 3 * width)  # whole rows: an inner loop of 3 would take eight times as long
    np.multiply(pixels.reshape(-1, 3 * width), np.tile(_SCALE, width), out=rows, dtype=np.float32)
    np.add(rows, np.tile(_BIAS, width), out=rows)


def _divisor(crop: Crop, size: int) -> int:
    # Powers of two only: libjpeg-turbo has no vector code for the scales between.
    side = min(crop.width, crop.height)
    return next(d for d in (8, 4, 2, 1) if d == 1 or side >= d * size)


def _region(crop: Crop, divisor: int) -> Tuple[int, int, int, int]:
    """Whole pixels (left, top, right, bottom) of the image decoded at 1/divisor that the crop touches."""
    right, bottom = crop.left + crop.width, crop.top + crop.height
    return crop.left // divisor, crop.top // divisor, -(-right // divisor), -(-bottom // divisor)


def _decode_jpeg(data: bytes, crop: Crop, divisor: int) -> Optional[Image.Image]:
    """The crop's region of a JPEG at 1/divisor; None where simplejpeg is missing or refuses (CMYK, damage)."""
    if simplejpeg is None or data[:3] != _JPEG:
        return None
    try:
        height, width = simplejpeg.decode_jpeg_header(data)[:2] if divisor > 1 else (1, 1)
        smallest = {"min_height": -(-height // divisor), "min_width": -(-width // divisor)} if divisor > 1 else {}
        pixels = simplejpeg.decode_jpeg(data, "RGB", **smallest)
    except ValueError:
        return None
    left, top, right, bottom = _region(crop, divisor)
    return Image.fromarray(pixels[top:bottom, left:right])


def _decode_any(data: bytes, crop: Crop, divisor: int) -> Tuple[Image.Image, int]:
    """The crop's region by Pillow, and the divisor it was decoded at: as asked for JPEG, 1 for all else."""
    with Image.open(io.BytesIO(data)) as image:
        full = image.size
        image.draft(None, (full[0] // divisor, full[1] // divisor))
        divisor = 1 if image.size == full else divisor
        return to_rgb(image.crop(_region(crop, divisor))), divisor


def to_rgb(image: Image.Image) -> Image.Image:
    """Any Pillow image as RGB: alpha dropped, 16-bit samples by their high byte."""
    if image.mode.startswith("I;16"):
        # Pillow clips these instead of scaling them, or refuses, by version.
        high = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        image = Image.fromarray(high)
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


class Reading(NamedTuple):
    """Settings for reading images: with an epoch and an index they decide every bit of one."""

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
            state = image_state(self.seed, epoch, index)
            size = encoded_size(data)
            crop = draw_crop(state, *size, flip=self.flip)
            if self.crop == "none":
                crop = whole(*size)._replace(flip=crop.flip)
            pixels = decode_crop_resize(data, crop, self.image_size)
        except Exception as error:
            raise DataError(f"image {path!r} cannot be read: {error}") from error
        normalise_into(image, pixels, self.layout)
