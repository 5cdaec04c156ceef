"""What a framework's own adapter says of a device: a worker imports the framework, and trains nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

from framework_compare.errors import UsageError
from framework_compare.launch.jobs import Interpreter, run_job
from framework_compare.launch.limits import Limits
from framework_compare.protocol import Job, TrainConfig
from framework_compare.records import Run
from framework_compare.registry import Framework


def ask_support(framework: Framework, environment: Interpreter, device: str, *, timeout_s: float) -> Run:
    """How a worker ends that only asks `Trainer.unsupported()` of default settings: `ok` where a cell could start.

    Takes as long as the import, seconds. Never raises for what the worker does, nor where it cannot be started.
    """
    job = Job(TrainConfig(device=device, epochs=0), kind="verify")
    try:
        with tempfile.TemporaryDirectory() as folder:
            return run_job(framework, environment, job, Path(folder) / "asked", limits=Limits(timeout_s=timeout_s))
    except (OSError, UsageError) as error:
        return Run("failed", f"no worker can be started: {error}")
