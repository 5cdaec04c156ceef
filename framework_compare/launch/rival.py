"""One of the workers that take turns: what it did with its turns, and what it does while it waits."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

from framework_compare.launch import rounds
from framework_compare.launch.launcher import OnEvent, WorkerRun, WorkerSpec
from framework_compare.launch.statuses import Ending
from framework_compare.records import Slice
from framework_compare.samplers.process import RUNS, STOPPED, ProcessTreeSampler, any_thread

STILL_S = 0.3  # until idle threads of a worker have stopped spinning


class Member(NamedTuple):
    """One worker of a duel; peak_bytes: what runs of its cell took before, 0 where none ran."""

    name: str
    spec: WorkerSpec
    on_event: OnEvent
    peak_bytes: int = 0


class Rival:
    """One live worker: its run, and the CPU that its processes use."""

    def __init__(self, member: Member, run: WorkerRun) -> None:
        self.name, self.run, self.spec = member.name, run, member.spec
        self.transcript = run.transcript
        pids = run.worker.pids if run.worker else []
        self._tree = ProcessTreeSampler(*pids) if pids else None
        self._freezes = self.spec.device == "cpu" and self.spec.job.config.pipeline != "memory"
        self._rested_ns = 0
        self._rested_at = 0.0
        self.idle_cpu_s = self.idle_s = 0.0  # since the round began
        self.stopped = False  # by somebody else, while it waited for its turn of this round
        self.accompanied = False  # whether a rival lived beside it, and took memory
        self._claims, self._false = 0, 0  # slices that were compared with their turns

    @property
    def batch_size(self) -> int:
        return self.spec.job.config.batch_size

    @property
    def takes_turns(self) -> bool:
        return self.transcript.ready and not self.transcript.last and not self.run.over

    @property
    def step_s(self) -> float:
        """Seconds of a step: of the last slice, else of the warm-up."""
        last: Slice | None = next((one for one in reversed(self.transcript.slices) if one.steps), None)
        return last.measured_s / last.steps if last else self.transcript.step_s or rounds.SLICE_S

    def spent_ns(self) -> int:
        """CPU of its processes so far; what it was where they have ended."""
        return (self._tree.spent_ns() if self._tree else None) or self._rested_ns

    def rest(self) -> None:
        """Make it wait from now on: its loaders stopped, or its threads still."""
        self.run.rest()
        if self._freezes:
            self.spent_ns()  # finds loaders that have started in this turn
            self._signal(signal.SIGSTOP)
        self._wait_until_still()
        self._rested_ns, self._rested_at = self.spent_ns(), time.monotonic()

    def note_idle(self) -> None:
        """Count what it used while it waited, up to now."""
        spent_ns, now = self.spent_ns(), time.monotonic()
        self.idle_cpu_s += max(0, spent_ns - self._rested_ns) / 1e9
        self.idle_s += now - self._rested_at
        self._rested_ns, self._rested_at = spent_ns, now

    def false_claim(self, quiet: bool) -> str:
        """Return whether the time it reported is not that of its turn; "" if it is. One that keeps doing so is ended.

        Not where others took CPU time, whatever threshold the user allows: it may have had to wait for its turn's steps.
        """
        turn, part, config = self.transcript.turn, self.transcript.slices[-1], self.spec.job.config
        assert turn
        full_step_s = part.measured_s / part.samples * self.batch_size
        found = rounds.claim_fault(turn, part.measured_s / part.steps, full_step_s, config.pipeline != "memory")
        blamed = found not in ("", rounds.UNCHECKED)
        self._claims, self._false = self._claims + quiet, self._false + (blamed and quiet)
        if blamed and quiet and rounds.MOST_CLAIMS <= self._false and self._claims <= 2 * self._false:
            last = f"in the last {part.measured_s:.3f} s of a turn of {turn.seconds:.3f} s"
            self.run.ending = Ending("failed", f"in {self._false} of {self._claims} rounds it reported {found}: {last}")
            self.run.close()
        return found and f"{self.name} reported {found}"

    def close(self) -> None:
        """Let go of what its CPU is read from."""
        if self._tree:
            self._tree.close()

    def wake(self) -> None:
        """Wake it for a turn; this also ends a stop by somebody else, which would last until the turn's deadline."""
        self.note_idle()
        self.stopped = not self._freezes and any_thread(self._tree.pids() if self._tree else (), STOPPED)
        if self._freezes or self.stopped:
            self.go_on()

    def go_on(self) -> None:
        """End the stop of its processes, where they are stopped."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self._tree.pids() if self._tree else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _wait_until_still(self) -> None:
        give_up = time.monotonic() + STILL_S
        while self._tree and any_thread(self._tree.pids(), RUNS) and time.monotonic() < give_up:
            time.sleep(0.001)
