"""Forecast of a study before anything is started: cells, runs, minutes, gigabytes."""

from __future__ import annotations

import collections
import dataclasses
import functools
from pathlib import Path
from types import MappingProxyType
from typing import Callable, Mapping, NamedTuple, Sequence

from framework_compare import registry
from framework_compare.environments import externals, managed, support, venvs
from framework_compare.errors import EnvironmentUnavailable, UsageError
from framework_compare.graph import Task
from framework_compare.launch import memory_limit, nodes
from framework_compare.launch.duel import MEMORY_SHARE
from framework_compare.plan import searches
from framework_compare.plan.planning import Plan, build_graph
from framework_compare.protocol import Document, TrainConfig
from framework_compare.records import Cell
from framework_compare.report import forecast_table, renderers
from framework_compare.results import timing_history
from framework_compare.results.intervals import LEAST_RUNS
from framework_compare.results.timing_history import CellForecast, Known, Range
from framework_compare.samplers import host
from framework_compare.study import names, schedules
from framework_compare.study.data_files import task_in
from framework_compare.study.run_options import RunOptions
from framework_compare.study.schedules import Paces, Planned
from framework_compare.study.strategies import Strategy

# Of a study's file: one reading with all its columns, one run with its epochs and its log.
BYTES_PER_SAMPLE, BYTES_PER_RUN = 150, 100_000
# Of environments as pinned, on disk. A build for GPUs brings CUDA's libraries.
ENVIRONMENT_BYTES = {"torch": 1.0e9, "tensorflow": 1.6e9, "mxnet": 0.3e9, "paddle": 0.9e9, "jax": 0.7e9, "singa": 0.2e9}
ENVIRONMENT_BYTES_OTHERWISE, ENVIRONMENT_BYTES_CUDA = 1e9, 5e9
NO_TIME, LACKING = Range(0, 0, 0), "cannot run here"


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The forecast of a study. `disk_bytes`: space for what does not exist yet, by kind.

    budget_s: what the runs together may take; None without a budget. note: a sentence on what the budget leaves open. schedule:
    sentences on which runs take turns. Nothing is started to make a forecast.
    """

    cells: tuple[CellForecast, ...]
    disk_bytes: Mapping[str, float]
    budget_s: float | None = None
    note: str = ""
    schedule: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        """Runs of all cells; under a budget the minimum that a verdict needs."""
        return sum(one.runs for one in self.cells)

    @property
    def lacks(self) -> tuple[str, ...]:
        """The reasons why cells cannot run here, one per cell."""
        return tuple(one.lack for one in self.cells if one.lack)

    @property
    def seconds(self) -> Range:
        """All runs together, no more than the budget."""
        total = functools.reduce(Range.plus, (one.total_s for one in self.cells), NO_TIME)
        return total if self.budget_s is None else Range(*(min(value, self.budget_s) for value in total))

    def table(self, style: str = "terminal") -> str:
        """Return the forecast as text, in style "terminal", "markdown" or "latex"."""
        table = forecast_table.table(
            self.cells, self.seconds, self.disk_bytes, self.budget_s, (*self.schedule, self.note)
        )
        return renderers.RENDERERS[style](table)

    def __str__(self) -> str:
        return self.table()


def forecast(plan: Plan, options: RunOptions, strategy: Strategy, repeats: int, here: bool = True) -> Forecast:
    """Return what a study of this plan would take, by earlier studies in the cache of this machine, else by assumptions.

    here: whether this machine runs it, whose devices it needs then.
    """
    data = _Data(
        {name: len(data) for name, data in plan.datasets.items()},
        {name: data.task for name, data in plan.datasets.items() if data.task is not None},
        {f"data set {name}": float(data.bytes_to_make) for name, data in plan.datasets.items() if data.bytes_to_make},
    )
    runs = LEAST_RUNS if strategy.adds_blocks else repeats
    unusable = _unusable(options.python) if here else {}
    cells = strategy.possible(plan.cells)
    planned = [(number, cell, 1) for number, cell in enumerate(cells)]
    found = _forecast(dict.fromkeys(cells, runs), planned, data, options, strategy, here, unusable=unusable)
    return dataclasses.replace(found, note=strategy.note)


def left(
    planned: Sequence[Planned],
    settings: Document,
    path: Path,
    options: RunOptions,
    strategy: Strategy,
    here: bool = True,
    ran: Callable[[int], Paces] = lambda _: {},
) -> Forecast:
    """Return what these runs would take, of a study whose settings are in a file; ran: as for `schedules.sentences`."""
    runs = collections.Counter(cell for _, cell, _ in planned)
    facts = settings.get("datasets") or {}
    samples = {name: int(facts.get(name, {}).get("images") or 0) for name in {cell.dataset for cell in runs}}
    tasks = {cell.dataset: task for cell in runs if (task := task_in(settings, path, cell)) is not None}
    return _forecast(runs, planned, _Data(samples, tasks), options, strategy, here, ran)


def _schedule(
    planned: Sequence[Planned],
    cells: Sequence[CellForecast],
    options: RunOptions,
    strategy: Strategy,
    here: bool,
    ran: Callable[[int], Paces],
) -> tuple[str, ...]:
    """Return which runs take turns, of those that can run, and how much memory that may take."""
    lacking = {one.cell for one in cells if one.lack}
    planned = [one for one in planned if one[1] not in lacking]
    if strategy.limits_decide:
        return ("One run after another, as each batch size depends on the outcome of the one before.",) * bool(planned)
    found = schedules.sentences(planned, options.schedule, options.across_models, ran, strategy.reference)
    if here and any(one.startswith(schedules.IN_TURNS) for one in found):
        free_gb = MEMORY_SHARE * memory_limit.free_bytes() / 1e9
        found.append(
            f"All workers that take turns may use {free_gb:.3g} GB together, {100 * MEMORY_SHARE:.0f} % of what is free "
            "now; those that do not fit take turns with the fastest of the others, or run alone."
        )
    return tuple(found)


class _Data(NamedTuple):
    """Data sets by name: samples of an epoch, tasks of those that are arrays, bytes of those to be rendered."""

    samples: Mapping[str, int]
    tasks: Mapping[str, Task]
    to_make: Mapping[str, float] = {}


def _forecast(
    runs: Mapping[Cell, int],
    planned: Sequence[Planned],
    data: _Data,
    options: RunOptions,
    strategy: Strategy,
    here: bool,
    ran: Callable[[int], Paces] = lambda _: {},
    unusable: Mapping[str, str] = MappingProxyType({}),
) -> Forecast:
    known = [
        one for one in timing_history.measured(names.in_cache(), host.describe()) if one.cell.model in registry.MODELS
    ]
    cells = tuple(
        CellForecast(cell, 0, NO_TIME, NO_TIME, LACKING, lack)
        if (lack := unusable.get(cell.framework) or _lack(cell, options) if here else "")
        else _cell(cell, data, known, count, strategy.sample_s)
        for cell, count in runs.items()
    )
    schedule = _schedule(planned, cells, options, strategy, here, ran)
    result = Forecast(cells, {}, strategy.seconds if strategy.adds_blocks else None, schedule=schedule)
    return dataclasses.replace(result, disk_bytes=_disk(data, options, result))


def _unusable(python: Mapping[str, str]) -> dict[str, str]:
    """Return by framework why a named interpreter cannot serve; each is started, as it is when cells run."""
    found = {}
    for name, path in python.items():
        try:
            externals.examine(registry.framework(name), path)
        except EnvironmentUnavailable as error:
            found[name] = str(error)
    return found


def _lack(cell: Cell, options: RunOptions) -> str:
    """Return why a cell cannot run on this machine, and what to do; "" where nothing is known against it."""
    try:
        nodes.check(cell.config.nodes)
    except UsageError as error:
        return str(error)
    name = registry.framework(cell.framework).name
    return support.lack_here(name, cell.device, options.python.get(name))


def _cell(cell: Cell, data: _Data, known: Sequence[Known], runs: int, sample_s: float) -> CellForecast:
    macs = functools.partial(_macs, tasks=data.tasks)
    per_sample, basis = timing_history.seconds_per_sample(cell, known, macs, cell.dataset in data.tasks)
    epoch_s = per_sample.times(data.samples[cell.dataset])
    epochs_s = epoch_s.times(cell.config.epochs)
    if searches.is_search(cell.model):  # the whole of which is one epoch
        epoch_s = epochs_s = epochs_s.times(len(searches.candidates(cell.model)))
    if sample_s:  # an epoch that takes longer is the only one, and not whole; else training ends with an epoch
        parts = (sample_s if one > sample_s else sample_s + one for one in epoch_s)
        epochs_s = Range(*sorted(min(part_s, all_s) for part_s, all_s in zip(parts, epochs_s)))
    run_s = timing_history.startup_s(cell, known).plus(epochs_s)
    return CellForecast(cell, runs, epoch_s, run_s.times(runs), basis)


def _macs(cell: Cell, tasks: Mapping[str, Task]) -> int:
    """Multiply-accumulates of one sample, of training or answering it."""
    config = cell.config
    return _macs_of(cell.model, config.num_classes, config.image_size, config.mode, tasks.get(cell.dataset))


@functools.lru_cache(maxsize=256)
def _macs_of(model: str, num_classes: int, image_size: int, mode: str, task: Task | None) -> int:
    graph = build_graph(model, TrainConfig(num_classes=num_classes, image_size=image_size), task)
    return graph.macs() + (graph.backward_macs() if mode == "train" else 0)


def _disk(data: _Data, options: RunOptions, result: Forecast) -> dict[str, float]:
    readings = options.sampling_hz * result.seconds.middle * BYTES_PER_SAMPLE
    return {
        **data.to_make,
        **_environments([one.cell for one in result.cells if not one.lack], options),
        "study": readings + BYTES_PER_RUN * result.runs,
    }


def _environments(cells: Sequence[Cell], options: RunOptions) -> dict[str, float]:
    """Return the bytes of each environment that is missing, by name."""
    sizes: dict[str, float] = {}
    kinds = dict.fromkeys((cell.framework, registry.device_kind(cell.device)) for cell in cells)
    for framework, kind in kinds:
        spec = registry.framework(framework)
        framework, python = spec.name, options.python.get(spec.name)
        if managed.is_given(spec, python) or _is_made(framework, kind):
            continue
        size = ENVIRONMENT_BYTES.get(framework.partition("@")[0], ENVIRONMENT_BYTES_OTHERWISE)
        sizes[f"environment {managed.label(framework, kind)}"] = size if kind == "cpu" else ENVIRONMENT_BYTES_CUDA
    return sizes


def _is_made(framework: str, kind: str) -> bool:
    try:
        return venvs.marker(managed.plan_for(framework, kind).folder) is not None
    except managed.NotResolved:
        return False
    except EnvironmentUnavailable:  # none will be made
        return True
