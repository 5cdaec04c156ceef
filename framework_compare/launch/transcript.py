"""A worker's events, gathered into the records of its run. Events are untrusted: each field is checked."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import NamedTuple

from framework_compare.errors import ProtocolError
from framework_compare.events import MAX_TEXT, OF_RANKS
from framework_compare.launch.statuses import TOLD, Ending
from framework_compare.protocol import Fields
from framework_compare.records import PROFILE_KINDS, Epoch, Phase, ProfileRow, Quality, Slice

MAX_WARNINGS = 100
MAX_PHASES = 100
MAX_PROFILE_ROWS = 300
MAX_PROFILE_NAME = 300
MAX_METRICS = 20  # of an epoch
MAX_NAME = 100
MAX_DEPTH = 20
LARGEST = (1 << 63) - 1  # what SQLite holds
MOST = 10**12  # images or steps of an epoch


class Grant(NamedTuple):
    """A turn that a worker was given."""

    round: int
    steps: int
    rewarm: int
    given_ns: int


class Turn(NamedTuple):
    """A turn by the parent's clock. uncounted_s: what is neither the slice, as reported, nor between two epochs.

    epochs: how many ended within its uncounted steps, so that the next began there, with the start of its loaders.
    """

    seconds: float
    uncounted_s: float
    rewarm: int
    epochs: int


Event = Fields


class Transcript:
    """Events of one worker, taken in one by one. Phases and epochs come in order, or they are malformed."""

    def __init__(self, started_ns: int, epochs: int, may_stop: bool = False, ranks: int = 1) -> None:
        """epochs: how many are asked; may_stop: whether fewer are enough where the worker says that it stopped.

        ranks: processes that train together. Rank 0 tells the story, the others their memory, losses and outcomes.
        """
        self._ranks = ranks
        self._pss_bytes: dict[str, dict[int, int]] = {}  # by phase and rank
        self._losses: dict[int, dict[int, tuple[int, float]]] = {}  # images and loss by epoch and rank
        self.asked_epochs = epochs
        self._may_stop = may_stop
        self._began_ns = started_ns
        self.open: dict[str, int] = {"spawn": started_ns}
        self.phases: list[Phase] = []
        self.epochs: list[Epoch] = []
        self.slices: list[Slice] = []
        self.ready = False
        self.step_s: float | None = None  # of the warm-up
        self.steps = 0  # of all epochs
        self.grant: Grant | None = None  # while it has a turn
        self.turn: Turn | None = None  # the last that it gave back
        self._ended: list[int] = []  # after how many steps of this turn epochs ended
        self._between_ns = 0  # what the worker did between epochs of this turn
        self._of_turns = self._of_epochs = 0  # steps so far, of turns that are over and of epochs
        self._told_ns = 0  # when the last was sent, of which the parent may hear late
        self.last = False  # whether it needs no further turn
        self.quality: list[Quality] = []
        self.profile: list[ProfileRow] = []
        self.warnings: list[str] = []
        self.framework: Fields = {}
        self.python: str | None = None
        self.outcomes: dict[int, Ending] = {}  # by rank

    def add(self, event: Event) -> None:
        """Take in one event; ProtocolError if a field is missing, of another type, or makes no sense here."""
        try:
            if not event.get("rank"):  # others may have the clock of another node
                self._time(event["t_ns"])
            if event.get("rank") and event["event"] not in OF_RANKS:
                raise ValueError(f"rank {event['rank']} reports what rank 0 reports")
            getattr(self, "_" + event["event"])(event)
        except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ProtocolError(f"the worker sent a malformed {event['event']} event: {error!r}"[:500]) from None

    @property
    def died_in(self) -> str | None:
        """The innermost phase that began and did not end."""
        return self.phase_of_end(0)

    def phase_of_end(self, rank: int) -> str | None:
        """Return the phase a rank ended in. When another one ends, rank 0 leaves its phase by an error for release."""
        return next(iter(self.open) if rank else reversed(self.open), None)

    @property
    def all_epochs(self) -> bool:
        return len(self.epochs) >= self.asked_epochs

    def reported_outcome(self, rank: int = 0) -> Ending | None:
        """The outcome that the worker, or a rank of it, reported; an `ok` before all epochs were reported is a failure."""
        outcome = self.outcomes.get(rank)
        if outcome and outcome.status == "ok" and not self.all_epochs:
            found = f"{len(self.epochs)} of {self.asked_epochs} epochs"
            return Ending("failed", f"the worker reported success after {found}")
        return outcome

    def first_failed(self) -> int | None:
        """The rank whose failure was heard of first; None where none was."""
        return next((rank for rank, ending in self.outcomes.items() if ending.status != "ok"), None)

    def _hello(self, event: Event) -> None:
        self.python = _text(event["python"], MAX_NAME)
        self._close("spawn", event["t_ns"])

    def _framework(self, event: Event) -> None:
        settings = event["settings"]
        if not isinstance(settings, dict) or not _is_shallow(settings):
            raise TypeError(f"settings is not an object, or is nested more than {MAX_DEPTH} levels deep")
        self.framework = {"version": _text(event["version"], MAX_NAME), "settings": settings}

    def _phase(self, event: Event) -> None:
        name = _text(event["name"], MAX_NAME)
        if event["edge"] != "start":
            self._close(name, event["t_ns"])
        elif name in self.open or len(self.phases) + len(self.open) >= MAX_PHASES:
            raise ValueError(f"phase {name!r} began twice, or too many phases began")
        else:
            self.open[name] = self._time(event["t_ns"])

    def _close(self, name: str, t_ns: object) -> None:
        start_ns, end_ns = self.open.pop(name), self._time(t_ns)
        self.phases.append(Phase(name, start_ns, _within(end_ns, start_ns, LARGEST)))

    def _time(self, t_ns: object) -> int:
        """CLOCK_MONOTONIC nanoseconds between the start of the run and now."""
        return _within(t_ns, self._began_ns, time.monotonic_ns())

    def _memory(self, event: Event) -> None:
        """PSS of the trees of several ranks adds up: each page counts by its share of users."""
        pss, rank, name = event["pss_bytes"], self._rank(event), _text(event["phase"], MAX_NAME)
        if pss is None or (not rank and self.phases[-1].name != name):
            return
        known = self._pss_bytes.setdefault(name, {})
        known[rank] = _whole(pss)
        places = [place for place, phase in enumerate(self.phases) if phase.name == name]
        if len(known) == self._ranks and places:
            self.phases[places[-1]] = dataclasses.replace(self.phases[places[-1]], pss_bytes=sum(known.values()))

    def _rank(self, event: Event) -> int:
        return _within(event.get("rank", 0), 0, self._ranks - 1)

    def _progress(self, event: Event) -> None:
        """Pass progress on to whoever watches; nothing is kept."""
        _whole(event["epoch"]), _whole(event["steps"])

    def _warning(self, event: Event) -> None:
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(_text(event["message"], MAX_TEXT))

    def _ready(self, event: Event) -> None:
        if self.ready:
            raise ValueError("it was ready before")
        self.step_s, self.steps = _seconds(event["step_ns"]), _within(event["steps"], 1, MOST)
        self.ready = True

    def _slice(self, event: Event) -> None:
        """Within its turn, one a turn, and no longer than the turn was."""
        grant, self.grant = self.grant, None
        if grant is None or event["number"] != grant.round:
            raise ValueError(f"slice {event['number']} in the turn of {grant and grant.round}")
        start_ns = _within(event["start_ns"], grant.given_ns, time.monotonic_ns())
        end_ns = _within(self._time(event["end_ns"]), start_ns, LARGEST)
        steps = _within(event["steps"], 0, grant.steps)
        if bool(event["last"]) < (steps < grant.steps):
            raise ValueError(f"{steps} of {grant.steps} steps")
        self.last = bool(event["last"])
        measured_ns = _within(event["measured_ns"], min(steps, 1), end_ns - start_ns)
        turn_ns = time.monotonic_ns() - grant.given_ns
        uncounted_s = (turn_ns - self._between_ns - measured_ns) / 1e9
        self.turn = Turn(turn_ns / 1e9, uncounted_s, grant.rewarm, sum(one <= grant.rewarm for one in self._ended))
        self._of_turns += grant.rewarm + steps
        self._ended, self._between_ns = [], 0
        self.slices.append(
            Slice(
                round=grant.round,
                start_ns=start_ns,
                end_ns=end_ns,
                steps=steps,
                samples=_within(event["samples"], steps, MOST),
                measured_s=measured_ns / 1e9,
                cpu_s=_whole(event["cpu_ns"]) / 1e9,
                major_faults=_whole(event["major_faults"]),
            )
        )

    def _epoch(self, event: Event) -> None:
        if not self._rank(event):
            self._add_epoch(event)
        if self._ranks > 1:
            self._average(_whole(event["number"]), event)

    def _average(self, number: int, event: Event) -> None:
        """The loss of an epoch is the mean of its ranks', which all train on as many images."""
        known = self._losses.setdefault(number, {})
        if number > self.asked_epochs or len({images for images, _ in known.values()} | {event["images"]}) > 1:
            raise ValueError(f"epoch {number} of {event['images']} images at rank {event.get('rank', 0)}")
        known[self._rank(event)] = _whole(event["images"]), _finite(event["loss"])
        if len(known) == self._ranks:
            loss = sum(loss for _, loss in known.values()) / self._ranks
            self.epochs[number - 1] = dataclasses.replace(self.epochs[number - 1], loss=loss)

    def _add_epoch(self, event: Event) -> None:
        number = _whole(event["number"])
        if number != len(self.epochs) + 1 or number > self.asked_epochs:
            raise ValueError(f"epoch {number} after {len(self.epochs)} of {self.asked_epochs}")
        start_ns, end_ns = self._epoch_span(event)
        whole, waited_ns = event.get("whole_images"), event.get("waited_ns")
        if waited_ns is not None:
            _within(waited_ns, 0, end_ns - start_ns - 1)
        # of inference (no loss) the steps of its latency are taken after the epoch, which may be shorter than one of them
        longest = end_ns - start_ns if event["loss"] is not None else self._time(event["t_ns"]) - end_ns
        p05, median, p95 = (_within(ns, 0, longest) / 1e9 for ns in event["step_ns"])
        self._of_epochs += _within(event["steps"], 1, MOST)
        self._ended.append(self._of_epochs - self._of_turns)
        self._told_ns = max(event["t_ns"], end_ns)
        self._between_ns += self._told_ns - end_ns if event["loss"] is None else 0
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
                waited_s=_seconds(waited_ns),
            )
        )

    def _epoch_span(self, event: Event) -> tuple[int, int]:
        """Start and end of an epoch: within the run, after the epoch before it, and not the same moment."""
        start_ns, end_ns = self._time(event["start_ns"]), self._time(event["end_ns"])
        last = self.epochs[-1].end_ns if self.epochs else 0
        return _within(start_ns, last, end_ns - 1), end_ns

    def _stopped(self, event: Event) -> None:
        """Training ends with the last epoch reported."""
        if not self._may_stop or _whole(event["epoch"]) != len(self.epochs):
            raise ValueError(f"stopped after epoch {event['epoch']}; {len(self.epochs)} were reported")
        self.asked_epochs = len(self.epochs)

    def _quality(self, event: Event) -> None:
        """Metrics of the last epoch reported, once."""
        number, split, values = _whole(event["epoch"]), _text(event["split"], MAX_NAME), event["values"]
        if number != len(self.epochs) or any((q.epoch, q.split) == (number, split) for q in self.quality):
            raise ValueError(f"quality of epoch {number} after epoch {len(self.epochs)}")
        if len(values) > MAX_METRICS:
            raise ValueError(f"{len(values)} metrics; allowed: at most {MAX_METRICS}")
        told_ns, self._told_ns = self._told_ns, max(event["t_ns"], self._told_ns)
        self._between_ns += self._told_ns - told_ns
        for name, value in values.items():
            self.quality.append(
                Quality(number, split, _text(name, MAX_NAME), None if value is None else _finite(value))
            )

    def _profile(self, event: Event) -> None:
        _whole(event["steps"])
        rows = [_profile_row(*row) for row in event["rows"]]
        if self.profile or len(rows) > MAX_PROFILE_ROWS:
            raise ValueError(f"{len(rows)} rows; allowed: one profile of at most {MAX_PROFILE_ROWS}")
        self.profile = rows

    def _outcome(self, event: Event) -> None:
        status, traceback = event["status"], event.get("traceback")
        rank = self._rank(event)
        if status not in TOLD or rank in self.outcomes:
            raise ValueError(f"outcome {_text(status, MAX_NAME)!r}")
        kept = None if traceback is None else _text(traceback, MAX_TEXT)
        self.outcomes[rank] = Ending(status, _text(event["reason"], MAX_TEXT), kept)


def _is_shallow(value: object, levels: int = MAX_DEPTH) -> bool:
    """Return whether a document can be written again: what was read just so may be too deep for that."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(item, levels - 1) for item in items)


def _text(value: object, longest: int) -> str:
    return str(value)[:longest]


def _profile_row(kind: object, name: object, calls: object, self_ns: object) -> ProfileRow:
    if kind not in PROFILE_KINDS:
        raise ValueError(f"profile kind {_text(kind, MAX_NAME)!r}")
    return ProfileRow(_text(kind, MAX_NAME), _text(name, MAX_PROFILE_NAME), _whole(calls), _whole(self_ns) / 1e9)


def _whole(value: object) -> int:
    """A count or a time: a whole number that SQLite can hold."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        raise ValueError(f"{str(value)[:40]!r} is not a count")
    return value


def _within(value: object, least: int, most: int) -> int:
    """A count or a time of a range, both ends in it."""
    count = _whole(value)
    if not least <= count <= most:
        raise ValueError(f"{value} is not within {least} to {most}")
    return count


def _seconds(nanoseconds: object) -> float | None:
    return None if nanoseconds is None else _whole(nanoseconds) / 1e9


def _finite(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:40]!r} is not a finite number")
    return float(value)
