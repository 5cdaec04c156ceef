"""Rendered photographs of fire, smoke and neither, for where no real ones may be redistributed.

numpy and Pillow only. An image depends on (seed, class, number) alone: with the same Pillow, numpy and processor
family its file is the same byte for byte. As a program it draws the images of a JSON job read from stdin.
"""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageChops, ImageFilter

from framework_compare.datasets.scenery import Array, Random, blend, noise, pick, scene, soft

CLASSES = ("fire", "smoke", "no_fire")
VERSION = 1  # of the drawing: raise it with every change, so that sets made before are not mistaken for new ones
WORKING_PIXELS = 240_000  # drawn at this size, then enlarged: keeps an image near 0.1 s
ASPECTS = (4 / 3, 4 / 3, 3 / 2, 3 / 2, 16 / 9, 1.0, 3 / 4, 2 / 3, 9 / 16)
# temperature 0 to 1 and the colour of a flame there
RAMP_AT = (0.0, 0.18, 0.38, 0.60, 0.82, 1.0)
RAMP = (
    (0.16, 0.02, 0.0),
    (0.55, 0.09, 0.01),
    (0.93, 0.31, 0.03),
    (1.0, 0.62, 0.12),
    (1.0, 0.88, 0.45),
    (1.0, 0.99, 0.88),
)


def picture(seed: int, class_name: str, number: int) -> bytes:
    """One JPEG file, 0.3 to 3 megapixels, of a class of CLASSES."""
    state = np.random.RandomState([seed, CLASSES.index(class_name), number])
    width, height = _size(state)
    shrink = min(1.0, (WORKING_PIXELS / (width * height)) ** 0.5)
    canvas, ground = scene(state, round(height * shrink), round(width * shrink))
    if class_name == "fire":
        _burn(state, canvas, ground)
    elif class_name == "smoke":
        _smoulder(state, canvas, ground)
    return _encode(state, _photograph(state, canvas, width, height))


def _size(state: Random) -> tuple[int, int]:
    pixels = np.exp(state.uniform(np.log(0.3e6), np.log(3.0e6)))
    aspect = pick(state, ASPECTS)
    return round((pixels * aspect) ** 0.5), round((pixels / aspect) ** 0.5)


def _burn(state: Random, canvas: Array, ground: float) -> None:
    """One to three fires, often with smoke behind, light on what is round them."""
    height, width = canvas.shape[:2]
    canvas *= state.uniform(0.35, 1.0)
    for _ in range(pick(state, (1, 1, 2, 3))):
        x, y = state.uniform(0.15, 0.85) * width, state.uniform(ground, 1.0) * height
        tall = state.uniform(0.15, 0.75) * height
        wide = tall * pick(state, (0.4, 0.6, 0.8, 1.2, 3.0)) * state.uniform(0.8, 1.3)
        if state.random_sample() < 0.6:
            _plume(
                state, canvas, x, y - 0.3 * tall, 0.4 * wide, dark=state.uniform(0.3, 1), strength=state.uniform(0.5, 2)
            )
        _flame(state, canvas, x, y, tall, wide)


def _smoulder(state: Random, canvas: Array, ground: float) -> None:
    """One or two plumes, or smoke that fills the place."""
    height, width = canvas.shape[:2]
    if state.random_sample() < 0.25:
        _fill_with_smoke(state, canvas)
    for _ in range(pick(state, (1, 1, 1, 2))):
        x, y = state.uniform(0.1, 0.9) * width, min(0.98, ground + state.uniform(-0.08, 0.2)) * height
        wide = state.uniform(0.03, 0.25) * height
        _plume(state, canvas, x, y, wide, dark=state.beta(1, 2), strength=state.uniform(1, 4))


def _fill_with_smoke(state: Random, canvas: Array) -> None:
    height, width = canvas.shape[:2]
    body = noise(state, height, width, state.uniform(1.5, 4), 4)
    grey = state.uniform(0.45, 0.85) * (0.8 + 0.4 * noise(state, height, width, 3, 3))[..., None]
    blend(canvas, grey * np.array((1.0, 0.99, 0.96)), soft(body, -0.1, 0.8) * state.uniform(0.6, 0.95))


