"""Words of a command line: positional arguments, and the length of the help."""

from pathlib import Path
from typing import AbstractSet, Any, Sequence

from typer.core import TyperCommand

from framework_compare.errors import UsageError
from framework_compare.plan.values import split
from framework_compare.protocol import Fields
from framework_compare.registry import FRAMEWORKS

REQUEST = ("frameworks", "models", "dataset")
# What a word alone may be instead, of a command that has it among its names: a file of a study, a study.
FILE, STUDY = "study_file", "study"
_ALONE = {FILE: "FILE.toml", STUDY: "STUDY"}
SHOWS_ALL = "help_all"  # the option of commands whose help is short
# What the help shows of the options that several commands share where it is short.
MATTER = (
    *("frameworks", "models", "dataset", "device", "precision", "batch_size", "batch_sizes", "epochs"),
    *("limit", "repeats", "budget", "dry_run", "out", "style"),
)


def usage(names: Sequence[str]) -> str:
    """The arguments as the help shows them: "FRAMEWORKS MODELS [DATASET]..., or FILE.toml"."""
    several = " ".join("[DATASET]..." if name == "dataset" else name.upper() for name in names if name in REQUEST)
    return ", or ".join([several, *(_ALONE[name] for name in names if name in _ALONE)])


def _are_frameworks(word: str) -> bool:
    names = (one.partition("=")[0].partition("@")[0].strip().lower() for one in word.split(","))
    return not Path(word).exists() and all(name in FRAMEWORKS for name in names)


def read(words: Sequence[str], by_option: AbstractSet[str], names: Sequence[str] = REQUEST) -> Fields:
    """Arguments by `names` from words, of which "dataset" takes all that are left.

    by_option: names that an option gives; UsageError where a word gives one again.
    """
    allowed = f"allowed: {usage(names)}"
    if not words:
        return {}
    if STUDY in names and len(words) == 1 and not _are_frameworks(words[0]):
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

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shared: list[Any] = [one for one in self.params if getattr(one, "rich_help_panel", None)]
        before = [one.hidden for one in shared]
        if ctx.meta.get(SHOWS_ALL) or any(one.name == SHOWS_ALL for one in self.params):
            for one in shared:
                one.hidden = not ctx.meta.get(SHOWS_ALL) and one.name not in MATTER
        try:
            super().format_help(ctx, formatter)
        finally:
            for one, hidden in zip(shared, before):
                one.hidden = hidden
