"""A user's own images: class folders, with or without split folders above them, every image proved to decode.

Parent side. `read_folder` finds the classes and the files; `image_check` decides about each file.
"""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import ClassVar, Iterator, Sequence

import numpy as np

from framework_compare.datasets import image_check
from framework_compare.datasets.image_check import Progress, subfolders
from framework_compare.datasets.source_files import PARTS
from framework_compare.errors import DataError
from framework_compare.paths import write_whole
from framework_compare.protocol import Fields, ImageFiles, TrainConfig

SPLITS = frozenset(word for words in PARTS.values() for word in words)
ON_BAD_IMAGE = ("fail", "skip")  # what to do about one that does not decode
FIRE_SMOKE = ("fire", "smoke", "no_fire")


@dataclasses.dataclass(frozen=True)
class ImageFolder:
    """A Dataset: the images of a folder to train on, and all that was decided on the way to them.

    skipped are (path, reason) of bad images left out; ignored_folders are class folders that `classes` did not ask for.
    """

    files: ImageFiles
    skipped: tuple[tuple[str, str], ...] = ()
    ignored_folders: tuple[str, ...] = ()
    name: str = ""
    bytes_to_make: int = 0

    suffix: ClassVar[str] = ".json"
    task: ClassVar[None] = None

    def __len__(self) -> int:
        return len(self.files)

    def configured(self, config: TrainConfig) -> TrainConfig:
        """Return the config with as many classes as there are."""
        return dataclasses.replace(config, num_classes=len(self.files.classes))

    def describe(self) -> Fields:
        """Return counts, classes and the checksum of the list of images, not of their bytes."""
        return {
            "images": len(self),
            "skipped": len(self.skipped),
            "skipped_images": [list(pair) for pair in self.skipped],
            "classes": list(self.files.classes),
            "checksum": hashlib.sha256(self._list().encode()).hexdigest()[:16],
        }

    def remarks(self) -> Iterator[str]:
        """Yield the images by class, then what was skipped or left out."""
        classes = ", ".join(f"{name} {self.files.labels.count(i)}" for i, name in enumerate(self.files.classes))
        yield f"{self.name}: {len(self)} images ({classes})"
        for path, reason in self.skipped:
            yield f"{self.name}: skipped {path!r}: {reason}"
        for folder in self.ignored_folders:
            yield f"{self.name}: folder {folder!r} is not among the requested classes and is left out"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the list of images; the file is whole at any moment."""
        write_whole(Path(path), self._list())

    def _list(self) -> str:
        return json.dumps(dataclasses.asdict(self.files))


def read_folder(
    path: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    on_bad_image: str = "fail",
    progress: Progress | None = None,
) -> ImageFolder:
    """Index the images in `path`/<class>/ or `path`/<split>/<class>/, folders below a class included.

    Splits (train, val, test, ...) are merged, because the reference protocol trains on all images. Classes are
    `classes` in that order, or fire, smoke, no_fire where the folders are these, or the sorted folder names. Images are
    ordered by class, then by path. Each is decoded once and the verdict remembered; a bad one raises DataError if
    `on_bad_image` is "fail", is left out and listed if it is "skip". `progress(done, total)` counts images. DataError
    also for a missing or empty folder, class or image.
    """
    if on_bad_image not in ON_BAD_IMAGE:
        raise DataError(f"on_bad_image is {on_bad_image!r}; allowed: 'fail', 'skip'")
    _check_list(classes)
    named = os.path.expanduser(path)
    if not os.path.exists(named):
        raise DataError(f"data set folder {str(path)!r} does not exist")
    if not os.path.isdir(named):
        raise DataError(f"data set {str(path)!r} is a file; a folder with one folder of images per class is needed")
    root = Path(os.path.abspath(named))  # not resolved: paths stay as the user knows them
    folders = _class_folders(root)
    found = sorted({folder.name for folder in folders})
    order = _class_order(root, found, classes)
    files = {name: _files_of(name, folders, root) for name in order}
    verdicts = image_check.check(root, [file for name in order for file in files[name]], progress)
    rows = [(file, label) for label, name in enumerate(order) for file in files[name] if file in verdicts]
    good = [(file, label, verdicts[file].format) for file, label in rows if not verdicts[file].reason]
    bad = tuple((file, verdicts[file].reason) for file, _ in rows if verdicts[file].reason)
    if bad and on_bad_image == "fail":
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise DataError(f"bad image {bad[0][0]!r}: {bad[0][1]}{more}; on_bad_image='skip' leaves bad images out")
    paths, labels, formats = zip(*good) if good else ((), (), ())
    if empty := set(range(len(order))).difference(labels):
        raise DataError(f"class {order[min(empty)]!r} of data set {root.name!r} has no image that decodes")
    ignored = tuple(folder for folder in found if folder not in order)
    return ImageFolder(ImageFiles(order, paths, labels, formats), bad, ignored, root.name)


def of_classes(files: ImageFiles, classes: Sequence[str] | None) -> ImageFiles:
    """The images of these classes, in this order; all where none are named. DataError for a class that is not there."""
    _check_list(classes)
    if classes is None:
        return files
    _check_classes(Path("the data set"), files.classes, classes)
    number = {files.classes.index(name): new for new, name in enumerate(classes)}
    kept = sorted((n for n, label in enumerate(files.labels) if label in number), key=lambda n: number[files.labels[n]])
    chosen = _select(files, kept)
    return ImageFiles(tuple(classes), chosen.paths, tuple(number[label] for label in chosen.labels), chosen.formats)


def limit(index: ImageFolder, n: int, seed: int = 0) -> ImageFolder:
    """At most `n` images of an index, drawn by `seed`: each class in its share, one at least, same order."""
    files = index.files
    if not isinstance(n, int) or isinstance(n, bool) or n < len(files.classes):
        raise DataError(f"limit must be at least one image per class, {len(files.classes)}, not {n!r}")
    if n >= len(files):
        return index
    labels = np.array(files.labels)
    state = np.random.RandomState(seed & 0xFFFFFFFF)
    shares = _shares(np.bincount(labels, minlength=len(files.classes)), n)
    drawn = [state.permutation(np.flatnonzero(labels == c))[:share] for c, share in enumerate(shares)]
    return dataclasses.replace(index, files=_select(files, sorted(np.concatenate(drawn).tolist())))


def _shares(counts: np.ndarray, n: int) -> list[int]:
    """Return how many of each class, by largest remainder: at least one each, `n` in total."""
    spare = counts - 1
    exact = spare * ((n - len(counts)) / spare.sum())
    shares = np.floor(exact).astype(int)
    largest = np.argsort(shares - exact, kind="stable")
    shares[largest[: n - len(counts) - shares.sum()]] += 1
    return [int(share) for share in shares + 1]


def _select(files: ImageFiles, keep: Sequence[int]) -> ImageFiles:
    return ImageFiles(
        files.classes,
        tuple(files.paths[i] for i in keep),
        tuple(files.labels[i] for i in keep),
        tuple(files.formats[i] for i in keep),
    )


def _class_folders(root: Path) -> list[Path]:
    """Class folders in name order; of all splits where every folder of the root that holds folders is a split."""
    top = subfolders(root)
    if not top:
        raise DataError(f"data set folder {str(root)!r} has no class folders in it; one folder per class is needed")
    below = {folder: subfolders(folder) for folder in top if folder.name.lower() in SPLITS}
    if len(below) == len(top) and all(below.values()):
        return [folder for split in top for folder in below[split]]
    return top


def _class_order(root: Path, found: Sequence[str], classes: Sequence[str] | None) -> tuple[str, ...]:
    if classes is not None:
        _check_classes(root, found, classes)
        if len(classes) < 2:
            raise DataError(f"classes are {list(classes)!r}; at least two are needed")
        return tuple(classes)
    if len(found) < 2:
        raise DataError(f"data set {str(root)!r} has only one class folder, {found[0]!r}; at least two are needed")
    return tuple(sorted(found, key=FIRE_SMOKE.index if set(found) <= set(FIRE_SMOKE) else None))


def _check_list(classes: object) -> None:
    if classes is not None and (isinstance(classes, str) or not isinstance(classes, Sequence) or not classes):
        raise DataError(f"classes is {classes!r}; allowed: a list of class names, or None for all")


def _check_classes(root: Path, found: Sequence[str], classes: Sequence[str]) -> None:
    if len(set(classes)) != len(classes):
        raise DataError(f"classes are {classes!r}; allowed: each once")
    missing = [name for name in classes if name not in found]
    if missing:
        names = ", ".join(map(repr, missing))
        raise DataError(f"data set {str(root)!r} has no folder of class {names}; found: {', '.join(found)}")


def _files_of(name: str, folders: Sequence[Path], root: Path) -> list[str]:
    own = [folder for folder in folders if folder.name == name]
    seen = {_identity(folder) for folder in (*(folder.parent for folder in own), root, *root.resolve().parents)}
    files = sorted(file for folder in own for file in _walk(folder, seen))
    if not files:
        raise DataError(f"class folder {str(own[0])!r} has no files in it; a class needs images")
    return files


def _walk(folder: Path, seen: set[tuple[int, int]]) -> Iterator[str]:
    """Files below a folder; a folder reached twice (a loop of links) is entered once."""
    waiting = [folder]
    while waiting:
        folder = waiting.pop()
        identity = _identity(folder)
        if identity in seen:
            continue
        seen.add(identity)
        for entry in reversed(image_check.scan(folder)):
            if image_check.is_folder(entry):
                waiting.append(Path(entry.path))
            else:
                yield entry.path


def _identity(folder: Path) -> tuple[int, int]:
    stat = folder.stat()
    return stat.st_dev, stat.st_ino
