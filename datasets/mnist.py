"""Digits in the IDX form of MNIST, packed by gzip or not."""

from pathlib import Path

import numpy as np

from framework_compare.datasets.arrays import ArrayData
from framework_compare.datasets.image_arrays import Labelled, generate, image_data
from framework_compare.datasets.source_files import one_file, read_bytes, source, stand_in
from framework_compare.errors import DataError, check_count
from framework_compare.protocol import Fields

FILES = {
    "train": (("train-images*idx3*",), ("train-labels*idx1*",)),
    "test": (("t10k-images*idx3*",), ("t10k-labels*idx1*",)),
}
_UINT8 = 8  # the type byte of an IDX file


def mnist(
    path: Path | None = None, *, train: int | None = None, validation: int | None = None, seed: int = 0
) -> ArrayData:
    """Images (1, 28, 28) from 0 to 1, and a label of ten.

    `train` and `validation` limit the images of each split, drawn by `seed`.

    path is a folder with the files of MNIST. With the 60,000 and the 10,000, those train and these validate; with the
    10,000 only, these are split, 8 to 2 where no numbers are given.
    """
    for name, value in (("train", train), ("validation", validation)):
        if value is not None:
            check_count(name, value)
    if path is None:
        counts = {"train": 400, "validation": 100}
        parts = [generate(10, count, (1, 28, 28), seed, split) for split, count in counts.items()]
        facts = stand_in(seed)
    else:
        parts, facts = _read_folder(path, train, validation, seed)
    for place, count in enumerate((train, validation)):
        images, labels = parts[place]
        if count is not None and count > len(labels):
            raise DataError(f"mnist: {count} images asked for, {len(labels)} are there")
        if count is not None and count < len(labels):
            rows = np.random.RandomState(seed & 0xFFFFFFFF).permutation(len(labels))[:count]
            parts[place] = images[rows], labels[rows]
    return image_data("mnist", parts[0], parts[1], [str(digit) for digit in range(10)], facts)


def read_pair(images: Path, labels: Path) -> Labelled:
    """Images uint8 (N, 1, H, W) and labels int64 (N,) of two IDX files that belong together."""
    pixels, digits = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(digits):
        raise DataError(
            f"{str(images)!r} has {len(pixels)} images and {str(labels)!r} {len(digits)} labels; they differ"
        )
    if len(digits) and digits.max() > 9:
        raise DataError(f"{str(labels)!r}, item {int(np.argmax(digits > 9))}: label {digits.max()}; allowed: 0 to 9")
    return pixels[:, None], digits.astype(np.int64)


def read_idx(path: Path, axes: int) -> np.ndarray:
    """uint8 array of an IDX file with that many axes."""
    data = read_bytes(path)
    head = 4 + 4 * axes
    if len(data) < head or data[:4] != bytes((0, 0, _UINT8, axes)):
        raise DataError(
            f"file {str(path)!r} is not an IDX file of uint8 with {axes} axes; its first bytes are {data[:4].hex()}"
        )
    shape = tuple(np.frombuffer(data, ">i4", axes, 4).tolist())
    expected = head + int(np.prod(shape))
    if min(shape) < 1 or len(data) != expected:
        raise DataError(f"file {str(path)!r} has {len(data)} bytes, its header asks for {expected}; get it again")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def _read_folder(path: Path, train: int | None, validation: int | None, seed: int) -> tuple[list[Labelled], Fields]:
    if not path.is_dir():
        raise DataError(f"{str(path)!r} is a file; the folder with the IDX files of images and labels is needed")
    files = [tuple(one_file(path, pattern, "IDX") for pattern in FILES["test"])]
    if any(path.glob(FILES["train"][0][0])):
        files.insert(0, tuple(one_file(path, pattern, "IDX") for pattern in FILES["train"]))
    parts = [read_pair(*pair) for pair in files]
    facts = {
        "generated": False,
        "source": source(file for pair in files for file in pair),
        "images": sum(len(labels) for _, labels in parts),
    }
    if len(parts) == 1:
        ((images, labels),) = parts
        total = len(labels)
        held = validation if validation is not None else min(total // 5, total - (train or 1))
        if held < 1 or held + (train or 1) > total:
            raise DataError(
                f"mnist: train {train} and validation {validation} ask for more than the {total} images there are"
            )
        order = np.random.RandomState(seed & 0xFFFFFFFF).permutation(total)
        parts = [(images[rows], labels[rows]) for rows in (order[held:], order[:held])]
    return parts, facts
