"""Events: JSON lines a worker writes on a private descriptor. Writer for the worker, reader for the parent.

Version history of the format:
1: hello, framework, phase, memory, progress, epoch, warning, outcome.
2: profile.
3: whole_images and pipeline_ns of an epoch that was ended early.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, Iterator

from framework_compare.errors import ProtocolError

VERSION = 3
KINDS = (
    "hello",
    "framework",
    "phase",
    "memory",
    "progress",
    "epoch",
    "quality",
    "stopped",
    "profile",
    "warning",
    "outcome",
)
# A line longer than this is not an event of ours; it bounds what a broken worker can make the parent hold.
MAX_LINE_BYTES = 1 << 20
# What a field of text is cut to before it is sent: a traceback of a deep compiler can be megabytes.
MAX_TEXT = 16_000


class EventWriter:
    """Writes one event a call, whole, straight to the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, kind: str, **fields: Any) -> None:
        """Write an event stamped with CLOCK_MONOTONIC nanoseconds; floats that are not finite become null."""
        event = {"event": kind, "t_ns": time.monotonic_ns(), **_finite(fields)}
        line = memoryview(json.dumps(event, allow_nan=False).encode() + b"\n")
        while line:
            line = line[os.write(self._descriptor, line) :]


def _finite(value: Any) -> Any:
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

    def feed(self, chunk: bytes) -> Iterator[Dict[str, Any]]:
        """Events completed by `chunk`; a line may arrive in any number of pieces."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""
            raise ProtocolError(f"the worker sent a line of more than {MAX_LINE_BYTES} bytes, which is no event")
        for line in lines:
            yield _parse(line)


def parse(text: str) -> Any:
    """A JSON document with text only that can be written down: JSON may name one half of a surrogate pair alone."""
    document = json.loads(text)
    return _whole_text(document) if "\\u" in text else document


def _whole_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {_whole_text(key): _whole_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_text(item) for item in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _parse(line: bytes) -> Dict[str, Any]:
    try:
        event = parse(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise ProtocolError(f"the worker sent {line[:80]!r}, which is no JSON") from None
    if not isinstance(event, dict) or event.get("event") not in KINDS or not isinstance(event.get("t_ns"), int):
        raise ProtocolError(f"the worker sent {line[:80]!r}, which is no event; allowed: {', '.join(KINDS)}")
    return event
