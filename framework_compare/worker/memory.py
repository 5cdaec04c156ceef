"""What a worker reads of its own memory at the end of a phase, where nothing is being timed."""

from __future__ import annotations

import os
from typing import Iterator, Optional


def pss_bytes() -> Optional[int]:
    """Proportional set size of this process and its descendants, in bytes; None where the kernel does not say.

    Pages shared by forked loader workers count once, which a sum of RSS cannot do.
    """
    try:
        return sum(_pss_bytes(pid) for pid in _tree(os.getpid()))
    except (OSError, ValueError):
        return None


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            for child in file.read().split():
                yield from _tree(int(child))


def _pss_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    raise ValueError(f"no Pss in smaps_rollup of {pid}")
