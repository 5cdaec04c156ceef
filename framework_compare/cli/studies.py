"""Commands on studies: `resume`, `stability`, `export`, and `show` of two studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from framework_compare.cli import console
from framework_compare.cli.options import LIMITS, SETTINGS_OF_CELLS, takes


@takes("retry", "index", *LIMITS, "verify", "strict", verify=None)
def resume(
    study: Annotated[Path, typer.Argument(help="A study folder.")],
    strict: bool,
    **request: Any,
) -> None:
    """Run what a study has not finished; finished cells stay, unless --retry names their status.

    Limits and --verify take the place of the study's own.

    Example: framework-compare resume STUDY --retry failed,timed-out --timeout 3600
    """
    from framework_compare import api

    watcher = console.watcher()
    with console.kept_on_interrupt(study, watcher):
        result = api.resume(study, watcher=watcher, **request)
    console.print_tables(result, "terminal")
    if strict and (result.frame["status"] != "ok").any():
        raise typer.Exit(1)


@takes(
    *("frameworks", "models", "dataset", "batch_sizes", "search", "limit", "out"),
    *(name for name in SETTINGS_OF_CELLS if name != "batch_size"),
    *("python", "index", *LIMITS, "style"),
    epochs="1",
)
def stability(out: Optional[Path], style: str, **request: Any) -> None:
    """Grow the batch until a cell fails: the largest that works, how the next one ends, the memory at each.

    Example: framework-compare stability --frameworks torch,mxnet --models vgg16 --memory-limit 8GiB --out STUDY
    """
    from framework_compare import stability_sweep
    from framework_compare.report import stability_tables
    from framework_compare.study.opening import new_study_folder

    stability_tables.check_style(style)
    folder = out or new_study_folder()
    watcher = console.watcher()
    with console.kept_on_interrupt(folder, watcher):
        result = stability_sweep.stability(out=folder, watcher=watcher, **request)
    print(result.table(style))
    watcher.say(f"study: {folder}")


def export(
    study: Annotated[Path, typer.Argument(help="A study folder.")],
    out: Annotated[Path, typer.Option(help="Folder for the files, made if absent.")],
    kind: Annotated[str, typer.Option("--format", help="parquet, csv or json.")] = "parquet",
) -> None:
    """Write the tables of a study as files; of a damaged one, what can be read (exit code 1).

    Example: framework-compare export STUDY --format csv --out FOLDER
    """
    from framework_compare.report.exports import export as write

    done = write(study, out, kind)
    for path in done.files:
        print(path)
    if done.damage:
        console.fail(f"{study} is damaged and was left as it is: {'; '.join(done.damage)}", 1)


def show_sweep(study: Path, style: str) -> bool:
    """Print the tables of a stability sweep; False where the study is none."""
    from framework_compare.comparison import Comparison
    from framework_compare.stability_sweep import Stability
    from framework_compare.study import strategies

    result = Comparison.load(study)
    sweep = strategies.grows(result.settings)
    if sweep:
        print(Stability(result).table(style))
        console.print_damage(result)
    return sweep


def show_two(first: Path, second: Path, style: str) -> None:
    """Print two studies side by side."""
    from framework_compare.comparison import Comparison
    from framework_compare.errors import UnknownNameError
    from framework_compare.report import renderers, side_by_side

    a, b = Comparison.load(first), Comparison.load(second)
    if style == "csv":
        print(renderers.csv(a.beside(b)))
    elif style in renderers.RENDERERS:
        print(
            renderers.RENDERERS[style](
                side_by_side.table(a.beside(b), (a.folder, b.folder), (len(a.frame), len(b.frame)))
            )
        )
    else:
        raise UnknownNameError("style", style, (*renderers.RENDERERS, "csv"))
    for result in (a, b):
        console.print_damage(result)
