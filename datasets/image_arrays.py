"""Small colour images as arrays: CIFAR-10, Tiny ImageNet, guava diseases, folders of their form, and generated ones.

Parent side; stored as uint8 (C, S, S). CIFAR's pickles are read without running anything that is in them.
"""

from __future__ import annotations

import codecs
import concurrent.futures
import io
import os
import pickle
from pathlib import Path
from typing import Sequence

import numpy as np

from framework_compare.batches import preprocess
from framework_compare.batches.arrays import Pixels
from framework_compare.datasets.arrays import ArrayData, Baseline, Split, majority_outputs
from framework_compare.datasets.image_check import is_folder, scan, sniff, subfolders
from framework_compare.datasets.source_files import PARTS, read_bytes, read_lines, source, stand_in
from framework_compare.errors import DataError, UsageError, check_count
from framework_compare.graph import Field, Task
from framework_compare.protocol import Fields

SPLITS = {"train": PARTS["train"], "validation": (*PARTS["validation"], *PARTS["test"])}
ANNOTATIONS = "val_annotations.txt"
GUAVA = ("canker", "dot", "healthy", "mummification", "phytopthora", "rust", "scab", "styler_root")
SIZE = 32
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TEST = "test_batch"
_RECONSTRUCT: object = np.zeros(1).__reduce__()[0]  # what an array is pickled by; private, and moved in numpy 2
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}
UNIT = Pixels((1 / 255,), (0.0,))  # grey, 0 to 1
# Colour, as the images of folders: less the mean, over the deviation, of ImageNet.
COLOUR = Pixels(
    tuple(1 / (255 * s) for s in preprocess.STD), tuple(-m / s for m, s in zip(preprocess.MEAN, preprocess.STD))
)


def cifar10(path: Path | None = None, *, image_size: int = 32, seed: int = 0) -> ArrayData:
    """Ten classes of 32 px. path: the folder of CIFAR-10's python batches, or folders <split>/<class>/."""
    if path is None:
        return _generated("cifar10", 10, (160, 27), image_size, seed)
    if (path / TEST).is_file() or any(path.glob("data_batch_*")):
        if image_size != SIZE:
            raise UsageError(f"image_size is {image_size!r}; the python batches of CIFAR-10 have {SIZE}")
        train, validation, classes, facts = read_batches(path)
        return image_data("cifar10", train, validation, classes, facts)
    return from_folders("cifar10", path, image_size)


def tiny_imagenet(path: Path | None = None, *, image_size: int = 64, seed: int = 0) -> ArrayData:
    """200 classes of 64 px. path: Tiny ImageNet's folder as it is downloaded, or folders <split>/<class>/."""
    if path is None:
        return _generated("tiny-imagenet", 200, (24, 6), image_size, seed)
    return from_folders("tiny-imagenet", path, image_size)


def guava(path: Path | None = None, *, image_size: int = 128, seed: int = 0) -> ArrayData:
    """Eight diseases of guava in folders train/<class>/ and valid/<class>/; also whether healthy or not."""
    if path is None:
        return _generated("guava", len(GUAVA), (100, 16), image_size, seed, classes=GUAVA)
    return from_folders("guava", path, image_size)


def from_folders(name: str, path: Path, image_size: int) -> ArrayData:
    """Images of `path`/<split>/<class>/, or of Tiny ImageNet's own form, stretched to image_size.

    The splits are train (training) and val (valid, validation; test where there is none of these). Tiny ImageNet has
    train/<class>/images/ and val/images/ with val_annotations.txt. Every file must decode; DataError names one that
    does not, a class that one split lacks, a missing split.
    """
    check_count("image_size", image_size)
    if not path.is_dir():
        raise DataError(f"{str(path)!r} is a file; a folder with train/<class>/ and val/<class>/ is needed")
    folders: dict[str, Path] = {}
    for split, names in SPLITS.items():
        found = next((path / name for name in names if (path / name).is_dir()), None)
        if found is None:
            raise DataError(
                f"folder {str(path)!r} has no folder of the {split} split; it must be called {' or '.join(names)}"
            )
        folders[split] = found
    classes = [folder.name for folder in subfolders(folders["train"])]
    if len(classes) < 2:
        raise DataError(f"folder {str(folders['train'])!r} has {len(classes)} class folders; at least two are needed")
    rows = {"train": _rows_by_class(folders["train"], classes)}
    annotations = folders["validation"] / ANNOTATIONS
    rows["validation"] = (
        _rows_by_annotation(annotations, classes)
        if annotations.is_file()
        else _rows_by_class(folders["validation"], classes)
    )
    train, validation = (_read_all(rows[split], image_size) for split in SPLITS)
    facts: Fields = {"generated": False, "source": [{"folder": path.name}]}
    return image_data(name, train, validation, classes, facts)


def _generated(
    name: str, count: int, per_class: tuple[int, int], image_size: int, seed: int, classes: Sequence[str] | None = None
) -> ArrayData:
    check_count("image_size", image_size)
    shape = (3, image_size, image_size)
    train, validation = (generate(count, n, shape, seed, split) for n, split in zip(per_class, SPLITS))
    names = classes or [f"class_{number:03d}" for number in range(count)]
    return image_data(name, train, validation, names, stand_in(seed))


