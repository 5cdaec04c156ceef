"""What this machine can do, as a process of its own prints it, kept with the load meanwhile.

BLAS starts there with the threads of the cells that the peak stands beside. A busy machine may give too low a peak.
"""

import contextlib
import datetime
import json
import os
import resource
import subprocess
from pathlib import Path
from typing import NamedTuple, Optional, Sequence, Tuple

from framework_compare.samplers.disturbance import CoreCounter

POOLS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
TIMEOUT_S = 120


class Peak(NamedTuple):
    """The fastest that a machine computes and copies, as measured."""

    flop_per_s: float  # a multiplication and an addition are two
    bytes_per_s: float  # read and written
    others: Optional[float] = None  # what others took of a core meanwhile; None where the system does not tell
    measured_at: str = ""  # UTC


def read(path: Path) -> Optional[Peak]:
    """The peak in a file; None without one that says when it was measured."""
    try:
        peak = Peak(**json.loads(path.read_text(encoding="utf-8")))
        return peak if min(peak[:2]) > 0 and peak.measured_at else None
    except (OSError, ValueError, TypeError):
        return None


def measure(path: Path, command: Sequence[str], threads: int) -> Optional[Peak]:
    """Return the peak a command prints, with the load meanwhile, and keep it; None if it fails or takes too long."""
    environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
    before = _others()
    try:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", timeout=TIMEOUT_S)
        found = json.loads(done.stdout)
        peak = Peak(found["flop_per_s"], found["bytes_per_s"], _share(before, _others()), now)
    except (OSError, ValueError, TypeError, KeyError, subprocess.TimeoutExpired):
        return None
    with contextlib.suppress(OSError):  # a peak that cannot be kept is measured again
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(peak._asdict()), encoding="utf-8")
    return peak


def _others() -> Optional[Tuple[int, int]]:
    """The time and the CPU time of all but this process and its children that have ended, in nanoseconds."""
    try:
        with contextlib.closing(CoreCounter()) as counter:
            children = resource.getrusage(resource.RUSAGE_CHILDREN)
            _, found = counter.counters(int(1e9 * (children.ru_utime + children.ru_stime)))
            return found.t_ns, found.others_ns + found.stolen_ns
    except (OSError, ValueError):
        return None


def _share(before: Optional[Tuple[int, int]], after: Optional[Tuple[int, int]]) -> Optional[float]:
    return max(0.0, (after[1] - before[1]) / (after[0] - before[0])) if before and after else None
