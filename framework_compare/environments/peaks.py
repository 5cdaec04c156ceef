"""Peaks of this machine, known from an earlier measurement or measured now: by numpy, or by PyTorch's environment.

A process of its own prints a peak, and the load meanwhile is kept with it: a busy machine may give too low a peak. BLAS
starts there with the threads of the cells that are compared with the peak.
"""

import contextlib
import datetime
import importlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.errors import UsageError
from framework_compare.json_types import JSON
from framework_compare.paths import cache_dir, file_name
from framework_compare.protocol import Document
from framework_compare.samplers import host
from framework_compare.samplers.disturbance import CoreCounter

FRAMEWORK = "torch"
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
SAME_MACHINE = ("cpu", "available_cores")
POOLS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
TIMEOUT_S = 120


class Peak(NamedTuple):
    """The fastest that a machine computes and copies, as measured."""

    flop_per_s: float  # a multiplication and an addition are two
    bytes_per_s: float  # read and written
    others: float | None = None  # what others took of a core meanwhile; None where the system does not tell
    measured_at: str = ""  # UTC


class Request(NamedTuple):
    """Request for the peak of a study's machine, on a device, in a precision, with a number of threads."""

    machine: Document
    device: str
    precision: str
    threads: int


def known(request: Request) -> Peak | None:
    """The peak that was measured on this machine; None where none was, or for another machine's study."""
    try:
        return _read(_source(request)[0])
    except UsageError:
        return None


def measure(request: Request) -> Peak | None:
    """The peak as it is now, which is kept in the cache; None where measuring fails or takes too long.

    UsageError where it cannot be measured here: for another machine's study, or a device or precision without a way to.
    """
    path, command = _source(request)
    return _measured(path, command, request.threads)


def _read(path: Path) -> Peak | None:
    """The peak in a file; None without one that says when it was measured."""
    try:
        peak = Peak(**json.loads(path.read_text(encoding="utf-8")))
        return peak if min(peak[:2]) > 0 and peak.measured_at else None
    except (OSError, ValueError, TypeError):
        return None


def _measured(path: Path, command: Sequence[str], threads: int) -> Peak | None:
    """Return the peak a command prints, with the load meanwhile, and keep it; None if it fails or takes too long."""
    environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
    before = _others()
    try:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", timeout=TIMEOUT_S)
        found = json.loads(done.stdout)
        peak = Peak(found["flop_per_s"], found["bytes_per_s"], _share(before, _others()), now)
    except (OSError, ValueError, TypeError, KeyError, subprocess.TimeoutExpired):
        return None
    with contextlib.suppress(OSError):  # a peak that cannot be kept is measured again
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(peak._asdict()), encoding="utf-8")
    return peak


def _others() -> tuple[int, int] | None:
    """The time and the CPU time of all but this process and its children that have ended, in nanoseconds."""
    try:
        with contextlib.closing(CoreCounter()) as counter:
            children = resource.getrusage(resource.RUSAGE_CHILDREN)
            _, found = counter.counters(int(1e9 * (children.ru_utime + children.ru_stime)))
            return found.t_ns, found.others_ns + found.stolen_ns
    except (OSError, ValueError):
        return None


def _share(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    return max(0.0, (after[1] - before[1]) / (after[0] - before[0])) if before and after else None


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
