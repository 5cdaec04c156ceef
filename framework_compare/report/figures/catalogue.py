"""Every figure, once: its number and name, what it shows, and what is missing where it cannot be drawn."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict

from framework_compare.errors import UnknownNameError
from framework_compare.report.figures import costs, learning, times
from framework_compare.report.figures.subject import Subject

# Charts by the name of the part of the study that they show, "" where there is one for all; none without data.
Parts = Dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure.

    draw: charts from a study, the width in points that all panels may take, and the number of panels side by side.
    caption: how to read it. absent: why a study may have none of it.
    """

    number: str
    title: str
    draw: Callable[[Subject, float, int], Parts]
    caption: str
    absent: str


_FAILED = "A cell that failed has its status in place of a figure."
FIGURES: Dict[str, Figure] = {
    "overview": Figure(
        "F1",
        "Overview",
        times.overview,
        "Epoch time over that of the fastest framework of the same column (1.00x), with its 95 % interval over paired "
        f"runs. Bold: shown to be the fastest. ~: no difference shown. !: disturbed in all epochs. {_FAILED}",
        "no cell has an epoch time",
    ),
    "epoch-time": Figure(
        "F2",
        "Epoch time",
        times.epoch_time,
        "Large marks: median epoch time; line: its 95 % interval over runs; small dots: single epochs; number: ratio to "
        "the fastest. Hollow mark: one run, so no interval. ≈: estimated from the steps that were measured. Red triangle: "
        f"other programs took CPU time. Arrow: the interval goes on. {_FAILED}",
        "no cell has an epoch time",
    ),
    "memory": Figure(
        "F3",
        "Throughput and memory",
        costs.throughput_memory,
        "Images per second over the peak of memory: that of the processes on a CPU, their own GPU memory on a GPU. Line: "
        "95 % interval over runs. Red triangle: other programs took CPU time. No framework is both faster and smaller than "
        "one on the dashed line.",
        "no cell has readings of its memory",
    ),
    "resources": Figure(
        "F4",
        "CPU, memory and threads over time",
        costs.resources,
        "One run of each framework, the first that counts, from its start. Line: mean; band: least to most of up to 160 "
        "stretches of time. Grey line: what others took of the CPU. Shades: the phases of the run, one after the other, "
        "named where there is room. Of more than 40 cells the first 40 are "
        "drawn; `framework-compare figure resources --models NAME` draws others.",
        "no run has readings (sampling_hz 0)",
    ),
    "phases": Figure(
        "F5",
        "Phases of a run",
        costs.phases,
        "Seconds of a whole run by phase, mean over runs. Line: from the shortest to the longest run.",
        "no run has ended well",
    ),
    "waiting": Figure(
        "F6",
        "Computing and waiting",
        costs.waiting,
        "Milliseconds per image, of which the training loop waited for its next batch. Line: 95 % interval of the whole.",
        "no cell has a throughput",
    ),
    "learning": Figure(
        "F7",
        "Loss and quality",
        learning.learning,
        "Mean over runs after each epoch; band: from the least to the most of the runs.",
        "no cell has two epochs",
    ),
    "batch-sizes": Figure(
        "F8",
        "Batch sizes",
        learning.batch_sizes,
        "Images per second and peak memory over the batch size. Upright line: 95 % interval over runs. Red triangle: "
        "other programs took CPU time. A size that failed has its status.",
        "all cells have the same batch size",
    ),
    "functions": Figure(
        "F9",
        "Functions",
        learning.functions,
        "Shares of time of a few steps under the framework's own profiler. It is one profile: no interval.",
        "no cell was profiled (--profile)",
    ),
    "gains": Figure(
        "F10",
        "Gains",
        learning.gains,
        "How many times faster than the baseline, or of a ladder than the rung before, with the 95 % interval over paired "
        "runs. Grey: no difference shown. Red: at a quality worse than the base's.",
        "no two cells differ only in device, precision or execution, and it is no ladder",
    ),
    "energy": Figure(
        "F11",
        "Energy",
        costs.energy,
        "Joules per image of the measured epochs, by the machine's own counters; mean over runs, so no interval. Red "
        "triangle: other programs took CPU time.",
        "this machine gave no readings of energy",
    ),
    "machine": Figure(
        "F12",
        "Drift and disturbances",
        times.machine,
        "One mark per epoch, in the order of time: its seconds over the median of its cell. A drift shows heat or other "
        "programs. Red triangle: disturbed. Bars: CPU time that others took, 100 % being one core.",
        "no run has ended well",
    ),
    "published": Figure(
        "F13",
        "Published ratios",
        learning.published,
        "Epoch time over PyTorch's, in tables 1 and 2 of the published study and here. Upright line: 95 % interval "
        "over paired runs here. Red triangle: other programs took CPU time. On the dashed line both are equal.",
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
