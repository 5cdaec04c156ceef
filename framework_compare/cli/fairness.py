"""`framework-compare fairness`: parity levels and loss curves, as tables and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Dict, List

import typer

from framework_compare.cli import console, words
from framework_compare.cli.options import ENVIRONMENTS, MODELS, OF_DATA, PLAIN, one_of, takes
from framework_compare.protocol import Fields


@takes(
    *("frameworks", "models", "dataset", "batch_size", "image_size", "learning_rate", "execution", "tuning", "threads"),
    *(*ENVIRONMENTS, *OF_DATA),
    *("dry_run", "yes"),
    frameworks=PLAIN,
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
    dry_run: bool,
    yes: bool,
    out: Annotated[Path, typer.Option(help="Folder for ladder.md, curves.md, curves.json, curves.svg.")] = Path(
        "fairness"
    ),
    steps: Annotated[int, typer.Option(help="Training steps.")] = 20,
    **common: Any,
) -> None:
    """Check the parity levels, then train all frameworks on the same batches and compare their losses.

    Exit code 1 if a level fails or the losses differ by more than float32 rounding explains. Results are cached, so a
    check that was stopped continues where it was.
    """
    from framework_compare import api
    from framework_compare.importing.tracing import Tracer
    from framework_compare.parity import verify
    from framework_compare.parity.training import curves
    from framework_compare.report import curves as curves_report
    from framework_compare.report import parity_tables
    from framework_compare.report.renderers import markdown, terminal
    from framework_compare.results import parity
    from framework_compare.study.opening import check_writable
    from framework_compare.study.request import Request

    data, of_data = one_of("dataset", dataset), {name: common.pop(name) for name in OF_DATA}
    of_curves: Fields = {"steps": steps, "batch_size": batch_size, "learning_rate": learning_rate}
    where = verify.Where(python, index)
    check_writable(out, "curves")
    asked = Request.of([], models, dataset=data, image_size=common["image_size"], **of_data)
    own, models, _ = api.with_own(asked, Tracer(python, index, console.say))
    size = common.pop("image_size")
    of_images: Fields = {} if own else {"image_size": size}
    quiet = console.say if dry_run else lambda message: None
    forecasts = [verify.dry_run(frameworks, models, where=where, **of_images, **common)]
    if own is None:
        curve = curves.dry_run(frameworks, models, say=quiet, **of_curves, **of_images, **common)
        forecasts.insert(0, curve)
    if dry_run:
        named = zip(("Loss curves", "Levels")[-len(forecasts) :], forecasts)
        console.end_with_forecasts(forecasts, text="\n".join(f"{what}: {one}" for what, one in named))
    console.announce(forecasts, console.say, yes, "check")
    common.update(where=where, say=console.say)
    if own is None:
        trained = curves.train_curves(frameworks, models, data, **of_curves, **of_images, **common)
    else:
        trained = [curves.train_workload_curves(frameworks, model, own, **of_curves, **common) for model in models]
    curves_report.write(trained, out)
    if own is None:
        of_images["num_classes"] = trained[0].setting["num_classes"]
    ladder = verify.verify(frameworks, models, **of_images, **common)
    (out / "ladder.md").write_text(markdown(parity_tables.parity_table(ladder)), encoding="utf-8")
    print(terminal(parity_tables.parity_table(ladder)))
    print(terminal(parity_tables.curves_table(trained)))
    if not parity.all_hold(ladder) or not all(one.hold for one in trained):
        raise typer.Exit(1)
