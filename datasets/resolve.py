"""From what a user calls a data set (a registry name, a folder, a file, an object) to its images or arrays. Parent side."""

import dataclasses
import os
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from framework_compare import registry
from framework_compare.datasets import array_files, fire_smoke, folder, objects, table_files, text_windows
from framework_compare.datasets.columns import Source
from framework_compare.datasets.image_check import Progress
from framework_compare.datasets.own import DataOptions, OwnData, prepare
from framework_compare.errors import DataError, UnknownNameError, UsageError

# By the ending of a file's name.
READERS: Mapping[str, Callable[[Path], Source]] = {
    ".npz": array_files.read_npz,
    ".npy": array_files.read_npy,
    ".csv": table_files.read_csv,
    ".csv.gz": table_files.read_csv,
    ".tsv": table_files.read_csv,
    ".parquet": table_files.read_parquet,
    ".txt": text_windows.read_windows,
}
FOLDERS: Mapping[str, Callable[[Path], Source]] = {
    "*.npy": array_files.read_npy,
    "*.txt": text_windows.read_windows,
}


def own_data(dataset: Any, options: DataOptions, asked: Sequence[str], models: bool) -> OwnData | None:
    """The user's own data, of a file, a folder or an object; None where a data set is none of these.

    asked: names of options that the user gave. models: whether one of the models is the user's, too: without, a file
    is what a workload reads, unless an option says how. UsageError for options that go with other data.
    """
    if objects.is_data(dataset):
        return prepare(objects.read(dataset), options)
    paths = [dataset] if isinstance(dataset, (str, os.PathLike)) else list(dataset or ())
    readers = [_reader_of(path) for path in paths]
    if not any(readers) or not (models or asked):
        if asked:
            what = f"{str(paths[0])!r} is not such data" if paths else "no data are given"
            raise UsageError(f"{asked[0]} applies to arrays and tables, but {what}; leave it out, or name a file")
        return None
    if len(paths) > 1:
        raise UsageError(
            f"{str(paths[1])!r} is a second data set in addition to arrays or a table; compare them in two calls"
        )
    (path,), (reader,) = paths, readers
    assert reader is not None
    place = Path(os.path.abspath(os.path.expanduser(path)))
    if reader is text_windows.read_windows:
        source = text_windows.read_windows(place, options.window, options.tokenizer, options.validation)
        return prepare(source, dataclasses.replace(options, validation=None))
    for name in ("window", "tokenizer"):
        if getattr(options, name) is not None:
            raise UsageError(f"{name} is {getattr(options, name)!r}; {place.name} is not text: leave it out")
    return prepare(reader(place), options)


def _reader_of(dataset: object) -> Callable[[Path], Source] | None:
    """Return what reads a file or a folder of own data; None for folders of images and names."""
    if not isinstance(dataset, (str, os.PathLike)) or (isinstance(dataset, str) and registry.data_source(dataset)):
        return None
    path = Path(os.path.expanduser(dataset))
    if path.is_dir():
        if table_files.is_saved(path):
            return table_files.read_saved
        if not any(path.iterdir()):
            raise DataError(
                f"data set folder {str(dataset)!r} is empty; give one with a folder of images per class, or data"
            )
        if any(entry.is_dir() for entry in path.iterdir()):  # of classes, with a list or a licence beside them
            return None
        return next((reader for kind, reader in FOLDERS.items() if any(path.glob(kind))), None)
    return next((reader for ending, reader in READERS.items() if path.name.lower().endswith(ending)), None)


def resolve(
    dataset: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_bad_image: str = "fail",
    progress: Progress | None = None,
    make: bool = True,
) -> folder.ImageFolder:
    """The index of a data set of the registry, made first if it has to be, or of a user's folder.

    A registered name takes precedence over a folder of that name; "./name" is always the folder. `limit` keeps that many
    images, by class and `seed`. `progress(done, total)` is called for making, then for checking the images.
    Without `make` a rendered set that is not there is what it will be, its files still missing.
    DataError if `dataset` is neither, or cannot be read as asked.
    """
    files = None if make or not isinstance(dataset, str) else fire_smoke.unmade(dataset.lower())
    if files is not None and isinstance(dataset, str):
        index = folder.ImageFolder(folder.of_classes(files, classes), name=dataset.lower())
        index = dataclasses.replace(index, bytes_to_make=fire_smoke.size_bytes(index.name))
        return index if limit is None else folder.limit(index, limit, seed)
    path = Path(os.path.abspath(os.path.expanduser(dataset)))
    name = path.name
    if isinstance(dataset, str):
        source = registry.data_source(dataset)
        if source is not None and not source.arrays:
            path, name = registry.load(source.make)(progress), dataset.lower()
        elif os.sep not in dataset and not os.path.exists(os.path.expanduser(dataset)):
            error = UnknownNameError("data set", dataset, registry.image_datasets())
            raise DataError(f"{error}, or the path of a folder with one folder of images per class")
    index = folder.read_folder(path, classes=classes, on_bad_image=on_bad_image, progress=progress)
    # A folder's name may be bytes that are no text, and then could be neither stored nor shown.
    index = dataclasses.replace(index, name=os.fsencode(name).decode("utf-8", "replace"))
    return index if limit is None else folder.limit(index, limit, seed)
