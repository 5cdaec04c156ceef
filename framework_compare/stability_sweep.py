"""The largest batch that works with each framework: cells of growing batch size until one fails."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Iterable, Sequence

from framework_compare import api
from framework_compare.comparison import Comparison
from framework_compare.errors import StudyError, UsageError, check_name
from framework_compare.forecast import Forecast
from framework_compare.plan import planning
from framework_compare.plan.data_of_models import DataSets
from framework_compare.plan.planning import Models, Names
from framework_compare.protocol import Fields
from framework_compare.results.columns import NAMES, SHARED
from framework_compare.store.study_file import TO_RUN
from framework_compare.study import schedules, strategies
from framework_compare.study.opening import study_folder
from framework_compare.study.progress import Watcher, default_watcher
from framework_compare.study.request import Request, check_keywords
from framework_compare.study.strategies import SEARCHES, Growth
from framework_compare.study.study import terminate_as_interrupt

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Unpack

    from framework_compare.study.request import Options

PUBLISHED = tuple(range(10, 101, 10))
# What a request may ask of `compare` alone: a sweep runs each size once, by itself.
FOREIGN = (
    *("repeats", "profile", "schedule", "across_models", "disturbance_threshold", "retries_when_disturbed"),
    *("sample", "budget", "precision_target", "reference", "rungs", "one_at_a_time"),
)
NAMED = ("framework", "model", "dataset", "device")
COLUMNS = (
    *NAMED,
    "largest_ok",
    "largest_ok_peak_rss_bytes",
    "next_failed",
    "next_failed_status",
    "next_failed_reason",
    "next_failed_peak_rss_bytes",
    "probes",
)


class Stability:
    """The result of `largest_batch`: `frame` has one row per swept cell, `probes` one row per batch size tried."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.folder = comparison.folder

    @classmethod
    def load(cls, folder: str | Path) -> Stability:
        """The sweep in a study folder; StudyError if there is none."""
        comparison = Comparison.load(folder)
        if not strategies.grows(comparison.settings):
            raise StudyError(f"{folder} contains a study that is not a sweep of batch sizes")
        return cls(comparison)

    @property
    def probes(self) -> pd.DataFrame:
        """The cell frame of every batch size tried, in the order of model, framework, other settings and size."""
        frame = self.comparison.frame
        first = ("model", "framework", *(name for name in self.varying if name not in ("model", "framework")))
        places = {f"_{name}": frame[name].map(list(dict.fromkeys(frame[name])).index) for name in first}
        order = frame.assign(**places).sort_values([*places, "batch_size"], kind="stable").index
        return frame.loc[order].reset_index(drop=True)

    @property
    def varying(self) -> tuple[str, ...]:
        """The columns that identify a cell of the sweep: framework, model, and every other setting that varies."""
        frame = self.comparison.frame
        others = (name for name in (*NAMES, *SHARED) if name != "batch_size")
        differing = (name for name in others if frame[name].nunique(dropna=False) > 1)
        return tuple(dict.fromkeys(("framework", "model", *differing)))

    @property
    def frame(self) -> pd.DataFrame:
        """The largest batch size that works, and the smallest that fails with its status, each with its peak memory.

        One row per framework, model, data set and device, and per value of each other setting that varies.
        """
        import pandas as pd

        keys = list(dict.fromkeys((*NAMED, *self.varying)))
        groups = self.probes.groupby(keys, sort=False, dropna=False)
        rows = [_summary(group.to_dict("records"), keys) for _, group in groups]
        return pd.DataFrame(rows, columns=list(dict.fromkeys((*keys, *COLUMNS))))

    def table(self, style: str = "terminal", *, width: int | None = None, bold: bool | None = None) -> str:
        """Return the sweep as text: the largest batch size that works, then the memory at each batch size."""
        from framework_compare.report.resource_tables import sweep_tables

        limits = self.comparison.settings.get("limits") or {}
        tables = sweep_tables(self.frame, self.probes, self.varying, limits.get("memory_bytes"))
        return tables.text(style, width=width, bold=bold)

    def __str__(self) -> str:
        return self.table()


