"""Images that say which crop of which of them was taken: red rises with x, green with y, blue is code and texture."""

from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image

from framework_compare.batches import preprocess
from framework_compare.parity.network.ladder import LevelFailed
from framework_compare.parity.pipeline import scenes
from framework_compare.protocol import ImageFiles

Array = np.ndarray
SIZE = (240, 180)  # width, height
WIDE, TALL = (300, 80), (80, 300)  # so narrow that no try may fit, of ten
_Number = TypeVar("_Number", int, Array)
FILES = 31  # no divisor in common with a batch size: labels that are late by a batch have another code, too
BLUE_LEAST, BLUE_STEP = 24, 6  # levels of 255 of the first code, between two: there is texture above and below
# Levels: the smallest crop rises by 54 from edge to edge; where nothing rises, rounding and JPEG move it by 2, and the
# texture in blue gives a line through it a slope.
RISES, CONSTANT, SLOPED, BLUE_OFF = 30.0, 6.0, 20.0, 2.5
CROPPED = "with crops and flips on"
HEIGHT = 10  # levels up or down: with those of the other axis, 20
EDGE = 2  # pixels
# A crop is at the whole pixels next to where the ramps show it, as fast transforms of JPEG decoders move that by two; or
# right there, if none of these explains it.
FAR = [(first, last) for first in range(-2, 3) for last in range(-2, 3)]
ROUNDING_MEAN, ROUNDING_MAX = 0.6, 2.0  # levels: of 8 bits after each axis, and of weights of 11 bits
# Of JPEG, levels: what is lost when a file is written at quality 98, and what a fast transform loses of it.
JPEG_MEAN, JPEG_MAX = 1.0, 6.0
OFF = 4  # pixels by which the side of a crop may be misread
LEAST_SHRUNK = 2  # times the size: decoders may shrink JPEG files of which more is shown, by a filter of their own
COLOURS = {(True, False): "red", (False, True): "green", (False, False): "blue"}  # by what a channel rises with: x, y


class Fit(NamedTuple):
    """By one resampler: what is left of each image's blue, its mean, and its mean and largest distance from that."""

    code: Array
    mean: Array
    largest: Array


class Ramps(NamedTuple):
    """Changes of the three channels of N images, in levels: `across` with x, `down` with y, both (N, 3, S)."""

    across: Array
    down: Array


def texture_line(length: int, seed: int) -> Array:
    """A texture along one axis: steps up and down at random that return at once, so that it has no slope."""
    signs = np.sign(np.random.default_rng(seed).random(length + 1) - 0.5)
    return HEIGHT * np.diff(signs) / 2


def texture(width: int, height: int) -> Array:
    """The texture of an image, in levels, (height, width)."""
    return texture_line(width, 1)[None, :] + texture_line(height, 2)[:, None]


def write(folder: Path, count: int, size: tuple[int, int] = SIZE) -> ImageFiles:
    """`count` entries of FILES files, every other one a PNG; the label of each entry is its own number."""
    folder.mkdir(parents=True)
    width, height = size
    y, x = np.mgrid[0:height, 0:width] + 0.5
    rng = np.random.default_rng(0)
    files: list[Path] = []
    for number in range(FILES):
        ramps = np.stack([255 * x / width, 255 * y / height], axis=-1)
        ramps = np.floor(ramps + rng.random(ramps.shape))  # dithered: the mean of a column is no rounded level
        pixels = np.dstack([ramps, blue_of(number) + texture(width, height)])
        files.append(folder / f"{number:02d}.{('jpeg', 'png')[number % 2]}")
        image = Image.fromarray(pixels.astype(np.uint8))
        image.save(files[-1], quality=98, subsampling=0, compress_level=1)
    # names of their own: a loader may look labels up by them
    entries = [folder / f"{i:04d}-{files[i % FILES].name}" for i in range(count)]
    for i, entry in enumerate(entries):
        entry.symlink_to(files[i % FILES].name)
    return scenes.listed(folder, entries, [file.suffix[1:].upper() for file in entries])


def blue_of(entry: _Number) -> _Number:
    """The mean blue, in levels, of an entry's file; of an array of entries, an array."""
    return BLUE_LEAST + BLUE_STEP * (entry % FILES)


