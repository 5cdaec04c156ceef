"""One job in one worker of a framework's environment: what all callers that start workers share."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Protocol

from framework_compare.errors import UsageError
from framework_compare.launch import staging
from framework_compare.launch.disturbances import THRESHOLD
from framework_compare.launch.launcher import WorkerSpec, run_worker
from framework_compare.launch.limits import Limits
from framework_compare.protocol import Job, TrainConfig, devices_of
from framework_compare.records import Run
from framework_compare.registry import Framework


class Interpreter(Protocol):
    """The part of an Environment that a worker needs."""

    @property
    def python(self) -> Path: ...

    @property
    def managed(self) -> bool:
        """Return whether we made it; then it is kept from the user's site-packages."""


def run_job(
    framework: Framework, environment: Interpreter, job: Job, folder: Path, *, limits: Limits = Limits()
) -> Run:
    """Return how a worker ends that does a job in its own folder, unsampled; KeyboardInterrupt where the user stops it."""
    run = run_worker(spec_of(framework, environment, job, folder, limits, hz=0.0))
    if run.status == "interrupted":
        raise KeyboardInterrupt
    return run


def spec_of(
    framework: Framework,
    environment: Interpreter,
    job: Job,
    folder: Path,
    limits: Limits,
    hz: float,
    disturbance_threshold: float = THRESHOLD,
) -> WorkerSpec:
    """All that a worker of this framework needs for a job."""
    return WorkerSpec(
        python=environment.python,
        source=staging.stage(framework),
        folder=folder,
        job=dataclasses.replace(job, trainer=staging.trainer_target(framework)),
        ranks=len(devices_of(job.config.device)) if framework.process_per_device else 1,
        managed=environment.managed,
        hz=hz,
        limits=limits,
        disturbance_threshold=disturbance_threshold,
    )


def ask_support(framework: Framework, environment: Interpreter, device: str, *, timeout_s: float) -> Run:
    """Return how a worker ends that only asks `Trainer.unsupported()` of default settings: `ok` where a cell could start.

    Takes as long as the import, seconds. Never raises for what the worker does, nor where it cannot be started.
    """
    job = Job(TrainConfig(device=device, epochs=0), kind="verify")
    try:
        with tempfile.TemporaryDirectory() as folder:
            return run_job(framework, environment, job, Path(folder) / "asked", limits=Limits(timeout_s=timeout_s))
    except (OSError, UsageError) as error:
        return Run("failed", f"no worker can be started: {error}")
