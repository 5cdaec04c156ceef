"""What a command is asked for: its positional arguments, the length of its help, and former names of options."""

import difflib
import warnings
from pathlib import Path
from typing import AbstractSet, Any, List, Sequence

from typer.core import TyperCommand

from framework_compare.errors import UsageError
from framework_compare.plan.values import split
from framework_compare.protocol import Fields
from framework_compare.registry import FRAMEWORKS

REQUEST = ("frameworks", "models", "dataset")
# What a word alone may be instead, of a command that has it among its names: a file of a study, a study.
FILE, STUDY = "study_file", "study"
OUT = "out"  # was positional before version 0.1; goes with version 0.2
_ALONE = {FILE: "FILE.toml", STUDY: "STUDY"}
SHOWS_ALL = "help_all"  # the option of commands whose help is short
# What the help shows of the options that several commands share where it is short.
MATTER = (
    *("frameworks", "models", "dataset", "device", "precision", "batch_size", "batch_sizes", "epochs"),
    *("limit", "repeats", "budget", "dry_run", "out", "style"),
)
# Names of options before version 0.1; they go with version 0.2.
FORMER = {
    "--co2": "--co2-g-per-kwh",
    "--framework": "--frameworks",
    "--loss": "--loss-function",
    "--model": "--models",
}


def usage(names: Sequence[str]) -> str:
    """The arguments as the help shows them: "FRAMEWORKS MODELS [DATASET]..., or FILE.toml"."""
    several = " ".join("[DATASET]..." if name == "dataset" else name.upper() for name in names if name in REQUEST)
    return ", or ".join([several, *(_ALONE[name] for name in names if name in _ALONE)])


def _near_a_framework(word: str) -> bool:
    return bool(difflib.get_close_matches(word.partition(",")[0].partition("@")[0].lower(), FRAMEWORKS, cutoff=0.7))


def read(words: Sequence[str], by_option: AbstractSet[str], names: Sequence[str] = REQUEST) -> Fields:
    """Arguments by `names` from words, of which "dataset" takes all that are left.

    by_option: names that an option gives; UsageError where a word gives one again.
    """
    allowed = f"allowed: {usage(names)}"
    if not words:
        return {}
    if OUT in names and len(words) == 1 and not _near_a_framework(words[0]):
        if OUT in by_option:
            raise UsageError(f"{OUT} is given twice: {words[0]!r} and --{OUT}; {allowed}")
        warnings.warn(
            f"OUT is now called --{OUT}; the old form will be removed in version 0.2", FutureWarning, stacklevel=2
        )
        return {OUT: Path(words[0])}
    if STUDY in names and len(words) == 1:
        return {STUDY: words[0]}
    if FILE in names and words[0].endswith(".toml"):
        if words[1:]:
            raise UsageError(f"{words[1]!r} cannot be combined with {words[0]}; give the file alone, with options")
        if FILE in by_option:
            raise UsageError(f"the file is given twice: {words[0]} and --from; {allowed}")
        return {FILE: Path(words[0])}
    places = [name for name in names if name in REQUEST]
    if "models" in places and len(words) == 1 and "models" not in by_option:
        raise UsageError(f"{words[0]!r} names frameworks, but no models are named; {allowed}")
    if len(words) > len(places) and "dataset" not in places:
        raise UsageError(f"{words[len(places)]!r} is one argument too many; {allowed}")
    for name, word in zip(places, words):
        if name in by_option:
            raise UsageError(f"{name} are given twice: {word!r} and --{name}; {allowed}")
    asked = {name: split(word) for name, word in zip(places, words) if name != "dataset"}
    return {**asked, "dataset": list(words[2:])} if words[2:] else asked


class Command(TyperCommand):
    """Class of every command."""

    def parse_args(self, ctx: Any, args: List[str]) -> List[str]:
        return super().parse_args(ctx, [self._by_its_name(word) for word in args])

    def _by_its_name(self, word: str) -> str:
        """An option that is given by its former name by that of now, with a warning; other words as they are."""
        old, equals, value = word.partition("=")
        new, known = FORMER.get(old), {flag for one in self.params for flag in one.opts}
        if new is None or old in known or new not in known:
            return word
        warnings.warn(
            f"{old} is now called {new}; the old name will be removed in version 0.2", FutureWarning, stacklevel=2
        )
        return f"{new}{equals}{value}"

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shared: List[Any] = [one for one in self.params if getattr(one, "rich_help_panel", None)]
        before = [one.hidden for one in shared]
        if ctx.meta.get(SHOWS_ALL) or any(one.name == SHOWS_ALL for one in self.params):
            for one in shared:
                one.hidden = not ctx.meta.get(SHOWS_ALL) and one.name not in MATTER
        try:
            super().format_help(ctx, formatter)
        finally:
            for one, hidden in zip(shared, before):
                one.hidden = hidden
