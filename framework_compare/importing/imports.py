"""Models of the user's own become names of the registry, which everything else takes as it takes any other."""

import dataclasses
import os
from typing import Any, Iterable, Mapping, Sequence, cast

from framework_compare import registry
from framework_compare.environments import locks
from framework_compare.errors import UnknownNameError, UsageError, check_count
from framework_compare.graph import Graph, Task, initial_flat
from framework_compare.graph.imported_model import FROM_FILE, SEEDED, STARTS, Asked, ImportedModel
from framework_compare.importing import sources
from framework_compare.importing.tracing import Traced, Tracer, trace_in_hand, trace_keras
from framework_compare.plan.planning import Models, Plan
from framework_compare.plan.settings import DEFAULTS
from framework_compare.protocol import devices_of
from framework_compare.records import Cell


def resolve(
    models: Models,
    sizes: object = None,
    weights: str | None = None,
    tracer: Tracer = Tracer(),
    tasks: Sequence[Task] = (),
    output: str | None = None,
    loss: str | None = None,
) -> tuple[Any, list[ImportedModel]]:
    """Names for `planning.plan`, and the models among them that were imported and registered now.

    sizes: the image sizes asked for, one or several; None for the default. weights: "file" (those that the model comes
    with; the default but of named models), or "seeded" (those that registered models start from). tasks: of the user's
    own data, instead of images, those that a model may be for. output: the one of several that is trained. loss: a
    loss function of the user's, FILE.py:FUNCTION.
    """
    if weights is not None and weights not in STARTS:
        raise UnknownNameError("weights", weights, STARTS)
    names: list[Any] = []
    imported: list[ImportedModel] = []
    function = sources.loss_function(loss) if loss else ()
    asked = Asked([], tasks, output or "", function) if tasks else Asked(_sizes(sizes), output=output or "")
    for model in _listed(models):
        made = _imported(model, asked, weights, tracer)
        if made is not None:
            registry.register_imported(made.name, made, of_arrays=made.of_arrays, unit=made().task.unit)
            imported.append(made)
        names.append(model if made is None else made.name)
    if weights is not None and not imported:
        raise UsageError(f"weights is {weights!r}, and no model is imported; registered models start from seeded ones")
    return (names[0] if _is_one(models) else names), imported


def are_own(models: Models) -> bool:
    """Return whether one of the models is the user's, or of a zoo; UsageError for what cannot be imported."""
    return any(not isinstance(one, (str, os.PathLike)) or sources.source_of(one) is not None for one in _listed(models))


def _is_one(models: Models) -> bool:
    return isinstance(models, (str, os.PathLike)) or not isinstance(models, Iterable) or sources.is_module(models)


def _listed(models: Models) -> list[Any]:
    return [models] if _is_one(models) else list(cast(Iterable[object], models))


def _sizes(sizes: object) -> list[int]:
    listed = sizes if isinstance(sizes, (list, tuple)) else [DEFAULTS.image_size if sizes is None else sizes]
    for size in listed:
        check_count("image_size", size, 1)
    return list(listed)


def _imported(model: Any, asked: Asked, weights: str | None, tracer: Tracer) -> ImportedModel | None:
    """None for what the registry knows, or may know."""
    if isinstance(model, ImportedModel):
        return model
    if isinstance(model, Graph):
        sizes = {model.image_size: model}
        return ImportedModel.of(model.name, f"Graph {model.name}", sizes, initial_flat(model, 0), seeded=True)
    if sources.is_module(model):
        stem = type(model).__name__
        return _made(stem, stem, trace_in_hand(model, asked), asked, weights or FROM_FILE)
    if sources.is_keras_model(model):
        traced = trace_keras(model, asked, tracer)
        return _made(model.name, type(model).__name__, traced, asked, weights or FROM_FILE)
    source = sources.source_of(model)
    if source is None:
        text = os.fspath(model) if isinstance(model, (str, os.PathLike)) else ""
        if not text or (":" in text and text not in registry.MODELS):
            raise UsageError(f"model is {model!r}; allowed: a name that `list` shows, {sources.FORMS}")
        return None
    default = SEEDED if source.kind in sources.ZOOS else FROM_FILE
    written = {}
    if source.kind in (sources.MODULE_FILE, *sources.ZOOS) and not asked.loss:
        written = {**source.to_dict(), **({"output": asked.output} if asked.output else {})}
    return _made(source.stem, source.text, tracer(source, asked), asked, weights or default, written)


def _made(
    stem: str, text: str, traced: Traced, asked: Asked, weights: str, written: Mapping[str, str] = {}
) -> ImportedModel:
    graph = next(iter(traced.graphs.values()))
    unit = graph.task.unit
    if graph.task.loss == "cross_entropy" and graph.num_classes < 2:  # whose cross-entropy is 0 whatever the weights
        raise UsageError(
            f"{text}: it gives {graph.num_classes} number for {'an image' if unit == 'image' else f'a {unit}'}; allowed: one"
            " logit per class, at least 2"
        )
    level = traced.level
    if level is not None and not level.passed:
        raise UsageError(
            f"{text}: the imported model is not the same function as yours: {level.where} differs by {level.error:.1e};"
            " unless its forward remembers earlier calls or depends on whether it is training, please report it with the file"
        )
    known = {"level": level, "notes": tuple(traced.notes), "written": written, "of_arrays": bool(asked.tasks)}
    return ImportedModel.of(stem, text, traced.graphs, traced.flat, weights == SEEDED, **known)


def with_written(plan: Plan, models: Iterable[ImportedModel]) -> Plan:
    """The plan with a row for the user's module as it is written, beside the one that is rebuilt from its layer graph.

    It stands behind each cell of the same framework on one device, where another process can load the module.
    """
    known = {model.name for model in models if model.written}
    own = {entry.name: name for name, entry in registry.AS_WRITTEN.items()}
    cells: list[Cell] = []
    for cell in plan.cells:
        cells.append(cell)
        base, _, version = cell.framework.partition("@")
        # the environment that trains models as written has the framework's pinned version
        pinned = base in own and (not version or version == locks.pinned(registry.framework(base)))
        if pinned and cell.model in known and len(devices_of(cell.device)) == 1:
            cells.append(dataclasses.replace(cell, framework=own[base]))
    return dataclasses.replace(plan, cells=tuple(cells))
