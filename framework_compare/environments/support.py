"""Check that a framework can use a device of this machine, by its pinned build, before an environment is made."""

from collections.abc import Callable

from framework_compare import registry
from framework_compare.environments import gpu_builds, managed, venvs
from framework_compare.environments.gpu_builds import Lack
from framework_compare.environments.managed import Environment
from framework_compare.errors import EnvironmentUnavailable
from framework_compare.records import Run


def lack(framework: str, device: str) -> Lack | None:
    """Return why a framework's managed environment cannot serve a device here, or None; nothing is made to find out."""
    spec = registry.framework(framework)
    if spec.requirements_on(device):
        return gpu_builds.lack(framework, device)
    why = f"device {device!r}: the adapter of {framework} has no requirements for it"
    return Lack(why, venvs.remedy_without_build(spec))


def lack_here(framework: str, device: str, python: str | None = None) -> str:
    """Return why a framework cannot serve a device here, and what to do; "" where nothing is known against it."""
    spec = registry.framework(framework)
    given = managed.is_given(spec, python)  # whose build nobody here knows
    found = gpu_builds.lack("", device) if given else lack(spec.name, device)
    return f"{found.why}; {found.remedy}" if found else ""


def ready(
    framework: str,
    device: str,
    *,
    python: str | None = None,
    index: str | None = None,
    make: bool = True,
    say: Callable[[str], None] = lambda message: None,
) -> Environment | Run:
    """A framework's environment on a device, made if need be, or how a cell ends without one.

    make: False takes one that is there already, and downloads nothing.
    """
    # a Python of the user's own is always asked: nobody here knows what its build can do
    given = managed.is_given(registry.framework(framework), python)
    missing = None if given else lack(framework, device)
    if missing:
        return Run("unsupported", f"{missing.why}; {missing.remedy}")
    if not (make or given):
        remedy = f"run `framework-compare env create {framework} --device {device}` on a host that can reach an index"
        there = managed.find(framework, device=device)
        return there or Run("not-installed", f"the environment of {framework} is missing or damaged; {remedy}")
    try:
        return managed.ensure(framework, device=device, python=python, index=index, report=say)
    except EnvironmentUnavailable as error:
        return Run("not-installed", str(error))
