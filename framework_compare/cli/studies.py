"""Commands on studies: `resume`, `largest-batch`, `reproduce`, `export`, `show`, and of clusters `part` and `absorb`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from framework_compare.cli import console, words
from framework_compare.cli.options import ENVIRONMENTS, LIMITS, OF_DATA, SETTINGS_OF_CELLS, stated, takes
from framework_compare.cli.report import STUDY, starting
from framework_compare.errors import UnknownNameError, UsageError, check_name
from framework_compare.plan.reproductions import REPRODUCTIONS
from framework_compare.plan.values import pairs, split
from framework_compare.protocol import Fields
from framework_compare.study.progress import Watcher

FORMATS = (
    "csv, json, parquet (needs pyarrow), pytest-benchmark, bencher, github-action-benchmark, or runs of mlflow or wandb"
    " (need those packages)."
)


@takes(
    "retry",
    "python",
    "index",
    "trust",
    *LIMITS,
    *("verify", "dry_run", "yes", "strict", "quiet", "json", "on", "slurm"),
    verify=None,
)
def resume(
    strict: bool = False,
    quiet: bool = False,
    json: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    study: Annotated[str, STUDY] = "latest",
    on: str = "here",
    slurm: dict[str, str] | None = None,
    trust: bool = False,
    verify: str | None = None,
    **request: Any,
) -> None:
    """Run the unfinished cells of a study; finished cells are kept unless --retry names their status.

    Limits, interpreters and --verify given here replace those of the study.
    """
    from framework_compare import api
    from framework_compare.study import executors, names

    folder, watcher, executor = names.find(study), console.watcher(quiet, yes), executors.of(on, slurm)
    if dry_run:
        console.end_with_forecasts([api.dry_resume(folder, executor=executor, **request)], strict)
    with console.kept_on_interrupt(folder, watcher):
        result = api.resume(folder, executor=executor, watcher=watcher, trust=trust, verify=verify, **request)
    console.print_study(result, json)
    console.fail_if_nothing_ran(result, strict)


@takes(
    *("frameworks", "models", "dataset", "batch_sizes", "search", "limit", "out", *OF_DATA),
    *(name for name in SETTINGS_OF_CELLS if name != "batch_size"),
    *("python", "index", *LIMITS, "style", "dry_run", "yes"),
    by_place=words.REQUEST,
    epochs="1",
)
def largest_batch(context: typer.Context, out: Path | None, style: str, dry_run: bool, yes: bool, **given: Any) -> None:
    """Find the largest batch that works: raise the batch size until a cell fails; show the memory at each size."""
    from framework_compare import stability_sweep
    from framework_compare.report.study_table import check_style

    check_style(style)
    folder, watcher, request = console.study_folder(out), console.watcher(yes=yes), stated(context, given)
    if dry_run:
        console.end_with_forecasts([stability_sweep.dry_run(watcher=watcher, **request)])
    with console.kept_on_interrupt(folder, watcher):
        result = stability_sweep.largest_batch(out=folder, watcher=watcher, **request)
    print(result.table(style))
    watcher.say(f"study: {folder}")


@takes(
    *("out", "repeats", "budget", "precision_target", "dry_run", "yes", *ENVIRONMENTS, "sampling_hz", "style"),
    repeats=None,
)
def reproduce(
    name: Annotated[str, typer.Argument(help="The published study: " + ", ".join(REPRODUCTIONS) + ".")],
    out: Path | None,
    repeats: int | None,
    style: str,
    dry_run: bool,
    yes: bool,
    full: Annotated[bool, typer.Option("--full", help="Use the published sizes, which takes hours to days.")] = False,
    frameworks: Annotated[str | None, typer.Option(help="Comma-separated; default: those of the study.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: both where there is a GPU.")] = None,
    part: Annotated[list[str] | None, typer.Option(help="Only this part of the study. Repeatable.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="PART=PATH: real data for a part; otherwise data are generated. Repeatable."),
    ] = None,
    **request: Any,
) -> None:
    """Repeat a published study on this machine and compare its figures with yours; --out with a study resumes it."""
    from framework_compare import reproduction
    from framework_compare.report import renderers

    check_name("style", style, renderers.RENDERERS)
    folder, watcher = console.study_folder(out), console.watcher(yes=True)
    if repeats is not None:
        request["repeats"] = repeats
    asked: Fields = {
        **{key: value for key, value in request.items() if value is not None},
        **{"full": full, "device": device, "data": pairs("--data", data), "parts": part or None},
        **{"frameworks": None if frameworks is None else split(frameworks)},
    }
    forecasts = reproduction.dry_run(name, watcher=watcher if dry_run else Watcher(), **asked)
    if dry_run:
        by_part = "\n".join(f"{part}:\n{forecast}" for part, forecast in forecasts.items())
        console.end_with_forecasts(list(forecasts.values()), text=by_part)
    console.announce(list(forecasts.values()), watcher.say, yes)
    with console.kept_on_interrupt(folder, watcher):
        result = reproduction.reproduce(name, out=folder, watcher=watcher, **asked)
    print(result.table(style))
    watcher.say(f"studies: {folder}")


def export(
    study: Annotated[str, STUDY] = "latest",
    out: Annotated[Path, typer.Option(help="Folder for the files, created if missing.")] = Path("export"),
    kind: Annotated[str, typer.Option("--format", help=FORMATS)] = "csv",
) -> None:
    """Write the tables of a study as files. If the study is damaged, write what can be read and exit with 1."""
    from framework_compare.report.exports import export as write

    done = write(console.found_folder(study), out, kind)
    for path in done.files:
        print(path)
    if done.damage:
        console.fail(f"{study} is damaged and was not changed: {'; '.join(done.damage)}", 1)


def _tables(incomplete: str) -> list[str]:
    from framework_compare.report.kinds import KINDS

    return starting(["kinds", *KINDS], incomplete)


@takes("style")
def show(
    style: str,
    study: Annotated[str, STUDY] = "latest",
    other: Annotated[str | None, typer.Argument(help="Another study, to compare side by side.")] = None,
    table: Annotated[
        str | None,
        typer.Option(
            help="Kind of table: time, resources, precision, ...; `kinds` lists those that the study has.",
            autocompletion=_tables,
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="LaTeX label (latex style only).")] = None,
    caption: Annotated[
        str | None, typer.Option(help="LaTeX caption (latex style only); default: one with the settings.")
    ] = None,
    no_notes: Annotated[
        bool, typer.Option("--no-notes", help="No verdicts and notes below the table (latex style only).")
    ] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="With two studies: only the cells that became slower, faster or failed.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the study as one JSON document.")] = False,
    toml: Annotated[bool, typer.Option("--toml", help="Print the study's request as a file for `run --from`.")] = False,
) -> None:
    """Print the tables of a study or a sweep. With two studies, print the ratios of the cells that both have.

    By default these are the tables of times and resources. Style github is also added to the summary of a GitHub job.
    """
    from framework_compare.report.kinds import KINDS
    from framework_compare.stability_sweep import Stability
    from framework_compare.study import names, strategies

    if json or toml:
        beside = {"both": json and toml, "a second study": other, "--table": table, "--style": style != "terminal"}
        for what, given in beside.items():
            if given:
                raise UsageError(
                    f"--json and --toml print one whole study; received {what}; allowed: one of them, alone"
                )
        with console.reading(study) as result:
            print(result.to_json() if json else result.to_toml(), end="")
        return
    if label is not None or caption is not None or no_notes:
        if style != "latex" or other is not None:
            raise UsageError("--label, --caption and --no-notes need one study and --style latex")
        with console.reading(study) as result:
            print(result.table(table or "time").to_latex(label, caption, notes=not no_notes), end="")
        return
    if other is not None:
        _show_two(*names.find_two(console.found_folder(study), console.found_folder(other)), style, changed)
        return
    if changed:
        raise UsageError("--changed needs two studies; name a second one")
    if table is not None and table not in ("kinds", *KINDS):
        raise UnknownNameError("table", table, ("kinds", *KINDS))
    with console.reading(study) as result:
        if table is None and strategies.grows(result.settings):
            print(Stability(result).table(style))
        elif table == "kinds":
            print("\n".join(result.kinds))
        else:
            console.print_tables(result, style, *filter(None, [table]))


def _show_two(first: Path, second: Path, style: str, changed: bool) -> None:
    """Print two studies side by side; changed: only the cells that differ."""
    from framework_compare.comparison import Comparison
    from framework_compare.report import renderers, side_by_side
    from framework_compare.study import names

    a, b = Comparison.load(first), Comparison.load(second)
    if a.beside(b).empty:
        raise UsageError(f"{first} and {second} have no cell in common; allowed: studies of the same settings")
    if style == "csv":
        print(renderers.csv(a.beside(b)))
    elif style in renderers.RENDERERS:
        folders, cells = (names.shown(a.folder), names.shown(b.folder)), (len(a.frame), len(b.frame))
        print(renderers.RENDERERS[style](side_by_side.table(a.beside(b), folders, cells, changed=changed)))
    else:
        raise UnknownNameError("style", style, (*renderers.RENDERERS, "csv"))
    for result in (a, b):
        console.print_damage(result)


@takes("trust", "dry_run", "yes")
def part(
    trust: bool,
    dry_run: bool,
    yes: bool,
    study: Annotated[str, STUDY],
    number: Annotated[int, typer.Argument(help="The part's number, from 1; STUDY/parts has one file for each.")],
) -> None:
    """Run one part of a study on this node, and put its complete result into STUDY/parts.

    `run --on parts` plans parts. A part that is already done is not run again; one that was stopped continues.

    Example: parallel --sshloginfile NODES --jobs 1 framework-compare part STUDY {} ::: 1 2 3
    """
    from framework_compare import api
    from framework_compare.study import names, part_run

    folder, watcher = names.find(study).absolute(), console.watcher(yes=yes)
    forecast = api.dry_part(folder, number)
    if dry_run:
        console.end_with_forecasts([forecast])
    watcher.expect(lambda: forecast)
    with console.kept_on_interrupt(folder, watcher):
        part_run.run_part(folder, number, watcher, trust)


def absorb(study: Annotated[str, STUDY]) -> None:
    """Absorb the finished parts of a study. Exit with 1 if one is refused."""
    from framework_compare import api
    from framework_compare.study import names

    watcher = console.watcher()
    result, refused = api.absorb(names.find(study), say=watcher.say)
    left = int(result.runs["status"].isin(["planned", "running", "interrupted"]).sum())
    watcher.say(f"{left} of {len(result.runs)} runs are unfinished")
    if refused:
        raise typer.Exit(1)
