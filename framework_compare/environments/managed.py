"""The environment of each framework: made in the cache folder from pinned requirements, reused, repaired, removed.

Several processes may ask at once. A user's own interpreter can stand in for a managed environment.
"""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import filelock
import psutil
from packaging.version import Version

from framework_compare import registry
from framework_compare.environments import externals, installer, locks, venvs
from framework_compare.environments.interpreters import Minor, Unavailable
from framework_compare.environments.uv_command import public_url
from framework_compare.environments.venvs import Environment
from framework_compare.paths import CACHE_VARIABLE, cache_dir

Report = Callable[[str], None]
USED = "last-used"  # a file of an environment's folder, whose time is that of its last use


class NotResolved(Unavailable):
    """A version has no lock here, so nobody knows yet what its environment is made from."""


def ensure(
    framework: str,
    *,
    device: str = "cpu",
    python: str | Path | None = None,
    index: str | None = None,
    report: Report | None = None,
) -> Environment:
    """The environment of a framework for a device, made or repaired first if need be (minutes and gigabytes, once).

    `python` names an interpreter of the user's own (or its environment's folder), which is checked and used as
    it is. `index` is the URL of the framework's own package index; an environment made without it is made again. Without
    one, `Framework.cpu_index` serves a CPU where no other index does; "none" leaves that out, too. `report` gets a
    sentence about everything slow. Raises EnvironmentUnavailable; UsageError for a framework that does not exist.
    """
    spec, say = registry.framework(framework), report or (lambda message: None)
    if is_given(spec, python):
        return externals.given(spec, python)
    base, version = other_version(spec.name, device)
    if version and not locks.find(locks_dir(), spec.name, device):
        waiting = f"{spec.name}: another process is resolving it; waiting"
        with _locked(locks_dir() / f"{base.name}-{version}", waiting=functools.partial(say, waiting)):
            if not locks.find(locks_dir(), spec.name, device):
                locks.make(locks_dir(), base, version, device, index, say)
    plan = plan_for(spec.name, device)
    wanted = None if index == installer.NO_INDEX else public_url(index)
    if venvs.fault(plan, index=wanted):
        waiting = f"{spec.name}: another process is creating its environment; waiting"
        with _locked(plan.folder, waiting=functools.partial(say, waiting)):
            why = venvs.fault(plan, index=wanted)  # the process waited for may have mended it
            if why:
                _make(plan, why, index, say)
    if not version:  # from now on the pinned one is to be had by its number, offline, too, whatever is pinned later
        with contextlib.suppress(OSError):  # a cache that others keep
            locks.keep(locks_dir(), base, plan.interpreter.minor, device)
    return _used(plan, spec)


def _used(plan: venvs.Plan, spec: registry.Framework) -> Environment:
    """The environment of a plan, as the competitor that may share it with another, with a note of when it was used."""
    with contextlib.suppress(OSError):  # a cache that others keep
        (plan.folder / USED).touch()
    found = read(plan.folder)
    version = found.packages.get(venvs.normal_name(spec.library)) if spec.library else found.version
    return dataclasses.replace(found, framework=spec.name, version=version)


def _make(plan: venvs.Plan, why: str, index: str | None, say: Report) -> None:
    """Make an environment, or repair a broken one (`why`); a failure leaves only the log behind."""
    name = plan.framework if plan.device == "cpu" else f"{plan.framework} for {plan.device}"
    doing = f"repairing its environment ({why})" if plan.folder.exists() else "making its environment"
    say(f"{name}: {doing} with Python {plan.interpreter.version}; output goes to {plan.log}")
    try:
        venvs.delete(plan.folder)
        used = installer.install(plan, index=index, say=say)
        venvs.write_marker(plan, public_url(used))
    except BaseException as error:
        venvs.delete(plan.folder)
        if isinstance(error, OSError):
            raise Unavailable(
                f"{name}: its environment cannot be written ({error})", "fix that and run again"
            ) from None
        raise
    say(f"{name}: its environment is ready")


