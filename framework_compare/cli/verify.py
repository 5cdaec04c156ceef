"""`framework-compare verify` and `fairness`: parity level by level, loss curves, as tables and a plot."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from framework_compare.cli import console, words
from framework_compare.cli.options import ENVIRONMENTS, LOSS, MODELS, OF_DATA, OPTIONS, PLAIN, takes
from framework_compare.errors import UsageError, check_name
from framework_compare.plan.settings import CODE_PATH, FEEDING, NETWORK, SIZES, of_verdict
from framework_compare.protocol import Fields
from framework_compare.results.parity import NOT_INSTALLED, UNSUPPORTED, all_hold

STYLES = ("terminal", "markdown", "latex")


@takes(
    *("frameworks", "models", "dataset", *OF_DATA, *of_verdict(CODE_PATH, FEEDING, NETWORK, SIZES)),
    *(*ENVIRONMENTS, "trust", "dry_run", "yes"),
    by_place=(words.STUDY, *words.REQUEST),
    frameworks=PLAIN,
    models=MODELS,
)
def verify(
    python: dict[str, str],
    index: dict[str, str],
    trust: bool,
    dry_run: bool,
    yes: bool,
    fresh: Annotated[bool, typer.Option(help="Check again and ignore cached verdicts.")] = False,
    style: Annotated[str, typer.Option(help=f"Style of the table: {', '.join(STYLES)}.")] = "terminal",
    loss_function: Annotated[str | None, typer.Option(help=LOSS)] = None,
    keep: Annotated[Path | None, typer.Option(help="Folder for the workers' logs.")] = None,
    **request: Any,
) -> None:
    """Check that all frameworks train the same function, level by level, against a float64 reference.

    Exit code 1 if a level fails or could not be checked, a framework cannot be installed, or nothing was verified.
    Verdicts are cached until the worker's source, the environment's packages or the GPU change. With STUDY (folder, name,
    latest), check the cells of this study
    whose environment and source have not changed. Its tables then show the verdicts.
    """
    check_name("style", style, STYLES)
    study = request.pop(words.STUDY, None)
    if study is not None:
        from framework_compare.study import names

        _check_unasked({"python": python, "keep": keep, **request})
        _verify_study(names.find(study), index, fresh, trust, style, dry_run, yes)
        return
    from framework_compare.parity import verify as ladder
    from framework_compare.report import parity_tables, renderers
    from framework_compare.study.opening import check_writable

    dataset = _only(request.pop("dataset"))
    of_data = {name: request.pop(name) for name in OF_DATA}
    of_data.update(image_size=request["image_size"], loss_function=loss_function)
    _, request["models"], _ = console.own_models(request["models"], dataset, python, index, **of_data)
    if keep is not None:
        check_writable(keep, "logs")
    asked = {"fresh": fresh, "where": ladder.Where(python, index), **request}
    forecast = ladder.dry_run(say=console.say if dry_run else lambda message: None, **asked)
    if dry_run:
        console.end_with_forecasts([forecast])
    console.announce([forecast], console.say, yes, "check")
    verdicts = ladder.verify(folder=keep, say=console.say, **asked)
    print(renderers.RENDERERS[style](parity_tables.parity_table(verdicts)))
    if all(one.status in (UNSUPPORTED, NOT_INSTALLED) for one in verdicts):
        print("framework-compare: nothing was verified; the notes above name what is missing", file=sys.stderr)
    if not all_hold(verdicts):
        raise typer.Exit(1)


def _only(datasets: list[str] | None) -> str | None:
    """The data set, of which a check takes one; UsageError for several."""
    if datasets and len(datasets) > 1:
        raise UsageError(f"--dataset is {', '.join(datasets)!r}; allowed: one")
    return datasets[0] if datasets else None


def _check_unasked(request: Fields) -> None:
    """UsageError for an option that a study has decided already."""
    defaults = {"keep": None, "frameworks": PLAIN.split(","), "models": MODELS.split(",")}
    for name, value in request.items():
        default = defaults[name] if name in defaults else OPTIONS[name].read(OPTIONS[name].default)
        if value != default:
            flag = name.replace("_", "-")
            raise UsageError(
                f"--{flag} cannot be combined with a study, whose cells fix it; allowed: --fresh, --style, --index, --trust,"
                " --dry-run, --yes"
            )


def _verify_study(
    study: Path, index: dict[str, str], fresh: bool, trust: bool, style: str, dry_run: bool, yes: bool
) -> None:
    from framework_compare import api
    from framework_compare.report import parity_tables, renderers

    forecast = api.dry_verify_study(study, fresh=fresh)
    if dry_run:
        console.end_with_forecasts([forecast])
    console.announce([forecast], console.say, yes, "check")
    verdicts, reasons = api.verify_study(study, index=index, fresh=fresh, trust=trust, say=console.say)
    if verdicts:
        print(renderers.RENDERERS[style](parity_tables.parity_table(verdicts)))
    else:
        console.say(f"{study}: no cell was checked; existing verdicts are kept (--fresh checks them again)")
    for reason in reasons:
        console.say(reason)
    if reasons or (verdicts and not all_hold(verdicts)):
        raise typer.Exit(1)


@takes(
    *("frameworks", "models", "dataset", "batch_size", "image_size", "learning_rate", "execution", "tuning", "threads"),
    *(*ENVIRONMENTS, *OF_DATA),
    *("dry_run", "yes"),
    frameworks=PLAIN,
    models=MODELS,
    dataset=["fire-smoke-tiny"],
    batch_size="2",
    by_place=words.REQUEST,
)
def fairness(
    frameworks: list[str],
    models: list[str],
    dataset: list[str],
    batch_size: int,
    learning_rate: float,
    python: dict[str, str],
    index: dict[str, str],
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
    from framework_compare.parity import verify as ladder
    from framework_compare.parity.training import curves
    from framework_compare.report import curves as curves_report
    from framework_compare.report import parity_tables
    from framework_compare.report.renderers import markdown, terminal
    from framework_compare.study.opening import check_writable

    data, of_data = _only(dataset), {name: common.pop(name) for name in OF_DATA}
    of_curves: Fields = {"steps": steps, "batch_size": batch_size, "learning_rate": learning_rate}
    where = ladder.Where(python, index)
    check_writable(out, "curves")
    size = common.pop("image_size")
    own, models, _ = console.own_models(models, data, python, index, image_size=size, **of_data)
    of_images: Fields = {} if own else {"image_size": size}
    quiet = console.say if dry_run else lambda message: None
    forecasts = [ladder.dry_run(frameworks, models, where=where, **of_images, **common)]
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
    verdicts = ladder.verify(frameworks, models, **of_images, **common)
    table = parity_tables.parity_table(verdicts)
    (out / "ladder.md").write_text(markdown(table), encoding="utf-8")
    print(terminal(table))
    print(terminal(parity_tables.curves_table(trained)))
    if not all_hold(verdicts) or not all(one.hold for one in trained):
        raise typer.Exit(1)
