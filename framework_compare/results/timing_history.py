"""Times of earlier studies on this machine, to predict how long a planned cell takes."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from framework_compare.errors import StudyError
from framework_compare.protocol import Document, TrainConfig
from framework_compare.records import Cell
from framework_compare.samplers.host import available_cores
from framework_compare.store.study_file import Store

MOST_STUDIES = 50
MOST_UNLIKE = 30  # times the arithmetic: that of much smaller models is not what their time is made of
# What a cell shares with one that was measured, the nearest first, and how far apart the two may be for all that.
_ALL = ("device", "mode", "precision", "threads", "execution", "pipeline", "tuning", "batch_size", "image_size")
LIKENESS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("measured before", ("framework", "model", "dataset", *_ALL), 1.25),
    ("measured earlier with other settings", ("framework", "model", "device", "mode", "precision", "threads"), 1.7),
    ("its framework with other models", ("framework", "device", "mode", "precision", "threads"), 3.0),
    ("other frameworks and models", ("device", "mode", "precision"), 5.0),
)
ASSUMPTION = "an assumption"
# Multiply-accumulates per second and thread, or GPU, where nothing was measured: least, middle, most.
ASSUMED_CPU, ASSUMED_GPU = (2e9, 20e9, 80e9), (2e11, 5e12, 1e14)
# Seconds to read, decode and hand over an image; of a step of arrays, which only has to be started.
ASSUMED_IMAGE_S, ASSUMED_STEP_S = (0.0001, 0.005, 0.03), (0.0003, 0.002, 0.02)
# Seconds of one step of generation, which computes a token of each sequence of a batch and takes mostly calls.
ASSUMED_TOKEN_S = (0.0005, 0.003, 0.02)
ASSUMED_START_S = (3.0, 12.0, 60.0)
_SPEEDS = """
SELECT cell_id, sum(images) / sum((end_ns - start_ns) * 1e-9 - coalesce(waited_s, 0)) AS speed
FROM epoch JOIN run USING (run_id) WHERE status = 'ok' GROUP BY cell_id HAVING speed > 0
"""
_STARTS = """
WITH began AS (SELECT run_id, min(start_ns) AS ns FROM phase GROUP BY run_id),
     measured AS (SELECT run_id, min(start_ns) AS ns FROM epoch GROUP BY run_id)
SELECT cell_id, avg(measured.ns - began.ns) / 1e9
FROM run JOIN began USING (run_id) JOIN measured USING (run_id) WHERE status = 'ok' GROUP BY cell_id
"""
Macs = Callable[[Cell], int]  # of one sample


class Range(NamedTuple):
    """A figure that is not known, between two that it is likely to lie between."""

    low: float
    middle: float
    high: float

    def times(self, factor: float) -> Range:
        return Range(*(factor * value for value in self))

    def plus(self, other: Range) -> Range:
        return Range(*(a + b for a, b in zip(self, other)))


@dataclasses.dataclass(frozen=True)
class CellForecast:
    """The forecast of a cell: its runs, the seconds of an epoch and of all its runs, and the source of these figures.

    lack: why it cannot run here, and what to do; it has no runs then.
    """

    cell: Cell
    runs: int
    epoch_s: Range
    total_s: Range
    basis: str
    lack: str = ""


@dataclasses.dataclass(frozen=True)
class Known:
    """A cell that was measured: samples/s, and seconds to its first epoch."""

    cell: Cell
    images_per_s: float
    startup_s: float | None


def measured(folders: Iterable[Path], machine: Document) -> list[Known]:
    """The cells that ended well in the studies of a machine (its `samplers.host.describe`), the latest studies first."""
    latest = sorted(folders, key=lambda folder: folder.stat().st_mtime, reverse=True)[:MOST_STUDIES]
    return [known for folder in latest for known in _of_study(folder, machine)]


def _of_study(folder: Path, machine: Document) -> Iterator[Known]:
    try:
        with Store.open(folder) as store:
            before = store.machine()
            if any(before.get(name) != machine.get(name) for name in ("cpu", "available_cores")):
                return
            speeds, starts = (dict(store.select(query)) for query in (_SPEEDS, _STARTS))
            for cell_id, cell in store.cells():
                if cell_id in speeds:
                    yield Known(cell, speeds[cell_id], starts.get(cell_id))
    except StudyError:  # a damaged one, or one of a later version, tells nothing
        return


def seconds_per_sample(cell: Cell, known: Sequence[Known], macs: Macs, of_arrays: bool = False) -> tuple[Range, str]:
    """Seconds that training on one sample takes, or answering it, and what this is taken from."""
    config, by_token = cell.config, cell.config.mode == "generation"
    shares = ("batch_size", "new_tokens") if by_token else ()  # the sequences of a batch share the steps
    for basis, names, apart in LIKENESS:
        alike = [
            one for one in known if all(_value(one.cell, name) == _value(cell, name) for name in (*names, *shares))
        ]
        ratios = [(macs(cell) / macs(one.cell) if macs(cell) and macs(one.cell) else 1.0, one) for one in alike]
        seconds = [ratio / one.images_per_s for ratio, one in ratios if 1 / MOST_UNLIKE <= ratio <= MOST_UNLIKE]
        if seconds:
            middle = statistics.geometric_mean(seconds)
            return Range(min(seconds) / apart, middle, max(seconds) * apart), basis
    computing = Range(*(macs(cell) / speed for speed in reversed(assumed_speed(config))))
    stepping = Range(*ASSUMED_TOKEN_S).times(by_token * config.new_tokens / config.batch_size)
    handling = Range(*ASSUMED_STEP_S).times(1 / config.batch_size) if of_arrays else Range(*ASSUMED_IMAGE_S)
    return computing.plus(handling).plus(stepping), ASSUMPTION


def assumed_speed(config: TrainConfig) -> tuple[float, ...]:
    """Multiply-accumulates per second of a cell where nothing was measured: least, middle, most."""
    threads = min(config.threads, available_cores())
    return tuple(speed * threads for speed in ASSUMED_CPU) if config.device == "cpu" else ASSUMED_GPU


def startup_s(cell: Cell, known: Sequence[Known]) -> Range:
    """Seconds from the start of a run to its first epoch."""
    seconds = [one.startup_s for one in known if _base(one.cell) == _base(cell) and one.startup_s]
    if not seconds:
        return Range(*ASSUMED_START_S)
    return Range(min(seconds), sum(seconds) / len(seconds), max(seconds))


def _value(cell: Cell, name: str) -> object:
    if name == "framework":
        return _base(cell)
    return getattr(cell, name) if name in ("model", "dataset", "device") else getattr(cell.config, name)


def _base(cell: Cell) -> str:
    """The framework, whatever its version, which tells enough for a forecast."""
    return cell.framework.partition("@")[0]
