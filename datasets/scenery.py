"""Places for the rendered images: skies, hills, woods, streets, rooms; with warm light, fog and lamps in them.

Many have the colours of fire or the softness of smoke, so that neither alone tells a class. A canvas is float32
(height, width, 3), RGB, 0 to 1. All randomness comes from the RandomState given.
"""

from __future__ import annotations

from typing import Iterable, Sequence, TypeVar

import numpy as np
from PIL import Image, ImageDraw

# top of the sky, horizon, light on the ground
SKIES = {
    "clear": ((0.25, 0.47, 0.80), (0.72, 0.83, 0.93), (1.0, 0.98, 0.92)),
    "overcast": ((0.62, 0.65, 0.69), (0.80, 0.81, 0.82), (0.78, 0.80, 0.84)),
    "haze": ((0.66, 0.70, 0.74), (0.88, 0.86, 0.81), (0.92, 0.89, 0.82)),
    "sunset": ((0.28, 0.27, 0.48), (0.98, 0.55, 0.20), (0.95, 0.62, 0.42)),
    "ember": ((0.45, 0.16, 0.16), (1.0, 0.72, 0.30), (0.85, 0.48, 0.32)),
    "night": ((0.02, 0.03, 0.08), (0.10, 0.11, 0.17), (0.20, 0.22, 0.32)),
}
GREENS = ((0.16, 0.27, 0.11), (0.25, 0.33, 0.14), (0.36, 0.38, 0.18), (0.45, 0.40, 0.24))
AUTUMN = ((0.62, 0.30, 0.08), (0.70, 0.45, 0.10), (0.50, 0.16, 0.08))
WALLS = ((0.62, 0.56, 0.50), (0.55, 0.35, 0.28), (0.72, 0.70, 0.66), (0.40, 0.42, 0.46), (0.80, 0.74, 0.62))
THINGS = (*WALLS, (0.36, 0.24, 0.15), (0.22, 0.16, 0.12), (0.18, 0.22, 0.30), (0.55, 0.16, 0.12), (0.85, 0.55, 0.20))
Random = np.random.RandomState
Array = np.ndarray
Colour = Sequence[float]
T = TypeVar("T")


def noise(state: Random, height: int, width: int, cells: float, octaves: int = 4, *, stretch: float = 1.0) -> Array:
    """Fractal noise, float32 (height, width), about 0 to 1; `cells` across, cells `stretch` times as tall as wide."""
    total = np.zeros((height, width), np.float32)
    weight, sum_of_weights = 1.0, 0.0
    for _ in range(octaves):
        shape = (int(cells * height / width / stretch) + 3, int(cells) + 3)
        grid = Image.fromarray(state.random_sample(shape).astype(np.float32))
        box = (1, 1, shape[1] - 1, shape[0] - 1)
        total += weight * np.asarray(grid.resize((width, height), Image.Resampling.BICUBIC, box=box))
        sum_of_weights += weight
        weight, cells = weight * 0.55, cells * 2
    return np.clip((total / sum_of_weights - 0.5) * 1.6 + 0.5, 0, 1)


def blend(canvas: Array, colour: Colour | Array, alpha: Array) -> None:
    """Lay a colour, (3,) or (h, w, 3), over the canvas with opacity (h, w), in place."""
    canvas += (np.asarray(colour, np.float32) - canvas) * alpha[..., None]


