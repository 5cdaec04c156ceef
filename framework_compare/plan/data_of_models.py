"""Data sets that a model is trained on, and how each is read for it."""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence, Union

from framework_compare import registry
from framework_compare.datasets import arrays
from framework_compare.datasets.arrays import ArrayData
from framework_compare.datasets.dataset import Dataset
from framework_compare.datasets.image_check import subfolders
from framework_compare.datasets.own import OwnData
from framework_compare.datasets.resolve import resolve
from framework_compare.errors import UsageError
from framework_compare.graph import Task
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.plan.values import listed as listed_of
from framework_compare.protocol import Document

Place = str | os.PathLike[str]
DataSet = Union[Place, OwnData]
DataSets = Union[DataSet, Sequence[DataSet], Document, Iterable[object]]  # the last two: arrays, samples
CountProgress = Callable[[str, int, int], None]


def by_model(models: Sequence[str], dataset: DataSets | None) -> dict[str, list[DataSet]]:
    """Return the named data sets that each model can read; UsageError if one is left without a partner."""
    if dataset is None:
        return {model: [registry.MODELS[model].dataset] for model in models}
    if isinstance(dataset, OwnData):
        return {model: [dataset] for model in models}
    listed = listed_of("data set", dataset)
    for one in listed:
        if not isinstance(one, (str, os.PathLike)):
            raise UsageError(
                f"data set is {one!r}; allowed: a name that `list` shows, or the path of a folder or a file"
            )
    readers = [(one, _readers(models, one)) for one in listed]
    chosen = {model: [one for one, able in readers if model in able] for model in models}
    for model, own in chosen.items():
        if not own:
            raise UsageError(
                f"data set {listed[0]!r} is not for {model}; allowed: {registry.MODELS[model].dataset}, or the path of"
                " its data"
            )
    for one in listed:
        if not any(one in own for own in chosen.values()):
            raise UsageError(f"data set {one!r} is not used by any of the models {', '.join(models)}; leave it out")
    return chosen


def _readers(models: Sequence[str], dataset: DataSet) -> list[str]:
    """Return the models that a data set is for; for a path that suits none, all but imported ones: reading it says why."""
    able = [model for model in models if registry.MODELS[model].dataset != registry.OWN]
    suited = [model for model in able if _suits(registry.MODELS[model], dataset)]
    return suited or (able if _is_path(dataset) else [])


def _is_path(dataset: DataSet) -> bool:
    return not isinstance(dataset, str) or registry.data_source(dataset) is None or os.path.exists(dataset)


def _suits(model: registry.Model, dataset: DataSet) -> bool:
    """Return whether a data set has what a model takes, images or arrays; the data are not read."""
    source = registry.data_source(dataset) if isinstance(dataset, str) else None
    if source is not None:
        return dataset == model.dataset if model.of_arrays else not source.arrays
    assert not isinstance(dataset, OwnData)
    path = Path(os.path.expanduser(dataset))
    takes_folders = not model.of_arrays or registry.DATASETS[model.dataset].class_folders
    if path.is_dir():
        return takes_folders if subfolders(path) else model.of_arrays
    return not takes_folders or not path.exists()


def read(
    dataset: DataSet,
    own: str,
    options: tuple[tuple[str, object], ...],
    seed: int,
    limit: int | None,
    images: Document,
    progress: CountProgress | None,
) -> Dataset:
    """A folder of images; or arrays as `own`, a data set of the registry, reads them, generated where they are that."""
    assert not isinstance(dataset, OwnData)
    if not own:
        return resolve(dataset, seed=seed, progress=counter(progress, f"images of {Path(dataset).name}"), **images)
    if dataset == own:
        data = _generated(own, **dict(options))
    else:  # under the file's name
        data = dataclasses.replace(arrays.load(own, dataset, **dict(options)), name=Path(dataset).stem)
    return data if limit is None else data.limited(limit)


def of_own(data: OwnData, model: str, limit: int | None = None) -> Dataset:
    """A user's data as a model learns them: an imported one was traced for one of their tasks."""
    entry = registry.MODELS[model]
    if not entry.of_arrays:
        raise UsageError(
            f"{model} takes folders of images, but {data.name} contains arrays; give your own model: FILE.py:FUNCTION"
        )
    task = entry.build().task if isinstance(entry.build, ImportedModel) else data.tasks[0]
    return _arrays_of(data, data.settled(task), limit)


@functools.lru_cache(maxsize=8)
def _arrays_of(data: OwnData, task: Task, limit: int | None) -> Dataset:
    made = data.for_task(task)
    return made if limit is None else made.limited(limit)


@functools.lru_cache(maxsize=8)
def _generated(dataset: str, **options: Any) -> ArrayData:
    return dataclasses.replace(arrays.load(dataset, **options), name="-".join([dataset, *map(str, options.values())]))


@functools.lru_cache(maxsize=None)
def generated_task(dataset: str, **options: object) -> Task:
    """Kept when the arrays, which are large and take seconds, no longer are."""
    task: Task = _generated(dataset, **options).task
    return task


def counter(progress: CountProgress | None, what: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(what, done, total)
