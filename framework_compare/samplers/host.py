"""This machine, and how much of it a run may use: also by limits of control groups (containers, batch systems).

Files of these are as in the kernel's documentation of cgroups.
"""

import math
import os
import platform
import re
from pathlib import Path
from typing import Iterator

import psutil

from framework_compare.json_types import Fields
from framework_compare.samplers.nvml import describe_gpus

CPUS = "/sys/devices/system/cpu"
VECTORS = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX"}  # by flag, the widest first
CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
UNLIMITED_BYTES = 1 << 60  # v1 writes "no limit" as the largest multiple of a page below 2**63
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
        "quota_cores": quota_cores(),
        "available_cores": available_cores(),
        "cpu_governor": governor(),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_limit_bytes": memory_limit_bytes(),
        "gpus": describe_gpus(),
        "architecture": platform.machine(),
        "kernel": f"{platform.system()} {platform.release()}",
        "os": _os_name(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "container": _in_container(),
    }


def governor(root: str = CPUS) -> str | None:
    """Return what sets the clock of the first core, such as "powersave"; None where the system does not say."""
    return text_of(Path(root, "cpu0/cpufreq/scaling_governor")) or None


def turbo(root: str = CPUS) -> bool | None:
    """Return whether clocks may rise above the nominal one while few cores work; None where the system does not say."""
    boost, no_turbo = (text_of(Path(root, name)) for name in ("cpufreq/boost", "intel_pstate/no_turbo"))
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
    return max(1, min(cores, math.floor(quota_cores() or cores)))


def cpu_model(cpuinfo: str = "/proc/cpuinfo") -> str | None:
    """Return the processor's own name, with its widest vectors; failing that, its architecture."""
    facts: dict[str, str] = {}
    for line in text_of(Path(cpuinfo)).splitlines():
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


def _in_container() -> bool:
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


def quota_cores(*, mount: Path = CGROUPS, membership: Path = MEMBERSHIP) -> float | None:
    """Cores' worth of CPU time allowed, the smallest limit up the hierarchy; None when there is none."""
    quotas: list[float] = []
    for folder in control_groups("cpu", mount, membership):
        v1 = (text_of(folder / "cpu.cfs_quota_us"), text_of(folder / "cpu.cfs_period_us"))
        quota_us, _, period_us = (text_of(folder / "cpu.max") or f"{v1[0]} {v1[1]}").partition(" ")
        if quota_us.isdecimal() and period_us.isdecimal() and int(period_us):
            quotas.append(int(quota_us) / int(period_us))
    return min(quotas, default=None)


def memory_limit_bytes(*, mount: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """Memory allowed, the smallest limit up the hierarchy; None when there is none."""
    return min((limit for _, limit in _memory_limits(mount, membership)), default=None)


def memory_left_bytes(*, mount: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """Memory left under the limits up the hierarchy, or None; cached files count as free: the kernel drops them first."""
    left: list[int] = []
    for folder, limit in _memory_limits(mount, membership):
        used = text_of(folder / "memory.current") or text_of(folder / "memory.usage_in_bytes")
        if used.isdecimal():
            left.append(max(0, limit - int(used) + _cached_bytes(folder)))
    return min(left, default=None)


def _memory_limits(mount: Path, membership: Path) -> Iterator[tuple[Path, int]]:
    for folder in control_groups("memory", mount, membership):
        text = text_of(folder / "memory.max") or text_of(folder / "memory.limit_in_bytes")
        if text.isdecimal() and int(text) < UNLIMITED_BYTES:
            yield folder, int(text)


def _cached_bytes(folder: Path) -> int:
    """Files that a group has in memory; in version 1 those of the groups below it, too."""
    found = dict(line.split() for line in text_of(folder / "memory.stat").splitlines() if line.count(" ") == 1)
    whole = "total_" if "total_active_file" in found else ""
    return sum(int(found.get(f"{whole}{name}_file", 0)) for name in ("active", "inactive"))


def control_groups(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """Folders that may hold limits of `controller`, from the process's own group up to the mount's root.

    In a container the path may be the host's and lead nowhere here; the root then is the container's own group.
    """
    for line in text_of(membership).splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and controller not in controllers.split(","):
            continue
        root = mount if number == "0" else mount / controller
        group = root / path.strip("/")
        yield from (folder for folder in (group, *group.parents) if folder == root or root in folder.parents)


def text_of(path: Path) -> str:
    """The text of a file, "" where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
