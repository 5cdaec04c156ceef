"""A command as typer has it, whose help is short where it has many options, and which knows former names of options."""

from __future__ import annotations

import warnings
from typing import Any, Dict, Iterator, List

from typer.core import TyperCommand

# Until version 0.2; they go with the next release.
FORMER: Dict[str, str] = {
    "--co2": "--co2-g-per-kwh",
    "--framework": "--frameworks",
    "--loss": "--loss-function",
    "--model": "--models",
    "--on-bad-picture": "--on-bad-image",
}
SHOWS_ALL = "help_all"  # the option of commands whose help is short
# What the help shows of the options that several commands share where it is short.
MATTER = (
    *("frameworks", "models", "dataset", "device", "precision", "batch_size", "batch_sizes", "epochs"),
    *("limit", "repeats", "budget", "dry_run", "out", "style"),
)


class Command(TyperCommand):
    """Class of every command."""

    def parse_args(self, ctx: Any, args: List[str]) -> List[str]:
        return super().parse_args(ctx, list(self._renamed(args)))

    def _renamed(self, words: List[str]) -> Iterator[str]:
        known = {flag for parameter in self.params for flag in parameter.opts}
        for word in words:
            old, equals, value = word.partition("=")
            new = FORMER.get(old, old)
            if new != old and old not in known and new in known:
                warnings.warn(
                    f"{old} is called {new} now; the old name goes with the next release", FutureWarning, stacklevel=2
                )
                word = f"{new}{equals}{value}"
            yield word

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shared = [one for one in self.params if getattr(one, "rich_help_panel", None) and not one.hidden]  # type: ignore[attr-defined]
        short = any(one.name == SHOWS_ALL for one in self.params) and not ctx.meta.get(SHOWS_ALL)
        left_out: List[Any] = [one for one in shared if short and one.name not in MATTER]
        for one in left_out:
            one.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for one in left_out:
                one.hidden = False
