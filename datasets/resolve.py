"""From what a user calls a data set, a registry name or a folder, to the images in it. Parent side."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Sequence

from framework_compare import registry
from framework_compare.datasets import fire_smoke, folder
from framework_compare.errors import DataError, UnknownNameError


def resolve(
    dataset: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_bad_image: str = "fail",
    progress: folder.Progress | None = None,
    make: bool = True,
) -> folder.ImageFolder:
    """The index of a data set of the registry, made first if it has to be, or of a user's folder.

    A registry name goes before a folder of that name; "./name" is always the folder. `limit` keeps that many
    images, by class and `seed`. `progress(done, total)` is called for making, then for checking the images.
    Without `make` a rendered set that is not there is what it will be, its files still missing.
    DataError if `dataset` is neither, or cannot be read as asked.
    """
    pictures = None if make or not isinstance(dataset, str) else fire_smoke.unmade(dataset.lower())
    if pictures is not None and isinstance(dataset, str):
        index = folder.ImageFolder(folder.of_classes(pictures, classes), name=dataset.lower())
        index = dataclasses.replace(index, bytes_to_make=fire_smoke.size_bytes(index.name))
        return index if limit is None else folder.limit(index, limit, seed)
    path, name = _locate(dataset, progress)
    index = folder.read_folder(path, classes=classes, on_bad_image=on_bad_image, progress=progress)
    # A folder's name may be bytes that are no text, and then could be neither stored nor shown.
    index = dataclasses.replace(index, name=os.fsencode(name).decode("utf-8", "replace"))
    return index if limit is None else folder.limit(index, limit, seed)


def _locate(dataset: str | os.PathLike[str], progress: folder.Progress | None) -> tuple[Path, str]:
    """Folder and name of a data set."""
    if isinstance(dataset, str):
        source = registry.data_source(dataset)
        if source is not None and not source.arrays:
            return registry.load(source.make)(progress), dataset.lower()
        if os.sep not in dataset and not os.path.exists(os.path.expanduser(dataset)):
            error = UnknownNameError("data set", dataset, registry.image_datasets())
            raise DataError(f"{error}, or the path of a folder with one folder of images per class")
    path = Path(os.path.abspath(os.path.expanduser(dataset)))
    return path, path.name
