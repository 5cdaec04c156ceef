"""Commands on studies: `resume`, `stability`, `export`, and `show` of two studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from framework_compare.cli import console
from framework_compare.cli.options import LIMITS, SETTINGS_OF_CELLS, takes
from framework_compare.cli.report import STUDY


@takes("retry", "index", *LIMITS, "verify", "strict", verify=None)
def resume(
    study: Annotated[str, STUDY],
    strict: bool,
    **request: Any,
) -> None:
    """Run the unfinished cells of a study; finished cells stay, unless --retry names their status.

    Limits and --verify replace those of the study.

    Example: framework-compare resume STUDY --retry failed,timed-out --timeout 3600
    """
    from framework_compare import api
    from framework_compare.study import names

    folder, watcher = names.find(study), console.watcher()
    with console.kept_on_interrupt(folder, watcher):
        result = api.resume(folder, watcher=watcher, **request)
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
    """Find the largest batch that works: raise the batch size until a cell fails; show the memory at each size.

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
    study: Annotated[str, STUDY],
    out: Annotated[Path, typer.Option(help="Folder for the files; made if it does not exist.")],
    kind: Annotated[str, typer.Option("--format", help="Format of the files: parquet, csv or json.")] = "parquet",
) -> None:
    """Write the tables of a study as files. Of a damaged study, write what can be read and exit with 1.

    Example: framework-compare export STUDY --format csv --out FOLDER
    """
    from framework_compare.report.exports import export as write
    from framework_compare.study import names

    done = write(names.find(study), out, kind)
    for path in done.files:
        print(path)
    if done.damage:
        console.fail(f"{study} is damaged and was not changed: {'; '.join(done.damage)}", 1)


def show_sweep(study: Path, style: str) -> bool:
    """Print the tables of a stability sweep; return False if the study is not a sweep."""
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
