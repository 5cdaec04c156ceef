"""`framework-compare verify`: climb the parity ladder and print its table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import typer

from framework_compare.errors import UsageError
from framework_compare.plan.values import by_framework, split

STYLES = ("terminal", "markdown", "latex")


def verify(
    frameworks: Annotated[str, typer.Option(help="Comma-separated.")] = "torch,tensorflow,mxnet,paddle,jax",
    models: Annotated[str, typer.Option(help="Comma-separated.")] = "alexnet,mobilenet_v2,resnet50,resnet50_v1_5,vgg16",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    execution: Annotated[str, typer.Option(help="default, eager, graph, compiled; several, comma-separated.")] = "default",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16, fp16; several, comma-separated.")] = "fp32",
    pipeline: Annotated[str, typer.Option(help="That feeds the cells: native, shared or memory.")] = "native",
    tuning: Annotated[str, typer.Option(help="recommended or none.")] = "recommended",
    threads: Annotated[Optional[int], typer.Option(help="Size of every compute pool; default: all cores.")] = None,
    loader_workers: Annotated[
        Optional[int], typer.Option(help="Processes or threads of the native pipeline; default: all cores.")
    ] = None,
    image_size: Annotated[int, typer.Option(help="Pixels a side.")] = 224,
    num_classes: Annotated[int, typer.Option(help="Of the data set that will be trained on.")] = 3,
    fresh: Annotated[bool, typer.Option(help="Climb again, whatever is cached.")] = False,
    style: Annotated[str, typer.Option(help="terminal, markdown or latex.")] = "terminal",
    keep: Annotated[Optional[Path], typer.Option(help="Folder in which the workers' logs are kept.")] = None,
    python: Annotated[
        Optional[List[str]], typer.Option(help="FRAMEWORK=PATH of an interpreter that has it already. Repeatable.")
    ] = None,
    index: Annotated[
        Optional[List[str]], typer.Option(help="FRAMEWORK=URL of an extra package index. Repeatable.")
    ] = None,
    installer: Annotated[str, typer.Option(help="pip or uv.")] = "pip",
) -> None:
    """Prove that the frameworks train the same function: level by level against a float64 reference.

    Exit code 1 if a level does not hold or could not be asked, a framework cannot be installed, or nothing could be proved
    at all. Verdicts are cached; another state of the worker's source, the environment's packages or the GPU asks anew.
    """
    if style not in STYLES:
        raise UsageError(f"unknown style {style!r}; allowed: {', '.join(STYLES)}")
    from framework_compare.parity import verify as ladder
    from framework_compare.report import parity_tables, renderers
    from framework_compare.results.parity import NOT_INSTALLED, UNSUPPORTED, all_hold

    where = ladder.Where(by_framework("--python", python), by_framework("--index", index), installer)
    settings: Dict[str, Any] = {
        "device": device,
        "execution": split(execution),
        "precision": split(precision),
        "pipeline": pipeline,
        "tuning": tuning,
        "threads": threads,
        "loader_workers": loader_workers,
        "image_size": image_size,
        "num_classes": num_classes,
    }
    found = ladder.verify(
        split(frameworks),
        split(models),
        fresh=fresh,
        folder=keep,
        where=where,
        say=lambda message: print(message, file=sys.stderr, flush=True),
        **settings,
    )
    print(renderers.RENDERERS[style](parity_tables.table(found)))
    if all(one.status in (UNSUPPORTED, NOT_INSTALLED) for one in found):
        print("framework-compare: nothing was proved: the notes above say what is lacking", file=sys.stderr)
    if not all_hold(found):
        raise typer.Exit(1)
