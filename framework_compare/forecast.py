"""What a study would take, before anything of it is started: cells, runs, minutes, gigabytes."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from framework_compare import registry
from framework_compare.datasets import fire_smoke
from framework_compare.environments import managed, venvs
from framework_compare.errors import EnvironmentUnavailable
from framework_compare.graph import Task
from framework_compare.plan import searches
from framework_compare.plan.planning import Plan, build_graph
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.report import forecast_table, renderers
from framework_compare.results import earlier
from framework_compare.results.earlier import Known, Range
from framework_compare.results.precision import LEAST_RUNS
from framework_compare.samplers import host
from framework_compare.study import names
from framework_compare.study.conditions import RunOptions
from framework_compare.study.strategies import Strategy

# Of a study's file: one reading with all its columns, one run with its epochs and its log.
BYTES_PER_SAMPLE, BYTES_PER_RUN = 150, 100_000
# Of environments as pinned, on disk. A build for GPUs brings CUDA's libraries.
ENVIRONMENT_BYTES = {"torch": 1.0e9, "tensorflow": 1.6e9, "mxnet": 0.3e9, "paddle": 0.9e9, "jax": 0.7e9, "singa": 0.2e9}
ENVIRONMENT_BYTES_OTHERWISE, ENVIRONMENT_BYTES_CUDA = 1e9, 5e9


@dataclasses.dataclass(frozen=True)
class CellForecast:
    """One cell: its runs, the seconds of an epoch and of all its runs, and what these are taken from."""

    cell: Cell
    runs: int
    epoch_s: Range
    total_s: Range
    basis: str


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What a study would take. `disk_bytes` are by what they are for, and only what is not there yet.

    budget_s: what the runs together may take; None without a budget. Nothing is started to make a forecast.
    """

    cells: Tuple[CellForecast, ...]
    disk_bytes: Mapping[str, float]
    budget_s: Optional[float] = None

    @property
    def runs(self) -> int:
        """Runs of all cells; under a budget the least that a verdict needs."""
        return sum(one.runs for one in self.cells)

    @property
    def seconds(self) -> Range:
        """All runs together, no more than the budget."""
        total = functools.reduce(Range.plus, (one.total_s for one in self.cells), Range(0, 0, 0))
        return total if self.budget_s is None else Range(*(min(value, self.budget_s) for value in total))

    def table(self, style: str = "terminal") -> str:
        """As text, in style "terminal", "markdown" or "latex"."""
        table = forecast_table.table(self.cells, self.seconds, self.disk_bytes, self.budget_s)
        return renderers.RENDERERS[style](table)

    def __str__(self) -> str:
        return self.table()


def forecast(plan: Plan, options: RunOptions, strategy: Strategy, repeats: int) -> Forecast:
    """What a study of this plan would take, by earlier studies in the cache of this machine, else by assumptions."""
    models = {**registry.MODELS, **registry.WORKLOADS}
    known = [one for one in earlier.measured(names.in_cache(), host.describe()) if one.cell.model in models]
    runs = LEAST_RUNS if strategy.adds_blocks else repeats
    cells = tuple(_cell(cell, plan, known, runs, strategy.sample_s) for cell in plan.cells)
    budget_s = strategy.seconds if strategy.adds_blocks else None
    result = Forecast(cells, {}, budget_s)
    return dataclasses.replace(result, disk_bytes=_disk(plan, options, result))


def _cell(cell: Cell, plan: Plan, known: Sequence[Known], runs: int, sample_s: float) -> CellForecast:
    data = plan.arrays.get(cell.dataset)
    samples = len(data.train) if data is not None else len(plan.datasets[cell.dataset].pictures)
    macs = functools.partial(_macs, tasks=tuple((name, one.task) for name, one in plan.arrays.items()))
    per_sample, basis = earlier.seconds_per_sample(cell, known, macs)
    epoch_s = per_sample.times(samples)
    epochs_s = epoch_s.times(cell.config.epochs)
    if searches.is_search(cell.model):  # the whole of which is one epoch
        epoch_s = epochs_s = epochs_s.times(len(searches.candidates(cell.model)))
    if sample_s:  # an epoch that takes longer is the only one, and not whole
        epochs_s = Range(*sorted(sample_s if one > sample_s else all_s for one, all_s in zip(epoch_s, epochs_s)))
    run_s = earlier.startup_s(cell, known).plus(epochs_s)
    return CellForecast(cell, runs, epoch_s, run_s.times(runs), basis)


def _macs(cell: Cell, tasks: Sequence[Any]) -> int:
    """Multiply-accumulates of one sample, of training or answering it."""
    config = cell.config
    return _macs_of(cell.model, config.num_classes, config.image_size, config.mode, dict(tasks).get(cell.dataset))


@functools.lru_cache(maxsize=256)
def _macs_of(model: str, num_classes: int, image_size: int, mode: str, task: Optional[Task]) -> int:
    graph = build_graph(model, TrainConfig(num_classes=num_classes, image_size=image_size), task)
    return graph.macs() + (graph.backward_macs() if mode == "train" else 0)


def _disk(plan: Plan, options: RunOptions, result: Forecast) -> Dict[str, float]:
    readings = options.hz * result.seconds.middle * BYTES_PER_SAMPLE
    return {
        **{f"data set {name}": float(fire_smoke.size_bytes(name)) for name in plan.datasets if fire_smoke.unmade(name)},
        **_environments(plan.cells, options),
        "study": readings + BYTES_PER_RUN * result.runs,
    }


def _environments(cells: Sequence[Cell], options: RunOptions) -> Dict[str, float]:
    """Those that are not there yet, by name."""
    sizes: Dict[str, float] = {}
    kinds = dict.fromkeys((cell.framework, registry.device_kind(cell.device)) for cell in cells)
    for framework, kind in kinds:
        spec = registry.framework(framework)
        framework, python = spec.name, options.python.get(spec.name)
        if managed.is_given(spec, python) or _is_made(framework, kind):
            continue
        size = ENVIRONMENT_BYTES.get(framework, ENVIRONMENT_BYTES_OTHERWISE)
        sizes[f"environment {managed.label(framework, kind)}"] = size if kind == "cpu" else ENVIRONMENT_BYTES_CUDA
    return sizes


def _is_made(framework: str, kind: str) -> bool:
    try:
        return venvs.marker(managed.plan_for(framework, kind).folder) is not None
    except EnvironmentUnavailable:  # none will be made
        return True
