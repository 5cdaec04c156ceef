"""The best matrix product and copy of memory of a device by PyTorch, in one precision.

python peaks.py DEVICE PRECISION THREADS      # JSON: flop_per_s, bytes_per_s
"""

from __future__ import annotations

import functools
import json
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

MOST_ROWS = {"cpu": 2048, "cuda": 8192}  # of the product's matrices
LEAST_ROWS, LONG_S = 128, 0.05  # a processor without products in a precision takes a minute for MOST_ROWS
COPY_BYTES = {"cpu": 128 << 20, "cuda": 2 << 30}  # of each array; several times a cache
SECONDS = 1.0  # of each measurement, three repetitions at least
TYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def measure(device: str, precision: str, threads: int) -> Dict[str, float]:
    """Floating-point operations and bytes, read and written, per second; the best repetition counts."""
    import torch

    torch.set_num_threads(threads)
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    product, flop = _product(torch, device, getattr(torch, TYPES[precision]))
    source, target = (torch.zeros(COPY_BYTES[device], dtype=torch.uint8, device=device) for _ in range(2))
    return {
        "flop_per_s": flop / _best_s(torch, device, product),
        "bytes_per_s": 2 * COPY_BYTES[device] / _best_s(torch, device, lambda: target.copy_(source)),
    }


def _product(torch: Any, device: str, kind: Any) -> Tuple[Callable[[], Any], int]:
    """A product of square matrices and its operations: the smallest that takes LONG_S, of MOST_ROWS at most."""
    generator, rows = torch.Generator(device).manual_seed(0), LEAST_ROWS
    while True:
        a, b = (torch.randn(rows, rows, device=device, generator=generator).to(kind) for _ in range(2))
        product = functools.partial(torch.matmul, a, b, out=torch.empty_like(a))
        if rows >= MOST_ROWS[device] or _best_s(torch, device, product, 0.0) > LONG_S:
            return product, 2 * rows**3
        rows *= 2


def _best_s(torch: Any, device: str, work: Callable[[], Any], seconds: float = SECONDS) -> float:
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
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
    sys.stdout.write(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
