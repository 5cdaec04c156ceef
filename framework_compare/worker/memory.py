"""What a worker reads of its own memory at the end of a phase, where nothing is being timed."""

from __future__ import annotations

import os
from typing import Optional

from framework_compare.worker.processes import descendants


def pss_bytes() -> Optional[int]:
    """Proportional set size of this process and its descendants, in bytes; None where the kernel does not say.

    Pages shared by forked loader workers count once, which a sum of RSS cannot do.
    """
    try:
        return sum(_pss_bytes(pid) for pid in (os.getpid(), *descendants(os.getpid())))
    except (OSError, ValueError):
        return None


def _pss_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    raise ValueError(f"no Pss in smaps_rollup of {pid}")