def read(images: Array) -> Ramps:
    """Return the ramps of images as a network gets them, normalised (N, 3, S, S)."""
    if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3]:
        raise LevelFailed(f"{CROPPED}, images have the shape {images.shape[1:]}, expected three channels and a square")
    std, mean = (np.array(values)[:, None] for values in (preprocess.STD, preprocess.MEAN))
    found = [(images.mean(axis=axis, dtype=np.float64) * std + mean) * 255 for axis in (2, 3)]
    if not all(np.isfinite(ramp).all() for ramp in found):
        raise LevelFailed(f"{CROPPED}, pixels are not finite")
    return Ramps(*found)


def check_channels(ramps: Ramps) -> None:
    """LevelFailed unless the channels of every image are red, green and blue, in this order."""
    lines = [_line(ramp.reshape(-1, ramp.shape[2])) for ramp in ramps]
    rises = np.stack([np.ptp(line, axis=1).reshape(-1, 3) for line in lines], axis=2)  # from edge to edge, (N, 3, 2)
    strange = ((rises > SLOPED) & (rises < RISES)).any(axis=(1, 2))
    if strange.any():
        changes = rises[strange.argmax()].max(axis=1).round(1).tolist()
        raise LevelFailed(f"{CROPPED}, an image is not a plain crop: its channels change by {changes} of 255 levels")
    for one in np.unique(rises > SLOPED, axis=0):
        found = tuple(COLOURS.get((bool(x), bool(y)), "mixed") for x, y in one)
        if found != tuple(COLOURS.values()):
            raise LevelFailed(f"{CROPPED}, the channels of an image are {', '.join(found)}, expected red, green, blue")
    check_plain(ramps)


def check_plain(ramps: Ramps) -> None:
    """LevelFailed unless red and green are straight lines to the edges, and level along the other axis."""
    for rising, level in ((ramps.across[:, 0], ramps.down[:, 0]), (ramps.down[:, 1], ramps.across[:, 1])):
        off = np.maximum(np.abs(rising - _line(rising)).max(axis=1), np.ptp(level, axis=1))
        if off.max() > CONSTANT:
            raise LevelFailed(
                f"{CROPPED}, an image is not a plain crop: colours are {off.max():.1f} of 255 levels off a line"
            )


def _line(ramp: Array) -> Array:
    """The straight line through the inner part of each row."""
    slope, offset = _fit(ramp)
    return offset[:, None] + slope[:, None] * (np.arange(ramp.shape[1]) + 0.5)


def check_labels(blues: Array, labels: Array, listed: ImageFiles) -> None:
    """LevelFailed unless every image's blue without its texture is that of the image whose label it comes with."""
    seen = np.clip(np.round((blues - BLUE_LEAST) / BLUE_STEP).astype(int), 0, FILES - 1)
    off = np.abs(blues - blue_of(seen))
    if off.max() > BLUE_OFF:
        blue, expected = blues[off.argmax()], blue_of(labels[off.argmax()])
        raise LevelFailed(f"{CROPPED}, the blue channel of an image is at level {blue:.1f} of 255, expected {expected}")
    others = np.flatnonzero(seen != labels % FILES)
    if len(others):
        names = [listed.paths[number].rpartition("/")[2] for number in (seen[others[0]], labels[others[0]])]
        so = f"{len(others)} of {len(labels)} so"
        raise LevelFailed(f"{CROPPED}, image {names[0]} comes with the label of {names[1]} ({so})")


def texture_of(images: Array, ramps: Ramps) -> dict[str, Fit]:
    """Return what each resampler leaves of the blue of N images (N, 3, S, S), read as `ramps`.

    A texture is f(x) + g(y), so that a resampler along x and y makes the sum of two lines of it; whatever it does to
    single pixels shows. EDGE pixels are not looked at: some resamplers look beyond the crop, others do not.
    """
    x, y = edges_of(ramps)
    blue = (images[:, 2] * preprocess.STD[2] + preprocess.MEAN[2]) * np.float32(255)
    blue = np.where((x[0] > x[1])[:, None, None], blue[:, :, ::-1], blue)
    blue = np.where((y[0] > y[1])[:, None, None], blue[:, ::-1], blue)
    x, y = ((np.minimum(*edges), np.maximum(*edges)) for edges in (x, y))
    inner = blue[:, EDGE:-EDGE, EDGE:-EDGE]
    found = {}
    for name, sample in scenes.RESAMPLERS.items():
        across = _most_alike(sample, texture_line(SIZE[0], 1), inner.mean(axis=1), x, blue.shape[2])
        down = _most_alike(sample, texture_line(SIZE[1], 2), inner.mean(axis=2), y, blue.shape[1])
        left = inner - across[:, None, :] - down[:, :, None]
        code = left.mean(axis=(1, 2))
        off = np.abs(left - code[:, None, None])
        found[name] = Fit(code, off.mean(axis=(1, 2)), off.max(axis=(1, 2)))
    return found


