"""Generated stand-ins: the shapes of real data, the same for a seed, and a simple model beats the baseline."""

from __future__ import annotations

import collections
import functools
import itertools

import numpy as np
import pytest

from framework_compare import registry
from framework_compare.batches.quality import evaluate
from framework_compare.datasets.arrays import ArrayData, load

NAMES = sorted(name for name, source in registry.DATASETS.items() if source.arrays)


@functools.lru_cache(maxsize=None)
def generated(name: str) -> ArrayData:
    small = {"guava": {"image_size": 32}, "tiny-imagenet": {"image_size": 16}}
    return load(name, **small.get(name, {}))


def quality(data: ArrayData, outputs: np.ndarray) -> dict:
    held = data.validation
    return evaluate(data.task, outputs, held.target, extras=held.extras, facts=data.facts)


def baseline(data: ArrayData) -> dict:
    return quality(data, data.baseline.outputs)


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "loss", "train", "validation"),
    [
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
    ],
)
def test_a_stand_in_has_the_shapes_of_the_real_data(name, shape, outputs, loss, train, validation):
    data = generated(name)
    assert data.task.inputs[0].shape == shape and (data.task.outputs, data.task.loss) == (outputs, loss)
    if train is not None:
        assert (len(data.train), len(data.validation)) == (train, validation)


@pytest.mark.parametrize("name", NAMES)
def test_a_stand_in_says_that_it_is_generated(name):
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


def test_the_usual_label_of_each_word_beats_the_whole_tweet():
    data = generated("tweet-span")
    values, trivial = quality(data, by_token(data)[data.validation.inputs["tokens"]]), baseline(data)
    assert values["word_jaccard"] > 0.8 > 0.4 > trivial["word_jaccard"]


def test_the_usual_tag_of_each_word_beats_no_entity():
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
