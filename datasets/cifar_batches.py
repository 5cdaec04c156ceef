"""CIFAR-10's python batches: pickles of one dictionary each, read without running anything that is in them."""

from __future__ import annotations

import codecs
import io
import pickle
from pathlib import Path

import numpy as np

from framework_compare.datasets.labelled_images import Labelled
from framework_compare.datasets.source_files import read_bytes, source
from framework_compare.errors import DataError
from framework_compare.protocol import Fields

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


def is_batches(path: Path) -> bool:
    """Whether a folder holds the batches, not class folders."""
    return (path / TEST).is_file() or any(path.glob("data_batch_*"))


def read(path: Path) -> tuple[Labelled, Labelled, tuple[str, ...], Fields]:
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
    except Exception as error:  # a damaged pickle raises whatever it comes to
        raise DataError(f"file {str(path)!r} is not a batch of CIFAR-10: {error}; get it again") from error
    if not isinstance(content, dict):
        raise DataError(
            f"file {str(path)!r} is not a batch of CIFAR-10: it holds a {type(content).__name__}; get it again"
        )
    return content
