"""The data of a study on its disk: lists of images, arrays, imported models, initial weights; checksums of their contents."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from framework_compare import registry
from framework_compare.datasets.dataset import Dataset
from framework_compare.datasets.source_files import file_checksum
from framework_compare.errors import DataError, StudyError, UsageError
from framework_compare.graph import Graph, Task, initial_pieces, weights_size
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.paths import file_name
from framework_compare.protocol import Document
from framework_compare.records import Cell
from framework_compare.store import schema
from framework_compare.store.folder import IMAGES, MODELS, write_json
from framework_compare.store.study_file import Store

WEIGHTS = "weights"  # the folder of initial weights
SUM_BYTES = 8
MAX_SHOWN = 3


def images_path(folder: Path, dataset: str) -> Path:
    """The list of a data set's images in a study folder; no two data sets have the same."""
    plain = file_name(dataset)
    if plain != dataset or dataset != dataset.lower():  # some file systems tell no A from an a
        # No plain name has a plus sign in it.
        plain = f"{plain[:60]}+{hashlib.sha256(dataset.encode()).hexdigest()[:12]}"
    return folder / IMAGES / f"{plain}.json"


def arrays_path(folder: Path, dataset: str) -> Path:
    """The file of a data set that is arrays; it stands among the lists of images."""
    return images_path(folder, dataset).with_suffix(".npz")


def write_data(folder: Path, datasets: Mapping[str, Dataset]) -> None:
    """Write the data sets of a study, where its workers and a later resume find them."""
    for name, data in datasets.items():
        path = images_path(folder, name).with_suffix(data.suffix)
        with schema.study_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            data.write(path)


def check_arrays(folder: Path, datasets: Mapping[str, str]) -> None:
    """Read the file of every data set of arrays; StudyError for one that is not what the study was begun with.

    datasets: name -> sha256.
    """
    for name, expected in datasets.items():
        path = arrays_path(folder, name)
        try:
            fault = "" if file_checksum(path) == expected else "it is not the file with which the study was planned"
        except OSError as error:
            fault = str(error)
        if fault:
            raise StudyError(
                f"the study's own copy of data set {name!r}, {path}, cannot be used: {fault}; "
                "repeat the command that made the study, which writes it again"
            )


def warm_page_cache(folder: Path, datasets: Mapping[str, str | None]) -> None:
    """Read every image once, so that the first framework does not pay the disk for the others.

    datasets: name -> checksum of its list. DataError for an image that cannot be read, StudyError for a list or an image
    that has changed since the study began.
    """
    for dataset in sorted(datasets):
        paths = _listed(folder, dataset, datasets[dataset])
        now = [_checksum(dataset, path) for path in paths]
        _compare(folder, dataset, dict(zip(paths, now)))


def _listed(folder: Path, dataset: str, expected: str | None) -> list[str]:
    path = images_path(folder, dataset)
    try:
        content = path.read_bytes()
        if expected != hashlib.sha256(content).hexdigest()[:16]:
            raise ValueError("it differs from the list with which the study was planned")
        return list(json.loads(content)["paths"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"the study's own list of the images of {dataset!r}, {path}, cannot be used: {error}; "
            "repeat the command that made the study, which writes the list again"
        ) from None


def _checksum(dataset: str, path: str) -> str:
    digest = hashlib.blake2b(digest_size=SUM_BYTES)
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        raise DataError(f"the images of data set {dataset!r} can no longer be read: {error}") from None
    return digest.hexdigest()


def _compare(folder: Path, dataset: str, now: dict[str, str]) -> None:
    """Compare with the checksums of the study's first run; store them if this is the first."""
    path = images_path(folder, dataset).with_suffix(".checksums")
    if not path.exists():
        write_json(path, now)
        return
    before = _read_checksums(path)
    changed = [repr(name) for name in now if before.get(name, now[name]) != now[name]]
    if changed:
        more = f" and {len(changed) - MAX_SHOWN} more" if len(changed) > MAX_SHOWN else ""
        raise StudyError(
            f"{folder} cannot be resumed: these images have changed since the study began: "
            f"{', '.join(changed[:MAX_SHOWN])}{more}; restore them, or name another folder"
        )


def _read_checksums(path: Path) -> dict[str, str]:
    try:
        stored = json.loads(path.read_bytes())
        if not isinstance(stored, dict):
            raise ValueError("it has no checksums")
        return stored
    except (OSError, ValueError) as error:
        raise StudyError(
            f"{path}, the checksums of the images from when the study began, cannot be read: {error}; "
            "delete it if the images have not changed, or name another folder"
        ) from None


def task_of(store: Store, cell: Cell) -> Task | None:
    """The task of a cell's data set, None of folders of images; StudyError if the study does not say it."""
    return task_in(store.settings(), store.path, cell)


def task_in(settings: Document, path: Path, cell: Cell) -> Task | None:
    """The same by the settings that are in a file."""
    if not registry.of_arrays(cell.model):
        return None
    dataset = (settings.get("datasets") or {}).get(cell.dataset) or {}
    try:
        return Task.from_dict(dataset["task"])
    except (KeyError, TypeError, UsageError) as error:
        raise schema.damaged(path, f"the task of data set {cell.dataset}: {error!r}") from None


def write_models(folder: Path, names: Iterable[str]) -> None:
    """A folder for each imported model among these; registered models are code."""
    for name in dict.fromkeys(names):
        model = registry.builder(name)
        if isinstance(model, ImportedModel):
            place = folder / MODELS / name
            with schema.study_errors(place):
                place.mkdir(parents=True, exist_ok=True)
                model.write(str(place))


def register_models(folder: Path) -> None:
    """Have the registry know what `write_models` wrote; StudyError for what is damaged."""
    for place in sorted((folder / MODELS).glob("*/")):
        try:
            model = ImportedModel.read(str(place))
        except UsageError as error:
            raise StudyError(str(error)) from None
        registry.register_imported(model.name, model, of_arrays=model.of_arrays, unit=model().task.unit)


def written_of(cell: Cell) -> dict[str, str] | None:
    """Return where a cell's model is as its author wrote it, of a cell that trains that; None for any other."""
    model = registry.builder(cell.model)
    if cell.framework not in registry.AS_WRITTEN or not isinstance(model, ImportedModel):
        return None
    return dict(model.written)


def weights_path(folder: Path, graph: Graph, seed: int) -> Path:
    """File of the initial weights, float32, all frameworks' the same; made on first use, gone after the study."""
    name = f"{graph.name}-{graph.num_classes}-{graph.image_size}-{seed}.npy"
    if graph.image_size == 0:  # shapes of others are not told by these
        name = f"{graph.name}-{hashlib.sha256(repr(graph.to_dict()).encode()).hexdigest()[:16]}-{seed}.npy"
    path = folder / WEIGHTS / name
    if not path.exists():
        half = path.with_suffix(".half")
        with schema.study_errors(half):
            path.parent.mkdir(exist_ok=True)
            with open(half, "wb") as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": (weights_size(graph),)}
                np.lib.format.write_array_header_1_0(file, header)
                for piece in weight_pieces(graph, seed):
                    file.write(piece.data)
            half.rename(path)
    return path


def weight_pieces(graph: Graph, seed: int) -> Iterator[np.ndarray]:
    """Return what a graph starts from, flat and in order: seeded values, or those that an imported model came with."""
    model = registry.builder(graph.name)
    if not isinstance(model, ImportedModel):
        return initial_pieces(graph, seed)
    return model.pieces(graph, seed)
