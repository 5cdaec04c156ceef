"""Pictures that say which crop of which of them was taken: red rises with x, green with y, blue is a code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, NamedTuple, Tuple

import numpy as np
from PIL import Image

from framework_compare.datasets import preprocess
from framework_compare.parity import pictures
from framework_compare.parity.ladder import Wrong
from framework_compare.protocol import Pictures

Array = np.ndarray
SIZE = (240, 180)  # width, height
FILES = 31  # no divisor in common with a batch size: labels that are late by a batch have another code, too
BLUE_STEP = 8  # levels of 255 between two codes
# Levels: the smallest crop rises by 54 from edge to edge, and rounding and JPEG move a constant by 1.7 at most.
RISES, CONSTANT, BLUE_OFF = 25.0, 6.0, 3.0
CROPPED = "with crops and flips on"
COLOURS = {(True, False): "red", (False, True): "green", (False, False): "blue"}  # by what a channel rises with: x, y


class Ramps(NamedTuple):
    """How the three channels of N pictures change, in levels: `across` with x, `down` with y, both (N, 3, S)."""

    across: Array
    down: Array


def write(folder: Path, count: int) -> Pictures:
    """`count` entries of FILES files, every other one a PNG; the label of each entry is its own number."""
    folder.mkdir(parents=True)
    width, height = SIZE
    y, x = np.mgrid[0:height, 0:width] + 0.5
    rng = np.random.default_rng(0)
    files: List[Path] = []
    for number in range(FILES):
        ramps = np.stack([255 * x / width, 255 * y / height], axis=-1)
        ramps = np.floor(ramps + rng.random(ramps.shape))  # dithered: the mean of a column is no rounded level
        pixels = np.dstack([ramps, np.full(x.shape, blue_of(number))])
        files.append(folder / f"{number:02d}.{('jpeg', 'png')[number % 2]}")
        image = Image.fromarray(pixels.astype(np.uint8))
        image.save(files[-1], quality=98, subsampling=0, compress_level=1)
    entries = [files[i % FILES] for i in range(count)]
    return pictures.listed(folder, entries, [file.suffix[1:].upper() for file in entries])


def blue_of(entry: Any) -> Any:
    """The constant blue, in levels, of an entry's file; of an array of entries, an array."""
    return BLUE_STEP * (entry % FILES + 1)


def read(images: Array) -> Ramps:
    """Of pictures as a network gets them, normalised (N, 3, S, S)."""
    if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3]:
        raise Wrong(f"{CROPPED}, pictures come out as {images.shape[1:]}, expected three channels and a square")
    std, mean = (np.array(values)[:, None] for values in (preprocess.STD, preprocess.MEAN))
    found = [(images.mean(axis=axis, dtype=np.float64) * std + mean) * 255 for axis in (2, 3)]
    if not all(np.isfinite(ramp).all() for ramp in found):
        raise Wrong(f"{CROPPED}, pixels are not finite")
    return Ramps(*found)


def check_channels(ramps: Ramps) -> None:
    """Wrong unless the channels of every picture are red, green and blue, in this order."""
    rises = np.stack([np.ptp(ramp, axis=2) for ramp in ramps], axis=2)  # (N, 3, 2)
    for one in rises:
        if ((one > CONSTANT) & (one < RISES)).any():
            changes = one.max(axis=1).round(1).tolist()
            raise Wrong(f"{CROPPED}, a picture is no plain crop: its channels change by {changes} levels of 255")
        found = tuple(COLOURS.get((bool(x), bool(y)), "mixed") for x, y in one > CONSTANT)
        if found != tuple(COLOURS.values()):
            raise Wrong(f"{CROPPED}, the channels of a picture are {', '.join(found)}, expected red, green, blue")


def check_labels(ramps: Ramps, labels: Array, listed: Pictures) -> None:
    """Wrong unless every picture's blue is that of the picture whose label it comes with."""
    blues = ramps.across[:, 2].mean(axis=1)
    seen = np.clip(np.round(blues / BLUE_STEP).astype(int) - 1, 0, FILES - 1)
    off = np.abs(blues - blue_of(seen))
    if off.max() > BLUE_OFF:
        blue, expected = blues[off.argmax()], blue_of(labels[off.argmax()])
        raise Wrong(f"{CROPPED}, the blue of a picture is {blue:.1f} levels of 255, expected {expected}")
    others = np.flatnonzero(seen != labels % FILES)
    if len(others):
        names = [listed.paths[number].rpartition("/")[2] for number in (seen[others[0]], labels[others[0]])]
        so = f"{len(others)} of {len(labels)} so"
        raise Wrong(f"{CROPPED}, picture {names[0]} comes with the label of {names[1]} ({so})")


def crops_of(ramps: Ramps) -> Array:
    """(left, top, width, height, flipped) of each picture's crop, (N, 5), in pixels to a few hundredths."""
    x, y = (_ends(ramp, length) for ramp, length in ((ramps.across[:, 0], SIZE[0]), (ramps.down[:, 1], SIZE[1])))
    if (y[0] > y[1]).any():
        raise Wrong(f"{CROPPED}, {(y[0] > y[1]).mean():.2f} of the pictures are upside down; flips are horizontal")
    left, right = np.minimum(*x), np.maximum(*x)
    return np.stack([left, y[0], right - left, y[1] - y[0], x[0] > x[1]], axis=1)


def turned(ramps: Ramps) -> Tuple[Array, Array]:
    """Which of N pictures are mirrored left to right, and which are upside down."""
    x, y = (_ends(ramp, length) for ramp, length in ((ramps.across[:, 0], SIZE[0]), (ramps.down[:, 1], SIZE[1])))
    return x[0] > x[1], y[0] > y[1]


def _ends(ramp: Array, length: int) -> Tuple[Array, Array]:
    """Where the first and the last edge of each row's line lie, in pixels; the clamped ends are left out of the fit."""
    size = ramp.shape[1]
    inner = slice(size // 8, size - size // 8)
    slope, offset = np.polyfit(np.arange(size)[inner] + 0.5, ramp[:, inner].T, 1)
    return offset * length / 255, (offset + slope * size) * length / 255