def _flame(state: Random, canvas: Array, x: float, y: float, tall: float, wide: float) -> None:
    """A fire whose foot is at (x, y), about `tall` pixels high and `wide` across."""
    height, width = canvas.shape[:2]
    u = ((np.arange(width, dtype=np.float32) - x) / (0.5 * wide))[None, :]
    v = ((y - np.arange(height, dtype=np.float32)) / tall)[:, None]
    cells = 3.5 * width / min(wide, 0.8 * tall)
    sway = noise(state, height, width, cells, 3, stretch=1.5) - 0.5
    curl = noise(state, height, width, 3 * cells, 3, stretch=1.8) - 0.5
    rise = np.clip(v, 0, 1.4)
    u = u + (1.5 * sway + 0.6 * curl) * rise**0.7 + state.uniform(-0.5, 0.5) * rise**2
    tops = _tongues(state, wide / tall)
    top = np.interp(u, np.linspace(-1.3, 1.3, tops.size), tops).astype(np.float32) + 0.35 * curl
    heat = 1.25 * (1 - v / np.maximum(top, 0.03))
    heat *= soft(v + 0.10 * curl + 0.04 * sway, -0.03, 0.05) * soft(np.abs(u), 1.2, 0.8)
    strands = 1 - 2 * np.abs(noise(state, height, width, 2.2 * cells, 4, stretch=2.6) - 0.5)
    heat = np.clip(heat * (0.45 + 0.75 * strands) - 0.12 * rise, 0, 1.0)
    _glow(canvas, heat)
    colour = np.stack([np.interp(heat, RAMP_AT, [c[k] for c in RAMP]) for k in range(3)], -1)
    blend(canvas, colour, soft(heat, 0.02, 0.30) * state.uniform(0.85, 1))


def _tongues(state: Random, flatness: float) -> Array:
    """Height of the flame across it, 0 at both ends: a few sharp peaks over a dome."""
    across = np.linspace(-1.3, 1.3, 300)
    tops = (0.45 if flatness < 1.4 else 0.2) * np.clip(1 - (across / 1.05) ** 2, 0, 1)
    many = max(1.0, flatness)
    for _ in range(int(state.randint(3, 9) * many)):
        peak = np.exp(-np.abs(across - state.uniform(-0.8, 0.8)) / (state.uniform(0.06, 0.25) / many))
        tops += state.uniform(0.15, 0.75) * peak * np.clip(1 - across**2, 0, 1)
    return tops / max(1.0, tops.max())


