"""What reading CPU, memory and threads costs the cell that is read: the same cell at several rates, in turns."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from framework_compare import api
from framework_compare.errors import StudyError, UsageError
from framework_compare.forecast import Forecast
from framework_compare.launch.limits import Limits
from framework_compare.launch.scratch import scratch
from framework_compare.plan.settings import check_count
from framework_compare.results import intervals
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.intervals import Interval
from framework_compare.study import blocks
from framework_compare.study.run_options import run_options

RATES_HZ = (0.0, 1.0, 10.0, 100.0)
# Without readings nobody knows which epochs others disturbed. If these were left out at the other rates only, reading
# would seem to make a cell faster: no machine has so many cores that an epoch is marked.
NEVER_DISTURBED = 1e9


@dataclasses.dataclass(frozen=True)
class Overhead:
    """One rate of reading. ratio: epoch time over that without any, of paired runs, with its 95 % interval.

    epoch_s: over the runs. parent_cpu_percent: of one core, the median run; parent_peak_rss_bytes: the most.
    """

    sampling_hz: float
    epoch_s: Interval
    ratio: Interval
    parent_cpu_percent: float
    parent_peak_rss_bytes: float


def overhead(
    framework: str = "torch",
    model: str = "mobilenet_v2",
    *,
    rates_hz: Sequence[float] = RATES_HZ,
    repeats: int = blocks.REPEATS,
    say: Callable[[str], None] = lambda message: None,
    folder: None | str | os.PathLike[str] = None,
    **settings: Any,
) -> list[Overhead]:
    """Run one cell at each rate, in `repeats` randomised blocks, each run a study of its own in `folder`.

    settings: those of `compare`. UsageError where 0, which the others are compared with, is not among the rates;
    StudyError where a run does not end well.
    """
    _check(rates_hz, repeats, settings)
    with scratch() as temporary:
        place = temporary if folder is None else Path(folder)
        rows: dict[float, dict[int, Any]] = {rate: {} for rate in rates_hz}
        for block, order in enumerate(blocks.orders(len(rates_hz), repeats, blocks.new_seed()), 1):
            for rate in (rates_hz[number] for number in order):
                alike = {"repeats": 1, "verify": "off", "retries_when_disturbed": 0}
                asked = {**settings, **alike, "sampling_hz": rate, "disturbance_threshold": NEVER_DISTURBED}
                row = api.compare(framework, model, out=place / f"{block}-{rate:g}", **asked).frame.iloc[0]
                if row["status"] != "ok":
                    raise StudyError(
                        f"the run at {rate:g} readings per second ended as {row['status']}: {row['reason']}"
                    )
                say(
                    f"block {block} of {repeats}, {rate:g} readings per second: {row['epoch_s_median']:.3f} s per epoch"
                )
                rows[rate][block] = row
    seconds = BlockTimes(
        {rate: {block: float(row["epoch_s_median"]) for block, row in rows[rate].items()} for rate in rows}
    )
    return [_overhead(rate, rows[rate], seconds) for rate in rates_hz]


def dry_run(
    framework: str = "torch",
    model: str = "mobilenet_v2",
    *,
    rates_hz: Sequence[float] = RATES_HZ,
    repeats: int = blocks.REPEATS,
    **settings: Any,
) -> Forecast:
    """Return what `overhead` would take; nothing is started."""
    _check(rates_hz, repeats, settings)
    return api.dry_run(framework, model, repeats=repeats * len(rates_hz), **settings)


def _check(rates_hz: Sequence[float], repeats: int, settings: Mapping[str, Any]) -> None:
    if len(set(rates_hz)) != len(rates_hz) or 0 not in rates_hz or len(rates_hz) < 2:
        raise UsageError(f"rates are {list(rates_hz)!r}; allowed: 0 and others, each once")
    for rate in rates_hz:
        run_options(None, None, Limits(), rate)  # refuses a rate before others have run
    several = [name for name, value in settings.items() if isinstance(value, (list, tuple))]
    if several:
        raise UsageError(f"{several[0]} is {settings[several[0]]!r}; allowed: one value, as one cell is measured")
    check_count("repeats", repeats, 1, most=blocks.MOST_REPEATS)


def _overhead(rate: float, rows: dict[int, Any], seconds: BlockTimes) -> Overhead:
    ratio = seconds.ratio(rate, 0)
    assert ratio is not None, "each block has one run at every rate"
    return Overhead(
        rate,
        intervals.geometric_mean(list(seconds[rate].values())),
        ratio,
        float(np.median([row["parent_cpu_percent"] for row in rows.values()])),
        max(float(row["parent_peak_rss_bytes"]) for row in rows.values()),
    )
