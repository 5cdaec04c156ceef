"""`framework-compare fairness`: parity levels and loss curves, as tables and a plot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Dict, List

import typer

from framework_compare.cli import words
from framework_compare.cli.options import ENVIRONMENTS, FRAMEWORKS, MODELS, OF_DATA, one_of, takes


@takes(
    *("frameworks", "models", "dataset", "batch_size", "image_size", "learning_rate", "execution", "tuning", "threads"),
    *(*ENVIRONMENTS, *OF_DATA),
    frameworks=FRAMEWORKS,
    models=MODELS,
    dataset=["fire-smoke-tiny"],
    batch_size="2",
    by_place=(words.OUT, *words.REQUEST),
)
def fairness(
    frameworks: List[str],
    models: List[str],
    dataset: List[str],
    batch_size: int,
    learning_rate: float,
    python: Dict[str, str],
    index: Dict[str, str],
    out: Annotated[Path, typer.Option(help="Folder for ladder.md, curves.md, curves.json, curves.svg.")] = Path(
        "fairness"
    ),
    steps: Annotated[int, typer.Option(help="Training steps.")] = 20,
    **common: Any,
) -> None:
    """Check the parity levels, then train all frameworks on the same batches and compare their losses.

    Exit code 1 if a level fails or the losses differ by more than float32 rounding explains. Results are cached, so a
    stopped check continues where it ended.
    """
    from framework_compare import api
    from framework_compare.importing.tracing import Tracer
    from framework_compare.parity import verify
    from framework_compare.parity.training import curves
    from framework_compare.report import curves as curves_report
    from framework_compare.report import parity_tables
    from framework_compare.report.renderers import markdown, terminal
    from framework_compare.results import parity
    from framework_compare.study.request import Request

    common["where"] = verify.Where(python, index)
    common["say"] = lambda message: print(message, file=sys.stderr, flush=True)
    of_data = {name: common.pop(name) for name in OF_DATA}
    data = one_of("dataset", dataset)
    asked = Request.of([], models, dataset=data, image_size=common["image_size"], **of_data)
    own, models, _ = api.with_own(asked, Tracer(python, index, common["say"]))
    names, rates = (frameworks, models), {"batch_size": batch_size, "learning_rate": learning_rate, **common}
    if own is None:
        trained = curves.train_curves(*names, data, steps=steps, **rates)
    else:
        del rates["image_size"], common["image_size"]
        trained = [curves.train_workload_curves(frameworks, model, own, steps=steps, **rates) for model in models]
    curves_report.write(trained, out)
    common.update({} if own else {"num_classes": trained[0].setting["num_classes"]})
    ladder = verify.verify(*names, **common)
    (out / "ladder.md").write_text(markdown(parity_tables.parity_table(ladder)), encoding="utf-8")
    print(terminal(parity_tables.parity_table(ladder)))
    print(terminal(parity_tables.curves_table(trained)))
    if not parity.all_hold(ladder) or not all(one.hold for one in trained):
        raise typer.Exit(1)
