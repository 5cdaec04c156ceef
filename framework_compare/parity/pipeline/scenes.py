"""Images that level 4 shows to a pipeline, the reference decoder's and resamplers' results, and shared batches."""

import dataclasses
import functools
import io
import itertools
import json
from pathlib import Path
from typing import Callable, Iterable, Sequence, TypeVar

import numpy as np
import simplejpeg
from PIL import Image

from framework_compare.batches import preprocess
from framework_compare.batches.images import SharedPipeline
from framework_compare.protocol import Fields, ImageFiles, TrainConfig

Array = np.ndarray
Batch = TypeVar("Batch")
Sampler = Callable[[Array, Array, Array, int], Array]
PAD = 8  # pixels beyond a line that the widest filter reaches
# (width, height, mode, format, options of Pillow's save): sizes odd and even, above and below the network's input
KINDS: tuple[tuple[int, int, str, str, Fields], ...] = (
    (500, 375, "RGB", "JPEG", {"quality": 90, "subsampling": 2}),
    (375, 500, "RGB", "JPEG", {"quality": 75, "subsampling": 2}),
    (333, 251, "RGB", "JPEG", {"quality": 90, "subsampling": 1}),
    (257, 301, "RGB", "JPEG", {"quality": 95, "subsampling": 0}),
    (640, 480, "RGB", "JPEG", {"quality": 85, "subsampling": 2, "progressive": True}),
    (120, 90, "RGB", "JPEG", {"quality": 90, "subsampling": 2}),
    (300, 200, "L", "JPEG", {"quality": 90}),
    (320, 240, "RGB", "PNG", {}),
    (211, 173, "RGBA", "PNG", {}),
    (240, 180, "P", "PNG", {}),
    (300, 225, "L", "PNG", {}),
)


def write_scenes(folder: Path) -> ImageFiles:
    """One image of each kind; the label of each is its own number."""
    folder.mkdir(parents=True)
    paths = []
    for number, (width, height, mode, kind, options) in enumerate(KINDS):
        image = Image.fromarray(scene(width, height, number))
        if mode == "P":
            image = image.quantize(64)
        elif mode != "RGB":
            image = image.convert(mode)
        paths.append(folder / f"{number:02d}.{kind.lower()}")
        image.save(paths[-1], kind, **options)
    return listed(folder, paths, [kind for *_, kind, _ in KINDS])


def scene(width: int, height: int, seed: int) -> Array:
    """Soft colours, edges and grain, uint8 (height, width, 3), the three channels unlike each other."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    colours = [128 + 90 * np.sin(rng.uniform(3, 12) * x + rng.uniform(3, 12) * y + rng.uniform(0, 6)) for _ in range(3)]
    canvas = np.stack(colours, axis=-1)
    for _ in range(8):
        left, top, size = rng.uniform(0, 0.9), rng.uniform(0, 0.9), rng.uniform(0.05, 0.3)
        inside = (x > left) & (x < left + size) & (y > top) & (y < top + size)
        canvas[inside] = rng.uniform(0, 255, 3)
    return np.clip(canvas + rng.normal(0, 6, canvas.shape), 0, 255).astype(np.uint8)


def listed(folder: Path, paths: Sequence[Path], formats: Sequence[str]) -> ImageFiles:
    """The list as a worker reads it, in `images.json`; every label is the image's number, to know it by."""
    numbers = tuple(range(len(paths)))
    found = ImageFiles(tuple(map(str, numbers)), tuple(map(str, paths)), numbers, tuple(formats))
    (folder / "images.json").write_text(json.dumps(dataclasses.asdict(found)), encoding="utf-8")
    return found


@dataclasses.dataclass(frozen=True)
class Expected:
    """An image's pixels by each resampler, float (S, S, 3) of 0 to 255, and what another JPEG decoder would change."""

    by_resampler: dict[str, Array]
    decoder_mean: float
    decoder_max: float


