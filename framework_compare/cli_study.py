"""Commands on studies: `resume`, `stability`, `export`, and `show` of two studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import typer

from framework_compare.cli_options import pairs, split
from framework_compare.errors import UsageError

Timeout = Annotated[Optional[float], typer.Option(help="Seconds after which a run is ended.")]
PhaseTimeout = Annotated[
    Optional[str], typer.Option(help="Seconds a phase may take (all but epochs), or PHASE=SECONDS,... by name.")
]
SilenceTimeout = Annotated[Optional[float], typer.Option(help="Seconds without an event or output that end a run.")]
MemoryLimit = Annotated[Optional[str], typer.Option(help="Of a run with all its processes: bytes, or 4GiB, 1500MB.")]
Retry = Annotated[Optional[str], typer.Option(help="Statuses to run again, comma-separated: failed,timed-out.")]
Index = Annotated[Optional[List[str]], typer.Option(help="FRAMEWORK=URL of an extra package index. Repeatable.")]


def phase_timeout(text: Optional[str]) -> Any:
    """30.0 from "30", {"import": 30.0} from "import=30"; UsageError for anything else."""
    if text is None:
        return None
    try:
        if "=" not in text:
            return float(text)
        return {name: float(value) for name, value in pairs("--phase-timeout", split(text)).items()}
    except ValueError:
        raise UsageError(f"--phase-timeout is {text!r}; allowed: seconds, or PHASE=SECONDS,...") from None


def statuses(text: Optional[str]) -> List[str]:
    """The statuses of --retry; UsageError where it is there and names none."""
    found = split(text or "")
    if text is not None and not found:
        raise UsageError(f"--retry is {text!r}; allowed: statuses, comma-separated, such as failed,timed-out")
    return found


def held(
    timeout: Optional[float], phase: Optional[str], silence: Optional[float], memory: Optional[str]
) -> Dict[str, Any]:
    """The limits of `compare()` from the options of that name."""
    return {
        "timeout_s": timeout,
        "phase_timeout_s": phase_timeout(phase),
        "silence_timeout_s": silence,
        "memory_limit": memory,
    }


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
    from framework_compare import api, cli

    watcher = cli._watcher()
    with cli._kept_on_interrupt(study, watcher):
        result = api.resume(
            study,
            retry=statuses(retry),
            index=pairs("--index", index),
            verify=verify,
            watcher=watcher,
            **held(timeout, phase_timeout, silence_timeout, memory_limit),
        )
    cli._print_tables(result, "terminal")
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
    from framework_compare import cli, stability_sweep, stability_tables
    from framework_compare.api import new_study_folder

    stability_tables.check_style(style)
    folder = out or new_study_folder()
    watcher = cli._watcher()
    with cli._kept_on_interrupt(folder, watcher):
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
            **held(timeout, phase_timeout, silence_timeout, memory_limit),
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
    from framework_compare import cli
    from framework_compare.exports import export as write

    done = write(study, out, kind)
    for path in done.files:
        print(path)
    if done.damage:
        cli._fail(f"{study} is damaged and was left as it is: {'; '.join(done.damage)}", 1)


def show_sweep(study: Path, style: str) -> bool:
    """Print the tables of a stability sweep; False where the study is none."""
    from framework_compare import cli
    from framework_compare.comparison import Comparison
    from framework_compare.stability_sweep import Stability

    result = Comparison.load(study)
    if "stability" in result.settings:
        print(Stability(result).table(style))
        cli._tell_damage(result)
    return "stability" in result.settings


def show_two(first: Path, second: Path, style: str) -> None:
    """Print two studies side by side."""
    from framework_compare import cli, side_by_side, tables
    from framework_compare.comparison import Comparison
    from framework_compare.errors import UnknownNameError

    a, b = Comparison.load(first), Comparison.load(second)
    if style == "csv":
        print(tables.csv(side_by_side.side_by_side(a, b)))
    elif style in tables.RENDERERS:
        print(tables.RENDERERS[style](side_by_side.table(a, b)))
    else:
        raise UnknownNameError("style", style, (*tables.RENDERERS, "csv"))
    for result in (a, b):
        cli._tell_damage(result)
