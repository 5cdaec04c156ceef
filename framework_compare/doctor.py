"""Find what this machine can run: each framework's environment, why not and what to do, and the machine itself."""

import dataclasses
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from framework_compare import registry
from framework_compare.environments import gpu_builds, managed, venvs
from framework_compare.environments.interpreters import Unavailable
from framework_compare.environments.managed import Environment
from framework_compare.environments.support import lack
from framework_compare.launch.jobs import ask_support
from framework_compare.launch.supervised_worker import signal_name
from framework_compare.paths import cache_dir
from framework_compare.protocol import PRECISIONS
from framework_compare.records import Run
from framework_compare.samplers import host
from framework_compare.samplers.host import available_cores
from framework_compare.samplers.nvml import describe_gpus
from framework_compare.worker.refusal import untested

STATES = ("ready", "not made yet", "broken", "no interpreter", "external", "unsupported")
_IMPORT_TIMEOUT_S = 120


@dataclasses.dataclass(frozen=True)
class FrameworkCheck:
    """One framework on one device: whether a cell of it could start at once, if not why, and what to do about it.

    `state` is one of STATES; "external" is a Python that is not ours to make, usable or not; "unsupported" says that
    its build cannot run on this device, or that there is no such device, as a cell of it would end.
    """

    framework: str
    usable: bool
    state: str
    version: str | None = None
    interpreter: str | None = None
    python: Path | None = None
    size_bytes: int | None = None
    why: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()
    device: str = "cpu"

    @property
    def made_at_first_use(self) -> bool:
        """Return whether nothing is missing but an environment, which the next use makes."""
        return self.state == "not made yet"


class Interpreter(NamedTuple):
    """A Python to ask, ours or the user's."""

    python: Path
    managed: bool


@dataclasses.dataclass(frozen=True)
class Machine:
    """Facts of this machine that affect speed. `gpus` is None where NVML cannot be asked: no NVIDIA driver."""

    cores: int  # that a run may use: see host.available_cores
    ram_bytes: int
    cache: Path
    cache_free_bytes: int
    gpus: tuple[str, ...] | None
    governor: str | None = None  # of the first core's clock; None where the system does not say
    turbo: bool | None = None  # whether clocks may rise above the nominal one
    swap_used_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    machine: Machine
    frameworks: tuple[FrameworkCheck, ...]


def examine(
    frameworks: Sequence[str] | None = None,
    *,
    pythons: Mapping[str, str | Path] | None = None,
    deep: bool = False,
    devices: Sequence[str] = ("cpu",),
) -> Diagnosis:
    """Check frameworks, all by default, on every one of `devices`, without making an environment; well under a second each.

    `pythons` names a user's own interpreter for a framework. What its build can do on a GPU only the framework can
    tell, so that is asked as `deep` asks it of every usable one: a worker imports the framework, and its adapter says
    what it lacks (seconds each, four minutes at most).
    """
    if frameworks is None:
        registry.load_plugins()
    specs = [registry.framework(name) for name in (registry.FRAMEWORKS if frameworks is None else frameworks)]
    chosen = {registry.framework(name).name: python for name, python in (pythons or {}).items()}
    checks = [check(spec, python=chosen.get(spec.name), device=on, deep=deep) for spec in specs for on in devices]
    return Diagnosis(machine(), tuple(checks))


def check(
    spec: registry.Framework, *, python: str | Path | None = None, device: str = "cpu", deep: bool = False
) -> FrameworkCheck:
    """One framework on one device; `python` is a user's own interpreter, `deep` as in `examine`."""
    result = _check(spec, python, device)
    result = dataclasses.replace(result, device=device, notes=(*result.notes, *_untested(spec, device)))
    if not result.usable:
        return result
    external = result.state == "external"
    missing = gpu_builds.lack("", device) if external and not deep else None
    if missing:
        return dataclasses.replace(result, usable=False, state="unsupported", why=missing.why, remedy=missing.remedy)
    return _ask_too(result, spec) if deep or (external and device != "cpu") else result


def _untested(spec: registry.Framework, device: str) -> tuple[str, ...]:
    """Precisions that the adapter declares and nobody has run; of an adapter that is a file only its worker knows."""
    if "/" in spec.trainer or ".py:" in spec.trainer:
        return ()
    try:
        remark = untested(registry.load(spec.trainer).declared, device, PRECISIONS)  # type: ignore[attr-defined]
    except (ImportError, AttributeError):  # its worker says so
        return ()
    return (remark,) if remark else ()


