"""Console output that all commands share: progress, stops, failures, the tables at the end."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, NoReturn, Sequence

import typer

from framework_compare.errors import StudyError
from framework_compare.results.parity import NOT_INSTALLED, UNSUPPORTED
from framework_compare.store.folder import FILE, is_submission
from framework_compare.study.progress import PlainWatcher, RichWatcher, Watcher, length, one_line

if TYPE_CHECKING:
    from framework_compare.comparison import Comparison
    from framework_compare.datasets.own import OwnData
    from framework_compare.forecast import Forecast
    from framework_compare.graph.imported_model import ImportedModel
    from framework_compare.parity.asked import CheckForecast
    from framework_compare.peaks import PeakForecast

ASKED_S = 600  # what takes longer is asked for before it starts
# What comes on top of the time of runs and of checks.
BESIDE = {"run": "; plus environments and data sets", "check": "; plus environments"}
SUMMARY_BYTES = 900_000  # of a GitHub job's summary, which holds 1 MiB


def fail(message: str, code: int) -> NoReturn:
    """Print one line on standard error and exit with `code`; what a user or a file has in it does not drive the terminal."""
    print(f"framework-compare: {one_line(message)}", file=sys.stderr)
    sys.exit(code)


def say(message: str) -> None:
    """Print progress on standard error, at once."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def kept_on_interrupt(folder: Path, watcher: Watcher) -> Iterator[None]:
    """On Ctrl-C, say where the study is and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        stored = (folder / FILE).exists() or any(folder.glob(f"*/{FILE}"))
        watcher.say(
            f"stopped; measured epochs are stored in {folder}" if stored else "stopped before anything was measured"
        )
        sys.exit(130)


def study_folder(out: Path | None) -> Path:
    """The folder of a new study: the one that is asked for if it could hold one, else one in the cache folder."""
    from framework_compare.study import opening

    return opening.study_folder(out)


def found_folder(study: str) -> Path:
    """The folder of a study; a submission is checked and written into a temporary one, which ends with the program."""
    from framework_compare.archive.documents import Refused
    from framework_compare.archive.validate import load_submission
    from framework_compare.study import names

    found = names.find(study)
    if not is_submission(found):
        return found
    place = Path(tempfile.mkdtemp(prefix="framework-compare-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    try:
        return load_submission(found, place / found.name).folder
    except Refused as error:
        raise StudyError(f"{found} is not a valid submission: {error}") from None


@contextlib.contextmanager
def reading(study: str) -> Iterator[Comparison]:
    """Read the study of a folder, of a name in the cache, or of a submission; in the end say what of it is damaged."""
    from framework_compare.comparison import Comparison

    result = Comparison.load(found_folder(study))
    yield result
    print_damage(result)


def own_models(
    models: Sequence[str] | str,
    data: Sequence[str] | str | None,
    python: Mapping[str, str],
    index: Mapping[str, str],
    **options: Any,
) -> tuple[OwnData | None, Any, list[ImportedModel]]:
    """Read a user's own data and models as `api.with_own` has them; options: of a Request."""
    from framework_compare import api
    from framework_compare.importing.tracing import Tracer
    from framework_compare.study.request import Request

    return api.with_own(Request.of([], models, dataset=data, **options), Tracer(python, index, say))


def watcher(quiet: bool = False, yes: bool = False) -> Watcher:
    """A progress bar on a terminal, plain lines elsewhere; quiet: nothing. yes: asks nothing before it starts."""
    kind: type[Watcher] = Watcher if quiet else RichWatcher if sys.stderr.isatty() else PlainWatcher

    class Asking(kind):  # type: ignore[misc, valid-type]
        def expect(self, forecast: Callable[[], "Forecast"]) -> None:
            announce([forecast()], self.say, yes)

    return Asking()


def announce(
    forecasts: Sequence[Forecast | CheckForecast | PeakForecast],
    say: Callable[[str], None],
    yes: bool,
    what: str = "run",
) -> None:
    """Say how long studies will take; where that is more than ASKED_S, ask a person at a terminal whether to start."""
    low, middle, high = (sum(values) for values in zip(*(one.seconds for one in forecasts)))
    runs = sum(one.runs for one in forecasts)
    spread = f"{length(low)} to {length(high)}"
    text = f"{runs} {what}{'s' * (runs != 1)}, about {length(middle)} ({spread}){BESIDE.get(what, '')}"
    ask_about(0.0 if yes else middle, text, say)


def ask_about(seconds: float, text: str, say: Callable[[str], None]) -> None:
    """Say what will be done; where it takes more than ASKED_S, ask a person at a terminal whether to start."""
    say(text)
    if seconds > ASKED_S and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm("Start?", abort=True, err=True)


def print_tables(result: Comparison, style: str, *kinds: str) -> None:
    """Print tables of these kinds, by default times and resources; style github also writes them to the job summary."""
    from framework_compare.report import provenance

    width = shutil.get_terminal_size().columns if style == "terminal" else None
    above = provenance.text(result, style, width)
    tables = [
        result.table(kind, style, width=width, verdicts=not place)
        for place, kind in enumerate(kinds or ("time", "resources"))
    ]
    texts = [above, *tables] if above else tables
    if style == "github":
        _summarise("\n".join(texts))
    for text in texts:
        print(text)


def print_study(result: Comparison, json: bool, *kinds: str) -> None:
    """Print a study that has run: its tables of these kinds, or one JSON document."""
    if json:
        print(result.to_json(), end="")
    else:
        print_tables(result, "terminal", *kinds)
    print_damage(result)


def fail_if_nothing_ran(result: Comparison, strict: bool) -> None:
    """Exit with 1 if no cell could run here at all; strict: if any is not ok."""
    statuses = result.frame["status"]
    if (statuses != "ok").any() if strict else statuses.isin([UNSUPPORTED, NOT_INSTALLED]).all():
        raise typer.Exit(1)


def end_with_forecasts(forecasts: Sequence[Forecast | CheckForecast], strict: bool = False, text: str = "") -> NoReturn:
    """Print what was asked for with --dry-run, as `text` if given, and exit: with 1 where nothing of it can run here.

    strict: where anything of it cannot.
    """
    print(text or "\n".join(map(str, forecasts)))
    lacking = any(one.lacks for one in forecasts)
    raise typer.Exit(int(lacking and (strict or not sum(one.runs for one in forecasts))))


def _summarise(text: str) -> None:
    """Append to the summary of the GitHub job, where there is one; GitHub takes 1 MiB of a step."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    whole = text.encode("utf-8")
    if len(whole) > SUMMARY_BYTES:
        kept = whole[:SUMMARY_BYTES].decode("utf-8", "ignore").rpartition("\n")[0]
        text = f"{kept}\n\nTruncated: the summary of a GitHub job holds at most 1 MiB. `framework-compare report` writes all.\n"
    try:
        with open(path, "a", encoding="utf-8") as summary:
            summary.write(text)
    except OSError as error:
        fail(f"GITHUB_STEP_SUMMARY is {path!r} and cannot be written: {error}; unset it, or name a file", 1)


def print_damage(result: Comparison) -> None:
    """Say on standard error what was left out of a damaged study."""
    for line in result.damage:
        print(f"framework-compare: {line}", file=sys.stderr)
