"""What this machine is, and how much of it a run may use."""

import math
import os
import platform
import re
from pathlib import Path
from typing import Dict, Optional

import psutil

from framework_compare.json_types import Fields
from framework_compare.samplers import cgroup
from framework_compare.samplers.nvml import describe_gpus

CPUS = "/sys/devices/system/cpu"
VECTORS = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX"}  # by flag, the widest first
_VECTORS = re.compile(rf" \((?:{'|'.join(VECTORS.values())})\)$")


def describe() -> Fields:
    """Return what a reader of a result must know of the machine, ready for JSON; bytes and counts, None where unknown.

    The host's name, the user's and any path are left out: results are made to be passed on.
    """
    return {
        "cpu": cpu_model(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": os.cpu_count(),
        "affinity_cores": _affinity_cores(),
        "quota_cores": cgroup.quota_cores(),
        "available_cores": available_cores(),
        "cpu_governor": governor(),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_limit_bytes": cgroup.memory_limit_bytes(),
        "gpus": describe_gpus(),
        "architecture": platform.machine(),
        "kernel": f"{platform.system()} {platform.release()}",
        "os": _os_name(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "container": in_container(),
    }


def governor(root: str = CPUS) -> Optional[str]:
    """Return what sets the clock of the first core, such as "powersave"; None where the system does not say."""
    return cgroup.read(Path(root, "cpu0/cpufreq/scaling_governor")) or None


def turbo(root: str = CPUS) -> Optional[bool]:
    """Return whether clocks may rise above the nominal one while few cores work; None where the system does not say."""
    boost, no_turbo = (cgroup.read(Path(root, name)) for name in ("cpufreq/boost", "intel_pstate/no_turbo"))
    return no_turbo == "0" if no_turbo else boost == "1" if boost else None


def available_cores() -> int:
    """Cores to give a run: at least 1, and the fewest of what three rules allow.

    1. The logical cores this process may run on (its affinity).
    2. The CPU time its control group may have, in whole cores, rounded down.
    3. When it may run on all logical cores of the machine, the physical ones: two compute threads on one physical
       core share its arithmetic units and gain nothing. When it was confined to some, whoever did that has chosen.
    """
    cores = _affinity_cores()
    if cores == os.cpu_count():
        cores = min(cores, psutil.cpu_count(logical=False) or cores)
    return max(1, min(cores, math.floor(cgroup.quota_cores() or cores)))


def cpu_model(cpuinfo: str = "/proc/cpuinfo") -> Optional[str]:
    """Return the processor's own name, with its widest vectors; failing that, its architecture."""
    facts: Dict[str, str] = {}
    for line in cgroup.read(Path(cpuinfo)).splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = next((facts[key] for key in ("model name", "Model", "cpu model") if key in facts), None)
    flags = facts.get("flags", "").split()
    vectors = next((words for flag, words in VECTORS.items() if flag in flags), None)
    if name and vectors:  # virtual machines give one name to processors on which frameworks rank differently
        return f"{name} ({vectors})"
    return name or platform.processor() or platform.machine() or None


def without_vectors(name: str) -> str:
    """Return a processor's name as earlier versions stored it."""
    return _VECTORS.sub("", name)


def same_processor(a: object, b: object) -> bool:
    """Return whether two names may be of one processor: alike, or alike but for the vectors that only one names."""
    if a == b or not isinstance(a, str) or not isinstance(b, str):
        return a == b
    plain = without_vectors(a), without_vectors(b)
    return plain[0] == plain[1] and plain != (a, b) and (a in plain or b in plain)


def in_container() -> bool:
    """Return whether this looks like the inside of a container; a guess from what Docker, Podman and Kubernetes leave."""
    marked = any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv"))
    return marked or any(name in os.environ for name in ("container", "KUBERNETES_SERVICE_HOST"))


def _affinity_cores() -> int:
    return len(os.sched_getaffinity(0))


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"