def find(framework: str, *, device: str = "cpu", python: str | Path | None = None) -> Environment | None:
    """The environment `ensure` would return without making anything, else None; never waits."""
    spec = registry.framework(framework)
    try:
        if is_given(spec, python):
            return externals.given(spec, python)
        plan = plan_for(spec.name, device)
        return None if venvs.fault(plan) else _used(plan, spec)
    except Unavailable:
        return None


def installed() -> list[Environment]:
    """Every finished environment in the cache, for whatever Python or requirements; health is not checked."""
    return [read(marker.parent) for marker in sorted(_root().glob(f"*/{venvs.MARKER}")) if venvs.marker(marker.parent)]


def remove(framework: str) -> list[Path]:
    """Delete all managed environments of a framework, of every device, and their logs; returns the folders deleted.

    Of a version its lock goes, too. Other versions stay.

    Raises EnvironmentUnavailable if another process is making one of them, or runs in one.
    """
    name = registry.framework(framework).name
    base, version = locks.split(name)
    ours = re.compile(re.escape(name) + r"-[0-9a-f]{12}")
    folders = [path for path in sorted(_root().glob(f"{name}-*")) if path.is_dir() and ours.fullmatch(path.name)]
    folders += [folder for folder in _made_when_pinned(name) if folder not in folders]
    if busy := sorted({folder.resolve() for folder in folders} & in_use()):
        raise Unavailable(f"{name}: a process runs in {busy[0]}", "remove it when that has ended")
    if version:
        for lock in locks_dir().glob(f"{base}-{version}-*-cp*"):
            lock.unlink(missing_ok=True)
    for folder in folders:
        delete(folder, name)
    return folders


def _made_when_pinned(name: str) -> list[Path]:
    """Environments of a version from the time when it was the pinned one, under the name of its framework."""
    found = []
    for device in ("cpu", "cuda"):
        spec, version = other_version(name, device)
        if version and not spec.environment:  # which a framework below may share
            with contextlib.suppress(Unavailable):
                folder = plan_for(name, device).folder
                found += [folder] if venvs.marker(folder) else []
    return found


def delete(folder: Path, framework: str) -> None:
    """Delete an environment and its log. Raises EnvironmentUnavailable if another process is making it."""

    def refuse() -> None:
        raise Unavailable(
            f"{framework}'s environment is being created by another process", "remove it when that has finished"
        )

    with _locked(folder, waiting=refuse):
        venvs.delete(folder)
        venvs.log_of(folder).unlink(missing_ok=True)


def plan_for(framework: str, device: str = "cpu") -> venvs.Plan:
    """Return how a framework's managed environment for a device is made here.

    Raises EnvironmentUnavailable where nothing is pinned for the device, no Python fits, or a version has no lock yet.
    """
    spec, version = other_version(framework, device)
    if version:
        name = f"{spec.name}@{version}"
        lock = locks.find(locks_dir(), name, device)
        if lock is None:
            raise NotResolved(f"{name} is not installed here yet", f"run `framework-compare env create {name}`")
        made = venvs.plan(locks.requirements(spec, lock, name, device), _root(), device)
        pinned_then = _root() / f"{spec.environment or spec.name}-{made.checksum[:12]}"
        there = venvs.marker(pinned_then) and not made.folder.exists()
        return dataclasses.replace(made, folder=pinned_then) if there else made
    return venvs.plan(registry.framework(spec.environment) if spec.environment else spec, _root(), device)


def other_version(framework: str, device: str) -> tuple[registry.Framework, str]:
    """A framework and the version that its competitor's name carries, "" where that is the pinned one."""
    base, version = locks.split(framework)
    spec = registry.framework(base)
    return spec, "" if version == locks.pinned(spec, device) or not spec.requirements_on(device) else version


