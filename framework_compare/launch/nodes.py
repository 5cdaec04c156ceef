"""This node, on which one timing runs at a time, and those of its Slurm job, which may train a cell together."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Callable, Iterator

from filelock import FileLock, Timeout

from framework_compare.errors import UsageError
from framework_compare.json_types import JSON
from framework_compare.paths import cache_dir, file_name, runtime_dir

HOW = "add --on slurm, or call it in a job of as many nodes, on the first of them"
FILES = ("images", "data", "weights", "tasks")  # fields of a job that name files
WAIT_S = 0.2
SOCKETS = Path("/proc/net/unix")
WAITING = "another comparison is running on this node; waiting for its run to end"
OTHERS = "another user is running a comparison on this node; both will be slower"


def node() -> str:
    """This node's own name: Slurm's, of which one host may have several, else the host's."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


@contextlib.contextmanager
def one_timing(say: Callable[[str], None] = lambda message: None) -> Iterator[None]:
    """Wait until no other process of this user on this node is within, of any study; warn of those of other users.

    The lock is in a folder that no other user can enter, so nobody else can hold it. The kernel releases it when the
    process ends, however it does. A container with a runtime folder of its own does not see those outside.
    """
    lock = FileLock(runtime_dir() / f"framework-compare-{file_name(node())}.lock", mode=0o600)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        say(WAITING)
        held = lock.acquire(poll_interval=WAIT_S)
    with held, _announced():
        if _others_announced():
            say(OTHERS)
        yield


@contextlib.contextmanager
def _announced() -> Iterator[None]:
    """A name that all users of this network namespace can read and nobody waits for; gone with this process."""
    with socket.socket(socket.AF_UNIX) as name:
        name.bind(f"\0framework-compare:{os.getuid()}:{_short_node()}:{os.urandom(4).hex()}")
        yield


def _others_announced() -> bool:
    with contextlib.suppress(OSError):
        users = re.findall(
            rf" @framework-compare:(\d+):{re.escape(_short_node())}:", SOCKETS.read_text(errors="replace")
        )
        return bool(set(users) - {str(os.getuid())})
    return False


def _short_node() -> str:
    return file_name(node())[:40]  # the name of a socket holds 107 characters


def check(count: int) -> None:
    """UsageError where `count` nodes cannot train together from here."""
    if count > 1:
        names(count)


def names(count: int) -> list[str]:
    """The first `count` nodes of this job, this one first; UsageError where there are not as many."""
    listed = os.environ.get("SLURM_JOB_NODELIST")
    if not listed:
        raise UsageError(f"nodes is {count}, but this is not a Slurm job; {HOW}")
    for command in ("srun", "scontrol"):
        if shutil.which(command) is None:
            raise UsageError(f"nodes is {count}, but {command} is not on PATH, as in a container; {HOW}")
    found = _ask("scontrol", "show", "hostnames", listed).split()
    if len(found) < count:
        raise UsageError(f"nodes is {count}, but this Slurm job has {len(found)}; {HOW}")
    if os.environ.get("SLURMD_NODENAME") != found[0]:
        raise UsageError(f"nodes is {count}, but this is not the first node of the Slurm job; {HOW}")
    return found[:count]


def address(name: str) -> str:
    """Return where other nodes reach a node, as Slurm does."""
    found = re.search(r"\bNodeAddr=(\S+)", _ask("scontrol", "show", "node", name))
    return found[1] if found else name


def _ask(*command: str) -> str:
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def variables() -> dict[str, str]:
    """Return what srun needs of this process's environment; no rank gets it."""
    return {name: value for name, value in os.environ.items() if name.startswith("SLURM")}


@contextlib.contextmanager
def place(job: Path) -> Iterator[Path]:
    """A folder in the cache folder, which all nodes see, with a job and the files that it names.

    What ranks wrote there, each into a folder of its own, is beside the job in the end.
    """
    base = cache_dir() / "nodes"
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{os.environ.get('SLURM_JOB_ID')}-", dir=base))
    try:
        document = json.loads(job.read_text(encoding="utf-8"))
        document.update({name: _brought(document[name], folder) for name in FILES})
        (folder / job.name).write_text(json.dumps(document), encoding="utf-8")
        yield folder
        for written in folder.glob("rank-*"):
            shutil.copytree(written, job.parent / written.name, dirs_exist_ok=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _brought(value: JSON, folder: Path) -> JSON:
    """A part of a job's document, the files that it names copied into a folder and named there."""
    if isinstance(value, dict):
        return {name: _brought(item, folder) for name, item in value.items()}
    if isinstance(value, list):
        return [_brought(item, folder) for item in value]
    if not isinstance(value, str) or not os.path.isabs(value) or not os.path.isfile(value):
        return value
    copy = folder / "files" / value.lstrip("/")
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(value, copy)
    return str(copy)
