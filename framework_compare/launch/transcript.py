"""A worker's events, gathered into the records of its run. Events are untrusted: each field is checked."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any, Dict, List, Optional, Tuple

from framework_compare.errors import ProtocolError
from framework_compare.events import MAX_TEXT
from framework_compare.launch.statuses import TOLD, Verdict
from framework_compare.records import PROFILE_KINDS, Epoch, Phase, ProfileRow, Quality

MAX_WARNINGS = 100
MAX_PHASES = 100
MAX_PROFILE_ROWS = 300
MAX_PROFILE_NAME = 300
MAX_METRICS = 20  # of an epoch
MAX_NAME = 100
MAX_DEPTH = 20
LARGEST = (1 << 63) - 1  # what SQLite holds
MOST = 10**12  # images or steps of an epoch


class Transcript:
    """Events of one worker, taken in one by one. Phases and epochs come in order, or they are malformed."""

    def __init__(self, started_ns: int, epochs: int, may_stop: bool = False) -> None:
        """epochs: how many are asked; may_stop: whether fewer are enough where the worker says that it stopped."""
        self.asked_epochs = epochs
        self._may_stop = may_stop
        self._began_ns = started_ns
        self.open: Dict[str, int] = {"spawn": started_ns}
        self.phases: List[Phase] = []
        self.epochs: List[Epoch] = []
        self.quality: List[Quality] = []
        self.profile: List[ProfileRow] = []
        self.warnings: List[str] = []
        self.framework: Dict[str, Any] = {}
        self.python: Optional[str] = None
        self.outcome: Optional[Verdict] = None

    def add(self, event: Dict[str, Any]) -> None:
        """Take in one event; ProtocolError if a field is missing, of another type, or makes no sense here."""
        try:
            self._time(event["t_ns"])
            getattr(self, "_" + event["event"])(event)
        except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ProtocolError(f"the worker sent a malformed {event['event']} event: {error!r}"[:500]) from None

    @property
    def died_in(self) -> Optional[str]:
        """The innermost phase that began and did not end."""
        return next(reversed(self.open), None)

    @property
    def all_epochs(self) -> bool:
        return len(self.epochs) >= self.asked_epochs

    def told(self) -> Optional[Verdict]:
        """The outcome that the worker reported; an `ok` before all epochs were reported is a failure."""
        if self.outcome and self.outcome.status == "ok" and not self.all_epochs:
            found = f"{len(self.epochs)} of {self.asked_epochs} epochs"
            return Verdict("failed", f"the worker reported success after {found}")
        return self.outcome

    def _hello(self, event: Dict[str, Any]) -> None:
        self.python = _text(event["python"], MAX_NAME)
        self._close("spawn", event["t_ns"])

    def _framework(self, event: Dict[str, Any]) -> None:
        settings = event["settings"]
        if not isinstance(settings, dict) or not _is_shallow(settings):
            raise TypeError(f"settings is no object, or one of more than {MAX_DEPTH} levels")
        self.framework = {"version": _text(event["version"], MAX_NAME), "settings": settings}

    def _phase(self, event: Dict[str, Any]) -> None:
        name = _text(event["name"], MAX_NAME)
        if event["edge"] != "start":
            self._close(name, event["t_ns"])
        elif name in self.open or len(self.phases) + len(self.open) >= MAX_PHASES:
            raise ValueError(f"phase {name!r} began twice, or is one too many")
        else:
            self.open[name] = self._time(event["t_ns"])

    def _close(self, name: str, t_ns: Any) -> None:
        start_ns, end_ns = self.open.pop(name), self._time(t_ns)
        self.phases.append(Phase(name, start_ns, _within(end_ns, start_ns, LARGEST)))

    def _time(self, t_ns: Any) -> int:
        """CLOCK_MONOTONIC nanoseconds between the start of the run and now."""
        return _within(t_ns, self._began_ns, time.monotonic_ns())

    def _memory(self, event: Dict[str, Any]) -> None:
        last = self.phases[-1]
        pss = event["pss_bytes"]
        if last.name == event["phase"] and pss is not None:
            self.phases[-1] = dataclasses.replace(last, pss_bytes=_whole(pss))

    def _progress(self, event: Dict[str, Any]) -> None:
        """For whoever watches; nothing to keep."""
        _whole(event["epoch"]), _whole(event["steps"])

    def _warning(self, event: Dict[str, Any]) -> None:
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(_text(event["message"], MAX_TEXT))

    def _epoch(self, event: Dict[str, Any]) -> None:
        number = _whole(event["number"])
        if number != len(self.epochs) + 1 or number > self.asked_epochs:
            raise ValueError(f"epoch {number} after {len(self.epochs)} of {self.asked_epochs}")
        start_ns, end_ns = self._epoch_span(event)
        whole = event.get("whole_images")
        p05, median, p95 = (_within(ns, 0, end_ns - start_ns) / 1e9 for ns in event["step_ns"])
        self.epochs.append(
            Epoch(
                number=number,
                start_ns=start_ns,
                end_ns=end_ns,
                data_wait_s=_within(event["data_wait_ns"], 0, end_ns - start_ns) / 1e9,
                images=_within(event["images"], 1, MOST),
                steps=_within(event["steps"], 1, MOST),
                loss=None if event["loss"] is None else _finite(event["loss"]),
                step_s_median=median,
                step_s_p05=p05,
                step_s_p95=p95,
                copy_s=_seconds(event.get("copy_ns")),
                compute_s=_seconds(event.get("compute_ns")),
                whole_images=None if whole is None else _within(whole, event["images"] + 1, MOST),
                pipeline_s=_seconds(event.get("pipeline_ns")),
            )
        )

    def _epoch_span(self, event: Dict[str, Any]) -> Tuple[int, int]:
        """Start and end of an epoch: within the run, after the epoch before it, and not the same moment."""
        start_ns, end_ns = self._time(event["start_ns"]), self._time(event["end_ns"])
        last = self.epochs[-1].end_ns if self.epochs else 0
        return _within(start_ns, last, end_ns - 1), end_ns

    def _stopped(self, event: Dict[str, Any]) -> None:
        """Training ends with the last epoch reported."""
        if not self._may_stop or _whole(event["epoch"]) != len(self.epochs):
            raise ValueError(f"stopped after epoch {event['epoch']}; {len(self.epochs)} were told")
        self.asked_epochs = len(self.epochs)

    def _quality(self, event: Dict[str, Any]) -> None:
        """Metrics of the last epoch reported, once."""
        number, split, values = _whole(event["epoch"]), _text(event["split"], MAX_NAME), event["values"]
        if number != len(self.epochs) or any((q.epoch, q.split) == (number, split) for q in self.quality):
            raise ValueError(f"quality of epoch {number} after epoch {len(self.epochs)}")
        if len(values) > MAX_METRICS:
            raise ValueError(f"{len(values)} metrics; allowed: at most {MAX_METRICS}")
        for name, value in values.items():
            self.quality.append(
                Quality(number, split, _text(name, MAX_NAME), None if value is None else _finite(value))
            )

    def _profile(self, event: Dict[str, Any]) -> None:
        _whole(event["steps"])
        rows = [_profile_row(*row) for row in event["rows"]]
        if self.profile or len(rows) > MAX_PROFILE_ROWS:
            raise ValueError(f"{len(rows)} rows; allowed: one profile of at most {MAX_PROFILE_ROWS}")
        self.profile = rows

    def _outcome(self, event: Dict[str, Any]) -> None:
        status, traceback = event["status"], event.get("traceback")
        if status not in TOLD or self.outcome is not None:
            raise ValueError(f"outcome {_text(status, MAX_NAME)!r}")
        kept = None if traceback is None else _text(traceback, MAX_TEXT)
        self.outcome = Verdict(status, _text(event["reason"], MAX_TEXT), kept)


def _is_shallow(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether a document can be written again: what was read just so may be too deep for that."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(item, levels - 1) for item in items)


def _text(value: Any, longest: int) -> str:
    return str(value)[:longest]


def _profile_row(kind: Any, name: Any, calls: Any, self_ns: Any) -> ProfileRow:
    if kind not in PROFILE_KINDS:
        raise ValueError(f"profile kind {_text(kind, MAX_NAME)!r}")
    return ProfileRow(kind, _text(name, MAX_PROFILE_NAME), _whole(calls), _whole(self_ns) / 1e9)


def _whole(value: Any) -> int:
    """A count or a time: a whole number that SQLite can hold."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        raise ValueError(f"{str(value)[:40]!r} is no count")
    return value


def _within(value: Any, least: int, most: int) -> int:
    """A count or a time of a range, both ends in it."""
    if not least <= _whole(value) <= most:
        raise ValueError(f"{value} is not within {least} to {most}")
    return value


def _seconds(nanoseconds: Any) -> Optional[float]:
    return None if nanoseconds is None else _whole(nanoseconds) / 1e9


def _finite(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:40]!r} is no finite number")
    return float(value)