def _rows_by_class(folder: Path, classes: Sequence[str]) -> list[tuple[str, int]]:
    unknown = [inner.name for inner in subfolders(folder) if inner.name not in classes]
    if unknown:
        raise DataError(
            f"folder {str(folder)!r} has class {unknown[0]!r}, which the train split lacks; remove or add it"
        )
    rows = []
    for label, name in enumerate(classes):
        inner = folder / name / "images"  # of Tiny ImageNet
        entries = scan(inner if inner.is_dir() else folder / name) if (folder / name).is_dir() else []
        files = [entry.path for entry in entries if not is_folder(entry) and not entry.name.endswith(".txt")]
        if not files:
            raise DataError(f"class folder {str(folder / name)!r} has no images; each class needs some in both splits")
        rows += [(file, label) for file in files]
    return rows


def _rows_by_annotation(path: Path, classes: Sequence[str]) -> list[tuple[str, int]]:
    """val_annotations.txt: file name, class and box, parted by tabs."""
    labels = {name: label for label, name in enumerate(classes)}
    rows = []
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        if len(columns) < 2 or columns[1] not in labels:
            raise DataError(
                f"file {str(path)!r}, line {number}: no file name and class of the train split; get it again"
            )
        rows.append((os.fspath(path.parent / "images" / columns[0]), labels[columns[1]]))
    return rows


def _read_all(rows: Sequence[tuple[str, int]], size: int) -> Labelled:
    images = np.empty((len(rows), 3, size, size), np.uint8)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0)), "images") as pool:
        for image, pixels in zip(images, pool.map(lambda row: _read_image(row[0], size), rows)):
            image[...] = pixels.transpose(2, 0, 1)
    return images, np.array([label for _, label in rows], np.int64)


def _read_image(path: str, size: int) -> np.ndarray:
    """uint8 (size, size, 3): the whole image, stretched."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        if not sniff(data[:32]):
            raise ValueError("it is not an image" if data else "it is empty")
        return preprocess.decode_crop_resize(data, preprocess.whole(*preprocess.encoded_size(data)), size)
    except Exception as error:  # decoders raise what they like
        raise DataError(f"image {path!r} cannot be read: {error}; fix or remove it") from error


def read_batches(path: Path) -> tuple[Labelled, Labelled, tuple[str, ...], Fields]:
    """Train and test split, classes, facts, of the folder of batches; as many data_batch files as there are train."""
    train = sorted(path.glob("data_batch_[0-9]*"))
    if not train or not (path / TEST).is_file():
        raise DataError(f"folder {str(path)!r} needs data_batch_1 (to 5) and {TEST} of CIFAR-10's python version")
    parts = [read_batch(file) for file in train]
    joined = np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])
    facts = {"generated": False, "source": source([*train, path / TEST])}
    return joined, read_batch(path / TEST), CLASSES, facts


def read_batch(path: Path) -> Labelled:
    """Images uint8 (N, 3, 32, 32) and labels int64 (N,) of one file."""
    content = _load(path)
    data, labels = content.get(b"data"), content.get(b"labels")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3 * SIZE * SIZE:
        raise DataError(
            f"file {str(path)!r} has no uint8 data of (N, {3 * SIZE * SIZE}); get CIFAR-10's python version"
        )
    if not isinstance(labels, list) or len(labels) != len(data) or not all(label in range(10) for label in labels):
        raise DataError(f"file {str(path)!r} does not have a label of 0 to 9 for each of its {len(data)} images")
    return data.reshape(-1, 3, SIZE, SIZE), np.array(labels, np.int64)


class _Arrays(pickle.Unpickler):
    """Makes arrays and plain values only: a pickle can name any function and have it called."""

    def find_class(self, module: str, name: str) -> object:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which a batch does not need") from None


def _load(path: Path) -> dict[bytes, object]:
    try:
        content = _Arrays(io.BytesIO(read_bytes(path)), encoding="bytes").load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(f"file {str(path)!r} is not a batch of CIFAR-10: {error}; get it again") from error
    if not isinstance(content, dict):
        raise DataError(
            f"file {str(path)!r} is not a batch of CIFAR-10: it holds a {type(content).__name__}; get it again"
        )
    return content


Labelled = tuple[np.ndarray, np.ndarray]  # uint8 (N, C, S, S), int64 (N,)


def image_data(name: str, train: Labelled, validation: Labelled, classes: Sequence[str], facts: Fields) -> ArrayData:
    """Classification of images; float32 in batches: grey 0 to 1, colour normalised as the project's other images.

    A class that is called healthy adds the accuracy of healthy against all others.
    """
    metrics: tuple[str, ...] = ("accuracy",)
    if "healthy" in classes:
        metrics, facts = (*metrics, "healthy_accuracy"), {**facts, "groups": [int(one == "healthy") for one in classes]}
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
