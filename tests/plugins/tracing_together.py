"""Many models traced by one process of an environment: what a worker does for each, without its start."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.errors import UsageError
from framework_compare.graph.imported_model import Asked
from framework_compare.importing.tracing import Tracer
from framework_compare.launch import staging
from framework_compare.launch.staging import worker_environment
from framework_compare.protocol import Job, TrainConfig

SERVER = """
import importlib, json, os, sys

source, target, answers = sys.argv[1:]
sys.path.insert(0, source)
from framework_compare.errors import FrameworkCompareError
from framework_compare.protocol import Job

place, _, name = target.partition(":")
trainer = getattr(importlib.import_module(place), name)
for line in sys.stdin:
    folder, job = json.loads(line)
    os.makedirs(folder)
    os.chdir(folder)
    job, reason = Job.from_dict(job), ""
    os.environ.update(trainer.environment(job.config))
    try:
        trainer.trace(job)
    except FrameworkCompareError as error:
        reason = str(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    os.chdir("/")
    os.write(int(answers), json.dumps(reason).encode() + b"\\n")
"""
MARK = "opened"  # a file that code within a model's file leaves where it runs


class Workers:
    """A process for each framework or reader, started when it is first asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: Dict[str, Any] = {}

    def run(self, tracer: Tracer, name: str, task: Mapping[str, Any], folder: Path) -> str:
        """In place of `Tracer._run`; an AssertionError where code of a file has run that must not."""
        text = task["source"]["text"]
        tracer.say(f"{text} is traced in {name}'s environment, {Asked.from_dict(task).words}")
        if name not in self._running:
            self._running[name] = self._started(name)
        process, answers = self._running[name]
        job = Job(TrainConfig(epochs=0, threads=1), "trace", tasks=(task,))
        process.stdin.write(json.dumps([str(folder), job.to_dict()]) + "\n")
        process.stdin.flush()
        line = answers.readline()
        assert line, f"{name}'s process ended: {self._log(name).read_text(errors='replace')[-3000:]}"
        assert not (folder / MARK).exists(), f"code of {text} has run"
        if reason := " ".join(json.loads(line).split()):
            raise UsageError(f"{text}: {reason}")
        return f"{name} {managed.ensure(name).version}"

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _started(self, name: str) -> "List[Any]":
        spec = registry.IMPORTERS[name]
        script, (answered, answers) = self._folder / "server.py", os.pipe()
        script.write_text(SERVER)
        command = [managed.ensure(name).python, script, staging.stage(spec), staging.trainer_target(spec), answers]
        with open(self._log(name), "wb") as log:
            process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.PIPE, stdout=log, stderr=log, text=True,
                env=worker_environment(managed=True, temporary=self._folder), pass_fds=[answers],
            )  # fmt: skip
        os.close(answers)
        return [process, os.fdopen(answered)]

    def close(self) -> None:
        for process, answers in self._running.values():
            process.stdin.close()
            process.wait()
            answers.close()
