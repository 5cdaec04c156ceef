"""A few extra, untimed steps under the framework's own profiler: what adapters share to count and to bound it.

On the worker's side, and imported only once the measured epochs have ended.
"""

from __future__ import annotations

import collections
import gzip
import json
import os
import re
import traceback
from typing import Dict, Iterable, Iterator, List, NamedTuple, Tuple

from framework_compare.events import EventWriter
from framework_compare.protocol import Batch, Fields, ProfileRow, Trainer

STEPS = 3
FOLDER = "profile"  # in the run's folder, which is the worker's working directory
TRACE = "trace.json.gz"
MAX_ROWS_A_KIND = 100
MAX_NAME = 300  # names of templated kernels reach thousands of characters; what tells them apart comes early
REST = "other"
DEVICE, HOST = "/device:GPU", "/host:CPU"  # planes of a trace of XLA's profiler; GPUs are numbered


def profile(trainer: Trainer, batch: Batch, events: EventWriter) -> None:
    """Send what STEPS steps on a held batch spent; a profiler that fails is a warning."""
    try:
        os.makedirs(FOLDER, exist_ok=True)
        _train(trainer, batch, 1)
        rows = trainer.profile(lambda: _train(trainer, batch, STEPS), os.path.abspath(FOLDER))
        if not rows:
            raise ValueError("the framework's profiler recorded nothing")
        events.send("profile", steps=STEPS, rows=[list(row) for row in bound(rows)])
    except Exception as error:  # the boundary: what was measured stands without a profile
        traceback.print_exc()
        events.send("warning", message=f"no profile: {type(error).__name__}: {error}")


def _train(trainer: Trainer, batch: Batch, steps: int) -> None:
    trainer.read_losses([trainer.train_step(batch) for _ in range(steps)])
    trainer.synchronize()


def bound(rows: Iterable[ProfileRow]) -> List[ProfileRow]:
    """Rows of one name added up, the largest of each kind first; all beyond MAX_ROWS_A_KIND in one more, REST."""
    sums: Dict[str, Dict[str, Tuple[int, int]]] = collections.defaultdict(dict)
    for kind, name, calls, self_ns in rows:
        before = sums[kind].get(name[:MAX_NAME], (0, 0))
        sums[kind][name[:MAX_NAME]] = (before[0] + int(calls), before[1] + max(int(self_ns), 0))
    return [row for kind, found in sums.items() for row in _largest(kind, found)]


def _largest(kind: str, found: Dict[str, Tuple[int, int]]) -> Iterator[ProfileRow]:
    ranked = sorted(found.items(), key=lambda item: -item[1][1])
    kept = len(ranked) if len(ranked) <= MAX_ROWS_A_KIND else MAX_ROWS_A_KIND - 1
    for name, (calls, self_ns) in ranked[:kept]:
        yield ProfileRow(kind, name, calls, self_ns)
    if kept < len(ranked):
        rest = [figures for _, figures in ranked[kept:]]
        yield ProfileRow(kind, REST, sum(calls for calls, _ in rest), sum(self_ns for _, self_ns in rest))


class Span(NamedTuple):
    """A stretch of time on one line of a trace; spans of a line lie within or beside each other."""

    name: str
    start_ns: int
    end_ns: int


class Line(NamedTuple):
    """Spans of one thread or one stream of a device, all of one kind of ProfileRow."""

    kind: str
    label: str
    spans: List[Span]


def cuda_function(name: str) -> str:
    """The function of the CUDA API that an event is named after, as "cuGraphLaunch (CudaGraph:4)"; "" if after none."""
    found = re.match(r"cu(da)?[A-Z]\w*", name)
    return found.group() if found else ""


def xplane_kind(plane: str, line: str, event: str) -> str:
    """The kind of row of an event in a trace of XLA's profiler; "" for what says the same a second time."""
    if plane.startswith(DEVICE):
        return "kernel" if line.startswith("Stream") else ""  # the others sum up by XLA module, op and name scope
    # calls of CUDA have a plane of their own, or lie among what else a thread of the host did (JAX 0.11)
    if plane == "/host:CUPTI" or (plane == HOST and cuda_function(event)):
        return "cuda-runtime"
    return "operator" if plane == HOST else ""


def lines_by_kind(label: str, events: Iterable[Tuple[str, str, int, int]]) -> Iterator[Line]:
    """A line for each kind among events (kind, name, start_ns, end_ns); those without a kind or a name are none."""
    spans: Dict[str, List[Span]] = collections.defaultdict(list)
    for kind, name, start_ns, end_ns in events:
        if kind and name:
            spans[kind].append(Span(name, start_ns, end_ns))
    return (Line(kind, label, found) for kind, found in spans.items())


def count(lines: Iterable[Line]) -> List[ProfileRow]:
    """One row a span: its time without that of the spans within it."""
    return [ProfileRow(line.kind, name, 1, self_ns) for line in lines for name, self_ns in self_times(line.spans)]


def self_times(spans: Iterable[Span]) -> List[Tuple[str, int]]:
    """(name, nanoseconds without those of the spans within) of each span of a line."""
    ordered = sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))
    own = [span.end_ns - span.start_ns for span in ordered]
    around: List[int] = []
    for number, span in enumerate(ordered):
        while around and ordered[around[-1]].end_ns <= span.start_ns:
            around.pop()
        if around:
            own[around[-1]] -= span.end_ns - span.start_ns
        around.append(number)
    return [(span.name, self_ns) for span, self_ns in zip(ordered, own)]


def write_trace(lines: Iterable[Line], folder: str) -> None:
    """Write TRACE in Chrome's format, which Perfetto opens, for a profiler that has a format of its own only."""
    events: List[Fields] = []
    for number, line in enumerate(lines):
        events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": number, "args": {"name": line.label}})
        for name, start, end in line.spans:
            times = {"ts": start / 1e3, "dur": (end - start) / 1e3}
            events.append({"ph": "X", "cat": line.kind, "name": name, "pid": 0, "tid": number, **times})
    with gzip.open(os.path.join(folder, TRACE), "wt", encoding="utf-8") as file:
        json.dump({"traceEvents": events}, file)
