"""Generated arrays and rendered images: the same for a seed, and a simple model beats the baseline."""

import collections
import functools
import io
import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from real_arrays import baseline, quality

from framework_compare import registry
from framework_compare.datasets import fire_smoke, render
from framework_compare.datasets.arrays import ArrayData, load
from framework_compare.datasets.resolve import resolve
from framework_compare.errors import DataError

NAMES = sorted(name for name, source in registry.DATASETS.items() if source.arrays)


@functools.lru_cache(maxsize=None)
def generated(name: str) -> ArrayData:
    small = {"guava": {"image_size": 32}, "tiny-imagenet": {"image_size": 16}}
    return load(name, **small.get(name, {}))


def test_a_stand_in_has_the_shapes_of_the_real_data_and_says_that_it_is_generated():
    for name, shape, outputs, loss, train, validation in (
        ("cifar10", (3, 32, 32), 10, "cross_entropy", 1600, 270),
        ("diabetes", (8,), 1, "binary_cross_entropy", 614, 154),
        ("google-prices", (30, 1), 1, "mse", 1688, 430),
        ("guava", (3, 32, 32), 8, "cross_entropy", 800, 128),
        ("ibm-prices", (60, 1), 1, "mse", 2709, 251),
        ("mnist", (1, 28, 28), 10, "cross_entropy", 4000, 1000),
        ("tiny-imagenet", (3, 16, 16), 200, "cross_entropy", 4800, 1200),
        ("text-bytes", (128,), 256, "token_cross_entropy", 2812, 312),
        ("tweet-ner", (57,), 7, "token_cross_entropy", 6338, 1001),
        ("tweet-span", (33,), 2, "token_cross_entropy", 7537, 838),
        ("tweet-words", (20,), 1000, "cross_entropy", None, None),
    ):
        data = generated(name)
        assert data.task.inputs[0].shape == shape and (data.task.outputs, data.task.loss) == (outputs, loss)
        if train is not None:
            assert (len(data.train), len(data.validation)) == (train, validation)
    for name in NAMES:
        facts = generated(name).describe()["facts"]
        assert facts["generated"] is True and facts["source"] == [] and facts["seed"] == 0


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"guava", "tiny-imagenet", "cifar10"}))
def test_a_seed_decides_every_byte(name):
    again, other = load(name, seed=0), load(name, seed=1)
    assert again.checksum() == generated(name).checksum()
    assert not np.array_equal(other.train.target, generated(name).train.target) or not np.array_equal(
        next(iter(other.train.inputs.values())), next(iter(generated(name).train.inputs.values()))
    )


def test_the_images_of_the_splits_differ():
    data = generated("cifar10")
    train = {image.tobytes() for image in data.train.inputs["image"]}
    assert len(train) == 1600 and not train & {image.tobytes() for image in data.validation.inputs["image"]}


@pytest.mark.parametrize("name", ["google-prices", "ibm-prices", "prices"])
def test_a_linear_model_of_prices_beats_the_last_day(name):
    data = generated(name)

    def design(split):
        windows = split.inputs["window"][:, :, 0].astype(np.float64)
        return np.hstack([windows, np.ones((len(windows), 1))])

    weights = np.linalg.lstsq(design(data.train), data.train.target, rcond=None)[0]
    assert quality(data, design(data.validation) @ weights)["rmse"] < 0.7 * baseline(data)["rmse"]


def test_a_linear_model_of_diabetes_beats_the_majority():
    data = generated("diabetes")
    features = {
        name: np.hstack([s.inputs["features"], np.ones((len(s), 1))])
        for name, s in (("t", data.train), ("v", data.validation))
    }
    weights = np.linalg.lstsq(features["t"], data.train.target - 0.5, rcond=None)[0]
    values, trivial = quality(data, features["v"] @ weights), baseline(data)
    assert values["accuracy"] > trivial["accuracy"] + 0.05 and values["auc"] > 0.8


