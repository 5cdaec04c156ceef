"""One timing at a time on a node, whoever starts it: two that share a processor or a GPU slow each other."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from typing import Callable, Iterator

WAIT_S = 0.2


def node() -> str:
    """This node's own name: Slurm's, of which one host may have several, else the host's."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


@contextlib.contextmanager
def one_timing(say: Callable[[str], None] = lambda message: None) -> Iterator[None]:
    """Wait until no other process on this node is within, of any user and any study; said once.

    An abstract socket stands for the node: the kernel frees its name when the process ends, however it does. It is
    seen within one network namespace, so a container of its own network does not see those outside.
    """
    with socket.socket(socket.AF_UNIX) as name:
        waited = False
        while not _bound(name):
            if not waited:
                say("another comparison is being timed on this node; waiting until its run has ended")
            waited = True
            time.sleep(WAIT_S)
        yield


def _bound(name: socket.socket) -> bool:
    try:
        name.bind(f"\0framework_compare-{node()}")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True
