"""What this machine can do in a precision or on a device that numpy does not know: measured by PyTorch's environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Optional

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.paths import cache_dir, file_name
from framework_compare.samplers import host, peaks
from framework_compare.samplers.peaks import Peak

FRAMEWORK = "torch"
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def peak_of(machine: Mapping[str, Any], device: str, precision: str, threads: int) -> Optional[Peak]:
    """The peak for cells of a study's machine, measured where nobody has yet; None where nothing here can measure it.

    float32 on a CPU is numpy's; all else is PyTorch's, whose environment for the device must be there. A precision that
    takes too long (float16 without instructions for it) has none.
    """
    if device == "cpu" and precision == "fp32":
        return peaks.peak_of(machine, device, precision, threads)
    here = host.describe()
    kind = registry.device_kind(device)
    same = peaks.SAME_MACHINE if kind == "cpu" else (*peaks.SAME_MACHINE, "gpus")
    if precision not in PRECISIONS or kind not in ("cpu", "cuda") or device not in (kind, f"{kind}:0"):
        return None
    if any(_named(machine.get(name)) != _named(here[name]) for name in same):
        return None
    there = managed.find(FRAMEWORK, device=kind)
    if there is None:
        return None
    where = here["cpu"] if kind == "cpu" else "-".join(_named(here["gpus"]))
    name = f"{file_name(str(where))}-{threads}-{kind}-{precision}-{FRAMEWORK}-{there.version}.json"
    command = [str(there.python), "-I", str(_program()), kind, precision, str(threads)]
    return peaks.kept(cache_dir() / "peaks" / name, command, threads)


def _program() -> Path:
    """The adapter's file, where the package has it: in a checkout beside the package, installed within it."""
    from framework_compare import adapters

    return Path(adapters.__path__[0]) / FRAMEWORK / "peaks.py"


def _named(fact: Any) -> Any:
    """GPUs by their names: their clocks and limits may differ from day to day."""
    return [str(one.get("name")) for one in fact] if isinstance(fact, list) else fact
