"""What a framework's own adapter says of a device: a worker imports the framework, and trains nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Dict

from framework_compare.errors import UsageError
from framework_compare.launch import staging
from framework_compare.launch.launcher import Launch, launch
from framework_compare.launch.limits import Limits
from framework_compare.protocol import TrainConfig
from framework_compare.records import Run
from framework_compare.registry import Framework


def ask(spec: Framework, python: Path, device: str, *, managed: bool, timeout_s: float) -> Run:
    """How a worker ends that only asks `Trainer.unsupported()` of default settings: `ok` where a cell could start.

    Takes as long as the import, seconds. Never raises for what the worker does, nor where it cannot be started.
    """
    try:
        job = _job(spec, device)
        with tempfile.TemporaryDirectory() as folder:
            run = launch(
                Launch(
                    python=python,
                    source=staging.stage(spec),
                    folder=Path(folder) / "asked",
                    job=job,
                    device=device,
                    managed=managed,
                    hz=0,
                    limits=Limits(timeout_s=timeout_s),
                )
            )
    except (OSError, UsageError) as error:
        return Run("failed", f"no worker can be started: {error}")
    if run.status == "interrupted":
        raise KeyboardInterrupt
    return run


def _job(spec: Framework, device: str) -> Dict[str, Any]:
    config = TrainConfig(device=device, epochs=0)
    return {"kind": "verify", "config": config.to_dict(), "trainer": staging.trainer_target(spec), "tasks": []}
