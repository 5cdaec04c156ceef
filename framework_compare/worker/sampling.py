"""How much of a long epoch is measured: steps until a time has passed, then its input pipeline without any steps."""

from __future__ import annotations

import time
from typing import Iterator, List, Optional

from framework_compare.protocol import Batch

# The first step fills the loader's queue; the others are what the rest of the epoch is made of.
LEAST_STEPS = 5


def suffices(seconds: float, elapsed_ns: int, steps: int) -> bool:
    """Whether a sample of an epoch is long enough; never where none is asked for (0 seconds)."""
    return 0 < seconds * 1e9 <= elapsed_ns and steps >= LEAST_STEPS


def pipeline_ns(batches: Iterator[Batch], most: int, most_ns: int) -> Optional[int]:
    """Nanoseconds per batch where nothing trains on them, of the later half of at most `most` batches.

    The earlier half empties what the pipeline had ready. It is a lower bound: a trainer takes cores from the pipeline.
    None where the epoch had too few batches left.
    """
    start = time.monotonic_ns()
    ends: List[int] = []
    for _ in batches:
        ends.append(time.monotonic_ns())
        if len(ends) >= most or ends[-1] - start > most_ns:
            break
    half = len(ends) // 2
    return (ends[-1] - ends[half - 1]) // (len(ends) - half) if half else None
