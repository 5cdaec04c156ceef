"""Every option of the command line, once, and how its text becomes an argument of the library.

Options of settings are made from `plan.settings.SETTINGS`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from pathlib import Path
from typing import Annotated, Any, Callable, Optional, Sequence

import typer

from framework_compare import registry
from framework_compare.cli import words
from framework_compare.cli.words import SHOWS_ALL
from framework_compare.errors import UsageError
from framework_compare.plan.settings import DEFAULTS, OF_DATASET, SETTINGS, column, of_role
from framework_compare.plan.values import by_framework, check_indexes, pairs, split, split_devices
from framework_compare.protocol import Fields
from framework_compare.study.schedules import INTERLEAVED, REPEATS, SCHEDULES

Command = Callable[..., None]
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


@dataclasses.dataclass(frozen=True)
class Option:
    """One option, named in OPTIONS as the library's argument.

    default: Parameter.empty where the option is required. read: turns the option's text into the library's argument.
    flag: for an option whose flag is not its name with dashes, or that has no `--no-` form. words: what the shell offers
    to complete a value with; after a comma, too. hidden: only `--help-all` shows it. unstated: the default of None in words.
    """

    type: Any
    help: str
    default: Any = inspect.Parameter.empty
    read: Callable[[Any], Any] = lambda given: given
    flag: str = ""
    metavar: str | None = None
    words: tuple[str, ...] = ()
    hidden: bool = False
    unstated: str = ""

    def parameter(self, name: str, default: object) -> inspect.Parameter:
        """The parameter of a command's function that typer makes the option of."""
        flags = filter(None, [self.flag])
        complete = completions(self.words) if self.words else None
        option = typer.Option(
            *flags,
            help=f"{self.help} Default: {self.unstated}." if self.unstated and default is None else self.help,
            metavar=self.metavar,
            rich_help_panel=PANEL_OF.get(name),
            autocompletion=complete,
            hidden=self.hidden,
        )
        kind: Any = Optional[self.type] if default is None else self.type
        return inspect.Parameter(name, _KEYWORD, default=default, annotation=Annotated[kind, option])