def _most_alike(sample: scenes.Sampler, line: Array, seen: Array, edges: tuple[Array, Array], size: int) -> Array:
    """Return what `sample` makes of a line of texture at the possible place of the crop that is most like `seen`."""
    seen = seen - seen.mean(axis=1, keepdims=True)
    best, least = np.zeros_like(seen), np.full(len(seen), np.inf)

    def improve(which: Array, places: list[tuple[Array, Array]]) -> None:
        for first, last in places:
            made = sample(line, first[which], last[which], size)[:, EDGE:-EDGE]
            off = np.abs(made - made.mean(axis=1, keepdims=True) - seen[which]).mean(axis=1)
            better = off < least[which]
            least[which[better]], best[which[better]] = off[better], made[better]

    first, last = map(np.round, edges)
    improve(np.arange(len(seen)), [(first + one, last + other) for one, other in FAR])
    improve(np.flatnonzero(least > ROUNDING_MEAN / 2), [edges])
    return best


def nearest_resampler(found: dict[str, Fit]) -> str:
    """The resampler that comes nearest to most images."""
    return min(found, key=lambda name: float(np.median(found[name].mean)))


def check_texture(
    name: str, fit: Fit, listed: ImageFiles, labels: Array, sides: Array, size: int
) -> tuple[str, float, float]:
    """LevelFailed unless a resampler explains the texture of every crop, of which `sides` are the smaller ones, in pixels."""
    jpeg = (np.array(listed.formats) == "JPEG")[labels]
    judged = np.flatnonzero(~jpeg | (sides < LEAST_SHRUNK * size - OFF))
    ratio = np.maximum(fit.mean / (ROUNDING_MEAN + JPEG_MEAN * jpeg), fit.largest / (ROUNDING_MAX + JPEG_MAX * jpeg))[
        judged
    ]
    worst = judged[ratio.argmax()]
    if ratio.max() > 1:
        path = listed.paths[labels[worst]].rpartition("/")[2]
        raise LevelFailed(
            f"with random crops, pixels of {path} are {fit.mean[worst]:.2f} of 255 levels off {name} on average,"
            f" {ratio.max():.1f} times what decoders and resamplers explain"
            f" (in {(ratio > 1).sum()} of {len(judged)} images)"
        )
    return name, float(fit.mean[worst]), float(ratio.max())


def edges_of(ramps: Ramps, size: tuple[int, int] = SIZE) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return where the first and the last edge of each image lie in its file, in x and in y."""
    ends = []
    for ramp, length in zip((ramps.across[:, 0], ramps.down[:, 1]), size):
        slope, offset = _fit(ramp)
        ends.append((offset * length / 255, (offset + slope * ramp.shape[1]) * length / 255))
    return ends[0], ends[1]


def crops_of(ramps: Ramps, size: tuple[int, int] = SIZE) -> Array:
    """(left, top, width, height, flipped) of each image's crop, (N, 5), in pixels to a few hundredths."""
    x, y = edges_of(ramps, size)
    if (y[0] > y[1]).any():
        raise LevelFailed(f"{CROPPED}, {(y[0] > y[1]).mean():.2f} of the images are upside down; flips are horizontal")
    left, right = np.minimum(*x), np.maximum(*x)
    return np.stack([left, y[0], right - left, y[1] - y[0], x[0] > x[1]], axis=1)


def turned(ramps: Ramps) -> tuple[Array, Array]:
    """Return which of N images are mirrored left to right, and which are upside down."""
    x, y = edges_of(ramps)
    return x[0] > x[1], y[0] > y[1]


def _fit(ramp: Array) -> tuple[Array, Array]:
    """Slope and offset of the line through each row; the clamped ends are left out of the fit."""
    size = ramp.shape[1]
    inner = slice(size // 8, size - size // 8)
    slope, offset = np.polyfit(np.arange(size)[inner] + 0.5, ramp[:, inner].T, 1)
    return slope, offset
