"""The best matrix product and copy of memory of a device, by numpy or PyTorch; it runs alone, where one of these is.

python peaks.py LIBRARY DEVICE PRECISION THREADS      # JSON: flop_per_s, bytes_per_s
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple

MOST_ROWS = {"cpu": 2048, "cuda": 8192}  # of the product's matrices
LEAST_ROWS, LONG_S = 128, 0.05  # a processor without products in a precision takes minutes for MOST_ROWS
COPY_BYTES = {"cpu": 128 << 20, "cuda": 2 << 30}  # of each array; several times a cache
SECONDS = 1.0  # of each measurement, three repetitions at least
TYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Library(NamedTuple):
    """A product of square matrices of so many rows, a copy of COPY_BYTES, and the wait for either."""

    product: Callable[[int], Callable[[], Any]]
    copy: Callable[[], Any]
    wait: Callable[[], Any] = lambda: None


def of_torch(device: str, precision: str, threads: int) -> Library:
    import torch

    torch.set_num_threads(threads)
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    generator, kind = torch.Generator(device).manual_seed(0), getattr(torch, TYPES[precision])

    def product(rows: int) -> Callable[[], Any]:
        a, b = (torch.randn(rows, rows, device=device, generator=generator).to(kind) for _ in range(2))
        return functools.partial(torch.matmul, a, b, out=torch.empty_like(a))

    source, target = (torch.zeros(COPY_BYTES[device], dtype=torch.uint8, device=device) for _ in range(2))
    return Library(product, lambda: target.copy_(source), *([torch.cuda.synchronize] if device == "cuda" else []))


def of_numpy(device: str, precision: str, threads: int) -> Library:
    """Float32 on the CPU, by a BLAS that has been started with as many threads."""
    import numpy as np

    generator = np.random.default_rng(0)

    def product(rows: int) -> Callable[[], Any]:
        a, b = (generator.random((rows, rows), dtype=np.float32) for _ in range(2))
        return functools.partial(np.matmul, a, b, out=np.empty_like(a))

    source, target = np.ones(COPY_BYTES[device], np.uint8), np.zeros(COPY_BYTES[device], np.uint8)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads)))
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    return Library(product, lambda: list(pool.map(lambda part: np.copyto(part[1], part[0]), parts)))


def measure(library: Library, device: str) -> Dict[str, float]:
    """Floating-point operations of the smallest product that takes LONG_S, and bytes read and written, per second."""
    rows, product = LEAST_ROWS, library.product(LEAST_ROWS)
    while rows < MOST_ROWS[device] and _best_s(product, library.wait, 0.0) <= LONG_S:
        rows *= 2
        product = library.product(rows)
    flop, moved = 2 * rows**3, 2 * COPY_BYTES[device]
    product_s, copy_s = (_best_s(work, library.wait) for work in (product, library.copy))
    return {"flop_per_s": flop / product_s, "bytes_per_s": moved / copy_s}


def _best_s(work: Callable[[], Any], wait: Callable[[], Any], seconds: float = SECONDS) -> float:
    work()
    wait()
    began = time.monotonic()
    times: List[float] = []
    while len(times) < 3 or time.monotonic() - began < seconds:
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    name, device, precision, threads = sys.argv[1:]
    made = {"numpy": of_numpy, "torch": of_torch}[name](device, precision, int(threads))
    sys.stdout.write(json.dumps(measure(made, device)))
