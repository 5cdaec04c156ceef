"""`framework-compare fairness`: the parity ladder and the loss curves, as files with a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Dict, List

import typer

from framework_compare.cli.options import ENVIRONMENTS, FRAMEWORKS, MODELS, takes


@takes(
    *("frameworks", "models", "batch_size", "image_size", "learning_rate", "execution", "tuning", "threads"),
    *ENVIRONMENTS,
    frameworks=FRAMEWORKS,
    models=MODELS,
    batch_size="2",
)
def fairness(
    out: Annotated[Path, typer.Argument(help="Folder for ladder.md, curves.md, curves.json, curves.svg.")],
    frameworks: List[str],
    models: List[str],
    batch_size: int,
    learning_rate: float,
    python: Dict[str, str],
    index: Dict[str, str],
    installer: str,
    dataset: Annotated[
        str, typer.Option(help="To train on: a folder of class folders, or a name that `list` shows.")
    ] = "fire-smoke-tiny",
    steps: Annotated[int, typer.Option(help="Of training.")] = 20,
    **common: Any,
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
    common["where"] = verify.Where(python, index, installer)
    common["say"] = lambda message: print(message, file=sys.stderr, flush=True)
    names = frameworks, models
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
