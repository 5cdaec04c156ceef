"""Command `inspect`: a model of the user's own, layer by layer, before anything trains."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from framework_compare.cli.options import takes
from framework_compare.plan.settings import DEFAULTS


@takes("python", "index")
def inspect(
    python: dict[str, str],
    index: dict[str, str],
    model: Annotated[
        str,
        typer.Argument(
            help="FILE.py:FUNCTION, FILE.onnx, FILE.keras, torchvision:NAME, timm:NAME, or a registered name."
        ),
    ],
    image_size: Annotated[int, typer.Option(help="Height and width in pixels.")] = DEFAULTS.image_size,
    num_classes: Annotated[int | None, typer.Option(help="Replace its head with one for this many classes.")] = None,
) -> None:
    """Show layers, parameters and MACs of a model, and what is missing in which framework; nothing is trained."""
    from framework_compare import registry
    from framework_compare.importing import inspection
    from framework_compare.importing.imports import resolve
    from framework_compare.importing.tracing import Tracer
    from framework_compare.plan import planning

    planning.check_setting("image_size", image_size)
    if num_classes is not None:
        planning.check_setting("num_classes", num_classes)
    names, imported = resolve(model, image_size, tracer=Tracer(python, index, _say))
    (name,) = planning.find_models(names)
    if registry.of_arrays(name):
        graph = planning.build_graph(name, DEFAULTS)
    else:
        known: Any = {} if num_classes is None and imported else {"num_classes": num_classes or DEFAULTS.num_classes}
        graph = registry.load(registry.MODELS[name].build)(image_size=image_size, **known)
    print("\n".join([name, *inspection.layer_lines(graph), inspection.summary(graph)]))
    for one in imported:
        if one.level is not None:
            print(f"compared with {one.level.judge} in float64: {one.level.error:.1e} at most ({one.level.where})")
        print("\n".join(one.notes), end="\n" if one.notes else "")
    for framework, ops in inspection.missing_ops(graph).items():
        print(f"{framework}: {'lacks ' + ', '.join(ops) if ops else 'has every layer'}")
    print("\n".join(registry.labels(registry.FRAMEWORKS)))


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
