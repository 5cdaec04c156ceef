"""Every figure, once: its number and name, what it shows, and what is missing where it cannot be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.protocol import Fields
from framework_compare.report.figures import findings, learning, memory, phases, resources, times
from framework_compare.report.figures.subject import Subject

# Charts by the name of the part of the study that they show, "" where there is one for all; none without data.
Draw = Callable[[Subject, float, int], Fields]
Finding = Callable[[Subject], str]


class View(NamedTuple):
    """A way to look at a figure.

    draw: charts from a study, the width in points that all panels may take, and the number of panels side by side.
    finding: one sentence on what they show of a study, "" for none. caption: how to read them; `marks` adds what marks mean
    that are drawn.
    """

    draw: Draw
    finding: Finding
    caption: str


class Figure(NamedTuple):
    """A figure. absent: why a study may have none of it. question: the one of QUESTIONS that it answers.

    views: by name, the usual one first; of one alone it is "".
    """

    number: str
    title: str
    question: str
    absent: str
    views: Mapping[str, View]

    def seen_as(self, view: str = "", worded: Callable[[str], str] = str) -> View:
        """A view by its name, "" the usual one; UnknownNameError for another name, UsageError where there is one only.

        worded: gives the name of a view that a report of the study shows, which is allowed too.
        """
        if view and len(self.views) == 1:
            raise UsageError(f"figure {self.number} has one view only, received {view!r}; leave the view out")
        names = {worded(name): name for name in self.views}
        name = names.get(view, view or next(iter(self.views)))
        if name not in self.views:
            raise UnknownNameError(f"view of figure {self.number}", view, [f'"{name}"' for name in names])
        return self.views[name]


# In the order of the page, which groups figures by them.
QUESTIONS = HOW_FAST, STEADY, MEMORY, TIME, LEARNING, ENERGY = (
    *("How fast?", "How steady?", "How much memory?", "Where does the time go?", "Did it learn the same?"),
    "How much energy?",
)
_EPOCHS = (
    "with its 95 % confidence interval over runs; small dots: single epochs; number: slowdown relative to the fastest. "
    "Intervals include changes of the machine that slow all frameworks alike; ratios do not, so they are more precise."
)
_BAND = "band: minimum to maximum over runs."


def _figure(number: str, title: str, question: str, absent: str, draw: Draw, finding: Finding, caption: str) -> Figure:
    """A figure of one view."""
    return Figure(number, title, question, absent, {"": View(draw, finding, caption)})


FIGURES = {
    "overview": _figure(
        "F1",
        "Overview",
        HOW_FAST,
        "no cell has an epoch time",
        times.overview,
        findings.overview,
        "Slowdown relative to the fastest framework in the same column (1.00x), with its 95 % confidence interval over "
        "paired runs.",
    ),
    "epoch-time": Figure(
        "F2",
        "Epoch time",
        HOW_FAST,
        "no cell has an epoch time",
        {
            "seconds per epoch": View(
                times.epoch_time, findings.epoch_time, f"Large mark: epoch time, geometric mean over runs, {_EPOCHS}"
            ),
            "images per second": View(
                partial(times.epoch_time, speed=True),
                findings.throughput,
                f"Large mark: images per second at that epoch time, {_EPOCHS}",
            ),
        },
    ),
    "memory": _figure(
        "F3",
        "Throughput and memory",
        MEMORY,
        "no cell has memory readings",
        memory.throughput_memory,
        findings.throughput_memory,
        "Images per second against peak memory (the axis names its kind); up and to the left is better. Vertical line: 95 % "
        "confidence interval over runs; horizontal line: range of peaks over runs.",
    ),
    "resources": Figure(
        "F4",
        "CPU, memory and threads over time",
        TIME,
        "no run has readings (sampling_hz 0)",
        {
            "the whole run": View(
                resources.resources,
                findings.whole_run,
                "The first valid run of each framework, from its start.",
            ),
            "from the first epoch": View(
                partial(resources.resources, whole=False),
                findings.measured,
                "The first valid run of each framework, during its measured epochs.",
            ),
        },
    ),
    "phases": _figure(
        "F5",
        "Phases of a run",
        TIME,
        "no run succeeded",
        phases.phases,
        findings.phases,
        "Duration of each phase, mean over runs, on a logarithmic axis; without waiting for turns.",
    ),
    "waiting": _figure(
        "F6",
        "Computing and waiting",
        TIME,
        "no cell has a throughput",
        phases.waiting,
        findings.waiting,
        "Milliseconds per image; the fainter part is time in which training waits for its next batch. Line: 95 % "
        "confidence interval of the whole bar.",
    ),
    "machine": _figure(
        "F7",
        "Drift and disturbances",
        STEADY,
        "no run succeeded",
        times.machine,
        findings.machine,
        "One mark per epoch in the order of time: its duration relative to the median of its cell. A trend suggests heat "
        "or other programs.",
    ),
    "learning": Figure(
        "F8",
        "Loss and quality",
        LEARNING,
        "no cell has two epochs",
        {
            "by epoch": View(
                learning.learning,
                findings.learning,
                f"Mean over runs after each epoch; {_BAND} Equal curves cover each other.",
            ),
            "by seconds of training": View(
                partial(learning.learning, timed=True),
                findings.learning_by_time,
                f"Mean over runs after each epoch, plotted against the mean training time; {_BAND}",
            ),
        },
    ),
    "energy": _figure(
        "F9",
        "Energy",
        ENERGY,
        "this machine has no readable energy counter",
        phases.energy,
        findings.energy,
        "Joules per image during the measured epochs; the table `energy` names the sources. Line: 95 % confidence "
        "interval of the whole bar over runs.",
    ),
    "gains": _figure(
        "F10",
        "Speed-ups and libraries",
        HOW_FAST,
        "no two cells differ only in device, precision or execution, no library ran beside its plain framework, and the "
        "study is not a ladder",
        learning.gains,
        findings.gains,
        "Ratios of times with their 95 % confidence intervals over paired runs; each axis names the baseline.",
    ),
    "functions": _figure(
        "F11",
        "Functions",
        TIME,
        "no cell was profiled (--profile)",
        learning.functions,
        findings.functions,
        "Share of time by function, in a few steps under the framework's own profiler; one profile, so no interval.",
    ),
    "batch-sizes": _figure(
        "F12",
        "Batch sizes",
        MEMORY,
        "all cells have the same batch size",
        memory.batch_sizes,
        findings.batch_sizes,
        "Tiles: peak memory in GiB, or the status of a batch size that failed. Below: images per second with their 95 % "
        "confidence interval over runs, and peak memory, by batch size.",
    ),
}


def find(name: str) -> str:
    """The name of a figure, from its name or number; UnknownNameError for another."""
    by_number = {figure.number.lower(): key for key, figure in FIGURES.items()}
    key = by_number.get(name.lower(), name.lower())
    if key not in FIGURES:
        raise UnknownNameError("figure", name, [f"{key} ({figure.number})" for key, figure in FIGURES.items()])
    return key