def _glow(canvas: Array, heat: Array) -> None:
    """Warm light about the hot parts, wide and soft."""
    height, width = heat.shape
    small = Image.fromarray((255 * heat).astype(np.uint8)).resize((width // 8 + 1, height // 8 + 1))
    wide = small.filter(ImageFilter.GaussianBlur(max(small.size) / 12)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    light = np.asarray(wide, np.float32)[..., None] / 255
    canvas *= 1 + 2.0 * light * np.array((1.0, 0.55, 0.25), np.float32)
    canvas += 0.55 * light * np.array((1.0, 0.42, 0.12), np.float32)


def _plume(state: Random, canvas: Array, x: float, y: float, wide: float, *, dark: float, strength: float) -> None:
    """Smoke from (x, y), `wide` pixels across there, widening and drifting as it rises; `dark` 0 white to 1 black."""
    height, width = canvas.shape[:2]
    t = np.clip((y - np.arange(height, dtype=np.float32)) / height, 0, 1)[:, None]
    drift, spread = state.uniform(-0.9, 0.9), state.uniform(0.15, 0.5)
    warp = noise(state, height, width, state.uniform(3, 6), 3) - 0.5
    axis = x + drift * height * t ** state.uniform(1.0, 2.0) + 0.5 * wide * warp + 0.6 * height * spread * t * warp
    half = 0.6 * wide + spread * height * t**0.8
    across = np.abs(np.arange(width, dtype=np.float32)[None, :] - axis) / half
    billow = _billows(state, height, width, state.uniform(4, 9), warp)
    body = np.clip(1.1 - across, 0, 1) * 1.3 + 0.9 * (billow - 0.6)
    density = soft(body, 0.0, state.uniform(0.5, 1.1)) * soft(t, 0.0, 0.04) * soft(across, 1.35, 0.6)
    density *= 1.0 - state.uniform(0.0, 0.8) * t
    grey = np.float32(0.92 - 0.75 * dark) * np.array((1.0, 0.99, 0.97), np.float32)
    ambient = 0.35 + 0.65 * min(1.0, 1.8 * float(canvas.mean()))
    alpha = 1 - np.exp(-1.6 * strength * density)
    blend(canvas, grey * ambient * _relief(body, across)[..., None], alpha)


def _billows(state: Random, height: int, width: int, cells: float, warp: Array) -> Array:
    """Rolling heads of all sizes, 0 to 1, drawn out along the flow `warp`."""
    rows = np.arange(height)[:, None] + (0.10 * height * warp).astype(int)
    columns = np.arange(width)[None, :] + (0.08 * width * np.roll(warp, height // 3, 0)).astype(int)
    total = np.zeros((height, width), np.float32)
    for weight in (0.46, 0.28, 0.16, 0.10):
        total += weight * (1 - (2 * noise(state, height, width, cells, 1) - 1) ** 2)
        cells *= 2.2
    return total[rows.clip(0, height - 1), columns.clip(0, width - 1)]


def _relief(body: Array, across: Array) -> Array:
    """Brightness of smoke lit from the upper left: soft, with darker creases."""
    step = max(2, body.shape[1] // 60)
    slope = body - np.roll(body, (step, step), (0, 1))
    return np.clip(0.84 + 0.24 * slope + 0.22 * body - 0.10 * np.minimum(across, 1), 0.4, 1.2)


def _photograph(state: Random, canvas: Array, width: int, height: int) -> Image.Image:
    """Exposure, white balance, vignette; enlarged to full size, with the grain of a sensor."""
    rows, columns = np.linspace(-1, 1, canvas.shape[0])[:, None], np.linspace(-1, 1, canvas.shape[1])
    vignette = 1 - state.uniform(0, 0.3) * (rows**2 + columns**2) / 2
    canvas = canvas * (state.uniform(0.85, 1.12) * vignette[..., None] * state.uniform(0.95, 1.05, 3)).astype(
        np.float32
    )
    canvas = np.clip(canvas, 0, None)
    canvas = np.where(canvas > 0.8, 0.8 + 0.2 * np.tanh((canvas - 0.8) / 0.2), canvas)  # highlights roll off
    image = Image.fromarray((255 * canvas + 0.5).astype(np.uint8))
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    return ImageChops.add(image, _grain(state, width, height), 1, -128)


def _grain(state: Random, width: int, height: int) -> Image.Image:
    tile = np.clip(128 + state.uniform(1, 6) * state.standard_normal((256, 256, 1)), 0, 255)
    tile = np.clip(tile + state.standard_normal((256, 256, 3)) * 1.2, 0, 255).astype(np.uint8)
    return Image.fromarray(np.tile(tile, (height // 256 + 1, width // 256 + 1, 1))[:height, :width])


def _encode(state: Random, image: Image.Image) -> bytes:
    rare = state.random_sample()
    if rare < 0.03:
        image = image.convert("L")
    file = io.BytesIO()
    subsampling = "4:4:4" if state.random_sample() < 0.15 else "4:2:0"
    quality = int(state.randint(75, 96))
    image.save(file, "JPEG", quality=quality, subsampling=subsampling, progressive=0.03 <= rare < 0.08)
    return file.getvalue()


def write(path: Path, data: bytes) -> None:
    """All of a file or nothing of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    os.replace(part, path)


def main() -> None:
    """Draw a job: {"seed": int, "pictures": [[class, number, path], ...]}."""
    job = json.load(sys.stdin)
    for class_name, number, path in job["pictures"]:
        write(Path(path), picture(job["seed"], class_name, number))


if __name__ == "__main__":
    main()
