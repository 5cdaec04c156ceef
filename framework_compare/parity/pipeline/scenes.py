"""Images that level 4 shows to a pipeline, the reference decoder's and resamplers' results, and shared batches."""

import dataclasses
import io
import itertools
import json
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Sequence, Tuple, TypeVar

import numpy as np
import simplejpeg
from PIL import Image

from framework_compare.batches import preprocess
from framework_compare.batches.images import SharedPipeline
from framework_compare.protocol import Fields, ImageFiles, TrainConfig

Array = np.ndarray
Batch = TypeVar("Batch")
# (width, height, mode, format, options of Pillow's save): sizes odd and even, above and below the network's input
KINDS: Tuple[Tuple[int, int, str, str, Fields], ...] = (
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

    by_resampler: Dict[str, Array]
    decoder_mean: float
    decoder_max: float


def expected(path: str, size: int) -> Expected:
    """Decoded in full (Pillow), and as far off as libjpeg-turbo's fast transform and upsampling are from that."""
    data = Path(path).read_bytes()
    with Image.open(io.BytesIO(data)) as image:
        exact = np.asarray(preprocess.to_rgb(image), np.float64)
        is_jpeg = image.format == "JPEG"
    found = {name: resample(exact, size) for name, resample in RESAMPLERS.items()}
    if not is_jpeg:
        return Expected(found, 0.0, 0.0)
    fast = simplejpeg.decode_jpeg(data, "RGB", fastdct=True, fastupsample=True).astype(np.float64)
    off = np.abs(point_sampled(fast, size) - found["bilinear"])
    return Expected(found, float(off.mean()), float(off.max()))


def point_sampled(pixels: Array, size: int) -> Array:
    """Bilinear between the four nearest pixels, half-pixel centres, whatever the scale: cv2, tf.image."""
    for axis in (0, 1):
        length = pixels.shape[axis]
        place = np.clip((np.arange(size) + 0.5) * length / size - 0.5, 0, length - 1)
        low = np.floor(place).astype(int)
        part = (place - low).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        high = np.minimum(low + 1, length - 1)
        pixels = pixels.take(low, axis) * (1 - part) + pixels.take(high, axis) * part
    return pixels


def antialiased(pixels: Array, size: int) -> Array:
    """Bilinear over as many pixels as one of the result covers: Pillow, torchvision."""
    planes = np.ascontiguousarray(pixels.transpose(2, 0, 1))  # a product of strided arrays takes ten times as long
    found = triangle(pixels.shape[0], size) @ planes @ triangle(pixels.shape[1], size).T
    return found.transpose(1, 2, 0)


def triangle(length: int, size: int) -> Array:
    """(size, length) weights of a triangle filter whose half-width is the scale, at least one pixel."""
    scale = length / size
    width = max(scale, 1.0)
    centre = (np.arange(size) + 0.5)[:, None] * scale
    weights = np.maximum(0, 1 - np.abs(np.arange(length) + 0.5 - centre) / width)
    return weights / weights.sum(axis=1, keepdims=True)


RESAMPLERS = {"bilinear, antialiased": antialiased, "bilinear": point_sampled}


def levels_of(images: Array) -> Array:
    """Normalised (N, 3, S, S) back to (N, S, S, 3) of 0 to 255."""
    return (images.transpose(0, 2, 3, 1).astype(np.float64) * preprocess.STD + preprocess.MEAN) * 255


def shared_batches(files: ImageFiles, config: TrainConfig, steps: int) -> List[Tuple[Array, Array]]:
    """The first batches of the shared pipeline, epoch after epoch: images (N, 3, S, S) and labels (N,)."""
    with SharedPipeline.of(files, config) as pipeline:
        return first_batches(pipeline.epoch, steps)


def first_batches(epoch: Callable[[int], Iterable[Batch]], steps: int) -> List[Batch]:
    """The first batches of a pipeline, epoch after epoch."""
    return list(itertools.islice(itertools.chain.from_iterable(map(epoch, itertools.count(1))), steps))
