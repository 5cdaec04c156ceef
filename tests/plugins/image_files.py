"""Image files, folders of them and pickles, as tests of data sets need them."""

import io
import os
from pathlib import Path

import numpy as np
from PIL import Image

from framework_compare.datasets import folder


def image_bytes(form: str = "JPEG", mode: str = "RGB", size: tuple[int, int] = (24, 16), **options: object) -> bytes:
    noise = np.random.RandomState(0).randint(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(file, form, **options)
    return file.getvalue()


JPEG = image_bytes()
PNG = image_bytes("PNG")


class Runs:
    """A pickle that would call a function as it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def make(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def write_idx(folder: Path, part: str, images: np.ndarray, labels: np.ndarray) -> Path:
    """Write images and labels in the format of MNIST."""
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        head = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">i4").tobytes()
        (folder / f"{part}-{name}-ubyte").write_bytes(head + array.astype(np.uint8).tobytes())
    return folder


def names(index: folder.ImageFolder) -> list[str]:
    return [os.path.basename(path) for path in index.files.paths]


def copies(images: Path, root: Path, count: int) -> Path:
    """Make a folder that has each image of another so many times, by links."""
    for path in sorted(images.glob("*/*.*")):
        (root / path.parent.name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (root / path.parent.name / f"{number}-{path.name}").symlink_to(path)
    return root
