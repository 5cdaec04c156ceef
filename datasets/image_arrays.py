"""Sets of small colour images as arrays: CIFAR-10, Tiny ImageNet, guava diseases, or any folders of their form."""

from __future__ import annotations

import concurrent.futures
import os
from pathlib import Path
from typing import Sequence

import numpy as np

from framework_compare.batches import preprocess
from framework_compare.datasets import cifar_batches
from framework_compare.datasets.arrays import ArrayData
from framework_compare.datasets.image_check import is_folder, scan, sniff
from framework_compare.datasets.labelled_images import Labelled, generate, image_data
from framework_compare.datasets.source_files import read_lines
from framework_compare.errors import DataError, UsageError, check_count
from framework_compare.protocol import Fields

SPLITS = {"train": ("train", "training"), "validation": ("val", "valid", "validation", "test", "testing")}
ANNOTATIONS = "val_annotations.txt"
GUAVA = ("canker", "dot", "healthy", "mummification", "phytopthora", "rust", "scab", "styler_root")


def cifar10(path: Path | None = None, *, image_size: int = 32, seed: int = 0) -> ArrayData:
    """Ten classes of 32 px. path: the folder of CIFAR-10's python batches, or folders <split>/<class>/."""
    if path is None:
        return _generated("cifar10", 10, (160, 27), image_size, seed)
    if cifar_batches.is_batches(path):
        if image_size != cifar_batches.SIZE:
            raise UsageError(f"image_size is {image_size!r}; the python batches of CIFAR-10 have {cifar_batches.SIZE}")
        train, validation, classes, facts = cifar_batches.read(path)
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
    folders = {split: _split_folder(path, split) for split in SPLITS}
    classes = _subfolders(folders["train"])
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
    return _with_groups(name, train, validation, classes, facts)


def _generated(
    name: str, count: int, per_class: tuple[int, int], image_size: int, seed: int, classes: Sequence[str] | None = None
) -> ArrayData:
    check_count("image_size", image_size)
    shape = (3, image_size, image_size)
    train, validation = (generate(count, n, shape, seed, split) for n, split in zip(per_class, SPLITS))
    names = classes or [f"class_{number:03d}" for number in range(count)]
    return _with_groups(name, train, validation, names, {"generated": True, "source": [], "seed": seed})


def _with_groups(name: str, train: Labelled, validation: Labelled, classes: Sequence[str], facts: Fields) -> ArrayData:
    """Where one class is called healthy, the accuracy of healthy against all others is a metric too."""
    if "healthy" not in classes:
        return image_data(name, train, validation, classes, facts)
    groups = [int(one == "healthy") for one in classes]
    return image_data(
        name, train, validation, classes, {**facts, "groups": groups}, metrics=("accuracy", "healthy_accuracy")
    )


def _split_folder(path: Path, split: str) -> Path:
    for name in SPLITS[split]:
        if (path / name).is_dir():
            return path / name
    raise DataError(
        f"folder {str(path)!r} has no folder of the {split} split; it must be called {' or '.join(SPLITS[split])}"
    )


def _subfolders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in scan(folder) if is_folder(entry))


def _rows_by_class(folder: Path, classes: Sequence[str]) -> list[tuple[str, int]]:
    unknown = [name for name in _subfolders(folder) if name not in classes]
    if unknown:
        raise DataError(
            f"folder {str(folder)!r} has class {unknown[0]!r}, which the train split lacks; remove or add it"
        )
    rows = []
    for label, name in enumerate(classes):
        inner = folder / name / "images"
        files = _files(inner if inner.is_dir() else folder / name)
        if not files:
            raise DataError(f"class folder {str(folder / name)!r} has no images; each class needs some in both splits")
        rows += [(file, label) for file in files]
    return rows


def _files(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(entry.path for entry in scan(folder) if not is_folder(entry) and not entry.name.endswith(".txt"))


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

    def fill(number: int) -> None:
        images[number] = _read_image(rows[number][0], size).transpose(2, 0, 1)

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0)), "images") as pool:
        for _ in pool.map(fill, range(len(rows))):
            pass
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
