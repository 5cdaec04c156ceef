"""datasets/fire_smoke.py and render.py: the rendered sets."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from framework_compare.datasets import fire_smoke, render
from framework_compare.datasets.resolve import resolve
from framework_compare.errors import DataError


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def tiny(cache: Path, monkeypatch) -> Path:
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(cache))
    return fire_smoke.tiny()


def test_tiny_has_sixteen_images_a_class(tiny: Path) -> None:
    index = resolve("fire-smoke-tiny")
    assert index.name == "fire-smoke-tiny"
    assert index.files.classes == ("fire", "smoke", "no_fire")
    assert Counter(index.files.labels) == {0: 16, 1: 16, 2: 16}
    assert set(index.files.formats) == {"JPEG"}


def test_images_have_the_sizes_of_photographs(tiny: Path) -> None:
    sizes = [Image.open(path).size for path in tiny.glob("*/*.jpg")]
    pixels = [width * height for width, height in sizes]
    assert 0.29e6 < min(pixels) and max(pixels) < 3.01e6
    assert len({round(width / height, 1) for width, height in sizes}) >= 5


def test_a_finished_set_is_not_drawn_again(tiny: Path, monkeypatch) -> None:
    monkeypatch.setattr(render, "image", lambda *_: pytest.fail("drawn again"))
    assert fire_smoke.tiny() == tiny


def test_an_interrupted_set_is_completed(tiny: Path) -> None:
    lost = tiny / "smoke" / "smoke_00003.jpg"
    before = lost.read_bytes()
    lost.unlink()
    (tiny / fire_smoke.MARKER).unlink()
    seen: list[tuple[int, int]] = []
    fire_smoke.tiny(lambda done, total: seen.append((done, total)))
    assert seen == [(48, 48)]
    assert lost.read_bytes() == before
    assert json.loads((tiny / fire_smoke.MARKER).read_text())["images"] == 48


def test_a_set_that_lost_an_image_is_repaired(tiny: Path) -> None:
    lost = tiny / "fire" / "fire_00000.jpg"
    lost.unlink()
    fire_smoke.tiny()
    assert lost.exists()


@pytest.mark.parametrize("kind", render.CLASSES)
def test_an_image_is_the_same_in_another_process(kind: str) -> None:
    code = f"import sys; from framework_compare.datasets import render; sys.stdout.buffer.write(render.image(5, {kind!r}, 2))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == render.image(5, kind, 2)


def test_images_differ_by_seed_class_and_number() -> None:
    made = {render.image(*key) for key in [(1, "fire", 0), (2, "fire", 0), (1, "smoke", 0), (1, "fire", 1)]}
    assert len(made) == 4


def test_fire_is_brighter_and_warmer_than_the_place_without_it() -> None:
    def warmth(kind: str, number: int) -> float:
        pixels = np.asarray(Image.open(io.BytesIO(render.image(3, kind, number))).convert("RGB").resize((64, 64)))
        return float(((pixels[..., 0] > 220) & (pixels[..., 2] < 0.75 * pixels[..., 0])).mean())

    fires, others = (sum(warmth(kind, n) for n in range(4)) for kind in ("fire", "no_fire"))
    assert fires > others


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="'fire-smoke-tiny' cannot be made in"):
        fire_smoke.tiny()
