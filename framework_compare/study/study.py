"""Runs what a study has planned: environments first, then one worker at a time, and its end recorded."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from framework_compare import registry
from framework_compare.environments.managed import Environment
from framework_compare.graph import Graph, Task, weights_size
from framework_compare.launch.jobs import run_or_interrupted
from framework_compare.launch.launcher import STEPS
from framework_compare.launch.one_timing import one_timing
from framework_compare.parity import in_study
from framework_compare.paths import file_name
from framework_compare.plan import searches
from framework_compare.plan.planning import build_graph
from framework_compare.protocol import Job
from framework_compare.records import Cell, Run, idle_workers
from framework_compare.results import metrics, steadiness, verdicts
from framework_compare.results.precision import LEAST_RUNS
from framework_compare.results.runs import refresh_figures, store_figures
from framework_compare.store import schema
from framework_compare.store.study_file import Store
from framework_compare.study import blocks
from framework_compare.study.conditions import RunOptions
from framework_compare.study.imported_models import weight_pieces, written_of
from framework_compare.study.picture_lists import arrays_path, check_arrays, pictures_path, task_of, warm_page_cache
from framework_compare.study.progress import Watcher, length
from framework_compare.study.readiness import Readiness
from framework_compare.study.strategies import Product, Standing, Strategy, arm, run_s


class Study:
    """A store being filled: run() does all that is still planned in it."""

    def __init__(self, store: Store, options: RunOptions, watcher: Watcher, strategy: Strategy = Product()) -> None:
        self.store = store
        self.folder = store.folder
        self.options = options
        self.watcher = watcher
        self.strategy = strategy
        self._ready = Readiness(store, options, watcher.say)
        self._refused: Dict[str, str] = {}
        self._wall_s: Dict[Cell, List[float]] = {}

    def run(self, retry: Sequence[str] = ()) -> None:
        """Run every planned run in turn, again those that ended with a status of `retry`, then what the strategy adds.

        Runs that others disturbed are repeated once all others are done.

        A KeyboardInterrupt is recorded with the run it hit, then raised again.
        """
        self._wall_s = self.store.wall_seconds()
        if self.strategy.adds_blocks:  # which looks at figures, and those kept may be of another version
            refresh_figures(self.store)
        self._run_planned(retry)
        while self._plan_more():
            self._run_planned()

    def _plan_more(self) -> bool:
        standing = self._standing()
        # Under a budget at once, as a disturbed run gives no interval what another block would cost far more to give.
        if self.strategy.adds_blocks and self._repeat_disturbed(standing):
            return True
        following = self.strategy.next(standing)
        if following:
            self._plan_cells(following, standing)
            return True
        return self._repeat_disturbed(standing)

    def _repeat_disturbed(self, standing: Standing) -> bool:
        left_s = self.strategy.seconds - standing.spent_s
        costs = {cell_id: run_s(cell, self._wall_s) for cell_id, cell in self.store.cells()}
        repeated = self.store.repeat_disturbed(self.options.retries_when_disturbed, left_s, costs)
        if repeated:
            runs = "1 run is" if repeated == 1 else f"{repeated} runs are"
            self.watcher.say(f"{runs} repeated, as others took CPU time while it was measured")
        return repeated > 0

    def _plan_cells(self, cells: Sequence[Cell], standing: Standing) -> None:
        """New cells with one run each, or one more block of cells that are known."""
        if not set(cells) <= set(standing.outcomes):
            for cell in cells:
                self.store.extend(cell)
            return
        seed = self.store.settings().get("order_seed")
        self.store.add_block(blocks.shuffled(cells, seed, sum(map(len, standing.outcomes.values()))))
        self.watcher.say(_why_more(cells, standing, self.strategy.seconds))

    def _standing(self) -> Standing:
        figures, cells = self.store.kept_figures(metrics.version()), dict(self.store.cells())
        # Runs that others disturbed throughout are in no interval where the cell has other runs.
        known = {cell_id: row for cell_id, row in figures.items() if (row.get("interval_runs") or 0) >= LEAST_RUNS}
        arms = {cells[cell_id]: row.get("interval_arm") for cell_id, row in known.items() if cell_id in cells}
        sure = {cell: arm for cell, arm in arms.items() if isinstance(arm, float)}
        return Standing(self.store.outcomes(), self._wall_s, sure, self._spent_s())

    def _spent_s(self) -> float:
        return sum(map(sum, self._wall_s.values()))

    def _run_planned(self, retry: Sequence[str] = ()) -> None:
        planned = self.store.plan(retry)
        if not planned:
            return
        for _, cell, _ in planned:
            self._ready.of(cell)  # made now, so that nothing is downloaded between runs
        self._check_parity([cell for _, cell, _ in planned])
        described = self.store.settings().get("datasets") or {}
        names = {cell.dataset for _, cell, _ in planned}
        arrays = {name: described[name]["checksum"] for name in names if "task" in (described.get(name) or {})}
        check_arrays(self.folder, arrays)
        pictures = names - arrays.keys()
        warm_page_cache(self.folder, {name: (described.get(name) or {}).get("checksum") for name in pictures})
        try:
            for number, (run_id, cell, block) in enumerate(planned, start=1):
                if block == 1 and self._spent_s() >= self.strategy.seconds:
                    return  # later blocks were planned as they fit
                self.watcher.begin(cell, number, len(planned))
                run = self._run_one(run_id, cell, self._ready.of(cell))
                self._wall_s.setdefault(cell, []).append(run.wall_s or 0.0)
                self._tell_what_is_left([cell for _, cell, _ in planned[number:]])
                self.watcher.end(cell, run)
                if run.status == "interrupted":
                    raise KeyboardInterrupt
        finally:
            shutil.rmtree(self.folder / "weights", ignore_errors=True)

    def _tell_what_is_left(self, cells: Sequence[Cell]) -> None:
        """Seconds until these cells have run, by those that have; under a budget what is left of that."""
        if self.strategy.seconds < math.inf:
            self.watcher.left(max(self.strategy.seconds - self._spent_s(), 0.0), at_most=True)
        elif cells:
            self.watcher.left(sum(run_s(cell, self._wall_s) for cell in cells))

    def _check_parity(self, cells: Sequence[Cell]) -> None:
        for listed, ready in self._ready.by_device(cells).values():
            refused = in_study.record(
                self.folder, listed, ready, self.options.verify, self.watcher.say, task_of=self._task_of
            )
            self._refused.update(refused)

    def _run_one(self, run_id: int, cell: Cell, environment: Union[Environment, Run]) -> Run:
        if isinstance(environment, Run):
            self.store.record(run_id, environment)
            return environment
        refused = self._refused.get(verdicts.key(verdicts.row_of(cell)))
        if refused:
            run = Run("failed", refused)
            self.store.record(run_id, run)
            return run
        self.store.begin(run_id)
        graph = build_graph(cell.model, cell.config, self._task_of(cell))
        folder = Path("runs") / f"{run_id:05d}-{file_name(cell.label)}"
        log = str(folder / "log.txt")
        try:
            run = self._launch(cell, folder, environment, graph)
        except KeyboardInterrupt:  # before the worker was there, or a second one
            self.store.record(run_id, Run("interrupted", "stopped by the user", log_path=log))
            raise
        trace = _trace_path(self.folder, folder) if run.profile else None
        # else steps differ by design, and none is the steady one
        if cell.config.batch_growth == 1 and not searches.is_search(cell.model):
            run = dataclasses.replace(run, **steadiness.marked(run.epochs, self.folder / folder / STEPS))
        run = dataclasses.replace(
            run, log_path=log, trace_path=trace, parameters=graph.parameter_count(), warnings=_warnings(cell, run)
        )
        self.store.record(run_id, run)
        store_figures(self.store, run_id, run)
        return run

    def _launch(self, cell: Cell, folder: Path, environment: Environment, graph: Graph) -> Run:
        task = self._task_of(cell)
        of_arrays = task is not None
        tasks = self._candidates(cell, task) if task is not None and searches.is_search(cell.model) else ()
        job = Job(
            cell.config,
            kind="search" if tasks else "train",
            tasks=tasks,
            graph=graph.to_dict(),
            pictures="" if of_arrays else str(pictures_path(self.folder, cell.dataset)),
            data={"kind": "arrays", "path": str(arrays_path(self.folder, cell.dataset))} if of_arrays else None,
            weights=str(self._weights(graph, cell.config.seed)),
            profile=self.options.profile,
            written=written_of(cell),
            sample_s=self.strategy.sample_s,
        )
        with one_timing(self.watcher.say):
            return run_or_interrupted(
                registry.framework(cell.framework),
                environment,
                job,
                self.folder / folder,
                limits=self.options.limits,
                hz=self.options.hz,
                disturbance_threshold=self.options.disturbance_threshold,
                on_event=lambda event: self.watcher.event(cell, event),
            )

    def _candidates(self, cell: Cell, task: Task) -> Tuple[Dict[str, Any], ...]:
        """Those of a search, as its worker takes them."""
        made = []
        for candidate in searches.candidates(cell.model):
            graph = searches.graph_of(cell.model, candidate, task)
            weights = str(self._weights(graph, cell.config.seed))
            made.append({"graph": graph.to_dict(), "settings": dict(candidate.settings), "weights": weights})
        return tuple(made)

    def _task_of(self, cell: Cell) -> Optional[Task]:
        return task_of(self.store, cell)

    def _weights(self, graph: Graph, seed: int) -> Path:
        """File of the initial weights, float32, all frameworks' the same; made on first use, gone after the study."""
        name = f"{graph.name}-{graph.num_classes}-{graph.image_size}-{seed}.npy"
        if graph.image_size == 0:  # shapes of others are not told by these
            name = f"{graph.name}-{hashlib.sha256(repr(graph.to_dict()).encode()).hexdigest()[:16]}-{seed}.npy"
        path = self.folder / "weights" / name
        if not path.exists():
            half = path.with_suffix(".half")
            with schema.study_errors(half):
                path.parent.mkdir(exist_ok=True)
                with open(half, "wb") as file:
                    header = {"descr": "<f4", "fortran_order": False, "shape": (weights_size(graph),)}
                    np.lib.format.write_array_header_1_0(file, header)
                    for piece in weight_pieces(graph, seed):
                        file.write(piece.data)
                half.rename(path)
        return path


def _warnings(cell: Cell, run: Run) -> Tuple[str, ...]:
    """Those of a run, and what its settings make of its figures."""
    config = cell.config
    least = registry.framework(cell.framework).whole_batches_from
    batches = config.pipeline == "native" and 0 < least <= config.loader_workers
    remark = idle_workers(config.loader_workers, run.epochs[0].whole_steps) if batches and run.epochs else ""
    return (*run.warnings, remark) if remark else run.warnings


def _why_more(cells: Sequence[Cell], standing: Standing, budget_s: float) -> str:
    """Which of the cells another block is for."""
    cell = max(cells, key=lambda one: arm(one, standing))
    width = arm(cell, standing)
    why = f"has fewer than {LEAST_RUNS} runs that count" if math.isinf(width) else f"is sure to ±{width:.1%} only"
    return f"one more block of {cell.model}: {cell.label} {why}; {length(standing.spent_s)} of {length(budget_s)} used"


def _trace_path(study: Path, run: Path) -> Optional[str]:
    """What a profiler wrote in the folder of a run: the file for Perfetto, else all of it; relative to the study."""
    folder = run / "profile"
    names = (folder / "trace.json.gz", folder / "trace.json", folder)
    return next((str(path) for path in names if (study / path).exists()), None)
