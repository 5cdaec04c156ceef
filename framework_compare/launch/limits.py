"""Limits of a run, beyond which a worker is ended from outside, and the clock that holds it to them."""

import contextlib
import dataclasses
import math
import os
import re
import time
from pathlib import Path
from typing import BinaryIO, Mapping, Union

from framework_compare.errors import UsageError, check_name
from framework_compare.launch.scratch import open_regular
from framework_compare.launch.statuses import Ending
from framework_compare.protocol import Fields
from framework_compare.records import PHASES

PhaseTimeout = Union[None, float, Mapping[str, float]]
# A worker that prints without end must not fill the disk: a longer log loses its middle.
MAX_LOG_BYTES = 16 << 20
KEPT_LOG_BYTES = 1 << 20
LOG_CHECK_S = 1.0
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits beyond which a run is ended; None is no limit.

    phase_timeout_s: seconds a phase may take, by phase. One number stands for every phase but `epochs`, which is as
        long as the cell asks for.
    silence_timeout_s: seconds without an event and without a byte in the log.
    memory_bytes: of the worker's whole process tree, shared pages once.
    """

    timeout_s: float | None = None
    phase_timeout_s: PhaseTimeout = None
    silence_timeout_s: float | None = None
    memory_bytes: int | None = None

    def phase_s(self, phase: str) -> float | None:
        """Seconds that a phase may take."""
        if isinstance(self.phase_timeout_s, Mapping):
            return self.phase_timeout_s.get(phase)
        return None if phase == "epochs" else self.phase_timeout_s

    def to_dict(self) -> Fields:
        """Return the limits that are set, for the record of a run."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


def check(
    timeout_s: float | None = None,
    phase_timeout_s: PhaseTimeout = None,
    silence_timeout_s: float | None = None,
    memory_limit: None | int | str = None,
) -> Limits:
    """Limits from what a user gives; UsageError says what is allowed."""
    _check_seconds("timeout_s", timeout_s)
    _check_seconds("silence_timeout_s", silence_timeout_s)
    if isinstance(phase_timeout_s, Mapping):
        for phase, seconds in phase_timeout_s.items():
            check_name("phase", phase, PHASES)
            _check_seconds(f"phase_timeout_s of {phase}", seconds)
        phase_timeout_s = dict(phase_timeout_s)
    else:
        _check_seconds("phase_timeout_s", phase_timeout_s)
    return Limits(timeout_s, phase_timeout_s, silence_timeout_s, parse_bytes(memory_limit))


def _check_seconds(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise UsageError(f"{name} is {value!r}; allowed: a number of seconds above 0, or None")


def parse_bytes(text: None | int | str, name: str = "memory_limit") -> int | None:
    """Bytes of 2147483648, "2GiB", "2G" (both 2**31) or "2GB" (2 * 10**9); UsageError for anything else."""
    if text is None:
        return None
    match = _SIZE.fullmatch(str(text).strip())
    if not match or isinstance(text, (bool, float)):
        raise UsageError(f"{name} is {text!r}; allowed: bytes, or a size such as 2GiB or 1500MB")
    number, prefix, binary = match.groups()
    decimal = str(text).strip().upper().endswith("B") and not binary
    size = int(float(number) * (1000 if decimal else 1024) ** " KMGT".index(prefix.upper() or " "))
    if size < 1 << 20:
        hint = "; a number alone is bytes: write 3GiB or 1500MB" if not prefix else ""
        raise UsageError(f"{name} is {text!r}; allowed: at least 1 MiB{hint}")
    return size


class Clock:
    """Holds one run to its time limits, and its log to a size. Seconds are time.monotonic()."""

    def __init__(self, limits: Limits, log: Path) -> None:
        self._limits, self._log = limits, log
        self._started = self._heard = self._phase_began = time.monotonic()
        self._phase: str | None = "spawn"
        self._log_size = 0
        self._log_due = self._started + LOG_CHECK_S
        self._paused: float | None = None
        self._turn: tuple[float, str] | None = None  # when it must have ended, and what to say where it has not

    def pause(self) -> None:
        """The worker waits for its turn: no limit counts that."""
        self._paused, self._turn = time.monotonic(), None

    def go_on(self, turn_s: float, last: bool) -> None:
        """Start the clock of a turn, or of the end, of at most so many seconds."""
        if self._paused is not None:
            waited, self._paused = time.monotonic() - self._paused, None
            self._started, self._heard = self._started + waited, self._heard + waited
            self._phase_began += waited
        late = "it did not end within {:.0f} s of its last turn" if last else "its turn did not end within {:.0f} s"
        self._turn = (time.monotonic() + turn_s, late.format(turn_s))

    def hear(self, phase: str | None) -> None:
        """The worker sent an event, and is now in `phase`."""
        self._heard = time.monotonic()
        if phase != self._phase:
            self._phase, self._phase_began = phase, self._heard

    def wait_s(self) -> float:
        """Seconds until something must be looked at."""
        due = [self._log_due, *(moment for moment, _ in self._deadlines())]
        return max(0.0, min(due) - time.monotonic())

    def ending(self) -> Ending | None:
        """Return why the worker has to be ended now, or None."""
        now = time.monotonic()
        if now >= self._log_due:
            self._look_at_log(now)
        late = [reason for moment, reason in self._deadlines() if now >= moment]
        if late and late[0].startswith("silent"):
            self._look_at_log(now)
            late = [reason for moment, reason in self._deadlines() if now >= moment]
        return Ending("timed-out", late[0]) if late else None

    def _deadlines(self) -> list[tuple[float, str]]:
        limits = self._limits
        found: list[tuple[float, str]] = []
        if self._paused is not None:
            return []
        if self._turn:
            found.append(self._turn)
        if limits.timeout_s is not None:
            found.append((self._started + limits.timeout_s, f"not finished within {limits.timeout_s:g} s"))
        phase_s = limits.phase_s(self._phase) if self._phase else None
        if phase_s is not None:
            found.append((self._phase_began + phase_s, f"phase {self._phase} not finished within {phase_s:g} s"))
        if limits.silence_timeout_s is not None:
            where = f" in phase {self._phase}" if self._phase else ""
            silent = f"silent for {limits.silence_timeout_s:g} s{where}: no event or output"
            found.append((self._heard + limits.silence_timeout_s, silent))
        return found

    def _look_at_log(self, now: float) -> None:
        self._log_due = now + LOG_CHECK_S
        with contextlib.suppress(OSError):
            if self._log.lstat().st_size != self._log_size:
                self._heard = now
        self._log_size = shorten_if_long(self._log)


def shorten_if_long(log: Path) -> int:
    """Cut the middle out of a log of more than 16 MiB, so that its first and last MiB stay; its size.

    It may be being appended to: what is written between the reading of its end and the cut is lost as well. 0 for what
    is not a regular file any more.
    """
    try:
        with open_regular(log, os.O_RDWR) as file:
            size = file.seek(0, os.SEEK_END)
            return size if size <= MAX_LOG_BYTES else _shorten(file, size)
    except OSError:
        return 0


def _shorten(file: BinaryIO, size: int) -> int:
    file.seek(size - KEPT_LOG_BYTES)
    end = file.read(KEPT_LOG_BYTES)
    file.seek(KEPT_LOG_BYTES)
    cut = f"\n[{size - 2 * KEPT_LOG_BYTES} bytes of this log were left out here]\n".encode()
    file.truncate(KEPT_LOG_BYTES)
    file.write(cut + end)
    return file.tell()
