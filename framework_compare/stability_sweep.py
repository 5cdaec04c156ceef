"""The largest batch that works with each framework: cells of growing batch size until one fails."""

from __future__ import annotations

import dataclasses
import os
import warnings
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterable,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
    overload,
)

from framework_compare.comparison import Comparison
from framework_compare.errors import StudyError, UnknownNameError, UsageError
from framework_compare.forecast import Forecast, forecast
from framework_compare.launch import nodes
from framework_compare.launch.limits import PhaseTimeout
from framework_compare.launch.limits import check as check_limits
from framework_compare.plan import planning
from framework_compare.plan.planning import DataSets, Names
from framework_compare.plan.settings import takes_former_names
from framework_compare.results.columns import NAMES, SHARED
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import TO_RUN
from framework_compare.study import strategies
from framework_compare.study.conditions import run_options
from framework_compare.study.interrupts import terminate_as_interrupt
from framework_compare.study.opening import (
    check_flag,
    check_folder,
    check_writable,
    new_study_folder,
    open_or_create,
    tell_of_cores,
    tell_of_datasets,
)
from framework_compare.study.progress import Watcher, default_watcher
from framework_compare.study.strategies import SEARCHES, Growth, Product
from framework_compare.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

PUBLISHED = tuple(range(10, 101, 10))
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
    def load(cls, folder: Union[str, Path]) -> "Stability":
        """The sweep in a study folder; StudyError where that holds none."""
        comparison = Comparison.load(folder)
        if not strategies.grows(comparison.settings):
            raise StudyError(f"{folder} holds a study that is not a sweep of batch sizes")
        return cls(comparison)

    @property
    def probes(self) -> "pd.DataFrame":
        """The cell frame of every batch size tried, in the order of model, framework, other settings and size."""
        frame = self.comparison.frame
        first = ("model", "framework", *(name for name in self.varying if name not in ("model", "framework")))
        places = {f"_{name}": frame[name].map(list(dict.fromkeys(frame[name])).index) for name in first}
        order = frame.assign(**places).sort_values([*places, "batch_size"], kind="stable").index
        return frame.loc[order].reset_index(drop=True)

    @property
    def varying(self) -> Tuple[str, ...]:
        """What identifies a cell of the sweep: framework, model, and every other setting that varies."""
        frame = self.comparison.frame
        others = (name for name in (*NAMES, *SHARED) if name != "batch_size")
        differing = (name for name in others if frame[name].nunique(dropna=False) > 1)
        return tuple(dict.fromkeys(("framework", "model", *differing)))

    @property
    def frame(self) -> "pd.DataFrame":
        """The largest batch size that works, the smallest that fails and how, with the peak memory of each.

        One row per framework, model, data set and device, and per value of each other setting that varies.
        """
        import pandas as pd

        keys = list(dict.fromkeys((*NAMED, *self.varying)))
        groups = self.probes.groupby(keys, sort=False, dropna=False)
        rows = [_summary(group.to_dict("records"), keys) for _, group in groups]
        return pd.DataFrame(rows, columns=list(dict.fromkeys((*keys, *COLUMNS))))

    def table(self, style: str = "terminal", *, width: Optional[int] = None, bold: Optional[bool] = None) -> str:
        """The sweep as text: what works up to where, then the memory at each batch size."""
        from framework_compare.report import stability_tables

        limits = self.comparison.settings.get("limits") or {}
        tables = stability_tables.both(self.frame, self.probes, self.varying, limits.get("memory_bytes"))
        return stability_tables.render(tables, self.probes, style, width=width, bold=bold)

    def __str__(self) -> str:
        return self.table()


def _summary(probes: Sequence[Dict[str, Any]], keys: Sequence[str]) -> Dict[str, Any]:
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


