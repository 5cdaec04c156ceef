"""Every figure, once: its number and name, what it shows, and what is missing where it cannot be drawn."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, Mapping

from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.report.figures import energy, learning, memory, phases, resources, times
from framework_compare.report.figures.subject import Subject

# Charts by the name of the part of the study that they show, "" where there is one for all; none without data.
Parts = Dict[str, Any]
Draw = Callable[[Subject, float, int], Parts]


@dataclasses.dataclass(frozen=True)
class View:
    """A way to look at a figure.

    draw: charts from a study, the width in points that all panels may take, and the number of panels side by side.
    caption: how to read them. absent: why a study that has the usual view may have none of it.
    """

    draw: Draw
    caption: str
    absent: str = ""


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure.

    draw, caption: of its usual view. absent: why a study may have none of it. view: what the usual view shows, where
    there are others. views: those, by name.
    """

    number: str
    title: str
    draw: Draw
    caption: str
    absent: str
    view: str = ""
    views: Mapping[str, View] = dataclasses.field(default_factory=dict)

    @property
    def all_views(self) -> Dict[str, View]:
        """Every way to look at it by name, the usual one first."""
        return {self.view: View(self.draw, self.caption), **self.views}

    def seen_as(self, view: str = "") -> View:
        """A view by its name, "" the usual one; UnknownNameError for another name, UsageError where there is one only."""
        if view and not self.views:
            raise UsageError(f"figure {self.number} has one view only, received {view!r}; leave the view out")
        if view and view not in self.all_views:
            raise UnknownNameError(f"view of figure {self.number}", view, [f'"{name}"' for name in self.all_views])
        return self.all_views[view or self.view]