def _check(spec: registry.Framework, python: str | Path | None, device: str) -> FrameworkCheck:
    if managed.is_given(spec, python):
        return _check_given(spec, python)
    lacking = lack(spec.name, device)
    if lacking:
        return FrameworkCheck(spec.name, False, "unsupported", why=lacking.why, remedy=lacking.remedy)
    try:
        plan = managed.plan_for(spec.name, device)
    except Unavailable as error:
        state = "not made yet" if isinstance(error, managed.NotResolved) else "no interpreter"
        return FrameworkCheck(spec.name, False, state, why=error.why, remedy=error.remedy)
    why = venvs.fault(plan)
    if not why:
        return _usable(spec, "ready", managed.read(plan.folder))
    state = "broken" if plan.folder.exists() else "not made yet"
    done = "repaired on next use" if state == "broken" else "installed on first use"
    remedy = f"it is {done}, or now by `framework-compare env create {spec.name}{_options(plan)}`"
    interpreter, python_path = plan.interpreter.version, plan.interpreter.path
    return FrameworkCheck(
        spec.name, False, state, interpreter=interpreter, python=python_path, why=why, remedy=remedy
    )  # fmt: skip


def _options(plan: venvs.Plan) -> str:
    """The options that `env create` needs beside the framework's name."""
    if plan.device == "cpu":
        return ""
    index = f" --index {plan.framework}={plan.elsewhere}" if plan.elsewhere else ""
    return f" --device {plan.device}{index}"


def _ask_too(one: FrameworkCheck, spec: registry.Framework) -> FrameworkCheck:
    """The check of a usable framework after a worker imported it and its adapter reported what it does not support."""
    if one.python is None:
        return one
    interpreter = Interpreter(one.python, one.state == "ready")
    run = ask_support(spec, interpreter, one.device, timeout_s=_IMPORT_TIMEOUT_S)
    if run.status == "ok":
        return one
    if run.status == "unsupported":
        remedy = f"run `framework-compare env create {spec.name}`" if spec.foreign else venvs.remedy_without_build(spec)
        return dataclasses.replace(one, usable=False, state="unsupported", why=run.reason, remedy=remedy)
    state = one.state if one.state == "external" else "broken"
    why, remedy = _failure(one, spec, run)
    if state == "broken":
        remedy += f"; if a package is damaged, `framework-compare env remove {spec.name}`; the next use makes it again"
    return dataclasses.replace(one, usable=False, state=state, why=why, remedy=remedy)


def _failure(one: FrameworkCheck, spec: registry.Framework, run: Run) -> tuple[str, str]:
    """Return why a worker did not get as far as to be asked, and what to do."""
    why = _import_failure(one.python, spec.imports) if one.python and spec.imports and not spec.foreign else ""
    if why:
        return f"import {spec.imports} failed: {why}", f"see what `{one.python} -c 'import {spec.imports}'` prints"
    return f"its adapter does not start there: {run.status}: {run.reason}", "run one of its cells and read the log"


def devices_here() -> tuple[str, ...]:
    """The CPU, and "cuda" if NVML counts a GPU."""
    nvidia = describe_gpus()
    return ("cpu", "cuda") if nvidia and nvidia["devices"] else ("cpu",)


def machine() -> Machine:
    """Cores, memory, disk and GPUs, now."""
    cache = cache_dir()
    nearest = next(folder for folder in (cache, *cache.parents) if folder.exists())
    nvidia = describe_gpus()
    gpus = None if nvidia is None else tuple(str(device["name"] or "unnamed GPU") for device in nvidia["devices"])
    return Machine(
        available_cores(),
        psutil.virtual_memory().total,
        cache,
        shutil.disk_usage(nearest).free,
        gpus,
        host.governor(),
        host.turbo(),
        psutil.swap_memory().used,
    )


def _check_given(spec: registry.Framework, python: str | Path | None) -> FrameworkCheck:
    try:
        return _usable(spec, "external", managed.ensure(spec.name, python=python))
    except Unavailable as error:
        path = Path(python) if python is not None else None
        return FrameworkCheck(spec.name, False, "external", python=path, why=error.why, remedy=error.remedy)


def _usable(spec: registry.Framework, state: str, environment: Environment) -> FrameworkCheck:
    """The check of a framework that can run; another one may have made its environment, which they share."""
    return FrameworkCheck(
        spec.name, True, state, environment.version, environment.interpreter, environment.python,
        environment.size_bytes, notes=(*registry.labels([spec.name]), *environment.notes),
    )  # fmt: skip


def _import_failure(python: Path, module: str) -> str:
    """The last line an import of `module` printed before it failed, empty if it went well."""
    try:
        with tempfile.TemporaryDirectory() as empty:  # an import looks into the current folder first
            answer = subprocess.run(
                [str(python), "-c", f"import {module}"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=_IMPORT_TIMEOUT_S, cwd=empty, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it took longer than {_IMPORT_TIMEOUT_S} s"
    except OSError as error:
        return f"{python} does not start ({error.strerror})"
    if answer.returncode < 0:
        return f"its process was killed by {signal_name(-answer.returncode)}"
    lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
    return lines[-1] if answer.returncode else ""
