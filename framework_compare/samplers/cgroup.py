"""Limits that control groups (containers, batch systems) put on this process; files as in the kernel's cgroup docs."""

from pathlib import Path
from typing import Iterator, List, Optional, Tuple

MOUNT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
UNLIMITED_BYTES = 1 << 60  # v1 writes "no limit" as the largest multiple of a page below 2**63


def quota_cores(*, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> Optional[float]:
    """Cores' worth of CPU time allowed, the smallest limit up the hierarchy; None when there is none."""
    quotas: List[float] = []
    for folder in folders("cpu", mount, membership):
        v1 = (read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us"))
        quota_us, _, period_us = (read(folder / "cpu.max") or f"{v1[0]} {v1[1]}").partition(" ")
        if quota_us.isdecimal() and period_us.isdecimal() and int(period_us):
            quotas.append(int(quota_us) / int(period_us))
    return min(quotas, default=None)


def memory_limit_bytes(*, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> Optional[int]:
    """Memory allowed, the smallest limit up the hierarchy; None when there is none."""
    return min((limit for _, limit in _memory_limits(mount, membership)), default=None)


def memory_left_bytes(*, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> Optional[int]:
    """Memory left under the limits up the hierarchy, or None; cached files count as free: the kernel drops them first."""
    left: List[int] = []
    for folder, limit in _memory_limits(mount, membership):
        used = read(folder / "memory.current") or read(folder / "memory.usage_in_bytes")
        if used.isdecimal():
            left.append(max(0, limit - int(used) + _cached_bytes(folder)))
    return min(left, default=None)


def _memory_limits(mount: Path, membership: Path) -> Iterator[Tuple[Path, int]]:
    for folder in folders("memory", mount, membership):
        text = read(folder / "memory.max") or read(folder / "memory.limit_in_bytes")
        if text.isdecimal() and int(text) < UNLIMITED_BYTES:
            yield folder, int(text)


def _cached_bytes(folder: Path) -> int:
    """Files that a group has in memory; in version 1 those of the groups below it, too."""
    found = dict(line.split() for line in read(folder / "memory.stat").splitlines() if line.count(" ") == 1)
    whole = "total_" if "total_active_file" in found else ""
    return sum(int(found.get(f"{whole}{name}_file", 0)) for name in ("active", "inactive"))


def folders(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """Folders that may hold limits of `controller`, from the process's own group up to the mount's root.

    In a container the path may be the host's and lead nowhere here; the root then is the container's own group.
    """
    for line in read(membership).splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and controller not in controllers.split(","):
            continue
        root = mount if number == "0" else mount / controller
        group = root / path.strip("/")
        yield from (folder for folder in (group, *group.parents) if folder == root or root in folder.parents)


def read(path: Path) -> str:
    """The text of a file, "" where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
