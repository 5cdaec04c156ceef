"""The command line: the same code as `compare()`, with progress, exit codes and help that teaches."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any, Dict, Optional

import typer

from framework_compare import __version__
from framework_compare.cli import console, environments, fairness, studies
from framework_compare.cli import verify as verify_command
from framework_compare.cli.options import ENVIRONMENTS, FRAMEWORKS, LIMITS, SETTINGS_OF_CELLS, takes
from framework_compare.errors import FrameworkCompareError, UsageError

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
for _command in (studies.resume, studies.stability, studies.export):
    app.command()(_command)

QUICK: Dict[str, Any] = {
    "models": ["alexnet", "mobilenet_v2", "resnet50", "vgg16"],
    "dataset": "fire-smoke-tiny",
    "limit": 16,
    "batch_size": 4,
    "epochs": 2,
    "warmup_steps": 1,
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
    *("frameworks", "models", "dataset", *SETTINGS_OF_CELLS, "out", "repeats", "limit", "classes", "on_bad_picture"),
    *(*ENVIRONMENTS, *LIMITS, "retry", "sampling_hz", "verify", "profile"),
    *("disturbance_threshold", "retries_when_disturbed", "strict"),
)
def run(**request: Any) -> None:
    """Train every model with every framework, each cell in a process of its own, and print the tables.

    Example: framework-compare run --frameworks torch,mxnet --models alexnet,vgg16 --dataset IMAGES
    --batch-size 16 --epochs 2 --out STUDY
    """
    _run_and_show(**request)


@app.command()
@takes("frameworks", "out", *ENVIRONMENTS, frameworks=FRAMEWORKS)
def quickstart(**request: Any) -> None:
    """Train four models with all five frameworks on a few rendered images: minutes, after some 5 GB of downloads.

    It shows that everything works here. Its few, small steps are no measurement: do not quote its figures.
    """
    _run_and_show(**QUICK, **request)


def _run_and_show(strict: bool = False, **request: Any) -> None:
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
@takes("style")
def show(
    style: str,
    study: Annotated[Path, typer.Argument(help="A study folder.")],
    other: Annotated[Optional[Path], typer.Argument(help="Another study, to compare side by side.")] = None,
    table: Annotated[
        Optional[str], typer.Option(help="Kind of table: time, resources, profile, ...; default: the first two.")
    ] = None,
) -> None:
    """Print the tables of a study or a sweep. With two studies, print the ratios of the cells that both have."""
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
