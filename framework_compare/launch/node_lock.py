"""One timing at a time on a node: two that share a processor or a GPU slow each other."""

import contextlib
import os
import re
import socket
from pathlib import Path
from typing import Callable, Iterator

from filelock import FileLock, Timeout

from framework_compare.paths import file_name, runtime_dir

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
