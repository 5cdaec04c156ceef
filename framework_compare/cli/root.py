"""The command line: the same code as `compare()`, with progress, exit codes and help that teaches."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any, List, Optional

import typer

from framework_compare import __version__
from framework_compare.cli import console, environments, fairness, options, studies
from framework_compare.cli import verify as verify_command
from framework_compare.errors import FrameworkCompareError, UsageError
from framework_compare.plan.values import pairs, split

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Which deep-learning framework trains fastest on this machine, and at what cost.\n\n"
    "Start with `framework-compare quickstart`; `framework-compare doctor` says what works here.",
)
app.add_typer(environments.app, name="env")
app.command()(verify_command.verify)
app.command()(fairness.fairness)
for _command in (studies.resume, studies.stability, studies.export):
    app.command()(_command)

QUICK_BATCH, QUICK_EPOCHS, QUICK_PICTURES = 4, 2, 16


def main() -> None:
    """Entry of the console script: one clear line and exit code 2 for a wrong request, 1 for other failures."""
    _print_any_text()
    try:
        code = app(standalone_mode=False)  # a typer.Exit is returned, not raised
        if code == 130:  # typer's own answer to a KeyboardInterrupt that nobody took
            console.fail("stopped", 130)
    except UsageError as error:
        console.fail(str(error), 2)
    except FrameworkCompareError as error:
        console.fail(str(error), 1)
    except typer.Abort:
        console.fail("stopped", 130)
    except KeyboardInterrupt:
        console.fail("stopped; what was measured is kept", 130)
    except BrokenPipeError:  # `framework-compare show ... | head`
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        _usage_of_click(error)
        raise
    sys.exit(code)


def _print_any_text() -> None:
    """Paths that are no text, and what a terminal's own encoding lacks, are shown with question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _usage_of_click(error: Exception) -> None:
    """Show what typer's parser objects to; it has a base class of its own, which depends on typer's version."""
    message = getattr(error, "format_message", None)
    if message is not None:
        console.fail(message(), getattr(error, "exit_code", 2))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"framework-compare {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    from framework_compare.registry import load_plugins

    load_plugins()


