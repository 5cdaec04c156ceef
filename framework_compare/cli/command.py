"""A command as typer has it, whose help is short where it has many options, and which knows former names of options."""

from __future__ import annotations

import warnings
from typing import Any, List

from typer.core import TyperCommand

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