def soft(x: Array, low: float, high: float) -> Array:
    """Smooth step from 0 at `low` to 1 at `high`."""
    t = np.clip((x - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def pick(state: Random, options: Sequence[T]) -> T:
    return options[state.randint(len(options))]


def scene(state: Random, height: int, width: int) -> tuple[Array, float]:
    """A random place and the height of its ground line, 0 at the top to 1 at the bottom."""
    if state.random_sample() < 0.15:
        return _room(state, height, width)
    kind = pick(state, ("clear", "clear", "overcast", "haze", "sunset", "ember", "night"))
    horizon = state.uniform(0.45, 0.78)
    canvas = _sky(state, height, width, kind, horizon)
    light = np.array(SKIES[kind][2], np.float32)
    greens = AUTUMN if state.random_sample() < 0.2 else GREENS
    _hills(state, canvas, horizon, light, SKIES[kind][1], greens)
    _ground(state, canvas, horizon, light)
    draw = pick(state, (_town, _wood, _wood, _bushes, _nothing))
    draw(state, canvas, horizon, light, greens)
    if kind == "night" or state.random_sample() < 0.1:
        _lamps(state, canvas, horizon)
    if state.random_sample() < 0.2:
        _fog(state, canvas, horizon, SKIES[kind][1])
    return canvas, horizon


def _rows(height: int) -> Array:
    return np.linspace(0, 1, height, dtype=np.float32)[:, None]


def _sky(state: Random, height: int, width: int, kind: str, horizon: float) -> Array:
    top, low, _ = (np.array(c, np.float32) * state.uniform(0.9, 1.08) for c in SKIES[kind])
    t = np.clip(_rows(height) / horizon, 0, 1)[..., None] ** state.uniform(0.8, 1.8)
    canvas = np.broadcast_to(top + (low - top) * t, (height, width, 3)).copy()
    clouds = noise(state, height, width, state.uniform(2, 5), 5, stretch=state.uniform(0.25, 0.7))
    cover = soft(clouds, state.uniform(0.35, 0.7), 0.95) * state.uniform(0.3, 0.95)
    shade = (0.75 + 0.35 * noise(state, height, width, 6, 3, stretch=0.5))[..., None]
    bright = 0.25 if kind == "night" else 0.95
    blend(canvas, shade * (0.55 * low + 0.45 * bright), cover)
    if kind in ("sunset", "ember") or state.random_sample() < 0.15:
        _sun(state, canvas, horizon)
    return canvas


def _sun(state: Random, canvas: Array, horizon: float) -> None:
    height, width = canvas.shape[:2]
    x, y = state.uniform(0.1, 0.9) * width, state.uniform(0.55, 1.0) * horizon * height
    distance = np.hypot(np.arange(width) - x, (np.arange(height) - y)[:, None]).astype(np.float32) / height
    size = state.uniform(0.02, 0.06)
    blend(canvas, (1.0, 0.75, 0.35), 0.8 * np.exp(-distance / 0.16))
    blend(canvas, (1.0, 0.95, 0.75), soft(-distance, -1.3 * size, -0.8 * size))


def _ridge(state: Random, width: int, cells: float, octaves: int) -> Array:
    return noise(state, 4, width, cells, octaves, stretch=0.01)[0] - 0.5


def _hills(state: Random, canvas: Array, horizon: float, light: Array, haze: Colour, greens: Sequence[Colour]) -> None:
    height, width = canvas.shape[:2]
    layers = state.randint(1, 5)
    for layer in range(layers):
        near = (layer + 1) / layers
        line = horizon - (1 - near) * 0.12 - 0.02 + state.uniform(0.05, 0.22) * _ridge(state, width, 3 + 3 * near, 6)
        colour = np.array(pick(state, greens)) * light * 0.9
        colour = colour + (np.array(haze) - colour) * 0.75 * (1 - near)
        texture = 0.75 + 0.5 * noise(state, height, width, 40, 3)
        blend(canvas, colour * texture[..., None], soft(_rows(height), 0, 0.006) * soft(_rows(height) - line, 0, 0.006))


def _ground(state: Random, canvas: Array, horizon: float, light: Array) -> None:
    height, width = canvas.shape[:2]
    colour = pick(state, (*GREENS, (0.50, 0.44, 0.33), (0.42, 0.41, 0.40), (0.62, 0.55, 0.40)))
    fine = noise(state, height, width, 90, 3, stretch=0.35)
    broad = noise(state, height, width, 5, 3, stretch=0.3)
    depth = np.clip((_rows(height) - horizon) / (1 - horizon), 0, 1)
    texture = 0.55 + 0.35 * broad + (0.15 + 0.45 * depth) * (fine - 0.4)
    line = horizon + 0.02 * _ridge(state, width, 8, 4)
    blend(canvas, np.array(colour) * light * texture[..., None] * 1.15, soft(_rows(height) - line, 0, 0.008))


def _town(state: Random, canvas: Array, horizon: float, light: Array, greens: Sequence[Colour]) -> None:
    height, width = canvas.shape[:2]
    image = Image.new("RGBA", (2 * width, 2 * height))
    draw = ImageDraw.Draw(image)
    night = light.max() < 0.5
    left = -state.uniform(0, 0.1) * width
    while left < width:
        wide, tall = state.uniform(0.1, 0.3) * width, state.uniform(0.1, 0.5) * height
        base = (horizon + state.uniform(0.01, 0.08)) * height
        if state.random_sample() < 0.8:
            _house(state, draw, [2 * v for v in (left, base - tall, left + wide, base)], light, night)
        left += wide * state.uniform(0.9, 1.6)
    small = np.asarray(image.resize((width, height), Image.Resampling.BOX), np.float32) / 255
    grain = 0.85 + 0.3 * noise(state, height, width, 60, 3)
    blend(canvas, small[..., :3] * grain[..., None], small[..., 3])


def _house(state: Random, draw: ImageDraw.ImageDraw, box: Sequence[float], light: Array, night: bool) -> None:
    left, top, right, bottom = box
    wall = np.array(pick(state, WALLS)) * light * state.uniform(0.7, 1.05)
    draw.rectangle(box, fill=_rgb(wall))
    if state.random_sample() < 0.6 and bottom - top < 1.2 * (right - left):
        roof = np.array(pick(state, ((0.45, 0.2, 0.15), (0.3, 0.3, 0.32), (0.5, 0.3, 0.2)))) * light
        peak = top - 0.35 * (right - left)
        draw.polygon([(left - 8, top), ((left + right) / 2, peak), (right + 8, top)], fill=_rgb(roof))
    columns, floors = state.randint(2, 6), max(1, int((bottom - top) / 60))
    for x in np.linspace(left, right, columns + 1)[:-1] + 0.25 * (right - left) / columns:
        for y in np.linspace(top, bottom, floors + 1)[:-1] + 0.25 * (bottom - top) / floors:
            lit = state.random_sample() < (0.45 if night else 0.06)
            glass = (1.0, 0.8, 0.45) if lit else np.array((0.25, 0.3, 0.36)) * light
            draw.rectangle(
                (x, y, x + 0.5 * (right - left) / columns, y + 0.5 * (bottom - top) / floors), fill=_rgb(glass)
            )


def _rgb(colour: Iterable[float]) -> tuple[int, int, int, int]:
    red, green, blue = (int(255 * min(1, max(0, c))) for c in colour)
    return red, green, blue, 255


def _wood(state: Random, canvas: Array, horizon: float, light: Array, greens: Sequence[Colour]) -> None:
    """Two or three rows of trees, the nearer the taller and the darker."""
    height, width = canvas.shape[:2]
    for near in np.linspace(0.3, 1, state.randint(2, 4)):
        tall, foot = (0.10 + 0.30 * near * state.uniform(0.5, 1)), horizon + 0.12 * near
        comb = np.abs(_ridge(state, width, state.uniform(8, 20) / near, 2))
        line = foot - tall * (0.55 + 1.6 * comb) - 0.05 * _ridge(state, width, 60, 3)
        leaves = noise(state, height, width, 30 / near, 4)
        colour = np.array(pick(state, greens)) * light * (1.25 - 0.5 * near)
        gap = soft(noise(state, height, width, 12, 3), 0.2, 0.45)
        mask = soft(_rows(height) - line + 0.09 * (leaves - 0.5), 0, 0.015) * soft(-_rows(height), -foot - 0.01, -foot)
        blend(canvas, colour * (0.35 + 1.1 * leaves[..., None]), mask * np.maximum(gap, 0.3 if near < 1 else 0.0))


def _bushes(state: Random, canvas: Array, horizon: float, light: Array, greens: Sequence[Colour]) -> None:
    height, width = canvas.shape[:2]
    for _ in range(state.randint(2, 9)):
        x, y = state.uniform(0, 1) * width, (horizon + state.uniform(0.0, 0.3)) * height
        size = state.uniform(0.04, 0.16) * height * (0.5 + y / height)
        distance = np.hypot((np.arange(width) - x) * 0.8, (np.arange(height) - y + size)[:, None]).astype(np.float32)
        leaves = noise(state, height, width, 35, 3)
        mask = soft(1 - distance / size + 0.9 * (leaves - 0.5), 0, 0.12)
        lit = 0.4 + 1.0 * leaves - 0.35 * np.clip((np.arange(height) - y + size)[:, None] / size, -1, 1)
        blend(canvas, np.array(pick(state, greens)) * light * np.maximum(lit, 0.1)[..., None], mask)


def _nothing(state: Random, canvas: Array, horizon: float, light: Array, greens: Sequence[Colour]) -> None:
    """Open country."""


def _lamps(state: Random, canvas: Array, horizon: float) -> None:
    height, width = canvas.shape[:2]
    for _ in range(state.randint(1, 9)):
        x, y = state.uniform(0, width), state.uniform(horizon - 0.25, horizon + 0.1) * height
        distance = np.hypot(np.arange(width) - x, (np.arange(height) - y)[:, None]).astype(np.float32) / height
        size = state.uniform(0.004, 0.014)
        colour = pick(state, ((1.0, 0.7, 0.3), (1.0, 0.9, 0.7), (1.0, 0.25, 0.1), (0.8, 0.9, 1.0)))
        canvas += np.array(colour, np.float32) * (0.35 * np.exp(-distance / (4 * size)))[..., None]
        blend(canvas, (1, 0.97, 0.9), np.exp(-((distance / size) ** 2)))


def _fog(state: Random, canvas: Array, horizon: float, haze: Colour) -> None:
    height, width = canvas.shape[:2]
    band = np.exp(-(((_rows(height) - horizon) / state.uniform(0.08, 0.25)) ** 2))
    blend(canvas, haze, band * state.uniform(0.3, 0.85) * (0.6 + 0.4 * noise(state, height, width, 3, 3, stretch=0.2)))


def _room(state: Random, height: int, width: int) -> tuple[Array, float]:
    floor = state.uniform(0.6, 0.8)
    wall = np.array(pick(state, WALLS), np.float32)
    canvas = np.broadcast_to(wall, (height, width, 3)).copy()
    image = Image.new("RGBA", (2 * width, 2 * height))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 2 * floor * height, 2 * width, 2 * height), fill=_rgb(wall * (0.45, 0.35, 0.28)))
    for _ in range(state.randint(2, 7)):
        x, wide, tall = state.uniform(0, 2 * width), state.uniform(0.1, 0.6) * width, state.uniform(0.1, 0.8) * height
        base = 2 * height * state.uniform(floor, floor + 0.1) - state.choice([0.0, 0.6 * height])
        draw.rectangle(
            (x, base - tall, x + wide, base), fill=_rgb(np.array(pick(state, THINGS)) * state.uniform(0.5, 1.1))
        )
    small = np.asarray(image.resize((width, height), Image.Resampling.BOX), np.float32) / 255
    blend(canvas, small[..., :3], small[..., 3])
    lamp = np.hypot(np.arange(width) / width - state.uniform(0, 1), _rows(height) - state.uniform(0, 0.5))
    canvas *= (0.35 + 0.9 * np.exp(-((lamp / 0.5) ** 2)))[..., None].astype(np.float32) * (1.0, 0.93, 0.8)
    canvas *= (0.9 + 0.2 * noise(state, height, width, 50, 3))[..., None]
    return canvas.astype(np.float32), floor
