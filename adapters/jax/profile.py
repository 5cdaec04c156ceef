"""The events of traces that XLA's profiler wrote: XLA's operators on a host, kernels and CUDA calls on a GPU."""

from __future__ import annotations

import functools
import re
from typing import Any, Iterator, List, Tuple

from framework_compare.adapters.common.profile import Event
from framework_compare.worker.profiling import cuda_function


def read_trace(jax: Any, path: str) -> Iterator[Tuple[str, str, List[Event]]]:
    """Yield the plane's name, the line's name and the events of each line."""
    for plane in jax.profiler.ProfileData.from_file(path).planes:
        for line in plane.lines:
            yield plane.name, line.name, [_event(event) for event in line.events]


def _event(event: Any) -> Event:
    counted_as = functools.partial(_counted_as, event)
    return event.name, counted_as, int(event.start_ns), int(event.start_ns + event.duration_ns)


def _counted_as(event: Any, kind: str) -> str:
    """Return the name of an event: on a host's line the operator without its number, "" for others."""
    if kind == "cuda-runtime":
        return cuda_function(event.name) or str(event.name)
    found = str(dict(event.stats).get("hlo_op", "")) if kind == "operator" else event.name
    return re.sub(r"(\.\d+)+$", "", found)
