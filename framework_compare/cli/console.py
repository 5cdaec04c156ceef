"""What all commands share at the console: progress, stops, failures, the tables at the end."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path
from typing import Any, Iterator

from framework_compare.study.progress import PlainWatcher, RichWatcher, Watcher


def fail(message: str, code: int) -> None:
    """Print one line on standard error and exit with `code`."""
    print(f"framework-compare: {message}", file=sys.stderr)
    sys.exit(code)


@contextlib.contextmanager
def kept_on_interrupt(folder: Path, watcher: Watcher) -> Iterator[None]:
    """On Ctrl-C, say where the study is and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        watcher.say(f"stopped; measured epochs are stored in {folder}")
        sys.exit(130)


def watcher() -> Watcher:
    """A progress bar on a terminal, plain lines elsewhere."""
    return RichWatcher() if sys.stderr.isatty() else PlainWatcher()


def print_tables(result: Any, style: str, *kinds: str) -> None:
    """Print tables of these kinds, by default those of times and resources."""
    from framework_compare.report import provenance, terminal

    width = shutil.get_terminal_size((100, 24)).columns if style == "terminal" else None
    if width:
        print("\n".join(terminal.wrap(f"Measured on {provenance.line(result)}", width)) + "\n")
    for kind in kinds or ("time", "resources"):
        print(result.table(kind, style=style, **({"width": width} if width else {})))
    print_damage(result)


def print_damage(result: Any) -> None:
    """Say on standard error what was left out of a damaged study."""
    for line in result.damage:
        print(f"framework-compare: {line}", file=sys.stderr)
