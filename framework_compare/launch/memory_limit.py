"""Holding a worker's process tree to so much memory: by a control group where one can be made, else by watching.

RLIMIT_AS is not used: it counts address space, of which frameworks reserve tens of gigabytes (CUDA, XLA, thread stacks,
glibc arenas) that they never touch, and it counts each process by itself.
"""

import contextlib
import os
import time
import uuid
from pathlib import Path
from typing import Iterator

import psutil

from framework_compare.launch.statuses import Ending
from framework_compare.samplers import host
from framework_compare.samplers.process import ProcessTreeSampler

WATCH_S = 0.05
# Reading PSS costs milliseconds a gigabyte: never more than this share of the time.
PSS_SHARE = 0.05


class MemoryLimit:
    """No limit; the base of the others. `by` names what holds the worker to it, for the record."""

    by: str | None = None
    limit_bytes: int | None = None
    group = ""  # folder of the control group the worker is to join

    def watch(self, supervisor_pid: int) -> None:
        """The worker is there, under this supervisor."""

    def wait_s(self) -> float | None:
        """Seconds until `ending` should be asked; None: never."""
        return None

    def ending(self) -> Ending | None:
        """Return why the worker has to be ended now, or None."""
        return None

    def kills(self) -> int:
        """Processes of the worker that the kernel has killed at this limit."""
        return 0

    def peak_bytes(self) -> int | None:
        """The most that was in use, where it is known."""
        return None

    def close(self) -> None:
        """The worker is gone."""

    @property
    def words(self) -> str:
        size = f"{self.limit_bytes / 2**30:.2f} GiB" if self.limit_bytes else "no"
        return f"memory_limit of {size} ({self.by})"


class Watchdog(MemoryLimit):
    """Reads the tree's RSS 20 times a second and, above the limit, its PSS, which counts shared pages once."""

    by = "watchdog"

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._tree: ProcessTreeSampler | None = None
        self._peak: int | None = None
        self._due = self._pss_due = 0.0

    def watch(self, supervisor_pid: int) -> None:
        try:
            self._own = psutil.Process(supervisor_pid).memory_info().rss
        except psutil.NoSuchProcess:  # it has ended already, and its worker with it: nothing is left to hold
            return
        # Orphans of the worker are the supervisor's children: its tree is the whole of it.
        self._tree = ProcessTreeSampler(supervisor_pid)

    def wait_s(self) -> float:
        return max(0.0, self._due - time.monotonic())

    def ending(self) -> Ending | None:
        now = time.monotonic()
        if now < self._due or self._tree is None:
            return None
        self._due = now + WATCH_S
        reading = self._tree.read()
        if reading is None:
            return None
        used = reading.rss_bytes - self._own
        if used > self.limit_bytes and now >= self._pss_due:
            used = self._tree.pss_bytes(without_root=True) or used
            self._pss_due = now + (time.monotonic() - now) / PSS_SHARE
        else:
            used = min(used, self.limit_bytes)
        self._peak = max(self._peak or 0, used)
        if used <= self.limit_bytes:
            return None
        return Ending("out-of-memory", f"{used / 2**30:.2f} GiB in use, ended at the {self.words}")

    def peak_bytes(self) -> int | None:
        return self._peak

    def close(self) -> None:
        if self._tree is not None:
            self._tree.close()


class ControlGroup(MemoryLimit):
    """A memory group of cgroup v2, made for one worker; the kernel ends all of it at the limit, swap not used."""

    by = "cgroup"

    def __init__(self, limit_bytes: int, folder: Path) -> None:
        """Make the group; OSError where that is not allowed."""
        self.limit_bytes = limit_bytes
        self.group = str(folder)
        self._folder = folder
        folder.mkdir()
        try:
            (folder / "memory.max").write_text(str(limit_bytes))
            _put_if_there(folder / "memory.swap.max", "0")
            _put_if_there(folder / "memory.oom.group", "1")
        except OSError:
            self.close()
            raise

    def kills(self) -> int:
        for line in host.text_of(self._folder / "memory.events").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
        return 0

    def peak_bytes(self) -> int | None:
        text = host.text_of(self._folder / "memory.peak")
        return int(text) if text.isdecimal() else None

    def close(self) -> None:
        for _ in range(50):  # its processes are dead, yet may take a moment to leave it
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)
            else:
                return


def limit(limit_bytes: int | None, *, mount: Path = host.CGROUPS, membership: Path = host.MEMBERSHIP) -> MemoryLimit:
    """Return what holds a worker to `limit_bytes` here; one that does nothing for None."""
    if limit_bytes is None:
        return MemoryLimit()
    for parent in writable_groups(mount, membership):
        with contextlib.suppress(OSError):
            return ControlGroup(limit_bytes, parent / f"framework-compare-{uuid.uuid4().hex[:12]}")
    return Watchdog(limit_bytes)


def writable_groups(mount: Path = host.CGROUPS, membership: Path = host.MEMBERSHIP) -> Iterator[Path]:
    """Groups, this process's own first, in which it may make groups with a memory limit and move a worker there.

    A group that holds processes hands no controller down ("no internal processes"), so that it is as a rule the parent
    of one's own, such as app.slice of a user's session.
    """
    if not (mount / "cgroup.controllers").exists():
        return  # version 1, or a mixture of both
    for folder in host.control_groups("memory", mount, membership):
        controllers = host.text_of(folder / "cgroup.subtree_control").split()
        if "memory" in controllers and all(os.access(p, os.W_OK) for p in (folder, folder / "cgroup.procs")):
            yield folder


def kernel_kills() -> int:
    """Processes that the kernel's out-of-memory killer has ended on this machine since it started; 0 where unknown."""
    for line in host.text_of(Path("/proc/vmstat")).splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def machine_bytes() -> int:
    """Memory that this process may use at most: the machine's, or its container's."""
    return min(int(psutil.virtual_memory().total), host.memory_limit_bytes() or 1 << 62)


def free_bytes() -> int:
    """Memory that programs may still take: the machine's, or its container's, where that is less."""
    left = host.memory_left_bytes()
    available = int(psutil.virtual_memory().available)
    return available if left is None else min(available, left)


def _put_if_there(path: Path, text: str) -> None:
    if path.exists():
        path.write_text(text)
