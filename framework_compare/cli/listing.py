"""`framework-compare list` and `inspect`: what there is to choose from, studies in the cache folder, a model in detail."""

from __future__ import annotations

import json as json_files
from pathlib import Path
from typing import Annotated, Any

import typer

from framework_compare import __version__, registry
from framework_compare.cli import console
from framework_compare.cli.options import LOSS, OF_DATA, takes
from framework_compare.errors import FrameworkCompareError
from framework_compare.plan import planning
from framework_compare.plan.data_of_models import of_own
from framework_compare.plan.settings import DEFAULTS
from framework_compare.protocol import Fields
from framework_compare.report.names import title
from framework_compare.report.tables import clean

SCHEMA_VERSION = 1  # rises when a field goes or changes its meaning, not when one comes
LISTED = 20  # studies that are shown, the latest


def list_names(
    json: Annotated[
        bool, typer.Option("--json", help="Print everything, and every study, as one JSON document.")
    ] = False,
) -> None:
    """List the frameworks, models and data sets to choose from, and the studies in the cache folder."""
    if json:
        print(json_files.dumps(document(), indent=1, allow_nan=False))
    else:
        _print(document(LISTED))


def document(latest: int = 0) -> Fields:
    """Return the listing for programs; models have 3 classes at 224 x 224, an unreadable study has an `error`.

    latest: how many studies, 0 for all.
    """
    from framework_compare.study import names
    from framework_compare.study.opening import studies_dir

    registry.load_plugins()
    folders = names.in_cache()
    named = [
        name for name, model in registry.image_models().items() if isinstance(model.build, str)
    ]  # not imported now
    graphs = {name: planning.build_graph(name, DEFAULTS) for name in named}
    return {
        "schema_version": SCHEMA_VERSION,
        "framework_compare": __version__,
        "frameworks": list(registry.FRAMEWORKS),
        "labels": list(registry.labels(registry.FRAMEWORKS)),
        "models": [
            {"name": name, "parameters": graph.parameter_count(), "macs_per_image": graph.macs()}
            for name, graph in graphs.items()
        ],
        "workloads": [
            {"name": name, "dataset": workload.dataset, "unit": workload.unit}
            for name, workload in registry.workloads().items()
        ],
        "datasets": registry.image_datasets(),
        "studies_folder": str(studies_dir()),
        "older_studies": len(folders[:-latest]) if latest else 0,
        "studies": [_study(folder) for folder in folders[-latest:]],
    }


def _study(folder: Path) -> Fields:
    from framework_compare.study import names

    try:
        return names.listed(folder)
    except FrameworkCompareError as error:
        return {"name": folder.name, "error": str(error)}


def _print(found: Fields) -> None:
    print("frameworks:", ", ".join(found["frameworks"]))
    for sentence in found["labels"]:
        print(f"  {sentence}")
    print("models:")
    for one in found["models"]:
        print(
            f"  {one['name']:15} {one['parameters']:>11,} parameters  {one['macs_per_image'] / 1e9:6.2f} G MACs per image"
        )
    print("  (3 classes, 224 x 224)")
    print("workloads, with their own data sets (`inspect` shows their layers):")
    for one in found["workloads"]:
        print(f"  {one['name']:15} {one['unit']}s of {one['dataset']}")
    print("data sets:", ", ".join(found["datasets"]), "or a folder with one folder of images per class")
    _print_studies(found["studies_folder"], found["older_studies"], found["studies"])


def _print_studies(folder: str, older: int, studies: list[Fields]) -> None:
    print(f"studies in {folder}:" if studies else "studies: none yet")
    if older:
        print(f"  ({older} older ones)")
    for one in studies:
        if "error" in one:
            print(f"  {one['name']:21} {one['error']}")
            continue
        what = "; ".join(", ".join(map(title, some)) for some in (one["frameworks"], one["models"]))
        done = f"{one['ok']} of {one['cells']} cells ok"
        print(f"  {one['name']:21} {one['started_at']:16} {done:19} {clean(what)}")


@takes("python", "index", *OF_DATA)
def inspect(
    python: dict[str, str],
    index: dict[str, str],
    model: Annotated[
        str,
        typer.Argument(
            help="FILE.py:FUNCTION, FILE.onnx, FILE.keras, torchvision:NAME, timm:NAME, transformers:NAME:KEY=VALUE,..., "
            "or a registered name."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(help="The data that the model is for: a file of arrays, a table, or a folder of text."),
    ] = None,
    image_size: Annotated[int, typer.Option(help="Height and width in pixels.")] = DEFAULTS.image_size,
    num_classes: Annotated[int | None, typer.Option(help="Replace the head with one for this many classes.")] = None,
    loss_function: Annotated[str | None, typer.Option(help=LOSS)] = None,
    **of_data: Any,
) -> None:
    """Show layers, parameters and MACs of a model, and which layers each framework lacks; nothing is trained."""
    from framework_compare.importing import inspection

    planning.check_setting("image_size", image_size)
    if num_classes is not None:
        planning.check_setting("num_classes", num_classes)
    of_data.update(image_size=image_size, loss_function=loss_function)
    own, names, imported = console.own_models(model, data, python, index, **of_data)
    (name,) = planning.find_models(names)
    if registry.of_arrays(name):
        arrays = of_own(own, name) if own else None
        if arrays is not None:
            print("\n".join(arrays.remarks()))
        graph = planning.build_graph(name, DEFAULTS, arrays.task if arrays else None)
    else:
        known: Fields = {} if num_classes is None and imported else {"num_classes": num_classes or DEFAULTS.num_classes}
        graph = registry.load(registry.MODELS[name].build)(image_size=image_size, **known)
    print("\n".join([name, *inspection.layer_lines(graph), inspection.summary(graph)]))
    for one in imported:
        if one.level is not None:
            error = f"{one.level.error:.1e} ({one.level.where})"
            print(f"largest relative difference from {one.level.judge} in float64: {error}")
        print("\n".join(one.notes), end="\n" if one.notes else "")
    for framework, ops in inspection.missing_ops(graph).items():
        print(f"{framework}: {'lacks ' + ', '.join(ops) if ops else 'has every layer'}")
    print("\n".join(registry.labels(registry.FRAMEWORKS)))
