"""Images of fire, smoke and neither, for where no real ones may be redistributed: 1/f noise, as photographs have it.

An image depends on (seed, class, number) alone: with the same Pillow, numpy and processor family its file is the same
byte for byte.
"""

import io
from typing import Sequence, TypeVar

import numpy as np
from PIL import Image

CLASSES = ("fire", "smoke", "no_fire")
VERSION = 2  # of the drawing: raise it with every change, so that sets made before are not mistaken for new ones
WORKING_PIXELS = 240_000  # drawn at this size, then enlarged: keeps an image near 0.1 s
ASPECTS = (4 / 3, 4 / 3, 3 / 2, 3 / 2, 16 / 9, 1.0, 3 / 4, 2 / 3, 9 / 16)
# Colours from the darkest to the brightest part. Some are those of fire and of smoke, so that colour alone tells no class.
PLACES = (
    ((0.08, 0.12, 0.05), (0.30, 0.36, 0.16), (0.75, 0.85, 0.95)),  # a wood
    ((0.16, 0.13, 0.10), (0.50, 0.44, 0.36), (0.85, 0.87, 0.88)),  # a town
    ((0.02, 0.02, 0.04), (0.10, 0.11, 0.17), (0.95, 0.80, 0.45)),  # a street at night
    ((0.20, 0.10, 0.12), (0.80, 0.40, 0.18), (1.00, 0.80, 0.45)),  # a sunset
    ((0.45, 0.47, 0.50), (0.68, 0.70, 0.71), (0.90, 0.90, 0.88)),  # fog
)
FLAME = ((0.55, 0.09, 0.01), (0.93, 0.31, 0.03), (1.0, 0.62, 0.12), (1.0, 0.88, 0.45), (1.0, 0.99, 0.88))
Array = np.ndarray
T = TypeVar("T")


def image(seed: int, class_name: str, number: int) -> bytes:
    """Return one JPEG file, 0.3 to 3 megapixels, of a class of CLASSES."""
    state = np.random.RandomState([seed, CLASSES.index(class_name), number])
    pixels, aspect = np.exp(state.uniform(np.log(0.3e6), np.log(3.0e6))), _pick(state, ASPECTS)
    width, height = round((pixels * aspect) ** 0.5), round((pixels / aspect) ** 0.5)
    shrink = min(1.0, (WORKING_PIXELS / (width * height)) ** 0.5)
    canvas = _place(state, (round(height * shrink), round(width * shrink)))
    if class_name == "fire":
        canvas *= state.uniform(0.35, 1.0)
        heat = _cloud(state, canvas.shape[:2], reach=state.uniform(0.15, 0.4))
        _blend(canvas, _coloured(heat, FLAME), np.clip(3 * heat, 0, 1))
    elif class_name == "smoke":
        density = _cloud(state, canvas.shape[:2], reach=state.uniform(0.3, 0.7))
        grey = state.uniform(0.25, 0.95) * (0.8 + 0.3 * density[..., None]) * np.array((1.0, 0.99, 0.97), np.float32)
        _blend(canvas, grey, np.clip(state.uniform(1.2, 2.5) * density, 0, 0.97))
    return _photograph(state, canvas, (width, height))


def _pick(state: np.random.RandomState, options: Sequence[T]) -> T:
    return options[state.randint(len(options))]


def _noise(state: np.random.RandomState, shape: tuple[int, int], power: float) -> Array:
    """Return noise whose amplitude falls with the frequency to this power, float32, 0 to 1."""
    frequency = np.hypot(np.fft.fftfreq(shape[0], 1 / shape[0])[:, None], np.fft.rfftfreq(shape[1], 1 / shape[1]))
    frequency[0, 0] = np.inf
    values = np.fft.irfft2(np.fft.rfft2(state.standard_normal(shape)) / frequency**power, shape)
    low, high = np.percentile(values, (1, 99))
    found: Array = np.clip((values - low) / (high - low), 0, 1).astype(np.float32)
    return found


def _coloured(values: Array, colours: Sequence[Sequence[float]]) -> Array:
    at = np.linspace(0, 1, len(colours))
    return np.stack([np.interp(values, at, channel) for channel in zip(*colours)], -1).astype(np.float32)


def _blend(canvas: Array, colour: Array, alpha: Array) -> None:
    canvas += (colour - canvas) * alpha[..., None]


def _place(state: np.random.RandomState, shape: tuple[int, int]) -> Array:
    """Return a background, float32 (height, width, 3), about 0 to 1: brighter above, as under a sky."""
    sky = state.uniform(0, 0.5) * np.linspace(1, -1, shape[0], dtype=np.float32)[:, None]
    light = np.clip(_noise(state, shape, state.uniform(1.0, 1.4)) + sky, 0, 1)
    canvas = _coloured(light, _pick(state, PLACES))
    _blend(canvas, _coloured(light, _pick(state, PLACES)), 0.5 * _noise(state, shape, 1.5))
    return canvas


def _cloud(state: np.random.RandomState, shape: tuple[int, int], reach: float) -> Array:
    """Return the density of a flame or of smoke, 0 to 1, in a part of the image, `reach` of it across."""
    across = (np.linspace(0, 1, shape[1]) - state.uniform(0.2, 0.8)) / reach
    up = (np.linspace(0, 1, shape[0]) - state.uniform(0.3, 0.8))[:, None] / (1.5 * reach)
    body = np.exp(-(across**2) - up**2) * (0.5 + _noise(state, shape, state.uniform(1.2, 1.6)))
    return np.clip(1.4 * body - 0.25, 0, 1).astype(np.float32)


def _photograph(state: np.random.RandomState, canvas: Array, size: tuple[int, int]) -> bytes:
    """Return the file: white balance, enlarged to full size, the grain of a sensor; a few are grey or progressive."""
    canvas = np.clip(canvas * state.uniform(0.9, 1.1, 3), 0, 1)
    large = Image.fromarray((255 * canvas + 0.5).astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)
    tile = (state.uniform(1, 6) * state.standard_normal((256, 256, 1))).astype(np.int16)
    grain = np.tile(tile, (size[1] // 256 + 1, size[0] // 256 + 1, 1))[: size[1], : size[0]]
    photograph = Image.fromarray(np.clip(np.asarray(large, np.int16) + grain, 0, 255).astype(np.uint8))
    rare, file = state.random_sample(), io.BytesIO()
    subsampling = "4:4:4" if state.random_sample() < 0.15 else "4:2:0"
    photograph = photograph.convert("L") if rare < 0.03 else photograph
    quality = int(state.randint(75, 96))
    photograph.save(file, "JPEG", quality=quality, subsampling=subsampling, progressive=0.03 <= rare < 0.08)
    return file.getvalue()