_FAILED = "A cell that failed has its status in place of a figure."
_ARROW = "Arrow: the interval goes on."
_EPOCHS = (
    "line: its 95 % interval over runs; small dots: single epochs; number: epoch time over that of the fastest. Hollow "
    "mark: no interval, as fewer than two runs count. ≈: estimated from the steps that were measured. Red triangle: other "
    f"programs took CPU time. {_ARROW} {_FAILED}"
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
FIGURES: Dict[str, Figure] = {
    "overview": Figure(
        "F1",
        "Overview",
        times.overview,
        "Epoch time over that of the fastest framework of the same column (1.00x), with its 95 % interval over paired "
        "runs. Bold: shown to be faster than each other that does not fail parity. ~: no difference shown. !: disturbed in all "
        f"epochs. {_FAILED}",
        "no cell has an epoch time",
    ),
    "epoch-time": Figure(
        "F2",
        "Epoch time",
        times.epoch_time,
        f"Large marks: median epoch time; {_EPOCHS}",
        "no cell has an epoch time",
        "seconds per epoch",
        {
            "images per second": View(
                times.epoch_speed, f"Large marks: images per second of the median epoch; {_EPOCHS}"
            ),
            "seconds per epoch, logarithmic": View(
                times.epoch_time_log,
                f"Large marks: median epoch time on a logarithmic axis; {_EPOCHS}",
                f"no panel has figures that are more than {times.LOG_FROM} times apart",
            ),
        },
    ),
    "memory": Figure(
        "F3",
        "Throughput and memory",
        memory.throughput_memory,
        "Images per second over the peak of memory: PSS of the processes on a CPU, their own GPU memory on a GPU. PSS divides "
        "shared memory among its processes; RSS, in the table of resources, counts it once per process. Upright line: 95 % "
        "interval over runs; level line: from the least peak of a run to the most. Red triangle: other programs took CPU time. "
        "No framework is both faster and smaller than one on the dashed line. Batch sizes, where there are several, are joined "
        f"and named. {_ARROW}",
        "no cell has readings of its memory",
    ),
    "resources": Figure(
        "F4",
        "CPU, memory and threads over time",
        resources.resources,
        f"One run of each framework, the first that counts, from its start. {_CURVES} Shades: the phases of the run, one "
        f"after the other, named where there is room. {_FIRST_CURVES}",
        "no run has readings (sampling_hz 0)",
        "the whole run",
        {
            "since the first epoch": View(
                resources.resources_of_epochs,
                "One run of each framework, the first that counts, from the start of its first measured epoch to the end "
                f"of its last. {_CURVES} {_FIRST_CURVES}",
            )
        },
    ),
    "phases": Figure(
        "F5",
        "Phases of a run",
        phases.phases,
        f"Seconds of a run by phase, mean over runs. {_STARTS}",
        "no run has ended well",
        "the whole run",
        {
            "without the epochs": View(
                phases.phases_before_epochs, f"Seconds of a run until it trains, by phase, mean over runs. {_STARTS}"
            )
        },
    ),
    "waiting": Figure(
        "F6",
        "Computing and waiting",
        phases.waiting,
        "Milliseconds per image, of which the training loop waited for its next batch. Black line: 95 % interval of the "
        "whole. Thin bar: copying to the device, which overlaps both. Pale: the device did not time itself, so that "
        f"computing is the time until work was handed over. {_ARROW}",
        "no cell has a throughput",
    ),
    "machine": Figure(
        "F7",
        "Drift and disturbances",
        times.machine,
        "One mark per epoch, in the order of time: its seconds over the median of its cell. A drift shows heat or other "
        "programs. Hollow: disturbed. Pale: warm-up. Bars: CPU time that others took, 100 % being one core.",
        "no run has ended well",
    ),
    "learning": Figure(
        "F8",
        "Loss and quality",
        learning.learning,
        f"Mean over runs after each epoch; {_BAND}",
        "no cell has two epochs",
        "by epoch",
        {
            "by seconds of training": View(
                learning.learning_over_time,
                f"Mean over runs after each epoch, over the mean seconds of training until then; {_BAND}",
            )
        },
    ),
    "energy": Figure(
        "F9",
        "Energy",
        energy.energy,
        "Joules per image of the measured epochs, by the machine's own counters. Black line: 95 % interval of the whole "
        f"over runs; a bar without one is of one run. Red triangle: other programs took CPU time. {_ARROW}",
        "this machine gave no readings of energy",
        "joules per image",
        {
            "images per joule": View(
                energy.frugality,
                "Images per joule of GPU and host together over images per second: up and to the right is better. Lines: 95 % "
                f"intervals over runs. Red triangle: other programs took CPU time. {_ARROW}",
            )
        },
    ),
    "gains": Figure(
        "F10",
        "Gains",
        learning.gains,
        "How many times faster than the baseline, or of a ladder than the rung changed, with the 95 % interval over paired "
        "runs; so far: times faster than the ladder's base. Grey: no difference shown. Red: at a quality worse than the base's. "
        f"{_ARROW}",
        "no two cells differ only in device, precision or execution, and it is no ladder",
    ),
    "functions": Figure(
        "F11",
        "Functions",
        learning.functions,
        "Shares of time of a few steps under the framework's own profiler. It is one profile: no interval. Waiting calls are "
        "those that hold up the host until the GPU is done (Synchronize).",
        "no cell was profiled (--profile)",
    ),
    "batch-sizes": Figure(
        "F12",
        "Batch sizes",
        learning.batch_sizes,
        "Tiles: peak memory in GiB, or the status of a size that failed. Below them images per second and peak memory over "
        "the batch size. Upright line: 95 % interval over runs. Dashed: the memory limit of the study's runs. Red triangle: "
        f"other programs took CPU time. {_ARROW}",
        "all cells have the same batch size",
    ),
    "published": Figure(
        "F13",
        "Published ratios",
        learning.published,
        "Epoch time over PyTorch's, in tables 1 and 2 of the published study and here; one panel per framework. Upright "
        "line: 95 % interval over paired runs here. Red triangle: other programs took CPU time. On the dashed line both "
        f"are equal. {_ARROW}",
        "the study does not have PyTorch and another framework on a data set of the published study",
    ),
}


def find(name: str) -> str:
    """The name of a figure, from its name or number; UnknownNameError for another."""
    by_number = {figure.number.lower(): key for key, figure in FIGURES.items()}
    key = by_number.get(name.lower(), name.lower())
    if key not in FIGURES:
        raise UnknownNameError("figure", name, [f"{key} ({figure.number})" for key, figure in FIGURES.items()])
    return key
