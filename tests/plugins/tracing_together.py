"""Many models traced by one process of an environment: what a worker does for each, without its start."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, Mapping, Sequence

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.errors import UsageError
from framework_compare.importing.sources import Source
from framework_compare.importing.tracing import Traced, read_answer
from framework_compare.launch import staging
from framework_compare.launch.worker_environment import worker_environment
from framework_compare.protocol import Job, TrainConfig

SCRIPT = """
import importlib, json, os, sys

source, target, tasks = sys.argv[1:]
sys.path.insert(0, source)
from framework_compare.errors import FrameworkCompareError
from framework_compare.protocol import Job

with open(tasks) as file:
    jobs = json.load(file)
place, _, name = target.partition(":")
trainer = getattr(importlib.import_module(place), name)
reasons = {}
for folder, job in jobs.items():
    os.makedirs(folder)
    os.chdir(folder)
    job = Job.from_dict(job)
    os.environ.update(trainer.environment(job.config))
    try:
        trainer.trace(job)
        reasons[folder] = ""
    except FrameworkCompareError as error:
        reasons[folder] = str(error)
    except Exception as error:
        reasons[folder] = f"{type(error).__name__}: {error}"
with open(tasks, "w") as file:
    json.dump(reasons, file)
"""


def trace_all(framework: str, folder: Path, tasks: Mapping[str, Mapping[str, Any]]) -> Dict[str, str]:
    """Why each task was refused, "" where it was not; what it wrote is in a folder of its name."""
    spec = registry.IMPORTERS[framework]
    jobs = {
        str(folder / name): Job(TrainConfig(epochs=0, threads=1), "trace", tasks=(task,))
        for name, task in tasks.items()
    }
    path, script = folder / "jobs.json", folder / "trace_all.py"
    path.write_text(json.dumps({name: job.to_dict() for name, job in jobs.items()}))
    script.write_text(SCRIPT)
    target = staging.trainer_target(spec)
    command = [str(managed.ensure(framework).python), str(script), str(staging.stage(spec)), target, str(path)]
    environment = worker_environment(managed=True, temporary=folder)
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return {os.path.basename(name): reason for name, reason in json.loads(path.read_text()).items()}


class Answers:
    """A Tracer whose models have been traced: each by the last of the workers that did not refuse it."""

    def __init__(self) -> None:
        self._reasons: Dict[str, str] = {}
        self._folders: Dict[str, Path] = {}

    def trace(self, framework: str, folder: Path, tasks: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
        """The names that were not refused."""
        folder.mkdir()
        self._reasons.update(trace_all(framework, folder, tasks))
        self._folders.update({name: folder / name for name in tasks})
        return [name for name in tasks if not self._reasons[name]]

    def __call__(self, source: Source, sizes: Sequence[int]) -> Traced:
        name = next(name for name in self._folders if source.text.endswith((f"/{name}", f"/{name}.onnx", f":{name}")))
        if self._reasons[name]:
            raise UsageError(f"{source.text}: {self._reasons[name]}")
        return read_answer(self._folders[name], "its own")
