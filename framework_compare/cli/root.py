"""The command line: the same code as `compare()`, with progress, exit codes and help that teaches."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Callable, Sequence

import typer

from framework_compare import __version__
from framework_compare.cli import (
    archive,
    check,
    console,
    doctor,
    duel,
    environments,
    examples,
    listing,
    report,
    studies,
    verify,
    words,
)
from framework_compare.cli.options import (
    CLUSTER,
    ENVIRONMENTS,
    LIMITS,
    OF_DATA,
    OPTIONS,
    SETTINGS_OF_CELLS,
    asked,
    stated,
    takes,
)
from framework_compare.cli.words import Command
from framework_compare.errors import FrameworkCompareError, UsageError
from framework_compare.plan.ladders import LADDERS, Rung, rungs_of_text
from framework_compare.protocol import Fields
from framework_compare.registry import load_plugins
from framework_compare.samplers import disturbance

if TYPE_CHECKING:
    from framework_compare.comparison import Comparison

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find which deep-learning framework trains fastest on this machine, and at what cost.\n\n"
    "Start with `framework-compare quickstart`; `framework-compare doctor` checks this machine.",
)

# Without dropout, and with one loader for all, the losses of all frameworks are the same numbers: proof that can be seen.
QUICK: Fields = {
    "models": ["cifar_cnn"],
    "pipeline": "shared",
    "epochs": 2,  # of 50 steps
    "repeats": 5,
    "verify": "require",
    "retries_when_disturbed": 0,
}
OF_OTHERS = ("batch_sizes", "num_classes", "search", "style", "trust")  # options that `run` does not have
QUICK_FRAMEWORKS = "torch,tensorflow,jax"
NEXT = "framework-compare run torch,jax alexnet IMAGES --limit 100"


def main() -> None:
    """Entry of the console script: one clear line and exit code 2 for a wrong request, 1 for other failures."""
    _print_any_text()
    warnings.formatwarning = lambda message, *_, **__: f"framework-compare: {message}\n"
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
    except OSError as error:
        if _is_nowhere():
            console.fail("the working folder no longer exists; change to another", 2)
        if error.errno not in (errno.ENOSPC, errno.EIO):
            raise
        console.fail(f"the output cannot be written: {error.strerror}; free some space, or redirect it", 1)
    except Exception as error:
        _usage_of_click(error)
        raise
    sys.exit(code)


def _is_nowhere() -> bool:
    try:
        return not os.getcwd()
    except FileNotFoundError:
        return True


def _print_any_text() -> None:
    """Show characters that the terminal cannot encode, and paths that are no text, as question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _usage_of_click(error: Exception) -> None:
    """Show what typer's parser objects to; it has a base class of its own, which depends on typer's version."""
    message, missing = getattr(error, "format_message", None), getattr(error, "param", None)
    if message is None:
        return
    text, context = message(), getattr(error, "ctx", None)
    if text.startswith("Missing ") and missing is not None and context is not None:
        usage = " ".join(context.get_usage().replace("Usage: ", "").split())
        text = f"{max(missing.opts, key=len)} is missing; usage: {usage}; `{context.command_path} --help` explains it"
    console.fail(text, getattr(error, "exit_code", 2))


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
    load_plugins()


@takes(
    *(name for name in OPTIONS if name not in OF_OTHERS),
    by_place=(words.FILE, *words.REQUEST),
    frameworks=None,
    models=None,
)
def run(
    context: typer.Context,
    study_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A TOML file with the request, as `show --toml` prints it.",
            rich_help_panel="What to compare",
        ),
    ] = None,
    **request: Any,
) -> None:
    """Train every model with every framework, each cell in its own process, and print the tables."""
    if study_file is not None:
        from framework_compare.study import study_toml

        own = {name: value for name, value in request.items() if asked(context, name)}
        request = study_toml.read(study_file, own)
        _run(kind="gains" if "rungs" in request else None, **request)
        return
    for name in ("frameworks", "models"):
        if request[name] is None:
            raise UsageError(f"no {name} are given; give --{name}, FRAMEWORKS MODELS without options, or FILE.toml")
    _run(**stated(context, request))


