"""The imported models of a study in its folder: graph and weights, so that it can be resumed without the user's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from framework_compare import registry
from framework_compare.errors import StudyError, UsageError
from framework_compare.graph import Graph, initial_pieces
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.records import Cell
from framework_compare.store import schema
from framework_compare.store.folder import MODELS


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
    """Where a cell's model is as its author wrote it, of a cell that trains that; None for any other."""
    model = registry.builder(cell.model)
    if cell.framework not in registry.AS_WRITTEN or not isinstance(model, ImportedModel):
        return None
    return dict(model.written)


def weight_pieces(graph: Graph, seed: int) -> Iterator[np.ndarray]:
    """What a graph starts from, flat and in order: seeded values, or those that an imported model came with."""
    model = registry.builder(graph.name)
    if not isinstance(model, ImportedModel):
        return initial_pieces(graph, seed)
    return model.pieces(graph, seed)
