"""Runs what a study has planned: environments first, then one worker at a time, every end of it recorded."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Union

import numpy as np

from framework_compare import environments, registry, staging
from framework_compare.environments import Environment
from framework_compare.errors import EnvironmentUnavailable
from framework_compare.graph import initial_weights, weights_size
from framework_compare.launcher import Launch, Limits, launch
from framework_compare.planning import Plan, build_graph
from framework_compare.progress import Watcher
from framework_compare.records import Cell, Run
from framework_compare.store import Store


@dataclasses.dataclass(frozen=True)
class HowToRun:
    """What does not change a cell's figures, only how it is got to run."""

    python: Mapping[str, str] = dataclasses.field(default_factory=dict)  # framework -> interpreter of the user's own
    index: Mapping[str, str] = dataclasses.field(default_factory=dict)  # framework -> extra package index
    installer: str = "pip"
    timeout_s: Optional[float] = None
    hz: float = 10.0


class Study:
    """A store being filled: run() does all that is still planned in it."""

    def __init__(self, store: Store, how: HowToRun, watcher: Watcher) -> None:
        self.store = store
        self.folder = store.folder
        self.how = how
        self.watcher = watcher

    def run(self) -> None:
        """Run every planned run in turn; a KeyboardInterrupt is recorded with the run it hit, then raised again."""
        planned = self.store.plan()
        ready = self._prepare_environments(dict.fromkeys(cell.framework for _, cell, _ in planned))
        warm_page_cache(self.folder)
        try:
            for number, (run_id, cell, repeat) in enumerate(planned, start=1):
                self.watcher.begin(cell, number, len(planned))
                run = self._run_one(run_id, cell, repeat, ready[cell.framework])
                self.watcher.end(cell, run)
        finally:
            shutil.rmtree(self.folder / "weights", ignore_errors=True)

    def _prepare_environments(self, frameworks: Mapping[str, Any]) -> Dict[str, Union[Environment, str]]:
        """Of each framework its environment, or why there is none."""
        ready: Dict[str, Union[Environment, str]] = {}
        for name in frameworks:
            try:
                ready[name] = environments.ensure(
                    name,
                    python=self.how.python.get(name),
                    installer=self.how.installer,
                    index=self.how.index.get(name),
                    report=self.watcher.say,
                )
            except EnvironmentUnavailable as error:
                ready[name] = str(error)
                self.watcher.say(str(error))
            else:
                self.store.environment(name, _describe(ready[name]))
        return ready

    def _run_one(self, run_id: int, cell: Cell, repeat: int, environment: Union[Environment, str]) -> Run:
        if isinstance(environment, str):
            run = Run("not-installed", environment)
            self.store.record(run_id, run)
            return run
        self.store.begin(run_id)
        folder = Path("runs") / f"{run_id:05d}-{_file_name(cell.label)}"
        try:
            run = self._launch(cell, folder, environment)
        except KeyboardInterrupt:
            self.store.record(run_id, Run("interrupted", "stopped by the user", log_path=str(folder / "log.txt")))
            raise
        run = dataclasses.replace(run, log_path=str(folder / "log.txt"), parameters=self._parameters(cell))
        self.store.record(run_id, run)
        return run

    def _launch(self, cell: Cell, folder: Path, environment: Environment) -> Run:
        framework = registry.framework(cell.framework)
        job = {
            "config": cell.config.to_dict(),
            "trainer": staging.trainer_target(framework),
            "graph": build_graph(cell.model, cell.config).to_dict(),
            "pictures": str(pictures_path(self.folder, cell.dataset)),
            "weights": str(self._weights(cell)),
        }
        what = Launch(
            python=environment.python,
            source=staging.stage(framework),
            folder=self.folder / folder,
            job=job,
            device=cell.device,
            managed=environment.managed,
            hz=self.how.hz,
            limits=Limits(timeout_s=self.how.timeout_s),
        )
        return launch(what, lambda event: self.watcher.event(cell, event))

    def _weights(self, cell: Cell) -> Path:
        """File of the initial weights, float32, all frameworks' the same; made on first use, gone after the study."""
        graph = build_graph(cell.model, cell.config)
        name = f"{graph.name}-{graph.num_classes}-{graph.image_size}-{cell.config.seed}.npy"
        path = self.folder / "weights" / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            flat = np.lib.format.open_memmap(
                path.with_suffix(".half"), mode="w+", dtype=np.float32, shape=(weights_size(graph),)
            )
            initial_weights(graph, cell.config.seed, flat)
            flat.flush()
            path.with_suffix(".half").rename(path)
        return path

    def _parameters(self, cell: Cell) -> int:
        return build_graph(cell.model, cell.config).parameter_count()


def write_pictures(folder: Path, plan: Plan) -> None:
    """The picture lists of a study, where its workers and a later resume find them."""
    for name, index in plan.datasets.items():
        path = pictures_path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(index.pictures)), encoding="utf-8")


def pictures_path(folder: Path, dataset: str) -> Path:
    return folder / "pictures" / f"{_file_name(dataset)}.json"


def warm_page_cache(folder: Path) -> None:
    """Read every picture once, so that the first framework does not pay the disk for the others."""
    for listing in sorted((folder / "pictures").glob("*.json")):
        for path in json.loads(listing.read_text(encoding="utf-8"))["paths"]:
            with open(path, "rb") as file:
                while file.read(1 << 20):
                    pass


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:80]


def _describe(environment: Environment) -> Dict[str, Any]:
    return {
        "version": environment.version,
        "interpreter": environment.interpreter,
        "managed": environment.managed,
        "packages": dict(environment.packages),
        "requirements_checksum": environment.requirements_checksum,
        "notes": list(environment.notes),
    }
