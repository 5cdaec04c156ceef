"""Commands on studies: `resume`, `stability`, `export`, and `show` of two studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, List, Optional

import typer

from framework_compare.cli import console
from framework_compare.cli.options import (
    Index,
    MemoryLimit,
    PhaseTimeout,
    Retry,
    SilenceTimeout,
    Timeout,
    limit_options,
    statuses,
)
from framework_compare.plan.values import pairs, split


def resume(
    study: Annotated[Path, typer.Argument(help="A study folder.")],
    retry: Retry = None,
    index: Index = None,
    timeout: Timeout = None,
    phase_timeout: PhaseTimeout = None,
    silence_timeout: SilenceTimeout = None,
    memory_limit: MemoryLimit = None,
    verify: Annotated[
        Optional[str], typer.Option(help="Parity: require it, warn (show what is known), or off; default: as planned.")
    ] = None,
    strict: Annotated[bool, typer.Option(help="Exit with 1 if a cell is not ok.")] = False,
) -> None:
    """Run what a study has not finished; finished cells stay, unless --retry names their status.

    Example: framework-compare resume STUDY --retry failed,timed-out --timeout 3600
    """
    from framework_compare import api

    watcher = console.watcher()
    with console.kept_on_interrupt(study, watcher):
        result = api.resume(
            study,
            retry=statuses(retry),
            index=pairs("--index", index),
            verify=verify,
            watcher=watcher,
            **limit_options(timeout, phase_timeout, silence_timeout, memory_limit),
        )
    console.print_tables(result, "terminal")
    if strict and (result.frame["status"] != "ok").any():
        raise typer.Exit(1)


def stability(
    frameworks: Annotated[str, typer.Option(help="Comma-separated: torch,tensorflow,mxnet,paddle,jax.")],
    models: Annotated[str, typer.Option(help="Comma-separated: alexnet,mobilenet_v2,resnet50,vgg16.")],
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N; several, comma-separated.")] = "cpu",
    dataset: Annotated[
        str, typer.Option(help="A folder with one folder of pictures a class, or a name that `list` shows.")
    ] = "fire-smoke-small",
    batch_sizes: Annotated[
        str, typer.Option(help="To try, rising, comma-separated; the ends of the range for doubling.")
    ] = "10,20,30,40,50,60,70,80,90,100",
    search: Annotated[str, typer.Option(help="steps: each in turn; doubling: double, then bisect.")] = "steps",
    epochs: Annotated[int, typer.Option(help="Measured passes over the pictures at each size.")] = 1,
    limit: Annotated[Optional[int], typer.Option(help="Use that many pictures, drawn by class and seed.")] = None,
    out: Annotated[Optional[Path], typer.Option(help="Study folder; by default one in the cache folder.")] = None,
    index: Index = None,
    python: Annotated[
        Optional[List[str]], typer.Option(help="FRAMEWORK=PATH of an interpreter that has it already. Repeatable.")
    ] = None,
    timeout: Timeout = None,
    phase_timeout: PhaseTimeout = None,
    silence_timeout: SilenceTimeout = None,
    memory_limit: MemoryLimit = None,
    style: Annotated[str, typer.Option(help="terminal, markdown, csv or latex.")] = "terminal",
) -> None:
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
        result = stability_sweep.stability(
            split(frameworks),
            split(models),
            split(device),
            dataset=dataset,
            batch_sizes=split(batch_sizes, int),
            search=search,
            epochs=epochs,
            limit=limit,
            out=folder,
            index=pairs("--index", index),
            python=pairs("--python", python),
            watcher=watcher,
            **limit_options(timeout, phase_timeout, silence_timeout, memory_limit),
        )
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
        print(renderers.RENDERERS[style](side_by_side.table(a.beside(b), (a.folder, b.folder), (len(a.frame), len(b.frame)))))
    else:
        raise UnknownNameError("style", style, (*renderers.RENDERERS, "csv"))
    for result in (a, b):
        console.print_damage(result)
