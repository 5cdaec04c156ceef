"""What this machine can do: a large matrix product of numpy's BLAS in float32, and a copy of memory, by threads.

Measured in a process of its own, which starts BLAS with the threads of the cells that it stands beside, and kept for
the machine in the cache folder. The best of some repetitions counts, so a busy machine may still give too low a peak.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from framework_compare.paths import cache_dir, file_name
from framework_compare.samplers import host

SIZE = 2048  # rows of the product's matrices
COPY_BYTES = 128 << 20  # of each array; several times a cache
SECONDS = 1.0  # of each measurement, three repetitions at least
POOLS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
SAME_MACHINE = ("cpu", "available_cores")
TIMEOUT_S = 120


class Peak(NamedTuple):
    """Floating-point operations per second, a multiplication and an addition being two, and bytes read and written."""

    flop_per_s: float
    bytes_per_s: float


def peak_of(machine: Mapping[str, Any], device: str, precision: str, threads: int) -> Optional[Peak]:
    """The peak for cells of a study's machine, measured where nobody has yet; None for what numpy cannot measure.

    numpy multiplies float32 on CPUs. It can measure this machine only.
    """
    here = host.describe()
    if device != "cpu" or precision != "fp32" or any(machine.get(name) != here[name] for name in SAME_MACHINE):
        return None
    path = cache_dir() / "peaks" / f"{file_name(str(here['cpu']))}-{threads}-numpy-{np.__version__}.json"
    return kept(path, [sys.executable, "-m", __name__, str(threads)], threads)


def kept(path: Path, command: Sequence[str], threads: int) -> Optional[Peak]:
    """The peak in a file, or else what a command prints of it, which is kept there unless it failed or took too long."""
    return _read(path) or _measure(path, command, threads)


def _read(path: Path) -> Optional[Peak]:
    try:
        peak = Peak(**json.loads(path.read_text(encoding="utf-8")))
        return peak if min(peak) > 0 else None
    except (OSError, ValueError, TypeError):
        return None


def _measure(path: Path, command: Sequence[str], threads: int) -> Optional[Peak]:
    environment = {**os.environ, **dict.fromkeys(POOLS, str(threads))}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", timeout=TIMEOUT_S)
        peak = Peak(**json.loads(done.stdout))
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):
        return None
    with contextlib.suppress(OSError):  # a peak that cannot be kept is measured again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(peak._asdict()), encoding="utf-8")
    return peak


def measure(threads: int) -> Dict[str, float]:
    """Both figures in this process, whose BLAS has been started with as many threads."""
    generator = np.random.default_rng(0)
    a, b = (generator.random((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    product = np.empty_like(a)
    source, target = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads)))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        copy_s = _best_s(lambda: list(pool.map(lambda part: np.copyto(part[1], part[0]), parts)))
    return {
        "flop_per_s": 2 * SIZE**3 / _best_s(lambda: np.matmul(a, b, out=product)),
        "bytes_per_s": 2 * COPY_BYTES / copy_s,
    }


def _best_s(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    times: List[float] = []
    while len(times) < 3 or time.monotonic() - began < SECONDS:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int(sys.argv[1]))))