def expected(path: str, size: int) -> Expected:
    """Decoded in full (Pillow), and as far off as libjpeg-turbo's fast transform and upsampling are from that."""
    data = Path(path).read_bytes()
    with Image.open(io.BytesIO(data)) as image:
        exact = np.asarray(preprocess.to_rgb(image), np.float64)
        is_jpeg = image.format == "JPEG"
    found = {name: resized(exact, size, sample) for name, sample in RESAMPLERS.items()}
    if not is_jpeg:
        return Expected(found, 0.0, 0.0)
    fast = simplejpeg.decode_jpeg(data, "RGB", fastdct=True, fastupsample=True).astype(np.float64)
    off = np.abs(resized(fast, size, point_sampled) - found["bilinear"])
    return Expected(found, float(off.mean()), float(off.max()))


def point_sampled(line: Array, first: Array, last: Array, size: int) -> Array:
    """Bilinear between the two nearest pixels of a crop, half-pixel centres, whatever the scale: cv2, tf.image."""
    place = first[:, None] + (np.arange(size) + 0.5) * ((last - first) / size)[:, None] - 0.5
    return np.interp(place, np.arange(len(line)), line)


def antialiased(line: Array, first: Array, last: Array, size: int) -> Array:
    """Bilinear over as many pixels as one of the result covers, by a triangle as wide as the scale: Pillow, torchvision.

    The triangle is a second difference of max(0, t - k - 1/2), and so is the sum of the pixels k under it.
    """
    scale = ((last - first) / size)[:, None]
    centre, width = first[:, None] + (np.arange(size) + 0.5) * scale, np.maximum(scale, 1.0)
    above, below = (_second_difference(np.pad(row, PAD), centre, width) for row in (line, np.ones(len(line))))
    return above / np.where(below > 0, below, 1)  # what lies beyond the image has no pixel under it


def _second_difference(values: Array, centre: Array, width: Array) -> Array:
    knots = np.arange(len(values) + 1) - PAD + 0.5
    sums = np.concatenate([[0.0], np.cumsum(np.cumsum(values))])
    first, middle, last = (np.interp(centre + side * width, knots, sums) for side in (-1, 0, 1))
    return first - 2 * middle + last


# What each makes of a line of pixels in N crops, from their first and last edges, at a size: (N, size).
RESAMPLERS: dict[str, Sampler] = {"bilinear, antialiased": antialiased, "bilinear": point_sampled}


def resized(pixels: Array, size: int, sample: Sampler) -> Array:
    """A whole image (height, width, 3) at a size, resampled along both axes."""
    planes = np.ascontiguousarray(pixels.transpose(2, 0, 1))  # a product of strided arrays takes ten times as long
    down, across = (_matrix(sample, length, size) for length in pixels.shape[:2])
    return (down @ planes @ across.T).transpose(1, 2, 0)


@functools.lru_cache(maxsize=None)
def _matrix(sample: Sampler, length: int, size: int) -> Array:
    """(size, length) weights of a resampler, which is linear in the pixels."""
    whole = np.zeros(1), np.full(1, float(length))
    return np.concatenate([sample(pixel, *whole, size) for pixel in np.eye(length)]).T


def levels_of(images: Array) -> Array:
    """Normalised (N, 3, S, S) back to (N, S, S, 3) of 0 to 255."""
    return (images.transpose(0, 2, 3, 1).astype(np.float64) * preprocess.STD + preprocess.MEAN) * 255


def shared_batches(files: ImageFiles, config: TrainConfig, steps: int) -> list[tuple[Array, Array]]:
    """The first batches of the shared pipeline, epoch after epoch: images (N, 3, S, S) and labels (N,)."""
    with SharedPipeline.of(files, config) as pipeline:
        return first_batches(pipeline.epoch, steps)


def first_batches(epoch: Callable[[int], Iterable[Batch]], steps: int) -> list[Batch]:
    """The first batches of a pipeline, epoch after epoch."""
    return list(itertools.islice(itertools.chain.from_iterable(map(epoch, itertools.count(1))), steps))
