"""`framework-compare fairness`: the parity ladder and the loss curves, as files with a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import typer

from framework_compare.plan.values import by_framework, split


def fairness(
    out: Annotated[Path, typer.Argument(help="Folder for ladder.md, curves.md, curves.json, curves.svg.")],
    frameworks: Annotated[str, typer.Option(help="Comma-separated.")] = "torch,tensorflow,mxnet,paddle,jax",
    models: Annotated[str, typer.Option(help="Comma-separated.")] = "alexnet,mobilenet_v2,resnet50,resnet50_v1_5,vgg16",
    dataset: Annotated[
        str, typer.Option(help="To train on: a folder of class folders, or a name that `list` shows.")
    ] = "fire-smoke-tiny",
    steps: Annotated[int, typer.Option(help="Of training.")] = 20,
    batch_size: Annotated[int, typer.Option(help="Pictures a step.")] = 2,
    image_size: Annotated[int, typer.Option(help="Pixels a side, of the ladder and of training.")] = 224,
    learning_rate: Annotated[float, typer.Option(help="Of SGD.")] = 0.001,
    execution: Annotated[str, typer.Option(help="default, eager, graph, compiled; comma-separated.")] = "default",
    tuning: Annotated[str, typer.Option(help="recommended or none.")] = "recommended",
    threads: Annotated[Optional[int], typer.Option(help="Size of every compute pool; default: all cores.")] = None,
    python: Annotated[
        Optional[List[str]], typer.Option(help="FRAMEWORK=PATH of an interpreter that has it already. Repeatable.")
    ] = None,
    index: Annotated[
        Optional[List[str]], typer.Option(help="FRAMEWORK=URL of an extra package index. Repeatable.")
    ] = None,
    installer: Annotated[str, typer.Option(help="pip or uv.")] = "pip",
) -> None:
    """Climb the parity ladder, then train all frameworks on the same batches and compare their losses.

    Exit code 1 if a level does not hold or the losses are further apart than float32 rounding explains. What is done
    is cached: a second run goes on where the first was stopped. Needs matplotlib.
    """
    from framework_compare.parity import verify
    from framework_compare.parity.training import curves
    from framework_compare.report import curves as curves_report
    from framework_compare.report import curves_picture, parity_tables
    from framework_compare.report.renderers import markdown, terminal
    from framework_compare.results import parity

    curves_picture.import_matplotlib()
    common: Dict[str, Any] = {
        "execution": split(execution),
        "tuning": tuning,
        "threads": threads,
        "image_size": image_size,
        "where": verify.Where(by_framework("--python", python), by_framework("--index", index), installer),
        "say": lambda message: print(message, file=sys.stderr, flush=True),
    }
    names = split(frameworks), split(models)
    found = curves.train_curves(
        *names, dataset, steps=steps, batch_size=batch_size, learning_rate=learning_rate, **common
    )
    curves_report.write(found, out)
    ladder = verify.verify(*names, num_classes=found[0].setting["num_classes"], **common)
    (out / "ladder.md").write_text(markdown(parity_tables.table(ladder)), encoding="utf-8")
    print(terminal(parity_tables.table(ladder)))
    print(terminal(curves_report.table(found)))
    if not parity.all_hold(ladder) or not all(one.hold for one in found):
        raise typer.Exit(1)