@pytest.mark.parametrize("name", ["cifar10", "guava", "mnist", "tiny-imagenet"])
def test_the_nearest_mean_image_beats_the_majority(name):
    data = generated(name)
    images = data.train.inputs["image"].reshape(len(data.train), -1).astype(np.float32) - 128
    held = data.validation.inputs["image"].reshape(len(data.validation), -1).astype(np.float32) - 128
    means = np.stack([images[data.train.target == label].mean(axis=0) for label in range(data.task.outputs)])
    outputs = held @ means.T - 0.5 * (means**2).sum(axis=1)
    values, trivial = quality(data, outputs), baseline(data)
    assert values["accuracy"] > 5 * trivial["accuracy"]
    if name == "guava":
        assert values["healthy_accuracy"] > trivial["healthy_accuracy"]


def by_token(data: ArrayData) -> np.ndarray:
    """For each token of the vocabulary the share of each label, float (vocabulary, labels)."""
    counts = np.zeros((data.task.inputs[0].vocabulary, data.task.outputs))
    counted = data.train.target >= 0
    np.add.at(counts, (data.train.inputs["tokens"][counted], data.train.target[counted]), 1)
    counts[:, 0] += 0.5
    return counts / counts.sum(axis=1, keepdims=True)


def test_tags_and_spans_of_words_beat_the_baselines():
    data = generated("tweet-span")
    values, trivial = quality(data, by_token(data)[data.validation.inputs["tokens"]]), baseline(data)
    assert values["word_jaccard"] > 0.8 > 0.4 > trivial["word_jaccard"]
    data = generated("tweet-ner")
    values, trivial = quality(data, by_token(data)[data.validation.inputs["tokens"]]), baseline(data)
    assert values["span_f1"] > 0.3 > trivial["span_f1"] and values["token_accuracy"] > trivial["token_accuracy"]


def test_the_word_that_follows_a_word_beats_the_most_frequent_one():
    data = generated("tweet-words")
    follows = collections.defaultdict(collections.Counter)
    tokens = data.train.inputs["tokens"]
    # neighbours within the windows too: five times as many as the targets
    for row in tokens:
        for before, after in itertools.pairwise(row.tolist()):
            follows[before][after] += 1
    outputs = np.zeros((len(data.validation), 1000))
    for row, last in zip(outputs, data.validation.inputs["tokens"][:, -1].tolist()):
        for word, count in follows[last].items():
            row[word] = count
    assert quality(data, outputs)["accuracy"] > 2 * baseline(data)["accuracy"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def tiny(cache: Path, monkeypatch) -> Path:
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(cache))
    return fire_smoke.tiny()


def test_tiny_has_sixteen_photographs_a_class_drawn_once(tiny: Path, monkeypatch) -> None:
    index = resolve("fire-smoke-tiny")
    assert index.name == "fire-smoke-tiny"
    assert index.files.classes == ("fire", "smoke", "no_fire")
    assert Counter(index.files.labels) == {0: 16, 1: 16, 2: 16}
    assert set(index.files.formats) == {"JPEG"}
    sizes = [Image.open(path).size for path in tiny.glob("*/*.jpg")]
    pixels = [width * height for width, height in sizes]
    assert 0.29e6 < min(pixels) and max(pixels) < 3.01e6
    assert len({round(width / height, 1) for width, height in sizes}) >= 5
    lost = tiny / "fire" / "fire_00000.jpg"
    lost.unlink()
    fire_smoke.tiny()
    assert lost.exists()
    lost = tiny / "smoke" / "smoke_00003.jpg"
    before = lost.read_bytes()
    lost.unlink()
    (tiny / fire_smoke.MARKER).unlink()
    seen: list[tuple[int, int]] = []
    fire_smoke.tiny(lambda done, total: seen.append((done, total)))
    assert seen == [(48, 48)]
    assert lost.read_bytes() == before
    assert json.loads((tiny / fire_smoke.MARKER).read_text())["images"] == 48
    monkeypatch.setattr(render, "image", lambda *_: pytest.fail("drawn again"))
    assert fire_smoke.tiny() == tiny


@pytest.mark.parametrize("kind", render.CLASSES)
def test_an_image_is_the_same_in_another_process(kind: str) -> None:
    code = f"import sys; from framework_compare.datasets import render; sys.stdout.buffer.write(render.image(5, {kind!r}, 2))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == render.image(5, kind, 2)


def test_images_differ_by_seed_class_and_number_and_fire_is_bright() -> None:
    made = {render.image(*key) for key in [(1, "fire", 0), (2, "fire", 0), (1, "smoke", 0), (1, "fire", 1)]}
    assert len(made) == 4

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
