"""Workers that answer the ladder's questions: one is started for a list of tasks, and what it wrote is read."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, Dict, Sequence, Tuple

from framework_compare import registry
from framework_compare.environments.managed import Environment
from framework_compare.launch import staging
from framework_compare.launch.launcher import Launch, launch
from framework_compare.launch.limits import Limits
from framework_compare.protocol import TrainConfig
from framework_compare.records import Run
from framework_compare.worker.parity_answers import ANSWERS

WORKER_TIMEOUT_S = 900.0


@dataclasses.dataclass(frozen=True)
class RunTasks:
    """Starts a worker of one framework that answers tasks."""

    folder: Path
    framework: str
    config: TrainConfig
    environment: Environment
    kind: str = "verify"  # of the job: who answers in the worker

    def __call__(
        self, tasks: Sequence[Dict[str, Any]], name: str, **changed: Any
    ) -> Tuple[Run, Dict[str, Any], Path]:
        """The run, its small answers, and the folder of its arrays; `changed` are fields of the config."""
        entry = registry.framework(self.framework)
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        job = {
            "kind": self.kind,
            "config": dataclasses.replace(self.config, **{"epochs": 0, **changed}).to_dict(),
            "trainer": staging.trainer_target(entry),
            "tasks": list(tasks),
        }
        run = launch(
            Launch(
                python=self.environment.python,
                source=staging.stage(entry),
                folder=folder,
                job=job,
                device=self.config.device,
                managed=self.environment.managed,
                hz=0,
                limits=Limits(timeout_s=WORKER_TIMEOUT_S),
            )
        )
        if run.status == "interrupted":
            raise KeyboardInterrupt
        answers = folder / ANSWERS
        said = json.loads(answers.read_text(encoding="utf-8")) if answers.exists() else {}
        return run, said, folder
