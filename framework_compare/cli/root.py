"""The command line: the same code as `compare()`, with progress, exit codes and help that teaches."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import typer

from framework_compare import __version__
from framework_compare.cli import check, console, environments, fairness, report, studies
from framework_compare.cli import inspect as inspect_command
from framework_compare.cli import verify as verify_command
from framework_compare.cli.options import ENVIRONMENTS, FRAMEWORKS, LIMITS, SETTINGS_OF_CELLS, takes
from framework_compare.errors import FrameworkCompareError, UsageError
from framework_compare.plan.settings import SETTINGS

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find which deep-learning framework trains fastest on this machine, and at what cost.\n\n"
    "Start with `framework-compare quickstart`; `framework-compare doctor` checks this machine.",
)
app.add_typer(environments.app, name="env")
app.command()(verify_command.verify)
app.command()(fairness.fairness)
app.command()(inspect_command.inspect)
for _command in (
    *(studies.resume, studies.stability, studies.overhead, studies.export),
    *(report.report, report.figure, check.check),
):
    app.command()(_command)

QUICK: Dict[str, Any] = {
    "models": ["alexnet", "mobilenet_v2", "resnet50", "vgg16"],
    "dataset": "fire-smoke-tiny",
    "limit": 16,
    "batch_size": 4,
    "epochs": 2,
    "warmup_steps": 1,
    "repeats": 1,
}


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
        console.fail("stopped; measured epochs are stored", 130)
    except BrokenPipeError:  # `framework-compare show ... | head`
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        _usage_of_click(error)
        raise
    sys.exit(code)


def _print_any_text() -> None:
    """Show characters that the terminal cannot encode, and paths that are no text, as question marks."""
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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    from framework_compare.registry import load_plugins

    load_plugins()


@app.command()
@takes(
    *("frameworks", "models", "dataset", *SETTINGS_OF_CELLS, "weights", "out", "repeats", "limit", "classes"),
    "on_bad_picture",
    *(*ENVIRONMENTS, *LIMITS, "retry", "sampling_hz", "verify", "profile"),
    *("disturbance_threshold", "retries_when_disturbed", "strict"),
)
def run(context: typer.Context, **request: Any) -> None:
    """Train every model with every framework, each cell in a process of its own, and print the tables.

    Example: framework-compare run --frameworks torch,mxnet --models alexnet,vgg16 --dataset IMAGES
    --batch-size 16 --epochs 2 --out STUDY
    """
    _run_and_show(**_stated(context, request))


def _stated(context: typer.Context, request: Dict[str, Any]) -> Dict[str, Any]:
    """A request without the settings and the data set that nobody asked for: a workload has its own."""

    def asked(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is None or source.name != "DEFAULT"

    return {name: value for name, value in request.items() if name not in (*SETTINGS, "dataset") or asked(name)}


@app.command()
@takes(
    *("frameworks", "models", "dataset", *SETTINGS_OF_CELLS, "out", "repeats", "limit"),
    *(*ENVIRONMENTS, *LIMITS, "sampling_hz", "verify", "strict"),
)
def ladder(
    context: typer.Context,
    rung: Annotated[
        Optional[List[str]],
        typer.Option(help='A rung, "NAME: SETTING=VALUE, ..."; repeat it for more. A published ladder has its own.'),
    ] = None,
    one_at_a_time: Annotated[
        bool, typer.Option("--one-at-a-time", help="Each rung changes the base alone, not the rung before.")
    ] = False,
    **request: Any,
) -> None:
    """Train one model in steps, each rung with settings changed, and print what each gains.

    --models takes one model, or a published ladder: abidate2025-google, abidate2025-ibm, abidate2025-guava,
    abidate2025-diabetes, tf-profiling. Example: framework-compare ladder --frameworks torch --models lstm_google
    --rung "batch 100: batch_size=100" --rung "Nadam: optimizer=nadam"
    """
    from framework_compare.plan.ladders import LADDERS, rungs_of_text

    request = _stated(context, request)
    if len(request["models"]) != 1:
        raise UsageError(f"--models is {', '.join(request['models'])}; allowed: one model, or one published ladder")
    (name,) = request["models"]
    rungs: Any = rungs_of_text(rung) if rung else None
    if name in LADDERS:
        request = {**LADDERS[name].base, **request, "models": LADDERS[name].model}
        rungs = rungs or LADDERS[name].rungs
    if not rungs:
        raise UsageError(f"no --rung is given; allowed: one or more, or a published ladder: {', '.join(LADDERS)}")
    _run_and_show(kind="gains", rungs=rungs, one_at_a_time=one_at_a_time, **request)


@app.command()
@takes("frameworks", "out", *ENVIRONMENTS, frameworks=FRAMEWORKS)
def quickstart(**request: Any) -> None:
    """Train four models with all five frameworks on a few rendered images: minutes, after some 5 GB of downloads.

    It shows that everything works here. Its few, small steps are no measurement: do not quote its figures.
    """
    _run_and_show(**QUICK, **request)


def _run_and_show(strict: bool = False, kind: Optional[str] = None, **request: Any) -> None:
    from framework_compare.api import compare
    from framework_compare.study.opening import new_study_folder

    folder = Path(request.pop("out") or new_study_folder())
    watcher = console.watcher()
    with console.kept_on_interrupt(folder, watcher):
        result = compare(out=folder, watcher=watcher, **request)
    console.print_tables(result, "terminal", *filter(None, [kind]))
    watcher.say(f"study: {folder}")
    if strict and (result.frame["status"] != "ok").any():
        raise typer.Exit(1)


@app.command()
@takes("style")
def show(
    style: str,
    study: Annotated[str, report.STUDY] = "latest",
    other: Annotated[Optional[str], typer.Argument(help="Another study, to compare side by side.")] = None,
    table: Annotated[
        Optional[str], typer.Option(help="Kind of table: time, resources, profile, ...; default: the first two.")
    ] = None,
) -> None:
    """Print the tables of a study or a sweep. With two studies, print the ratios of the cells that both have."""
    from framework_compare.comparison import Comparison
    from framework_compare.study import names

    folder = names.find(study)
    if other is not None:
        studies.show_two(folder, names.find(other), style)
        return
    if table is None and studies.show_sweep(folder, style):
        return
    result = Comparison.load(folder)
    if table is None:
        console.print_tables(result, style)
    else:
        print(result.table(table, style=style))
        console.print_damage(result)


@app.command("list")
def list_names() -> None:
    """List the frameworks, models and data sets to choose from, and the studies in the cache folder."""
    from framework_compare import registry
    from framework_compare.plan.planning import build_graph
    from framework_compare.protocol import TrainConfig
    from framework_compare.study.opening import studies_dir

    print("frameworks:", ", ".join(registry.FRAMEWORKS))
    for sentence in registry.labels(registry.FRAMEWORKS):
        print(f"  {sentence}")
    print("models:")
    for name in registry.MODELS:
        graph = build_graph(name, TrainConfig())
        print(f"  {name:15} {graph.parameter_count():>11,} parameters  {graph.macs() / 1e9:6.2f} G MACs per image")
    print("  (3 classes, 224 x 224)")
    print("workloads, with data sets of their own:")
    for name, workload in registry.WORKLOADS.items():
        graph = build_graph(name, TrainConfig())
        print(
            f"  {name:15} {graph.parameter_count():>11,} parameters  {graph.macs() / 1e6:6.2f} M MACs per {workload.unit}"
        )
    print("data sets:", ", ".join(registry.DATASETS), "or a folder with one folder of images per class")
    folders = sorted(path for path in studies_dir().glob("*") if path.is_dir())
    print("studies:" if folders else "studies: none yet")
    for path in folders:
        print(f"  {path}")


@app.command()
@takes("python", "device", device="cpu,cuda")
def doctor(
    python: Dict[str, str],
    device: Any,
    deep: Annotated[
        bool, typer.Option(help="Also import each framework and ask what it does not support (seconds each).")
    ] = False,
) -> None:
    """Check which frameworks can run on this machine, and how to fix those that cannot."""
    environments.print_diagnosis(python, deep=deep, devices=[device] if isinstance(device, str) else device)


if __name__ == "__main__":
    main()
