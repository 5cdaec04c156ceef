"""Every figure, once: its number and name, what it shows, and what is missing where it cannot be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.report.figures import energy, learning, memory, phases, resources, times
from framework_compare.report.figures.subject import Subject

# Charts by the name of the part of the study that they show, "" where there is one for all; none without data.
Parts = dict[str, Any]
Draw = Callable[[Subject, float, int], Parts]


class View(NamedTuple):
    """A way to look at a figure.

    draw: charts from a study, the width in points that all panels may take, and the number of panels side by side.
    caption: how to read them. absent: why a study that has the usual view may have none of it.
    """

    draw: Draw
    caption: str
    absent: str = ""


class Figure(NamedTuple):
    """A figure. absent: why a study may have none of it. views: by name, the usual one first; of one alone it is ""."""

    number: str
    title: str
    absent: str
    views: Mapping[str, View]

    def seen_as(self, view: str = "") -> View:
        """A view by its name, "" the usual one; UnknownNameError for another name, UsageError where there is one only."""
        if view and len(self.views) == 1:
            raise UsageError(f"figure {self.number} has one view only, received {view!r}; leave the view out")
        if view and view not in self.views:
            raise UnknownNameError(f"view of figure {self.number}", view, [f'"{name}"' for name in self.views])
        return self.views[view or next(iter(self.views))]


_FAILED = "A cell that failed has its status in place of a figure."
_ARROW = "Arrow: the interval goes on."
_TRIANGLE = "Red triangle: other programs took CPU time."
_EPOCHS = (
    "line: its 95 % interval over runs; small dots: single epochs; number: epoch time over that of the fastest. Hollow "
    f"mark: no interval, as fewer than two runs count. ≈: estimated from the steps that were measured. {_TRIANGLE} {_ARROW} "
    f"{_FAILED}"
)
_CURVES = "Line: mean; band: least to most of up to 160 stretches of time. Grey line: what others took of the CPU."
_FIRST_CURVES = (
    "Of more than 24 cells the first 24 are drawn; `framework-compare figure resources --models NAME` draws others."
)
_STARTS = (
    "Line: from the shortest to the longest run. Text: seconds before the first measured epoch; pays: the epochs after "
    "which a longer start has paid, beside the same framework's eager or default execution."
)
_BAND = "band: from the least to the most of the runs."


def _one(draw: Draw, caption: str) -> Mapping[str, View]:
    return {"": View(draw, caption)}


FIGURES = {
    "overview": Figure(
        "F1",
        "Overview",
        "no cell has an epoch time",
        _one(
            times.overview,
            "Epoch time over that of the fastest framework of the same column (1.00x), with its 95 % interval over paired "
            "runs. Bold: shown to be faster than each other that does not fail parity. ~: no difference shown. !: disturbed "
            f"in all epochs. {_FAILED}",
        ),
    ),
    "epoch-time": Figure(
        "F2",
        "Epoch time",
        "no cell has an epoch time",
        {
            "seconds per epoch": View(times.epoch_time, f"Large marks: median epoch time; {_EPOCHS}"),
            "images per second": View(
                partial(times.epoch_time, speed=True), f"Large marks: images per second of the median epoch; {_EPOCHS}"
            ),
            "seconds per epoch, logarithmic": View(
                partial(times.epoch_time, log=True),
                f"Large marks: median epoch time on a logarithmic axis; {_EPOCHS}",
                f"no panel has figures that are more than {times.LOG_FROM} times apart",
            ),
        },
    ),
    "memory": Figure(
        "F3",
        "Throughput and memory",
        "no cell has readings of its memory",
        _one(
            memory.throughput_memory,
            "Images per second over the peak of memory: PSS of the processes on a CPU, their own GPU memory on a GPU. PSS "
            "divides shared memory among its processes; RSS, in the table of resources, counts it once per process. Upright "
            f"line: 95 % interval over runs; level line: from the least peak of a run to the most. {_TRIANGLE} No framework "
            "is both faster and smaller than one on the dashed line. Batch sizes, where there are several, are joined and "
            f"named. {_ARROW}",
        ),
    ),
    "resources": Figure(
        "F4",
        "CPU, memory and threads over time",
        "no run has readings (sampling_hz 0)",
        {
            "the whole run": View(
                resources.resources,
                f"One run of each framework, the first that counts, from its start. {_CURVES} Shades: the phases of the "
                f"run, one after the other, named where there is room. {_FIRST_CURVES}",
            ),
            "since the first epoch": View(
                partial(resources.resources, whole=False),
                "One run of each framework, the first that counts, from the start of its first measured epoch to the end "
                f"of its last. {_CURVES} {_FIRST_CURVES}",
            ),
        },
    ),
    "phases": Figure(
        "F5",
        "Phases of a run",
        "no run has ended well",
        {
            "the whole run": View(phases.phases, f"Seconds of a run by phase, mean over runs. {_STARTS}"),
            "without the epochs": View(
                partial(phases.phases, whole=False),
                f"Seconds of a run until it trains, by phase, mean over runs. {_STARTS}",
            ),
        },
    ),
    "waiting": Figure(
        "F6",
        "Computing and waiting",
        "no cell has a throughput",
        _one(
            phases.waiting,
            "Milliseconds per image, of which the training loop waited for its next batch. Black line: 95 % interval of the "
            "whole. Thin bar: copying to the device, which overlaps both. Pale: the device did not time itself, so that "
            f"computing is the time until work was handed over. {_ARROW}",
        ),
    ),
    "machine": Figure(
        "F7",
        "Drift and disturbances",
        "no run has ended well",
        _one(
            times.machine,
            "One mark per epoch, in the order of time: its seconds over the median of its cell. A drift shows heat or other "
            "programs. Hollow: disturbed. Pale: warm-up. Bars: CPU time that others took, 100 % being one core.",
        ),
    ),
    "learning": Figure(
        "F8",
        "Loss and quality",
        "no cell has two epochs",
        {
            "by epoch": View(learning.learning, f"Mean over runs after each epoch; {_BAND}"),
            "by seconds of training": View(
                partial(learning.learning, timed=True),
                f"Mean over runs after each epoch, over the mean seconds of training until then; {_BAND}",
            ),
        },
    ),
    "energy": Figure(
        "F9",
        "Energy",
        "this machine gave no readings of energy",
        {
            "joules per image": View(
                energy.energy,
                "Joules per image of the measured epochs, by the machine's own counters. Black line: 95 % interval of the "
                f"whole over runs; a bar without one is of one run. {_TRIANGLE} {_ARROW}",
            ),
            "images per joule": View(
                energy.frugality,
                "Images per joule of GPU and host together over images per second: up and to the right is better. Lines: "
                f"95 % intervals over runs. {_TRIANGLE} {_ARROW}",
            ),
        },
    ),
    "gains": Figure(
        "F10",
        "Gains",
        "no two cells differ only in device, precision or execution, and it is no ladder",
        _one(
            learning.gains,
            "How many times faster than the baseline, or of a ladder than the rung changed, with the 95 % interval over "
            "paired runs; so far: times faster than the ladder's base. Grey: no difference shown. Red: at a quality worse "
            f"than the base's. {_ARROW}",
        ),
    ),
    "functions": Figure(
        "F11",
        "Functions",
        "no cell was profiled (--profile)",
        _one(
            learning.functions,
            "Shares of time of a few steps under the framework's own profiler. It is one profile: no interval. Waiting calls "
            "are those that hold up the host until the GPU is done (Synchronize).",
        ),
    ),
    "batch-sizes": Figure(
        "F12",
        "Batch sizes",
        "all cells have the same batch size",
        _one(
            learning.batch_sizes,
            "Tiles: peak memory in GiB, or the status of a size that failed. Below them images per second and peak memory "
            "over the batch size. Upright line: 95 % interval over runs. Dashed: the memory limit of the study's runs. "
            f"{_TRIANGLE} {_ARROW}",
        ),
    ),
}


def find(name: str) -> str:
    """The name of a figure, from its name or number; UnknownNameError for another."""
    by_number = {figure.number.lower(): key for key, figure in FIGURES.items()}
    key = by_number.get(name.lower(), name.lower())
    if key not in FIGURES:
        raise UnknownNameError("figure", name, [f"{key} ({figure.number})" for key, figure in FIGURES.items()])
    return key
