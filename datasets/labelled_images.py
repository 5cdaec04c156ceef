"""Small images with a label each as an ArrayData, and generated ones. Parent side; stored as uint8 (C, S, S)."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from framework_compare.batches import preprocess
from framework_compare.batches.arrays import Pixels
from framework_compare.datasets.arrays import ArrayData, Baseline, Split, majority_outputs
from framework_compare.graph import Field, Task
from framework_compare.protocol import Fields

Labelled = tuple[np.ndarray, np.ndarray]  # uint8 (N, C, S, S), int64 (N,)

UNIT = Pixels((1 / 255,), (0.0,))  # grey, 0 to 1
# Colour, as the images of folders: less the mean, over the deviation, of ImageNet.
COLOUR = Pixels(
    tuple(1 / (255 * s) for s in preprocess.STD), tuple(-m / s for m, s in zip(preprocess.MEAN, preprocess.STD))
)


def image_data(
    name: str,
    train: Labelled,
    validation: Labelled,
    classes: Sequence[str],
    facts: Fields,
    *,
    metrics: tuple[str, ...] = ("accuracy",),
) -> ArrayData:
    """Classification of images; float32 in batches: grey 0 to 1, colour normalised as the project's other images."""
    shape = train[0].shape[1:]
    labels = {"train": train[1], "validation": validation[1]}
    counts = {split: np.bincount(of_split, minlength=len(classes)).tolist() for split, of_split in labels.items()}
    return ArrayData(
        name,
        Task((Field("image", shape),), Field("label", (), "int64"), len(classes), "cross_entropy", metrics),
        Split({"image": train[0]}, train[1]),
        Split({"image": validation[0]}, validation[1]),
        {**facts, "classes": list(classes), "images_per_class": counts},
        Baseline("majority class", majority_outputs(train[1], len(validation[1]), len(classes))),
        {"image": UNIT if shape[0] == 1 else COLOUR},
    )


def generate(classes: int, per_class: int, shape: tuple[int, int, int], seed: int, split: str) -> Labelled:
    """Classes are soft patterns; an image is one of them moved, brighter or darker, with noise. Labels in turn."""
    channels, size, _ = shape
    patterns = _patterns(classes, shape, seed)
    state = np.random.RandomState([seed & 0xFFFFFFFF, 1 + ("train", "validation").index(split)])
    labels = np.arange(classes * per_class) % classes
    images = np.empty((len(labels), *shape), np.uint8)
    reach = max(1, size // 16)
    for image, label in zip(images, labels):
        moved = np.roll(patterns[label], tuple(state.randint(-reach, reach + 1, 2)), axis=(1, 2))
        noise = state.randint(-40, 41, moved.shape, np.int8)
        image[...] = np.clip(np.float32(128) + np.float32(state.uniform(0.6, 1.1)) * moved + noise, 0, 255)
    return images, labels.astype(np.int64)


def _patterns(classes: int, shape: tuple[int, int, int], seed: int) -> np.ndarray:
    """float32 (classes, C, S, S), -90 to 90: random values on a grid of 5, linear between."""
    channels, size, _ = shape
    grid = np.random.RandomState([seed & 0xFFFFFFFF, 0]).uniform(-90, 90, (classes, channels, 5, 5))
    at = np.linspace(0, 4, size)
    low = np.minimum(at.astype(int), 3)
    mix = np.zeros((size, 5))
    mix[np.arange(size), low] = 1 - (at - low)
    mix[np.arange(size), low + 1] = at - low
    found: np.ndarray = np.matmul(np.matmul(mix, grid), mix.T).astype(np.float32)
    return found
