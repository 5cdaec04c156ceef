"""Command `inspect`: a model of the user's own, layer by layer, before anything trains."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from framework_compare import registry
from framework_compare.cli import console
from framework_compare.cli.options import LOSS, OF_DATA, takes
from framework_compare.json_types import Fields
from framework_compare.plan import planning
from framework_compare.plan.data_of_models import of_own
from framework_compare.plan.settings import DEFAULTS


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