def completions(words: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what a shell may complete a value with, of which the last after a comma is begun."""

    def offered(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        taken = before.split(",")
        return [f"{before}{comma}{word}" for word in words if word.startswith(begun) and word not in taken]

    return offered


# Settings of one framework, of arrays alone, or that hardly anyone changes.
OF_FEW = """
internals gpu_threads batch_growth batch_size_limit epsilon beta2 clip_norm ramp_updates decay_updates final_rate
accumulation label_smoothing new_tokens
""".split()

_CORES = "cores a run may use"
_UNSTATED = {"threads": _CORES, "loader_workers": _CORES, "epochs": "3; sampled, as many as fit"}


def _of_setting(name: str) -> Option:
    setting, default = SETTINGS[name], getattr(DEFAULTS, name)
    kind, text, hidden = type(default), f"{setting.meaning}.", name in OF_FEW
    if not text.startswith(setting.choices):
        text = text[0].upper() + text[1:]
    unstated = _UNSTATED.get(name, "")
    default = None if unstated else default
    if not setting.may_be_list:
        return Option(kind, text, default, words=setting.choices, hidden=hidden)
    default = None if default is None else str(default)
    parts = split_devices if name == "device" else functools.partial(split, convert=kind)
    return Option(
        *(str, text, default, functools.partial(_values, parts)),
        metavar=f"<{kind.__name__}>,...",
        words=setting.choices,
        hidden=hidden,
        unstated=unstated,
    )


def _values(parts: Callable[[str], list[Any]], text: str | None) -> object:
    """The one value of a comma-separated text, or a list of several."""
    values = None if text is None else parts(text)
    return values[0] if values is not None and len(values) == 1 else values


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else split(text)


def _phase_timeout(text: str | None) -> object:
    """30.0 from "30", {"import": 30.0} from "import=30"; UsageError for anything else."""
    if text is None:
        return None
    try:
        if "=" not in text:
            return float(text)
        return {name: float(value) for name, value in pairs("--phase-timeout", split(text)).items()}
    except ValueError:
        raise UsageError(f"--phase-timeout is {text!r}; allowed: seconds, or PHASE=SECONDS,...") from None


def _statuses(text: str | None) -> list[str]:
    statuses = split(text or "")
    if text is not None and not statuses:
        raise UsageError(f"--retry is {text!r}; allowed: statuses, comma-separated, such as failed,timed-out")
    return statuses


def _inputs(given: list[str] | None) -> object:
    """Names of columns or arrays; by the name of each input where it has one: an array as it is, or columns."""
    if not given:
        return None
    named = [text.partition("=") for text in given]
    if not any(mark for _, mark, _ in named):
        return [name for text in given for name in split(text)]
    if not all(name and mark and rest for name, mark, rest in named):
        raise UsageError(f"--inputs is {' '.join(given)!r}; allowed: NAME,..., or INPUT=NAME,... for each input")
    return {name: split(rest) if "," in rest else rest for name, _, rest in named}


FRAMEWORKS, MODELS = ",".join(registry.FRAMEWORKS), ",".join(registry.image_models())
PLAIN = ",".join(registry.PLAIN)  # what commands take by default: no libraries on top of others
_DATASET = (
    "A folder with one folder of images per class, a name that `list` shows, or, for your own model, a file of arrays or a"
    " table. Default: the model's own. Repeatable."
)
_INPUTS = "Your data: arrays or columns that the model receives. Default: all but the target. Repeatable."
_NORMALIZE = "Your data: scale by statistics of the training part: none, standard or minmax. Default: none."
_WEIGHTS = "For your own models: file (their own weights) or seeded. Default: file; for zoos, seeded."
_AS_WRITTEN = "Also train your own models in torch as written, as a second row."
_PYTHON = "FRAMEWORK=PATH: an interpreter that already has the framework. Repeatable."
_INDEX = "FRAMEWORK=URL: a package index for this framework; torch=none: do not use PyTorch's index of CPU builds. Repeatable."
_TRUST = "Execute the interpreters and model files that the study names, even if you did not choose them."
_PHASES = "Time limit of each phase except epochs, in seconds, or PHASE=SECONDS,... for single phases."
_SIZES = "Batch sizes to try, ascending, comma-separated; `doubling` uses only the first and the last."
_DEVICES = "Number of devices, one replica per device: 2, or 1,2,4 for cells on one, two and four."
_PROFILE = "Add a few steps under the framework's profiler, shown by `show --table profile`."
CLUSTER = "On a cluster"
VERIFY, STYLES = ("require", "warn", "off"), ("terminal", "markdown", "github", "html", "csv", "latex")
_ON = "Where cells run: here; slurm (each block is a job, alone on a node); parts (only planned, for `part`)."
_SLURM = "KEY=VALUE: an option of sbatch, such as partition=gpu or time=120 (minutes). Repeatable."
_SBATCH = "KEY=VALUE, an option of sbatch, such as partition=gpu"
OPTIONS: dict[str, Option] = {
    "frameworks": Option(str, f"Comma-separated: {FRAMEWORKS}.", read=_listed, words=tuple(registry.FRAMEWORKS)),
    "models": Option(
        str,
        f"Comma-separated: {MODELS}; or your own, as FILE.py:FUNCTION or torchvision:NAME.",
        read=_listed,
        words=tuple(registry.MODELS),
    ),
    "dataset": Option(list[str], _DATASET, None, lambda given: given or None, words=tuple(registry.DATASETS)),
    **{column(name): _of_setting(name) for name in SETTINGS},
    "weights": Option(str, _WEIGHTS, None),
    "as_written": Option(bool, _AS_WRITTEN, True),
    "devices": Option(str, _DEVICES, None, functools.partial(_values, functools.partial(split, convert=int))),
    "batch_sizes": Option(str, _SIZES, "10,20,30,40,50,60,70,80,90,100", lambda text: split(text, int)),
    "search": Option(str, "steps: each in turn; doubling: double, then bisect.", "steps"),
    "repeats": Option(int, f"Runs of each cell, in turns; 1 gives no verdict. Default: {REPEATS}.", None),
    "limit": Option(int, "Use only this many images, sampled from each class with the seed.", None),
    "classes": Option(str, "Class folders in this order, comma-separated.", None, _listed),
    "inputs": Option(list[str], _INPUTS, None, _inputs, metavar="NAME,... | INPUT=NAME,..."),
    "target": Option(
        str, "Your data: the array or column to predict.", None, lambda text: _values(split, text) or None
    ),
    "validation": Option(
        float, "Your data: the share held out for validation. Default: the validation part, or 0.2.", None
    ),
    "normalize": Option(str, _NORMALIZE, None, words=("none", "standard", "minmax")),
    "window": Option(int, "Your text: tokens per sample. Default: 128.", None),
    "tokenizer": Option(str, "Your text: the JSON file of a tokenizer, instead of bytes.", None, metavar="FILE"),
    "model_output": Option(str, "Your model: the output to train. Default: the first.", None),
    "on_bad_image": Option(
        str, "What to do with an image that cannot be decoded: fail, or skip (leave it out and count it).", "fail"
    ),
    "out": Option(Path, "Study folder; default: a new one in the cache folder.", None),
    "python": Option(list[str], _PYTHON, None, lambda given: by_framework("--python", given)),
    "index": Option(list[str], _INDEX, None, lambda given: check_indexes(by_framework("--index", given))),
    "trust": Option(bool, _TRUST, False, flag="--trust"),
    "timeout_s": Option(float, "Time limit of a run in seconds.", None, flag="--timeout"),
    "phase_timeout_s": Option(str, _PHASES, None, _phase_timeout, "--phase-timeout"),
    "silence_timeout_s": Option(
        float, "Seconds without an event or output after which a run is ended.", None, flag="--silence-timeout"
    ),
    "memory_limit": Option(str, "Memory limit of a run, all its processes together: bytes, or 4GiB, 1500MB.", None),
    "extend": Option(bool, "Add the cells to the study in --out; finished cells are kept.", False, flag="--extend"),
    "retry": Option(str, "Statuses to rerun, comma-separated: failed,timed-out.", None, _statuses),
    "sampling_hz": Option(float, "Readings of CPU, memory and threads per second; 0: off.", 10.0),
    "verify": Option(
        str, "Parity check: require it before a run, warn (show known verdicts), or off.", "warn", words=VERIFY
    ),
    "profile": Option(bool, _PROFILE, False, flag="--profile"),
    "schedule": Option(
        str, "interleaved: rivals take turns; sequential: one run after another.", INTERLEAVED, words=SCHEDULES
    ),
    "disturbance_threshold": Option(
        float,
        "Cores that other programs may use; a round or epoch with more is excluded. Default: 0.05 per core.",
        None,
    ),
    "retries_when_disturbed": Option(int, "How often to repeat a run with disturbed epochs.", 1),
    "sample": Option(str, "Measure about this long per run, such as 10s; longer epochs are estimated.", None),
    "budget": Option(
        str, "Wall time of all runs: 30min, 1h, ...; spent on the ratios with the widest intervals.", None
    ),
    "precision_target": Option(
        str, "With a budget: stop once every ratio to the reference is known to within this, such as 5%.", None
    ),
    "reference": Option(
        str, "With a budget: the framework whose ratios are narrowed. Default: the fastest of each model.", None
    ),
    "dry_run": Option(
        bool, "Start nothing; print the number of cells and runs, the time and the disk space.", False, flag="--dry-run"
    ),
    "yes": Option(bool, "Do not ask before starting something that takes more than ten minutes.", False, flag="--yes"),
    "style": Option(str, "terminal, markdown, github, html, csv or latex.", "terminal", words=STYLES),
    "strict": Option(bool, "Exit with 1 if a cell is not ok.", False),
    "quiet": Option(bool, "No progress: only tables and errors.", False, flag="--quiet"),
    "json": Option(bool, "Print the study as one JSON document instead of tables.", False, flag="--json"),
    "on": Option(str, _ON, "here"),
    "slurm": Option(list[str], _SLURM, None, lambda given: pairs("--slurm", given, _SBATCH)),
}
ENVIRONMENTS = ("python", "index")
LOSS = "Your data: the loss, instead of the one that the target suggests; your own as FILE.py:FUNCTION."
OF_DATA = ("inputs", "target", "validation", "normalize", "window", "tokenizer", "model_output")
LIMITS = ("timeout_s", "phase_timeout_s", "silence_timeout_s", "memory_limit")
# Panels of `--help`, in this order, with their options.
_TRAINING = """
batch_size batch_growth batch_size_limit epochs optimizer optimizer_variant learning_rate momentum weight_decay epsilon
beta2 clip_norm accumulation ramp_updates decay_updates final_rate loss_function label_smoothing patience warmup_steps
seed
"""
_RUNS = """
repeats extend sampling_hz profile verify retry schedule disturbance_threshold retries_when_disturbed sample budget
precision_target reference dry_run yes
"""
PANELS: dict[str, Sequence[str]] = {
    "What to compare": "frameworks models weights as_written dataset batch_sizes search mode new_tokens".split(),
    "Device, arithmetic, execution": (
        "device devices nodes precision execution tuning threads internals gpu_threads".split()
    ),
    "Training": _TRAINING.split(),
    "Images and loading": "image_size flip crop pipeline loader_workers limit classes on_bad_image".split(),
    "Your own data": OF_DATA,
    "Runs and readings": _RUNS.split(),
    "Limits": LIMITS,
    "Environments": (*ENVIRONMENTS, "trust"),
    CLUSTER: ("on", "slurm"),
    "Output": "out style strict quiet json".split(),
}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
_PLACE = {name: place for place, names in enumerate(PANELS.values()) for name in names}
# What one cell is asked for; its classes are those of the data set.
SETTINGS_OF_CELLS = tuple(column(name) for name in SETTINGS if name not in of_role(OF_DATASET))


def _read(name: str, text: object) -> object:
    """The library's argument from an option's text; UsageError that names the option."""
    flag = OPTIONS[name].flag or f"--{name.replace('_', '-')}"
    try:
        return OPTIONS[name].read(text)
    except UsageError as error:
        raise error if flag in str(error) else UsageError(f"{flag}: {error}") from None


def asked(context: typer.Context, name: str) -> bool:
    """Return whether the command line gives an option."""
    source = context.get_parameter_source(name)
    return source is None or source.name != "DEFAULT"


def takes(*names: str, by_place: Sequence[str] = (), **defaults: Any) -> Callable[[Command], Command]:
    """Give a command these options; it gets each as a keyword, read by the option.

    by_place: which of them, in this order, may be given as positional arguments instead. defaults: this command's own
    defaults, written as on the command line.
    """

    def wrap(command: Command) -> Command:
        own = [
            parameter.replace(kind=_KEYWORD)
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD and parameter.name not in names
        ]
        for_all = any(parameter.name == "context" for parameter in own)
        starts = {name: defaults.get(name, OPTIONS[name].default) for name in names}
        needed = [name for name in by_place if starts.get(name) is inspect.Parameter.empty]
        starts.update(dict.fromkeys(needed))

        @functools.wraps(command)
        def read_and_run(**given: Any) -> None:
            given.pop(SHOWS_ALL, None)
            context = given.get("context") if for_all else given.pop("context", None)
            placed = _placed(context, given.pop("what"), by_place) if by_place else {}
            request = {name: _read(name, value) if name in names else value for name, value in given.items()}
            request.update(placed)
            for name in needed:
                if request[name] is None:
                    raise UsageError(f"no {name} are given; give --{name}, or {words.usage(by_place)}")
            command(**request)

        shown = sorted(names, key=lambda name: _PLACE.get(name, len(PANELS)))
        options = [OPTIONS[name].parameter(name, starts[name]) for name in shown]
        options += [_HELP_ALL] * (len(names) > MANY)
        first = [_CONTEXT] * (bool(by_place) and not for_all) + [_what(by_place)] * bool(by_place)
        # typer reads both
        read_and_run.__signature__ = inspect.Signature([*first, *own, *options])  # type: ignore[attr-defined]
        read_and_run.__annotations__ = {one.name: one.annotation for one in (*first, *own, *options)}
        return read_and_run

    return wrap


def stated(context: typer.Context, request: Fields) -> Fields:
    """A request without the settings that nobody asked for: a workload has its own."""
    own = {column(name) for name in SETTINGS}
    return {name: value for name, value in request.items() if name not in own or asked(context, name)}


def _placed(context: Any, given: list[str] | None, by_place: Sequence[str]) -> Fields:
    """The arguments that words give, from now on as asked for as those of options."""
    placed = words.read(given or [], {name for name in by_place if asked(context, name)}, by_place)
    for name in placed:
        context.set_parameter_source(name, context.get_parameter_source("what"))
    return placed


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[SHOWS_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


def _what(names: Sequence[str]) -> inspect.Parameter:
    """The argument that takes all words of a command."""
    text = f"{words.usage(names)}, instead of the options with these names."
    argument = typer.Argument(metavar="what", help=text, show_default=False)
    return inspect.Parameter("what", _KEYWORD, default=None, annotation=Annotated[list[str] | None, argument])


MANY = 20  # options; a help of more is short
_CONTEXT = inspect.Parameter("context", _KEYWORD, annotation=typer.Context)
_HELP_ALL = inspect.Parameter(
    SHOWS_ALL,
    _KEYWORD,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show every option and exit.")
    ],
)
