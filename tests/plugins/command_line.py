"""`framework-compare` as a user calls it: in a process of its own, or in this one, which spares a second of its start."""

import contextlib
import io
import subprocess
import sys
from typing import Any, Iterator, Tuple

import pytest
import typer

from framework_compare.cli import root

APP: Any = typer.main.get_command(root.app)


def start(*arguments: object, check: int = 0) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "framework_compare", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == check, done.stderr
    return done


def run(*arguments: object, check: int = 0) -> "subprocess.CompletedProcess[str]":
    """Return what `start` gives, from this process."""
    out, err = io.StringIO(), io.StringIO()
    command = ["framework-compare", *map(str, arguments)]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", command)
        patch.setattr(sys.modules["__main__"], "__package__", "")  # else usages name `python -m pytest`, if that runs
        with pytest.raises(SystemExit) as end:
            root.main()
    assert (end.value.code or 0) == check, err.getvalue()
    return subprocess.CompletedProcess(command, check, out.getvalue(), err.getvalue())


def commands(group: Any = APP, before: str = "") -> Iterator[Tuple[str, Any]]:
    """(words, command) of every command that does something itself."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


def help_of(command: Any) -> str:
    """Return the help of a command and of its options."""
    return "\n".join([command.help or "", *(getattr(one, "help", None) or "" for one in command.params)])