def versions_here(base: str, device: str = "cpu", python: Minor | None = None) -> list[Version]:
    """Versions of a framework whose environments are there, of any or of one Python, oldest first."""
    spec = registry.framework(base)
    pinned = locks.pinned(spec, device)
    named = {str(one): f"{spec.name}@{one}" for one in locks.known(locks_dir(), spec.name, device)}
    named.update({pinned: spec.name} if pinned else {})
    return sorted(Version(version) for version, name in named.items() if _is_there(name, device, python))


def _is_there(name: str, device: str, python: Minor | None) -> bool:
    try:
        marker = venvs.marker(plan_for(name, device).folder)
    except Unavailable:
        return False
    if marker is None or python is None:
        return marker is not None
    return bool(marker["interpreter"].split(".")[:2] == [str(part) for part in python])


def label(framework: str, device: str, python: str | Path | None = None) -> str:
    """ "torch", or "torch (cuda)" where a GPU has an environment of its own."""
    spec, kind = registry.framework(framework), registry.device_kind(device)
    same = is_given(spec, python) or spec.requirements_on(kind) == spec.requirements
    return spec.name if same else f"{spec.name} ({kind})"


def is_given(spec: registry.Framework, python: str | Path | None) -> bool:
    """Return whether a framework runs on a Python that is not ours to make: one the user named, or the parent's own."""
    return python is not None or not spec.requirements


def read(folder: Path) -> Environment:
    """Return what is in a finished managed environment, whose health the caller has checked, or need not."""
    marker = venvs.marker(folder)
    if marker is None:
        raise Unavailable(f"the environment {folder} was removed while it was being read", "run again")
    packages = venvs.packages_in([str(venvs.site_packages(folder))])
    known = registry.FRAMEWORKS.get(locks.split(marker["framework"])[0])
    library = known.library if known else ""
    package = library or marker["pins"][0].partition("=")[0]  # by convention the framework itself
    return Environment(
        framework=marker["framework"],
        python=venvs.python_in(folder),
        version=packages.get(venvs.normal_name(package)),
        managed=True,
        interpreter=marker["interpreter"],
        packages=packages,
        size_bytes=marker["size_bytes"],
        requirements_checksum=marker["checksum"],
        folder=folder,
        device=marker.get("device", "cpu"),
        used=max(
            (file.stat().st_mtime for file in (folder / USED, folder / venvs.MARKER) if file.exists()), default=None
        ),
    )


@contextlib.contextmanager
def _locked(folder: Path, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock beside an environment's folder; `waiting` is called once if another process has it."""
    # the lock file stays behind: deleting it would let a process that waits and a new one both hold "the" lock
    lock = filelock.FileLock(folder.with_name(folder.name + ".lock"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            waiting()
            lock.acquire()
    except OSError as error:
        raise Unavailable(
            f"the cache folder {folder.parent} is not writable ({error.strerror})",
            f"set ${CACHE_VARIABLE} to a writable folder",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _root() -> Path:
    return cache_dir() / "envs"


def locks_dir() -> Path:
    """The folder of the lock files of versions."""
    return _root() / "locks"


def choose(
    environments: Sequence[Environment], now: float, age_s: float | None, size_bytes: float | None
) -> list[Environment]:
    """Return those unused for `age_s` seconds, then the oldest by use beyond `size_bytes`."""
    busy = in_use()
    by_use = sorted(
        (one for one in environments if one.folder and one.folder.resolve() not in busy),
        key=lambda one: one.used or 0.0,
    )
    doomed = [one for one in by_use if age_s is not None and now - (one.used or 0.0) > age_s]
    left = sum(one.size_bytes or 0 for one in environments) - sum(one.size_bytes or 0 for one in doomed)
    for one in by_use:
        if size_bytes is None or left <= size_bytes:
            break
        if one not in doomed:
            doomed.append(one)
            left -= one.size_bytes or 0
    return doomed


def in_use() -> set[Path]:
    """Folders of environments whose Python some process runs, without links in their paths."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command and os.path.basename(os.path.dirname(command[0])) == "bin":
            found.add(Path(command[0]).parents[1].resolve())
    return found
