"""Workers that answer the ladder's questions: one is started for a list of tasks, and what it wrote is read."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, Sequence

from framework_compare import registry
from framework_compare.environments.managed import Environment
from framework_compare.launch.jobs import run_job
from framework_compare.launch.limits import Limits
from framework_compare.protocol import Document, Fields, Job, TrainConfig
from framework_compare.records import Run
from framework_compare.worker.parity_answers import ANSWERS

WORKER_TIMEOUT_S = 900.0
SAMPLE_TIMEOUT_S = 5.0  # more for each sample of the cell's batch


@dataclasses.dataclass(frozen=True)
class RunTasks:
    """Starts a worker of one framework that answers tasks."""

    folder: Path
    framework: str
    config: TrainConfig
    environment: Environment
    kind: str = "verify"  # of the job: who answers in the worker

    def __call__(self, tasks: Sequence[Fields], name: str, **changed: Any) -> tuple[Run, Fields, Path]:
        """The run, its small answers, and the folder of its arrays; `changed` are fields of the config."""
        entry = registry.framework(self.framework)
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        config = dataclasses.replace(self.config, **{"epochs": 0, **changed})
        job = Job(config, kind=self.kind, tasks=tuple(tasks))
        limits = Limits(timeout_s=WORKER_TIMEOUT_S + SAMPLE_TIMEOUT_S * config.batch_size)
        run = run_job(entry, self.environment, job, folder, limits=limits)
        said = _read(folder / ANSWERS)
        ranks = {path.parent.name: _read(path) for path in sorted(folder.glob(f"rank-*/{ANSWERS}"))}
        return run, {name: _together(answer, name, ranks) for name, answer in said.items()}, folder


def _read(answers: Path) -> Fields:
    return json.loads(answers.read_text(encoding="utf-8")) if answers.exists() else {}


def _together(answer: Fields, name: str, ranks: Document) -> Fields:
    """Rank 0's answer with the error that another rank had, or losses that are the means of all ranks'."""
    others = {rank: said.get(name, {"error": "it ended before it was asked"}) for rank, said in ranks.items()}
    for rank, other in others.items():
        if "error" in other:
            return {"error": f"{rank}: {other['error']}"}
    losses = [each["losses"] for each in (answer, *others.values()) if "losses" in each]
    return {**answer, "losses": [sum(each) / len(each) for each in zip(*losses)]} if others and losses else answer