@overload
def largest_batch(
    frameworks: Names, models: Names, device: Names = ..., *, dry_run: Literal[False] = ..., **request: Any
) -> Stability: ...
@overload
def largest_batch(
    frameworks: Names, models: Names, device: Names = ..., *, dry_run: Literal[True], **request: Any
) -> Forecast: ...
@terminate_as_interrupt()
@takes_former_names
def largest_batch(
    frameworks: Names,
    models: Names,
    device: Names = "cpu",
    *,
    dataset: Optional[DataSets] = None,
    batch_sizes: Sequence[int] = PUBLISHED,
    search: str = "steps",
    out: Union[str, "os.PathLike[str]", None] = None,
    limit: Optional[int] = None,
    classes: Optional[Sequence[str]] = None,
    on_bad_image: str = "fail",
    python: Optional[Mapping[str, str]] = None,
    index: Optional[Mapping[str, str]] = None,
    installer: str = "pip",
    timeout_s: Optional[float] = None,
    phase_timeout_s: PhaseTimeout = None,
    silence_timeout_s: Optional[float] = None,
    memory_limit: Union[None, int, str] = None,
    sampling_hz: float = 10.0,
    dry_run: bool = False,
    watcher: Optional[Watcher] = None,
    epochs: int = 1,
    **settings: Any,
) -> Union[Stability, Forecast]:
    """Train with growing batch size until a cell is not ok, for every framework, model and device.

    search "steps" tries `batch_sizes` in turn, smallest first. "doubling" starts with the smallest, doubles until one
    fails or the largest is reached, then halves the gap until it is no wider than the smallest.
    out: study folder; one that holds the same sweep is resumed. dry_run: start nothing, and return a Forecast of all
    sizes, the most that it can take. The rest is as in `compare`.
    """
    watcher = watcher or default_watcher()
    sizes = _check_sizes(batch_sizes, search)
    if "batch_size" in settings:
        raise UsageError(f"batch_size is {settings['batch_size']!r}; a sweep grows it: name batch_sizes")
    if settings.get("batch_growth", 1) != 1:
        raise UsageError(
            f"batch_growth is {settings['batch_growth']!r}; allowed in a sweep, whose batches are of one size: 1"
        )
    folder = check_writable(check_folder("out", new_study_folder() if out is None else out))
    limits = check_limits(timeout_s, phase_timeout_s, silence_timeout_s, memory_limit)
    options = run_options(python, index, installer, limits, sampling_hz)
    plan = planning.plan(
        frameworks,
        models,
        device,
        dataset,
        {**settings, "epochs": epochs, "batch_size": sizes[0]},
        limit=limit,
        classes=classes,
        on_bad_image=on_bad_image,
        progress=watcher.count,
        make=False,
    )
    _check_enough(plan, sizes[-1])
    tell_of_datasets(plan, watcher)
    tell_of_cores(plan, watcher)
    strategy = Growth(plan.cells, tuple(sizes), search)

    def expected() -> Forecast:
        found = forecast(_with_sizes(plan, sizes, search), options, Product(), 1)
        return dataclasses.replace(found, note="Sizes are counted as if none fails.")

    if check_flag("dry_run", dry_run):
        return expected()
    nodes.check(max(cell.config.nodes for cell in plan.cells))
    if not (folder / FILE).exists():
        watcher.expect(expected)
    planning.make_datasets(plan, watcher.count)
    with open_or_create(folder, plan, options, strategy) as store, watcher:
        Study(store, options, watcher, strategy).run()
    return Stability(Comparison.load(folder))


def _with_sizes(plan: planning.Plan, sizes: Sequence[int], search: str) -> planning.Plan:
    """The plan with a cell for each size that a sweep tries where none fails."""
    tried = {size: True for size in sizes}
    if search == "doubling":
        tried = {}
        while (size := strategies.next_size(tried, sizes, search)) is not None:
            tried[size] = True
    cells = [
        dataclasses.replace(cell, config=dataclasses.replace(cell.config, batch_size=size))
        for cell in plan.cells
        for size in tried
    ]
    return dataclasses.replace(plan, cells=tuple(cells))


def stability(frameworks: Names, models: Names, device: Names = "cpu", **request: Any) -> Stability:
    """The name of `largest_batch` until version 0.1; deprecated."""
    warnings.warn("stability() is called largest_batch() now", DeprecationWarning, stacklevel=2)
    return largest_batch(frameworks, models, device, **request)


def _check_sizes(batch_sizes: Iterable[int], search: str) -> List[int]:
    if isinstance(batch_sizes, str) or not isinstance(batch_sizes, Iterable):
        raise UsageError(f"batch_sizes is {batch_sizes!r}; allowed: a list of whole numbers, such as [10, 20, 40]")
    sizes = list(batch_sizes)
    if search not in SEARCHES:
        raise UnknownNameError("search", search, SEARCHES)
    if not sizes or any(type(size) is not int or size < 1 for size in sizes) or sizes != sorted(set(sizes)):
        raise UsageError(f"batch_sizes is {sizes!r}; allowed: whole numbers of at least 1, each larger than the last")
    return sizes


def _check_enough(plan: planning.Plan, largest: int) -> None:
    """No batch is larger than the data set, so a larger size would be reported for steps on a smaller one."""
    for name, data in plan.datasets.items():
        if largest > len(data):
            raise UsageError(
                f"batch size {largest} is larger than {name} with its {len(data)} samples; "
                "name smaller batch sizes or a larger data set"
            )
