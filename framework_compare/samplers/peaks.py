"""What this machine can do: a large matrix product of numpy's BLAS in float32, and a copy of memory, by threads.

Measured in a process of its own, which starts BLAS with the threads of the cells that it stands beside, and kept with the
load meanwhile. The best of some repetitions counts, but a busy machine may still give too low a peak.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import functools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from framework_compare.samplers.disturbance import TICK_NS, CoreCounter, others_ns

LEAST_ROWS, MOST_ROWS = 128, 2048  # of the product's matrices: the least that takes LONG_S
LONG_S = 0.05  # a slow processor takes minutes for MOST_ROWS
COPY_BYTES = 128 << 20  # of each array; several times a cache
SECONDS = 1.0  # of each measurement, three repetitions at least
POOLS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
TOOL = f"numpy-{np.__version__}"
TIMEOUT_S = 120


class Peak(NamedTuple):
    """Floating-point operations per second, a multiplication and an addition being two, and bytes read and written.

    others: what other programs and machines took of a core meanwhile, None where the system does not tell.
    """

    flop_per_s: float
    bytes_per_s: float
    others: Optional[float] = None
    measured_at: str = ""  # UTC


def command(threads: int) -> Tuple[str, ...]:
    """What prints the peak of float32 on the CPU."""
    return sys.executable, "-m", __name__, str(threads)


def read(path: Path) -> Optional[Peak]:
    """The peak in a file; None without one that says when it was measured."""
    try:
        peak = Peak(**json.loads(path.read_text(encoding="utf-8")))
        return peak if min(peak[:2]) > 0 and peak.measured_at else None
    except (OSError, ValueError, TypeError):
        return None


def measure(path: Path, command: Sequence[str], threads: int) -> Optional[Peak]:
    """What a command prints of the peak, with the load meanwhile, kept in a file; None if it fails or takes too long."""
    environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    before = _others()
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", timeout=TIMEOUT_S)
        found = json.loads(done.stdout)
        peak = Peak(found["flop_per_s"], found["bytes_per_s"], _share(before, _others()), _now())
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
            children, t_ns = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic_ns()
            ours_ns, found = int(1e9 * (children.ru_utime + children.ru_stime)), counter.read()
            others = others_ns(found, counter.count, t_ns, ours_ns, time.process_time_ns())
            return t_ns, others + found.stolen * TICK_NS
    except (OSError, ValueError):
        return None


def _share(before: Optional[Tuple[int, int]], after: Optional[Tuple[int, int]]) -> Optional[float]:
    if before is None or after is None:
        return None
    return max(0.0, (after[1] - before[1]) / (after[0] - before[0]))


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")


def best(threads: int) -> Dict[str, float]:
    """Both figures in this process, whose BLAS has been started with as many threads."""
    product, flop = _product()
    source, target = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads)))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        copy_s = _best_s(lambda: list(pool.map(lambda part: np.copyto(part[1], part[0]), parts)))
    return {
        "flop_per_s": flop / _best_s(product),
        "bytes_per_s": 2 * COPY_BYTES / copy_s,
    }


def _product() -> Tuple[Callable[[], Any], int]:
    """The product that is measured, and its operations."""
    generator, rows = np.random.default_rng(0), LEAST_ROWS
    while True:
        a, b = (generator.random((rows, rows), dtype=np.float32) for _ in range(2))
        product = functools.partial(np.matmul, a, b, out=np.empty_like(a))
        if rows >= MOST_ROWS or _best_s(product, 0.0) > LONG_S:
            return product, 2 * rows**3
        rows *= 2


def _best_s(work: Callable[[], Any], seconds: float = SECONDS) -> float:
    began = time.monotonic()
    times: List[float] = []
    while len(times) < 3 or time.monotonic() - began < seconds:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(best(int(sys.argv[1]))))
