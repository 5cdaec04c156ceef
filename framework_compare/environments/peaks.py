"""What this machine can do, known from an earlier measurement or measured now: by numpy, or by PyTorch's environment."""

import importlib
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.errors import UsageError
from framework_compare.json_types import JSON
from framework_compare.paths import cache_dir, file_name
from framework_compare.protocol import Document
from framework_compare.samplers import host, peaks
from framework_compare.samplers.peaks import Peak

FRAMEWORK = "torch"
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
SAME_MACHINE = ("cpu", "available_cores")


class Request(NamedTuple):
    """Whose peak: of a study's machine, on a device, in a precision, with so many threads."""

    machine: Document
    device: str
    precision: str
    threads: int


def known(request: Request) -> Peak | None:
    """The peak that was measured on this machine; None where none was, or for another machine's study."""
    try:
        return peaks.read(_source(request)[0])
    except UsageError:
        return None


def measure(request: Request) -> Peak | None:
    """The peak as it is now, which is kept in the cache; None where measuring fails or takes too long.

    UsageError where it cannot be measured here: for another machine's study, or a device or precision without a way to.
    """
    path, command = _source(request)
    return peaks.measure(path, command, request.threads)


def _source(request: Request) -> tuple[Path, tuple[str, ...]]:
    """The file that keeps a peak, and the command that measures it: numpy's for float32 on a CPU, else PyTorch's."""
    here, kind = host.describe(), registry.device_kind(request.device)
    same = SAME_MACHINE if kind == "cpu" else (*SAME_MACHINE, "gpus")
    if any(_named(request.machine.get(name)) != _named(here[name]) for name in same):
        raise UsageError(
            f"the study ran on {request.machine.get('cpu')}, {request.machine.get('available_cores')} cores, which is not this"
            " machine; measure its peaks there"
        )
    if request.device == "cpu" and request.precision == "fp32":
        path = _file(here["cpu"], request.threads, f"numpy-{np.__version__}")
        return path, (sys.executable, _program(), "numpy", "cpu", "fp32", str(request.threads))
    if request.precision not in PRECISIONS or request.device not in (kind, f"{kind}:0") or kind not in ("cpu", "cuda"):
        raise UsageError(
            f"peaks of {request.device} in {request.precision} are not measured; allowed: cpu or cuda, and"
            f" {', '.join(PRECISIONS)}"
        )
    there = managed.find(FRAMEWORK, device=kind)
    if there is None:
        raise UsageError(
            f"peaks of {request.device} in {request.precision} need PyTorch, which is not installed; run"
            f" `framework-compare env create {FRAMEWORK} --device {kind}`"
        )
    where = here["cpu"] if kind == "cpu" else "-".join(_named(here["gpus"]))
    path = _file(where, request.threads, f"{kind}-{request.precision}-{FRAMEWORK}-{there.version}")
    return path, (str(there.python), "-I", _program(), FRAMEWORK, kind, request.precision, str(request.threads))


def _file(where: object, threads: int, tool: str) -> Path:
    return cache_dir() / "peaks" / f"{file_name(str(where))}-{threads}-{tool}.json"


def _program() -> str:
    """The file that measures, where the package has it: in a checkout beside the package, installed within it."""
    return f"{importlib.import_module('framework_compare.adapters').__path__[0]}/torch/peaks.py"


def _named(fact: JSON) -> JSON:
    """GPUs by their names: their clocks and limits may differ from day to day."""
    return [str(one.get("name")) for one in fact] if isinstance(fact, list) else fact
