"""Calls of SINGA's C++ functions, timed from Python: its own profiler counts in graph mode only."""

import sys
import time
from typing import Any, Callable, List

from framework_compare.protocol import ProfileRow
from framework_compare.worker.profiling import Line, Span, count, write_trace

MODULE = "singa._singa_wrap"


def profile_rows(step: Callable[[], None], folder: str) -> List[ProfileRow]:
    spans: List[Span] = []
    starts: List[int] = []

    def note(frame: Any, event: str, function: Any) -> None:
        if event in ("c_call", "c_return", "c_exception") and function.__module__ == MODULE:
            if event == "c_call":
                starts.append(time.perf_counter_ns())
            else:
                spans.append(Span(function.__name__, starts.pop(), time.perf_counter_ns()))

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    lines = [Line("operator", "SINGA", spans)]
    write_trace(lines, folder)
    return count(lines)
