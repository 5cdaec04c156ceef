"""A command as typer has it, whose help is short where it has many options."""

from __future__ import annotations

from typing import Any, List

from typer.core import TyperCommand

SHOWS_ALL = "help_all"  # the option of commands whose help is short
# What the help shows of the options that several commands share where it is short.
MATTER = (
    *("frameworks", "models", "dataset", "device", "precision", "batch_size", "batch_sizes", "epochs"),
    *("limit", "repeats", "budget", "dry_run", "out", "style"),
)


class Command(TyperCommand):
    """Class of every command."""

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
