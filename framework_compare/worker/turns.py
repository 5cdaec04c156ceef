"""A worker's turns: it trains while it has one, and waits between them, so that rivals can be timed side by side.

The parent writes a line for each turn: `turn NUMBER STEPS REWARM`, or `stop`. The first REWARM steps of a turn fill
caches again and are not counted; the next STEPS are the slice. All are steps of the training, which goes on in the next
turn where this one ended. The clock of a slice runs while an epoch's does, so validation between epochs is not in it.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Callable, Optional

from framework_compare.events import EventWriter
from framework_compare.protocol import Fields


class Stopped(Exception):
    """The parent has seen enough; after so many nanoseconds of waiting for a turn."""

    def __init__(self, waited_ns: int) -> None:
        super().__init__("the parent has seen enough")
        self.waited_ns = waited_ns


class Turns:
    """Turns read from a pipe; each slice is an event.

    synchronize: returns when the device has done all that it was given.
    """

    def __init__(self, descriptor: int, events: EventWriter, synchronize: Callable[[], None]) -> None:
        self._lines = os.fdopen(descriptor, "r", encoding="ascii")
        self._events, self._synchronize = events, synchronize
        self.step_ns: Optional[int] = None  # of a step of the warm-up
        self.steps = 0  # of all epochs
        self._slice: Optional[_Slice] = None
        self._stopped = False

    def take(self) -> int:
        """Before each step: wait for a turn if there is none; nanoseconds waited. Stopped where none will come."""
        if self._stopped:
            raise Stopped(0)
        if self._slice and self._slice.left > 0:
            return 0
        began = time.monotonic_ns()
        self._hand_over()
        word, *numbers = self._lines.readline().split() or ["stop"]
        if word == "stop":
            self._stopped = True  # the last slice may end with an epoch, and another one begin
            raise Stopped(time.monotonic_ns() - began)
        self._slice = _Slice(*map(int, numbers))
        if not self._slice.rewarm:
            self._slice.start()
        return time.monotonic_ns() - began

    def done(self, samples: int) -> None:
        """A step has ended."""
        part = self._slice
        if part is None:
            return
        part.left -= 1
        if part.left == part.steps:
            self._synchronize()
            part.start()
        elif part.left < part.steps:
            part.samples += samples
            if not part.left:
                self._synchronize()
                part.pause()

    def epoch_begins(self) -> None:
        """The clock of an epoch starts."""
        if self._slice and 0 < self._slice.left <= self._slice.steps:
            self._slice.go_on()

    def epoch_ends(self) -> None:
        """The clock of an epoch stops."""
        if self._slice and self._slice.left <= self._slice.steps:
            self._slice.pause()

    def finish(self) -> None:
        """Training is over."""
        if self._slice:
            self._hand_over(last=True)

    def _hand_over(self, last: bool = False) -> None:
        """Give the turn back: with what the slice was, or, before the first one, with the time of a step."""
        part, self._slice = self._slice, None
        if part:
            self._events.send("slice", **part.fields(), last=last)
        else:
            self._events.send("ready", step_ns=self.step_ns, steps=self.steps)


class _Slice:
    """One turn: `left` counts its steps down, those of the slice last."""

    def __init__(self, number: int, steps: int, rewarm: int) -> None:
        self.number, self.steps, self.rewarm = number, steps, rewarm
        self.left = steps + rewarm
        self.samples = self._measured_ns = self._cpu_ns = 0
        self._turn_ns = time.monotonic_ns()
        self._faults = 0
        self._since: Optional[int] = None
        self._cpu_since = 0

    def start(self) -> None:
        self._faults = _major_faults()
        self.go_on()

    def go_on(self) -> None:
        if self._since is None:
            self._cpu_since, self._since = time.process_time_ns(), time.monotonic_ns()

    def pause(self) -> None:
        if self._since is not None:
            self._measured_ns += time.monotonic_ns() - self._since
            self._cpu_ns += time.process_time_ns() - self._cpu_since
            self._since = None

    def fields(self) -> Fields:
        counted = self.steps - max(self.left, 0) if self.left <= self.steps else 0
        return {
            "number": self.number,
            "start_ns": self._turn_ns,
            "end_ns": time.monotonic_ns(),
            "steps": counted,
            "samples": self.samples,
            "measured_ns": self._measured_ns,
            "cpu_ns": self._cpu_ns,
            "major_faults": _major_faults() - self._faults if counted else 0,
        }


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
