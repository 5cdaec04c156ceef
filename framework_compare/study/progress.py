"""Show progress while a study runs: live lines on a terminal, plain ones in a log, nothing in a library call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from framework_compare.plan.settings import ANY_EPOCHS, DEFAULTS, IDENTITY, SETTINGS, of_role
from framework_compare.protocol import Fields
from framework_compare.records import Cell, Run
from framework_compare.registry import unit


class Watcher:
    """Gets a call for everything slow; this one prints nothing. A context manager around the running of the cells."""

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing was opened."""

    def say(self, message: str) -> None:
        """One sentence worth knowing."""

    def expect(self, forecast: Callable[[], object]) -> None:
        """Nothing has started yet; what would take as long as the `Forecast` says is left undone by an exception."""

    def count(self, what: str, done: int, total: int) -> None:
        """`done` of `total` things of one kind."""

    def begin(self, cell: Cell, number: int, total: int) -> None:
        """Run `number` of `total` starts."""

    def event(self, cell: Cell, event: Fields) -> None:
        """The worker sent an event."""

    def left(self, seconds: float, at_most: bool = False) -> None:
        """Tell the seconds until the last run ends, by the runs so far; at_most: fewer if figures are sure before."""

    def end(self, cell: Cell, run: Run) -> None:
        """The run is over and recorded."""


# Settings whose value is a word that explains itself; the cell's label has the device.
_WORDS = tuple(name for name in of_role(IDENTITY) if SETTINGS[name].choices and name != "device")


def described(cell: Cell) -> str:
    """A cell's label, its batch size, and what is unusual about it: "torch-vgg16-cpu, batch 32, bf16"."""
    unusual = [getattr(cell.config, name) for name in _WORDS if getattr(cell.config, name) != getattr(DEFAULTS, name)]
    nodes = [f"{cell.config.nodes} nodes"] if cell.config.nodes > 1 else []
    return ", ".join([cell.label, *nodes, f"batch {cell.config.batch_size}", *unusual])


def _outcome_line(cell: Cell, run: Run) -> str:
    """The outcome of a run in one line."""
    if run.status != "ok":
        return f"{described(cell)}: {run.status}: {' '.join(run.reason.split())[:300]}"
    images = sum(epoch.images for epoch in run.epochs)
    seconds = sum(epoch.seconds for epoch in run.epochs)
    memory = f", {run.peak_rss_bytes / 2**30:.2f} GiB RSS" if run.peak_rss_bytes else ""
    speed = f"{images / seconds:.1f} {unit(cell.model)}s/s{memory}"
    first, last = run.epochs[0], run.epochs[-1]
    if first.estimate_s is not None:
        steps = f"{first.steps} of {first.whole_steps} steps"
        return f"{described(cell)}: about {first.estimate_s:.2f} s per epoch by {steps}, {speed}"
    learnt = "" if first.loss is None or last.loss is None else f", loss {first.loss:.3f} to {last.loss:.3f}"
    return f"{described(cell)}: {seconds / len(run.epochs):.2f} s per epoch, {speed}{learnt}"


def length(seconds: float) -> str:
    """A time in the unit that a reader would use: "40 s", "12 min", "3.4 h"."""
    for unit_s, name in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit_s:
            return f"{seconds / unit_s:.2g} {name}" if seconds < 10 * unit_s else f"{seconds / unit_s:.0f} {name}"
    return f"{seconds:.0f} s"


def _left_words(seconds: float, at_most: bool) -> str:
    """Return what is left of a study: "about 12 min left"."""
    return f"{'at most' if at_most else 'about'} {length(seconds)} left"


class PlainWatcher(Watcher):
    """One line per finished run, for logs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._told: dict[str, int] = {}
        self._begun: list[int] = []  # numbers of the runs that have not ended
        self._total, self._left = 1, ""

    def say(self, message: str) -> None:
        print(one_line(message), file=self._stream, flush=True)

    def count(self, what: str, done: int, total: int) -> None:
        quarter = 4 * done // max(total, 1)
        if total >= 200 and quarter > self._told.get(what, 0):
            self._told[what] = quarter
            self.say(f"{what}: {done} of {total}")

    def begin(self, cell: Cell, number: int, total: int) -> None:
        self._begun.append(number)
        self._total = total

    def left(self, seconds: float, at_most: bool = False) -> None:
        self._left = _left_words(seconds, at_most)

    def end(self, cell: Cell, run: Run) -> None:
        number = f"{self._begun.pop(0)}/{self._total}" if self._begun else ""
        place = ", ".join(filter(None, [number if self._total > 1 else "", self._left]))
        self._left = ""
        self.say((f"[{place}] " if place else "") + _outcome_line(cell, run))


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
        self._tasks: Fields = {}
        self._ended = True  # a run has, since the last began

    def __enter__(self) -> RichWatcher:
        for task in self._tasks.values():
            self._bars.remove_task(task)
        self._tasks.clear()
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def say(self, message: str) -> None:
        self._console.print(one_line(message), markup=False, highlight=False)

    def count(self, what: str, done: int, total: int) -> None:
        self._bars.start()
        self._update(what, done, total)
        if done >= total:
            self._bars.stop()

    def _update(self, what: str, done: float, total: float | None, text: str | None = None) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[what], completed=done, total=total, description=text)

    def begin(self, cell: Cell, number: int, total: int) -> None:
        if self._ended:  # runs that take turns begin together, and none of them is done before it ends
            self._update("study", number - 1, total)
        self._ended = False

    def event(self, cell: Cell, event: Fields) -> None:
        if event["event"] == "phase" and event["edge"] == "start":
            done, what = 0, event["name"]
        elif event["event"] == "epoch":
            done, what = event["number"], "epochs"
        else:
            return
        total = None if cell.config.epochs == ANY_EPOCHS else cell.config.epochs  # a bar that only moves
        self._update("cell", done, total, one_line(f"{described(cell)}: {what}"))

    def left(self, seconds: float, at_most: bool = False) -> None:
        if "study" in self._tasks:
            self._bars.update(self._tasks["study"], description=f"study, {_left_words(seconds, at_most)}")

    def end(self, cell: Cell, run: Run) -> None:
        self.say(_outcome_line(cell, run))
        self._ended = True
        if "study" in self._tasks:  # it may have ended before any began
            self._bars.update(self._tasks["study"], advance=1)


def one_line(text: str) -> str:
    """One line without control characters: what a worker or a file name says must not drive the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def default_watcher() -> Watcher:
    """Bars where a person looks on, nothing otherwise."""
    return RichWatcher() if sys.stderr.isatty() else Watcher()
