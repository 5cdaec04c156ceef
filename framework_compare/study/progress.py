"""What a user sees while a study runs: live lines on a terminal, plain ones in a log, nothing in a library call."""

from __future__ import annotations

import sys
from typing import Any, Dict, Optional, TextIO

from framework_compare.plan.settings import DEFAULTS, IDENTITY, SETTINGS, of_role
from framework_compare.records import Cell, Run
from framework_compare.registry import unit


class Watcher:
    """Gets a call for everything slow; this one prints nothing. A context manager around the running of the cells."""

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing was opened."""

    def say(self, message: str) -> None:
        """One sentence worth knowing."""

    def count(self, what: str, done: int, total: int) -> None:
        """`done` of `total` things of one kind."""

    def begin(self, cell: Cell, number: int, total: int) -> None:
        """Run `number` of `total` starts."""

    def event(self, cell: Cell, event: Dict[str, Any]) -> None:
        """The worker sent an event."""

    def end(self, cell: Cell, run: Run) -> None:
        """The run is over and recorded."""


# Settings whose value is a word that explains itself; the cell's label has the device.
_WORDS = tuple(name for name in of_role(IDENTITY) if SETTINGS[name].choices and name != "device")


def described(cell: Cell) -> str:
    """A cell's label, its batch size, and what is unusual about it: "torch-vgg16-cpu, batch 32, bf16"."""
    unusual = [getattr(cell.config, name) for name in _WORDS if getattr(cell.config, name) != getattr(DEFAULTS, name)]
    return ", ".join([cell.label, f"batch {cell.config.batch_size}", *unusual])


def outcome_line(cell: Cell, run: Run) -> str:
    """The outcome of a run in one line."""
    if run.status != "ok":
        return f"{described(cell)}: {run.status}: {' '.join(run.reason.split())[:300]}"
    images = sum(epoch.images for epoch in run.epochs)
    seconds = sum(epoch.seconds for epoch in run.epochs)
    memory = f", {run.peak_rss_bytes / 2**30:.2f} GiB" if run.peak_rss_bytes else ""
    return (
        f"{described(cell)}: {seconds / len(run.epochs):.2f} s per epoch, {images / seconds:.1f} {unit(cell.model)}s/s{memory},"
        f" loss {run.epochs[0].loss:.3f} to {run.epochs[-1].loss:.3f}"
    )


class PlainWatcher(Watcher):
    """One line per finished run, for logs."""

    def __init__(self, stream: Optional[TextIO] = None) -> None:
        self._stream = stream or sys.stderr
        self._told: Dict[str, int] = {}
        self._place = ""

    def say(self, message: str) -> None:
        print(_clean(message), file=self._stream, flush=True)

    def count(self, what: str, done: int, total: int) -> None:
        quarter = 4 * done // max(total, 1)
        if total >= 200 and quarter > self._told.get(what, 0):
            self._told[what] = quarter
            self.say(f"{what}: {done} of {total}")

    def begin(self, cell: Cell, number: int, total: int) -> None:
        self._place = f"[{number}/{total}] " if total > 1 else ""

    def end(self, cell: Cell, run: Run) -> None:
        self.say(f"{self._place}{outcome_line(cell, run)}")


class RichWatcher(Watcher):
    """A bar for the study and one for the cell that runs; finished cells scroll by above."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            refresh_per_second=2,  # the parent shares the machine with what it measures
        )
        self._tasks: Dict[str, Any] = {}
        self._steps = 0

    def __enter__(self) -> "RichWatcher":
        for task in self._tasks.values():
            self._bars.remove_task(task)
        self._tasks.clear()
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def say(self, message: str) -> None:
        self._console.print(_clean(message), markup=False, highlight=False)

    def count(self, what: str, done: int, total: int) -> None:
        self._bars.start()
        self._update(what, done, total)
        if done >= total:
            self._bars.stop()

    def _update(self, what: str, done: float, total: float) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[what], completed=done, total=total)

    def begin(self, cell: Cell, number: int, total: int) -> None:
        self._update("study", number - 1, total)
        self._label = cell.label

    def event(self, cell: Cell, event: Dict[str, Any]) -> None:
        if event["event"] == "phase" and event["edge"] == "start":
            self._replace_cell_bar(f"{described(cell)}: {event['name']}", 0, cell.config.epochs)
        elif event["event"] == "epoch":
            self._replace_cell_bar(f"{described(cell)}: epochs", event["number"], cell.config.epochs)

    def _replace_cell_bar(self, text: str, done: int, total: int) -> None:
        if "cell" not in self._tasks:
            self._tasks["cell"] = self._bars.add_task("", total=total)
        self._bars.update(self._tasks["cell"], description=_clean(text), completed=done, total=total)

    def end(self, cell: Cell, run: Run) -> None:
        self.say(outcome_line(cell, run))
        self._bars.update(self._tasks["study"], advance=1)


def _clean(text: str) -> str:
    """One line without control characters: what a worker or a file name says must not drive the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def default_watcher() -> Watcher:
    """Bars where a person looks on, nothing otherwise."""
    return RichWatcher() if sys.stderr.isatty() else Watcher()