def _summary(probes: Sequence[Fields], keys: Sequence[str]) -> Fields:
    worked = [probe for probe in probes if probe["status"] == "ok"]
    failed = [probe for probe in probes if probe["status"] not in ("ok", *TO_RUN)]
    best = max(worked, key=lambda probe: probe["batch_size"], default={})
    worst = min(failed, key=lambda probe: probe["batch_size"], default={})
    return {
        **{name: probes[0][name] for name in keys},
        "largest_ok": best.get("batch_size"),
        "largest_ok_peak_rss_bytes": best.get("peak_rss_bytes"),
        "next_failed": worst.get("batch_size"),
        "next_failed_status": worst.get("status"),
        "next_failed_reason": worst.get("reason"),
        "next_failed_peak_rss_bytes": worst.get("peak_rss_bytes"),
        "probes": len(probes),
    }


@terminate_as_interrupt()
def largest_batch(
    frameworks: Names,
    models: Models,
    device: Names = "cpu",
    *,
    dataset: DataSets | None = None,
    batch_sizes: Sequence[int] = PUBLISHED,
    search: str = "steps",
    out: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[Options],
) -> Stability:
    """Increase the batch size until a cell is not ok, for every framework, model and device.

    search: "steps" tries `batch_sizes` in turn, smallest first. "doubling" starts with the smallest, doubles until one
    fails or the largest is reached, then halves the gap until it is no wider than the smallest.
    out: study folder; a sweep that it already contains is resumed. Other arguments are those of `compare`; epochs is 1
    by default.
    """
    check_keywords(largest_batch, options)
    request = Request.of(frameworks, models, device, dataset=dataset, **options)
    folder = study_folder(out)
    _prepare(request, batch_sizes, search, watcher or default_watcher()).run(folder)
    return Stability(Comparison.load(folder))


def dry_run(
    frameworks: Names,
    models: Models,
    device: Names = "cpu",
    *,
    batch_sizes: Sequence[int] = PUBLISHED,
    search: str = "steps",
    watcher: Watcher | None = None,
    **options: Unpack[Options],
) -> Forecast:
    """Return a forecast for `largest_batch` if no size fails, the longest case; nothing is started or written."""
    check_keywords(dry_run, options)
    request = Request.of(frameworks, models, device, **options)
    return _prepare(request, batch_sizes, search, watcher or default_watcher()).forecast()


def _prepare(request: Request, batch_sizes: Sequence[int], search: str, watcher: Watcher) -> api.Prepared:
    sizes, defaults = _check_sizes(batch_sizes, search), Request([], [])
    for name in FOREIGN:
        if getattr(request, name) != getattr(defaults, name):
            raise UsageError(
                f"{name} is {getattr(request, name)!r}; a sweep of batch sizes does not use it: leave it out"
            )
    settings = {"epochs": 1, **request.settings}
    if "batch_size" in settings:
        raise UsageError(f"batch_size is {settings['batch_size']!r}; a sweep varies it: name batch_sizes")
    if settings.get("batch_growth", 1) != 1:
        raise UsageError(
            f"batch_growth is {settings['batch_growth']!r}; allowed: 1, since all batches of a sweep have one size"
        )
    settings["batch_size"] = sizes[0]
    alone = dataclasses.replace(request, settings=settings, schedule=schedules.SEQUENTIAL, retries_when_disturbed=0)
    found = api.prepare(alone, watcher)
    _check_enough(found.plan, sizes[-1])
    growth = Growth(found.plan.cells, tuple(sizes), search)
    return dataclasses.replace(found, strategy=growth, repeats=1, kept={})


def _check_sizes(batch_sizes: Iterable[int], search: str) -> list[int]:
    if isinstance(batch_sizes, str) or not isinstance(batch_sizes, Iterable):
        raise UsageError(f"batch_sizes is {batch_sizes!r}; allowed: a list of whole numbers, such as [10, 20, 40]")
    sizes = list(batch_sizes)
    check_name("search", search, SEARCHES)
    if not sizes or any(type(size) is not int or size < 1 for size in sizes) or sizes != sorted(set(sizes)):
        raise UsageError(f"batch_sizes is {sizes!r}; allowed: whole numbers of at least 1, each larger than the last")
    return sizes


def _check_enough(plan: planning.Plan, largest: int) -> None:
    """No batch is larger than the data set, so a larger size would be reported for steps on a smaller one."""
    for name, data in plan.datasets.items():
        if largest > len(data):
            raise UsageError(
                f"batch size {largest} is larger than {name}, which has {len(data)} samples; "
                "name smaller batch sizes or a larger data set"
            )
