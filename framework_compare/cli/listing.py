"""`framework-compare list`: what there is to choose from, and the studies in the cache folder."""

from __future__ import annotations

import json as json_files
from pathlib import Path
from typing import Annotated

import typer

from framework_compare import __version__, registry
from framework_compare.errors import FrameworkCompareError
from framework_compare.plan.planning import build_graph
from framework_compare.protocol import Fields, TrainConfig
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
    graphs = {name: build_graph(name, TrainConfig()) for name in named}
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
