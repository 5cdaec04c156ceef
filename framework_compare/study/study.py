"""Runs what a study has planned: environments first, then one worker at a time, every end of it recorded."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Dict, Optional, Sequence, Tuple, Union

import numpy as np

from framework_compare import registry
from framework_compare.environments.managed import Environment
from framework_compare.graph import initial_weights, weights_size
from framework_compare.launch import staging
from framework_compare.launch.launcher import Launch, launch
from framework_compare.parity import in_study
from framework_compare.paths import file_name
from framework_compare.plan.planning import build_graph
from framework_compare.records import Cell, Run, idle_workers
from framework_compare.results import verdicts
from framework_compare.results.runs import store_figures
from framework_compare.store import schema
from framework_compare.store.epoch_keeper import EpochKeeper
from framework_compare.store.study_file import Store
from framework_compare.study.conditions import RunOptions
from framework_compare.study.picture_lists import pictures_path, warm_page_cache
from framework_compare.study.progress import Watcher
from framework_compare.study.readiness import Readiness
from framework_compare.study.strategies import Product, Strategy


class Study:
    """A store being filled: run() does all that is still planned in it."""

    def __init__(
        self, store: Store, options: RunOptions, watcher: Watcher, strategy: Strategy = Product()
    ) -> None:
        self.store = store
        self.folder = store.folder
        self.options = options
        self.watcher = watcher
        self.strategy = strategy
        self._ready = Readiness(store, options, watcher.say)
        self._refused: Dict[str, str] = {}

    def run(self, retry: Sequence[str] = ()) -> None:
        """Run every planned run in turn, again those that ended with a status of `retry`, then what the strategy adds.

        Runs that others disturbed are repeated once all others are done.

        A KeyboardInterrupt is recorded with the run it hit, then raised again.
        """
        self._run_planned(retry)
        while self._plan_more():
            self._run_planned()

    def _plan_more(self) -> bool:
        following = self.strategy.next(self.store.outcomes())
        for cell in following:
            self.store.extend(cell)
        if following:
            return True
        repeated = self.store.repeat_disturbed(self.options.retries_when_disturbed)
        if repeated:
            runs = "1 run is" if repeated == 1 else f"{repeated} runs are"
            self.watcher.say(f"{runs} repeated, as others took CPU time while it was measured")
        return repeated > 0

    def _run_planned(self, retry: Sequence[str] = ()) -> None:
        planned = self.store.plan(retry)
        if not planned:
            return
        for _, cell, _ in planned:
            self._ready.of(cell)  # made now, so that nothing is downloaded between runs
        self._check_parity([cell for _, cell, _ in planned])
        known = self.store.settings().get("datasets") or {}
        names = {cell.dataset for _, cell, _ in planned}
        warm_page_cache(self.folder, {name: (known.get(name) or {}).get("checksum") for name in names})
        try:
            for number, (run_id, cell, repeat) in enumerate(planned, start=1):
                self.watcher.begin(cell, number, len(planned))
                run = self._run_one(run_id, cell, self._ready.of(cell))
                self.watcher.end(cell, run)
                if run.status == "interrupted":
                    raise KeyboardInterrupt
        finally:
            shutil.rmtree(self.folder / "weights", ignore_errors=True)

    def _check_parity(self, cells: Sequence[Cell]) -> None:
        for listed, ready in self._ready.by_device(cells).values():
            refused = in_study.record(self.folder, listed, ready, self.options.verify, self.watcher.say)
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
        folder = Path("runs") / f"{run_id:05d}-{file_name(cell.label)}"
        log = str(folder / "log.txt")
        try:
            with EpochKeeper(self.store.path, run_id) as keeper:
                run = self._launch(cell, folder, environment, keeper)
        except KeyboardInterrupt:  # before the worker was there, or a second one
            self.store.interrupt(run_id, Run("interrupted", "stopped by the user", log_path=log))
            raise
        trace = _trace_path(self.folder, folder) if run.profile else None
        run = dataclasses.replace(
            run, log_path=log, trace_path=trace, parameters=self._parameters(cell), warnings=_warnings(cell, run)
        )
        self.store.record(run_id, run)
        store_figures(self.store, run_id, run)
        return run

    def _launch(self, cell: Cell, folder: Path, environment: Environment, keeper: EpochKeeper) -> Run:
        framework = registry.framework(cell.framework)
        job = {
            "config": cell.config.to_dict(),
            "trainer": staging.trainer_target(framework),
            "graph": build_graph(cell.model, cell.config).to_dict(),
            "pictures": str(pictures_path(self.folder, cell.dataset)),
            "weights": str(self._weights(cell)),
            "profile": self.options.profile,
        }
        what = Launch(
            python=environment.python,
            source=staging.stage(framework),
            folder=self.folder / folder,
            job=job,
            device=cell.device,
            managed=environment.managed,
            hz=self.options.hz,
            limits=self.options.limits,
            disturbance_threshold=self.options.disturbance_threshold,
        )
        return launch(what, lambda event: self.watcher.event(cell, event), keeper.take)

    def _weights(self, cell: Cell) -> Path:
        """File of the initial weights, float32, all frameworks' the same; made on first use, gone after the study."""
        graph = build_graph(cell.model, cell.config)
        name = f"{graph.name}-{graph.num_classes}-{graph.image_size}-{cell.config.seed}.npy"
        path = self.folder / "weights" / name
        if not path.exists():
            half = path.with_suffix(".half")
            with schema.told(half):
                path.parent.mkdir(exist_ok=True)
                flat = np.lib.format.open_memmap(half, mode="w+", dtype=np.float32, shape=(weights_size(graph),))
                _reserve(half)
                initial_weights(graph, cell.config.seed, flat)
                flat.flush()
                half.rename(path)
        return path

    def _parameters(self, cell: Cell) -> int:
        return build_graph(cell.model, cell.config).parameter_count()


def _warnings(cell: Cell, run: Run) -> Tuple[str, ...]:
    """Those of a run, and what its settings make of its figures."""
    config = cell.config
    least = registry.framework(cell.framework).whole_batches_from
    batches = config.pipeline == "native" and 0 < least <= config.loader_workers
    remark = idle_workers(config.loader_workers, run.epochs[0].steps) if batches and run.epochs else ""
    return (*run.warnings, remark) if remark else run.warnings


def _trace_path(study: Path, run: Path) -> Optional[str]:
    """What a profiler wrote in the folder of a run: the file for Perfetto, else all of it; relative to the study."""
    folder = run / "profile"
    names = (folder / "trace.json.gz", folder / "trace.json", folder)
    return next((str(path) for path in names if (study / path).exists()), None)


def _reserve(path: Path) -> None:
    """Have the disk hold the whole of a sparse file: to write a mapping that a full disk has no room for is fatal."""
    with open(path, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, file.seek(0, os.SEEK_END))
