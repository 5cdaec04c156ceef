"""What a verdict holds for besides what was asked: the worker's source, the packages it computes with, the GPU."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Optional, Set

from framework_compare.environments import gpu_builds, venvs
from framework_compare.environments.managed import Environment
from framework_compare.launch import staging
from framework_compare.registry import Framework, device_kind

# What every worker may compute with: its arrays, and what decodes and resizes images.
COMMON = ("numpy", "pillow", "simplejpeg")


def state(framework: Framework, environment: Environment, device: str) -> Dict[str, Any]:
    """A document that changes when a verdict becomes invalid; takes milliseconds and starts no worker."""
    return {
        "trainer": framework.trainer.rpartition(":")[2],
        "worker": staging.checksum(framework),
        "version": environment.version,
        "packages": dict(packages(framework, environment)),
        "gpu": gpu_name(device),
    }


def packages(framework: Framework, environment: Environment) -> Mapping[str, str]:
    """Of a managed environment all packages, which are pinned; of another interpreter those that may compute.

    These are what its adapter's requirements name, the framework's own others, and CUDA's. Where no requirements are
    known, or no metadata has the framework's version, they are all that are there.
    """
    named = requirements(framework)
    if environment.managed or environment.version is None or not named:
        return environment.packages
    starts = (venvs.normal_name(framework.imports), "nvidia-")
    chosen = (name for name in environment.packages if name in named or name in COMMON or name.startswith(starts))
    return {name: environment.packages[name] for name in chosen}


def requirements(framework: Framework) -> Set[str]:
    """Normalised names in the requirements files of a framework, whatever their device."""
    found: Set[str] = set()
    for device in ("cpu", "cuda") if framework.requirements else ():
        if framework.requirements_on(device):
            try:
                pins = venvs.pins_of(framework, device)
            except OSError:
                return set()
            found.update(name for name in map(_name, pins) if name)
    return found


def _name(pin: str) -> str:
    """The distribution that a line names; "" for an option."""
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", pin)
    return venvs.normal_name(match.group()) if match else ""


def gpu_name(device: str) -> Optional[str]:
    """As NVML has it; None for a CPU, and where nothing says it."""
    if device_kind(device) == "cpu":
        return None
    try:
        return gpu_builds.look(device).name
    except gpu_builds.NoGpu:
        return None
