"""Measuring what this machine can do in the settings of a study, for its roofline."""

from __future__ import annotations

import os
from typing import Callable, List, NamedTuple, Optional, Tuple, Union

from framework_compare.comparison import Comparison
from framework_compare.environments import peaks
from framework_compare.errors import UsageError
from framework_compare.launch.one_timing import one_timing
from framework_compare.plan.searches import is_search
from framework_compare.samplers.peaks import Peak

SECONDS = 10  # that a peak takes, about


class MeasuredPeak(NamedTuple):
    """A peak in one device, precision and number of threads; None and the reason where there is none."""

    device: str
    precision: str
    threads: int
    peak: Optional[Peak]
    reason: str = ""


def dry_run(study: Union[str, "os.PathLike[str]"]) -> str:
    """Return what `measure_peaks` would measure, and for how long; nothing is started."""
    wanted = _wanted(Comparison.load(os.fspath(study)))
    lines = [f"{device}, {precision}, {threads} threads" for device, precision, threads in wanted]
    return "\n".join([f"{len(wanted)} peaks, about {SECONDS * len(wanted)} s", *lines])


def _wanted(result: Comparison) -> List[Tuple[str, str, int]]:
    cells = [one for one in result.frame.itertuples() if one.status == "ok" and not is_search(one.model)]
    return list(dict.fromkeys((str(one.device), str(one.precision), int(one.threads)) for one in cells))


def measure_peaks(
    study: Union[str, "os.PathLike[str]"], *, say: Callable[[str], None] = lambda message: None
) -> List[MeasuredPeak]:
    """Measure the peaks that the cells of a study stand beside, some seconds each, and keep them in the cache.

    No other comparison is timed on this node meanwhile. Run it on the machine of the study, while that is quiet.
    """
    result = Comparison.load(os.fspath(study))
    wanted = _wanted(result)
    say(f"{len(wanted)} peaks, about {SECONDS} s each")
    measured = []
    for device, precision, threads in wanted:
        try:
            say(f"{device}, {precision}, {threads} threads: measuring")
            with one_timing(say):
                peak = peaks.measure(peaks.Request(result.machine, device, precision, threads))
            reason = "" if peak else "the measurement failed or took more than two minutes"
        except UsageError as error:
            peak, reason = None, str(error)
        measured.append(MeasuredPeak(device, precision, threads, peak, reason))
    return measured