@takes(
    *("frameworks", "models", "dataset", *SETTINGS_OF_CELLS, "out", "repeats", "limit", *OF_DATA),
    *(*ENVIRONMENTS, *LIMITS, "sampling_hz", "verify", "dry_run", "yes", "strict"),
    by_place=words.REQUEST,
)
def ladder(
    context: typer.Context,
    rung: Annotated[
        list[str] | None,
        typer.Option(help='A rung, "NAME: SETTING=VALUE, ..."; repeat it for more. A published ladder has its own.'),
    ] = None,
    one_at_a_time: Annotated[
        bool, typer.Option("--one-at-a-time", help="Each rung changes the base, not the previous rung.")
    ] = False,
    **request: Any,
) -> None:
    """Train one model on a ladder of settings and print the speed-up of each rung.

    --models takes one model, or a published ladder: abidate2025-tweets, abidate2025-ibm, abidate2025-google,
    abidate2025-guava, abidate2025-diabetes, abidate2025-diabetes-search, tf-profiling.
    """
    request = stated(context, request)
    if len(request["models"]) != 1:
        raise UsageError(f"--models is {', '.join(request['models'])}; allowed: one model, or one published ladder")
    (name,) = request["models"]
    rungs: Sequence[Rung] | None = rungs_of_text(rung) if rung else None
    if name in LADDERS:
        request = {**LADDERS[name].base, **request, "models": LADDERS[name].model}
        rungs = rungs or LADDERS[name].rungs
    if not rungs:
        raise UsageError(f"no --rung is given; allowed: one or more, or a published ladder: {', '.join(LADDERS)}")
    _run(kind="gains", rungs=rungs, one_at_a_time=one_at_a_time, **request)


@takes("frameworks", "out", *ENVIRONMENTS, "dry_run", "yes", by_place=("frameworks",), frameworks=QUICK_FRAMEWORKS)
def quickstart(**request: Any) -> None:
    """A smoke test: three frameworks, a small model, one verified verdict, and the report.

    Each trains the small CNN of TensorFlow's tutorial five times, for two epochs on 1,600 generated images of 32 x 32
    pixels, in turns with the others. This takes two minutes, after 3.3 GB of environments are installed the first time.
    The verdict applies to this model only: your models and images may give another.
    """
    from framework_compare.report import headlines

    load = disturbance.watch()
    if not doctor.is_quiet(load):
        print(f"This machine is {doctor.load_words(load)}. While it is, no winner is named.", file=sys.stderr)
    result = _run_and_show(kind="time", **QUICK, **request)
    answers = headlines.lines(list(result.frame.itertuples()), result.verdicts(), result.modes)
    answer = answers[0] if answers else "none; fewer than two frameworks finished: see `doctor`"
    print(f"\nAnswer: {answer}")
    for sentence in headlines.other_modes(result.modes):
        print(f"Modes:  {sentence}")
    print(f"Report: {result.report(result.folder / 'report.html')}")
    print(f"Next:   {NEXT}")
    print("This was a smoke test: a small model, generated images, seconds of training.")
    if not (result.frame["status"] == "ok").any():
        raise typer.Exit(1)


def _run(strict: bool = False, **asked: Any) -> None:
    console.fail_if_nothing_ran(_run_and_show(strict, **asked), strict)


def _run_and_show(
    strict: bool = False,
    kind: str | None = None,
    dry_run: bool = False,
    yes: bool = False,
    quiet: bool = False,
    json: bool = False,
    out: Path | None = None,
    retry: Sequence[str] = (),
    extend: bool = False,
    on: str = "here",
    slurm: dict[str, str] | None = None,
    **given: Any,
) -> Comparison:
    from framework_compare import api
    from framework_compare.study import executors
    from framework_compare.study.request import Request

    request, folder = Request.of(**given), console.study_folder(out)
    watcher, executor = console.watcher(quiet, yes), executors.of(on, slurm)
    if dry_run:
        console.end_with_forecasts([api.prepare(request, watcher, executor).forecast()], strict)
    with console.kept_on_interrupt(folder, watcher):
        result = api.run(request, folder, retry=retry, extend=extend, executor=executor, watcher=watcher)
    console.print_study(result, json, *filter(None, [kind]))
    watcher.say(f"study: {folder}")
    return result


def _help(command: Callable[..., None]) -> str:
    """The docstring of a command with one line per paragraph, for the terminal to wrap."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.__doc__ or "").split("\n\n"))


# In the order in which a newcomer needs them; each heading is a panel of `--help`.
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Start": {
        "quickstart": quickstart,
        "doctor": doctor.doctor,
        "list": listing.list_names,
        "inspect": listing.inspect,
    },
    "Train and measure": {
        "run": run,
        "duel": duel.duel,
        "bisect": duel.bisect,
        "resume": studies.resume,
        "ladder": ladder,
        "largest-batch": studies.largest_batch,
        "peaks": doctor.peaks,
        "reproduce": studies.reproduce,
    },
    "Read and publish": {
        "show": studies.show,
        "report": report.report,
        "figure": report.figure,
        "export": studies.export,
        "cost": report.cost,
        "check": check.check,
    },
    "Archive": {
        "publish": archive.publish,
        "validate": archive.validate,
        "site": archive.site,
        "cite": archive.cite,
    },
    CLUSTER: {"part": studies.part, "absorb": studies.absorb},
    "Check that all train the same function": {"verify": verify.verify, "fairness": verify.fairness},
}
for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        _shown: Fields = {"help": _help(_command), "rich_help_panel": _panel, "epilog": examples.below(_name)}
        app.command(_name, cls=Command, **_shown)(_command)
app.add_typer(environments.app, name="env", rich_help_panel="Start")
