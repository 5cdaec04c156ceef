"""Traces of XLA's profiler, which JAX and TensorFlow have in common."""

from __future__ import annotations

import glob
from typing import Any, Callable, Collection, Iterable, Iterator, List, Tuple

from framework_compare.protocol import ProfileRow
from framework_compare.worker.profiling import DEVICE, HOST, Line, count, lines_by_kind, write_trace, xplane_kind

# An event of a trace: its name; what it is counted under, given its kind ("" for nothing); its start and end in ns.
Event = Tuple[str, Callable[[str], str], int, int]


def xplane_rows(folder: str, read: Callable[[str], Iterable[Tuple[str, str, Iterable[Event]]]]) -> List[ProfileRow]:
    """Rows of all traces in a folder, and beside them the same for Perfetto.

    `read` gives of a file each line: the names of its plane and of itself, and its events.
    """
    lines: List[Line] = []
    for path in glob.glob(f"{folder}/**/*.xplane.pb", recursive=True):
        found = list(read(path))
        launched = {event[0] for plane, line, events in found if plane.startswith(DEVICE) for event in events}
        for plane, line, events in found:
            lines += lines_by_kind(f"{plane} {line}", _by_kind(plane, line, events, launched))
    write_trace(lines, folder)
    return count(lines)


def _by_kind(plane: str, line: str, events: Iterable[Event], launched: Collection[str]) -> Iterator[Tuple[Any, ...]]:
    for name, named, start_ns, end_ns in events:
        kind = xplane_kind(plane, line, name)
        if plane == HOST and name in launched:  # TensorFlow 2.21 names a call of CUDA after what it starts
            call = "Memory operation" if name.startswith("Mem") else "Launch of a kernel"
            yield "cuda-runtime", call, start_ns, end_ns
        elif kind:
            yield kind, named(kind), start_ns, end_ns