@app.command()
def run(
    frameworks: Annotated[str, typer.Option(help="Comma-separated: torch,tensorflow,mxnet,paddle,jax.")],
    models: Annotated[str, typer.Option(help="Comma-separated: alexnet,mobilenet_v2,resnet50,vgg16.")],
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N; several, comma-separated.")] = "cpu",
    dataset: Annotated[
        List[str],
        typer.Option(help="A folder with one folder of pictures a class, or a name that `list` shows. Repeatable."),
    ] = ["fire-smoke-small"],
    batch_size: Annotated[str, typer.Option(help="Pictures a step; several, comma-separated.")] = "16",
    epochs: Annotated[int, typer.Option(help="Measured passes over the pictures (100 in the published study).")] = 3,
    out: Annotated[Optional[Path], typer.Option(help="Study folder; by default one in the cache folder.")] = None,
    pipeline: Annotated[str, typer.Option(help="native: the framework's own loader; shared: one for all; memory.")]
    = "native",
    execution: Annotated[str, typer.Option(help="default, eager, graph, compiled.")] = "default",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16, fp16.")] = "fp32",
    tuning: Annotated[str, typer.Option(help="recommended: the framework's own performance guide; none.")]
    = "recommended",
    threads: Annotated[Optional[int], typer.Option(help="Size of every compute pool; default: all cores.")] = None,
    loader_workers: Annotated[Optional[int], typer.Option(help="Processes that read pictures; default: cores.")] = None,
    warmup_steps: Annotated[int, typer.Option(help="Untimed steps after the first.")] = 2,
    image_size: Annotated[int, typer.Option(help="Pixels a side.")] = 224,
    flip: Annotated[str, typer.Option(help="horizontal, vertical or none.")] = "horizontal",
    crop: Annotated[str, typer.Option(help="random, or none: the whole picture stretched.")] = "random",
    learning_rate: Annotated[float, typer.Option(help="Of SGD.")] = 0.001,
    momentum: Annotated[float, typer.Option(help="Of SGD.")] = 0.9,
    weight_decay: Annotated[float, typer.Option(help="Of SGD, on every parameter.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of weights, order and augmentation.")] = 0,
    repeats: Annotated[int, typer.Option(help="Runs of each cell; runs of different cells take turns.")] = 1,
    limit: Annotated[Optional[int], typer.Option(help="Use that many pictures, drawn by class and seed.")] = None,
    classes: Annotated[Optional[str], typer.Option(help="Class folders in this order, comma-separated.")] = None,
    on_bad_picture: Annotated[str, typer.Option(help="fail, or skip: leave it out and count it.")] = "fail",
    python: Annotated[
        Optional[List[str]], typer.Option(help="FRAMEWORK=PATH of an interpreter that has it already. Repeatable.")
    ] = None,
    index: Annotated[
        Optional[List[str]], typer.Option(help="FRAMEWORK=URL of an extra package index. Repeatable.")
    ] = None,
    installer: Annotated[str, typer.Option(help="pip or uv.")] = "pip",
    timeout: options.Timeout = None,
    phase_timeout: options.PhaseTimeout = None,
    silence_timeout: options.SilenceTimeout = None,
    memory_limit: options.MemoryLimit = None,
    retry: options.Retry = None,
    sampling_hz: Annotated[float, typer.Option(help="Readings of CPU, memory and threads a second; 0: none.")] = 10.0,
    verify: Annotated[str, typer.Option(help="Parity: require it, warn (show what is known), or off.")] = "warn",
    profile: Annotated[
        bool, typer.Option("--profile", help="A few more steps under the framework's profiler: `show --table profile`.")
    ] = False,
    disturbance_threshold: Annotated[
        float, typer.Option(help="Share of a core that others may take of an epoch; more marks it.")
    ] = 0.1,
    retries_when_disturbed: Annotated[int, typer.Option(help="Repeats of a run with marked epochs, at the end.")] = 1,
    strict: Annotated[bool, typer.Option(help="Exit with 1 if a cell is not ok.")] = False,
) -> None:
    """Train every model with every framework, each cell in a process of its own, and print the tables.

    Example: framework-compare run --frameworks torch,mxnet --models alexnet,vgg16 --dataset PICTURES
    --batch-size 16 --epochs 2 --out STUDY
    """
    _run_and_show(
        strict,
        frameworks=split(frameworks),
        models=split(models),
        device=split(device),
        dataset=dataset,
        batch_size=split(batch_size, int),
        epochs=epochs,
        out=out,
        pipeline=split(pipeline),
        execution=split(execution),
        precision=split(precision),
        tuning=split(tuning),
        threads=threads,
        loader_workers=loader_workers,
        warmup_steps=warmup_steps,
        image_size=image_size,
        flip=flip,
        crop=crop,
        learning_rate=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        seed=seed,
        repeats=repeats,
        limit=limit,
        classes=split(classes) if classes is not None else None,
        on_bad_picture=on_bad_picture,
        python=pairs("--python", python),
        index=pairs("--index", index),
        installer=installer,
        **options.limit_options(timeout, phase_timeout, silence_timeout, memory_limit),
        retry=options.statuses(retry),
        sampling_hz=sampling_hz,
        verify=verify,
        profile=profile,
        disturbance_threshold=disturbance_threshold,
        retries_when_disturbed=retries_when_disturbed,
    )


