"""Measuring what this machine can do in the settings of a study, for its roofline."""

import os
from typing import Callable, NamedTuple, Sequence, Union

from framework_compare.comparison import Comparison
from framework_compare.environments import peaks
from framework_compare.environments.peaks import TIMEOUT_S, Peak
from framework_compare.errors import UsageError
from framework_compare.launch.nodes import one_timing
from framework_compare.plan.searches import is_search
from framework_compare.results.timing_history import Range

ONE = Range(4, 10, TIMEOUT_S)  # seconds of one peak


class MeasuredPeak(NamedTuple):
    """A peak in one device, precision and number of threads; None and the reason where there is none."""

    device: str
    precision: str
    threads: int
    peak: Peak | None
    reason: str = ""


class PeakForecast(NamedTuple):
    """The settings whose peaks `measure_peaks` measures: device, precision and number of threads."""

    wanted: Sequence[tuple[str, str, int]]

    @property
    def runs(self) -> int:
        return len(self.wanted)

    @property
    def seconds(self) -> Range:
        return ONE.times(self.runs)

    def __str__(self) -> str:
        low, middle, high = self.seconds
        about = f"{self.runs} peak{'s' * (self.runs != 1)}, about {middle:.0f} s ({low:.0f} to {high:.0f} s)"
        return "\n".join([f"{about}. Nothing was started.", *(_setting(*one) for one in self.wanted)])


def dry_run(study: Union[str, "os.PathLike[str]"]) -> PeakForecast:
    """Return what `measure_peaks` would measure, and for how long; nothing is started."""
    return PeakForecast(_wanted(Comparison.load(os.fspath(study))))


def _setting(device: str, precision: str, threads: int) -> str:
    return f"{device}, {precision}, {threads} thread{'s' * (threads != 1)}"


def _wanted(result: Comparison) -> list[tuple[str, str, int]]:
    cells = [one for one in result.frame.itertuples() if one.status == "ok" and not is_search(one.model)]
    return list(dict.fromkeys((str(one.device), str(one.precision), int(one.threads)) for one in cells))


def measure_peaks(
    study: Union[str, "os.PathLike[str]"], *, say: Callable[[str], None] = lambda message: None
) -> list[MeasuredPeak]:
    """Measure this machine's peaks in the settings of a study, a few seconds each, and store them in the cache folder.

    No other comparison is timed on this node meanwhile. Run it on the machine of the study, while the machine is quiet.
    """
    result = Comparison.load(os.fspath(study))
    measured = []
    for device, precision, threads in _wanted(result):
        try:
            say(f"{_setting(device, precision, threads)}: measuring")
            with one_timing(say):
                peak = peaks.measure(peaks.Request(result.machine, device, precision, threads))
            reason = "" if peak else f"the measurement failed or took more than {TIMEOUT_S} s"
        except UsageError as error:
            peak, reason = None, str(error)
        measured.append(MeasuredPeak(device, precision, threads, peak, reason))
    return measured
