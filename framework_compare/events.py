"""Events: JSON lines a worker writes on a private descriptor. Writer for the worker, reader for the parent.

Version history of the format:
1: hello, framework, phase, memory, progress, epoch, warning, outcome.
2: profile.
3: whole_images and pipeline_ns of an epoch that was ended early; of a cell on several devices, memory, epoch and
   outcome with the `rank` of a process other than the first.
4: ready and slice of a worker that takes turns with others; waited_ns of its epochs.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Iterator, Optional

from framework_compare.errors import ProtocolError
from framework_compare.json_types import JSON, Fields

VERSION = 4
KINDS = tuple("hello framework phase memory progress ready slice epoch quality stopped profile warning outcome".split())
# A line longer than this is not an event of ours; it bounds what a broken worker can make the parent hold.
MAX_LINE_BYTES = 1 << 20
# What a field of text is cut to before it is sent: a traceback of a deep compiler can be megabytes.
MAX_TEXT = 16_000
# What ranks other than the first send: the cell has one story, told by rank 0.
OF_RANKS = ("memory", "epoch", "outcome")
# What the seconds and qualities of a grid search are told of, in place of a split, and the names of its seconds.
SEARCH, CANDIDATE = "search", "candidate"
BUILD, FIRST_STEP, JUDGING, WHOLE = "build_s", "first_step_s", "validation_s", "search_s"
# What a rank exits with once it has sent the outcome of a run that did not go well.
TOLD_FAILURE = 70


class EventWriter:
    """Writes one event a call, whole, straight to the descriptor.

    rank: of a process that shares the descriptor with others. The kernel keeps its lines apart up to PIPE_BUF bytes.
    """

    def __init__(self, descriptor: int, rank: Optional[int] = None) -> None:
        self._descriptor = descriptor
        self._rank = rank

    def send(self, kind: str, **fields: object) -> None:
        """Write an event stamped with CLOCK_MONOTONIC nanoseconds; floats that are not finite become null."""
        if self._rank and kind not in OF_RANKS:
            return
        event = {"event": kind, "t_ns": time.monotonic_ns(), **{name: _finite(value) for name, value in fields.items()}}
        if self._rank:
            event["rank"] = self._rank
        line = memoryview(_line(event) if self._rank is None else _short_line(event))
        while line:
            line = line[os.write(self._descriptor, line) :]


def _line(event: Fields) -> bytes:
    return json.dumps(event, allow_nan=False).encode() + b"\n"


def _short_line(event: Fields) -> bytes:
    """A line of at most PIPE_BUF bytes: texts are cut, the end of a traceback stays."""
    longest = MAX_TEXT
    while len(line := _line(event)) > select.PIPE_BUF and longest > 1:
        longest //= 2
        for name, text in event.items():
            if isinstance(text, str):
                event[name] = text[-longest:] if name == "traceback" else text[:longest]
    return line


def _finite(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value[:MAX_TEXT] if isinstance(value, str) else value


class EventReader:
    """Cuts what arrives on the pipe into events; raises ProtocolError on anything that is not one."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[Fields]:
        """Events completed by `chunk`; a line may arrive in any number of pieces."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""
            raise ProtocolError(f"the worker sent a line of more than {MAX_LINE_BYTES} bytes, which is not an event")
        for line in lines:
            yield _parse(line)


def parse(text: str) -> JSON:
    """A JSON document with text only that can be written down: JSON may name one half of a surrogate pair alone."""
    document = json.loads(text)
    return _whole_text(document) if "\\u" in text else document


def _whole_text(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {_whole_text(key): _whole_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_text(item) for item in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _parse(line: bytes) -> Fields:
    try:
        event = parse(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise ProtocolError(f"the worker sent {line[:80]!r}, which is not JSON") from None
    if not isinstance(event, dict) or event.get("event") not in KINDS or not isinstance(event.get("t_ns"), int):
        raise ProtocolError(f"the worker sent {line[:80]!r}, which is not an event; allowed: {', '.join(KINDS)}")
    return event