@app.command()
def quickstart(
    frameworks: Annotated[str, typer.Option(help="Comma-separated.")] = "torch,tensorflow,mxnet,paddle,jax",
    out: Annotated[Optional[Path], typer.Option(help="Study folder; by default one in the cache folder.")] = None,
    python: Annotated[
        Optional[List[str]], typer.Option(help="FRAMEWORK=PATH of an interpreter that has it already. Repeatable.")
    ] = None,
    index: Annotated[
        Optional[List[str]], typer.Option(help="FRAMEWORK=URL of an extra package index. Repeatable.")
    ] = None,
    installer: Annotated[str, typer.Option(help="pip or uv.")] = "pip",
) -> None:
    """All five frameworks and four networks on a few rendered pictures: minutes, after some 5 GB of downloads.

    It shows that everything works here. Its figures are from few, small steps: do not quote them.
    """
    _run_and_show(
        False,
        frameworks=split(frameworks),
        models=["alexnet", "mobilenet_v2", "resnet50", "vgg16"],
        dataset="fire-smoke-tiny",
        limit=QUICK_PICTURES,
        batch_size=QUICK_BATCH,
        epochs=QUICK_EPOCHS,
        warmup_steps=1,
        out=out,
        python=pairs("--python", python),
        index=pairs("--index", index),
        installer=installer,
    )


def _run_and_show(strict: bool, **request: Any) -> None:
    from framework_compare.api import compare
    from framework_compare.study.opening import new_study_folder

    folder = Path(request.pop("out") or new_study_folder())
    watcher = console.watcher()
    with console.kept_on_interrupt(folder, watcher):
        result = compare(out=folder, watcher=watcher, **request)
    console.print_tables(result, "terminal")
    watcher.say(f"study: {folder}")
    if strict and (result.frame["status"] != "ok").any():
        raise typer.Exit(1)


@app.command()
def show(
    study: Annotated[Path, typer.Argument(help="A study folder.")],
    other: Annotated[Optional[Path], typer.Argument(help="Another one, to see side by side.")] = None,
    style: Annotated[str, typer.Option(help="terminal, markdown, csv or latex.")] = "terminal",
    table: Annotated[Optional[str], typer.Option(help="time, resources, profile, ...; default: the first two.")] = None,
) -> None:
    """Print the tables of a study or a sweep, or of two studies the cells that both have, with their ratio."""
    from framework_compare.comparison import Comparison

    if other is not None:
        studies.show_two(study, other, style)
        return
    if table is None and studies.show_sweep(study, style):
        return
    result = Comparison.load(study)
    if table is None:
        console.print_tables(result, style)
    else:
        print(result.table(table, style=style))
        console.print_damage(result)


@app.command("list")
def list_names() -> None:
    """Frameworks, models and data sets that can be named, and the studies kept in the cache folder."""
    from framework_compare import registry
    from framework_compare.plan.planning import build_graph
    from framework_compare.protocol import TrainConfig
    from framework_compare.study.opening import studies_dir

    print("frameworks:", ", ".join(registry.FRAMEWORKS))
    print("models:")
    for name in registry.MODELS:
        graph = build_graph(name, TrainConfig())
        print(f"  {name:15} {graph.parameter_count():>11,} parameters  {graph.macs() / 1e9:6.2f} G MACs a picture")
    print("  (3 classes, 224 x 224)")
    print("data sets:", ", ".join(registry.DATASETS), "or a folder with one folder of pictures a class")
    folders = sorted(path for path in studies_dir().glob("*") if path.is_dir())
    print("studies:" if folders else "studies: none yet")
    for path in folders:
        print(f"  {path}")


@app.command()
def doctor(
    python: Annotated[
        Optional[List[str]], typer.Option(help="FRAMEWORK=PATH of an interpreter to examine. Repeatable.")
    ] = None,
    deep: Annotated[bool, typer.Option(help="Import each framework too, ask what it lacks (seconds each).")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N; several, comma-separated.")] = "cpu,cuda",
) -> None:
    """Say of each framework whether it can be used here, and if not, why and what to do."""
    environments.print_diagnosis(pairs("--python", python), deep=deep, devices=split(device))


if __name__ == "__main__":
    main()
