"""The texture in blue of the ramps: what each resampler makes of it in the crop that red and green show.

A texture is f(x) + g(y), so that a resampler along x and y makes the sum of two lines of it; whatever it does to single
pixels shows. Two pixels at each edge are not looked at: some resamplers look beyond the crop, others do not.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Tuple

import numpy as np

from framework_compare.parity.network.ladder import LevelFailed
from framework_compare.protocol import ImageFiles

Array = np.ndarray
HEIGHT = 10  # levels up or down: with those of the other axis, 20
EDGE = 2  # pixels
PAD = 8  # pixels beyond a texture that the widest filter reaches
# A crop is where the ramps show it, or at the nearest whole pixels; fast transforms of JPEG decoders move that by two.
FAR = [(first, last) for first in range(-2, 3) for last in range(-2, 3)]
ROUNDING_MEAN, ROUNDING_MAX = 0.6, 2.0  # levels: of 8 bits after each axis, and of weights of 11 bits
# Of JPEG, levels: what is lost when a file is written at quality 98, and what a fast transform loses of it.
JPEG_MEAN, JPEG_MAX = 1.0, 6.0
OFF = 4  # pixels by which the side of a crop may be misread
LEAST_SHRUNK = 2  # times the size: decoders may shrink JPEG files of which more is shown, by a filter of their own


Sampler = Callable[[Array, Array, Array, int], Array]


class Fit(NamedTuple):
    """By one resampler: what is left of each image's blue, its mean, and its mean and largest distance from that."""

    code: Array
    mean: Array
    largest: Array


def line(length: int, seed: int) -> Array:
    """A texture along one axis: steps up and down at random that return at once, so that it has no slope."""
    signs = np.sign(np.random.default_rng(seed).random(length + 1) - 0.5)
    return HEIGHT * np.diff(signs) / 2


def of(width: int, height: int) -> Array:
    """The texture of an image, in levels, (height, width)."""
    return line(width, 1)[None, :] + line(height, 2)[:, None]


def fits(blue: Array, x: Tuple[Array, Array], y: Tuple[Array, Array], size: Tuple[int, int]) -> Dict[str, Fit]:
    """Return each resampler's fit to N images' blue (N, S, S), turned as the file, with edges at x and y in pixels."""
    inner = blue[:, EDGE:-EDGE, EDGE:-EDGE]
    found = {}
    for name, sample in SAMPLERS.items():
        across = _nearest(sample, line(size[0], 1), inner.mean(axis=1), x, blue.shape[2])
        down = _nearest(sample, line(size[1], 2), inner.mean(axis=2), y, blue.shape[1])
        left = inner - across[:, None, :] - down[:, :, None]
        code = left.mean(axis=(1, 2))
        off = np.abs(left - code[:, None, None])
        found[name] = Fit(code, off.mean(axis=(1, 2)), off.max(axis=(1, 2)))
    return found


def _nearest(sample: Sampler, texture: Array, seen: Array, edges: Tuple[Array, Array], size: int) -> Array:
    """Return what `sample` makes of the texture at the possible place of the crop that is most like `seen`."""
    seen = seen - seen.mean(axis=1, keepdims=True)
    best, least = np.zeros_like(seen), np.full(len(seen), np.inf)

    def improve(which: Array, places: List[Tuple[Array, Array]]) -> None:
        for first, last in places:
            made = sample(texture, first[which], last[which], size)[:, EDGE:-EDGE]
            off = np.abs(made - made.mean(axis=1, keepdims=True) - seen[which]).mean(axis=1)
            better = off < least[which]
            least[which[better]], best[which[better]] = off[better], made[better]

    whole = tuple(np.round(edge) for edge in edges)
    improve(np.arange(len(seen)), [edges, whole])  # type: ignore[list-item]
    doubtful = np.flatnonzero(least > ROUNDING_MEAN / 2)
    improve(doubtful, [(whole[0] + first, whole[1] + last) for first, last in FAR])
    return best


def point_sampled(texture: Array, first: Array, last: Array, size: int) -> Array:
    """Bilinear between the two nearest pixels of a crop, as `scenes.point_sampled`; (N, size) of N crops."""
    place = first[:, None] + (np.arange(size) + 0.5) * ((last - first) / size)[:, None] - 0.5
    return np.interp(place, np.arange(len(texture)), texture)


def antialiased(texture: Array, first: Array, last: Array, size: int) -> Array:
    """Resample by a triangle filter as wide as the scale, as `scenes.antialiased`; (N, size) of N crops.

    The triangle is a second difference of max(0, t - k - 1/2), and so is the sum of the pixels k under it.
    """
    scale = ((last - first) / size)[:, None]
    centre, width = first[:, None] + (np.arange(size) + 0.5) * scale, np.maximum(scale, 1.0)
    above, below = (_second_difference(np.pad(row, PAD), centre, width) for row in (texture, np.ones(len(texture))))
    return above / np.where(below > 0, below, 1)  # what lies beyond the image has no pixel under it


def _second_difference(values: Array, centre: Array, width: Array) -> Array:
    knots = np.arange(len(values) + 1) - PAD - 0.5
    sums = np.concatenate([[0.0], np.cumsum(np.cumsum(values))])
    first, middle, last = (np.interp(centre + side * width, knots, sums) for side in (-1, 0, 1))
    return first - 2 * middle + last


SAMPLERS = {"bilinear, antialiased": antialiased, "bilinear": point_sampled}


def nearest(found: Dict[str, Fit]) -> str:
    """The resampler that comes nearest to most images."""
    return min(found, key=lambda name: float(np.median(found[name].mean)))


def check(name: str, fit: Fit, listed: ImageFiles, labels: Array, sides: Array, size: int) -> Tuple[str, float, float]:
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
            f" {ratio.max():.1f} times what is explained (in {(ratio > 1).sum()} of {len(judged)} images)"
        )
    return name, float(fit.mean[worst]), float(ratio.max())
