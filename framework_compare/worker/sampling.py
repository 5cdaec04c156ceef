"""How much of a long epoch is measured: steps until a time has passed, then its input pipeline without any steps."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Iterator, List, Optional

from framework_compare.protocol import Batch

# The first step fills the loader's queue; the others are what the rest of the epoch is made of.
LEAST_STEPS = 5


def suffices(seconds: float, elapsed_ns: int, steps: int) -> bool:
    """Return whether a sample of an epoch is long enough; never where none is asked for (0 seconds)."""
    return 0 < seconds * 1e9 <= elapsed_ns and steps >= LEAST_STEPS


class LastStep:
    """The step after which a sample of an epoch ends: the same for all ranks, which train step in step.

    Each has a clock of its own, so rank 0 chooses, and writes it into the run's folder for the others. A process that
    trains alone follows its own clock. folder: the same for all ranks.
    """

    def __init__(self, folder: Path, rank: int, ranks: int) -> None:
        self._file, self._rank, self._alone = folder / "last-step", rank, ranks == 1
        self._number: Optional[int] = None

    def sample_ends(self, steps: int, enough: bool, in_flight: int) -> bool:
        """Return whether the sample ends here, asked after every step; enough: this process's clock would end it.

        No rank is further ahead than the losses in flight allow: it waits for the loss of an earlier step, which needs
        the weights that all made in the step before that. So rank 0 chooses one that none has reached.
        """
        if self._alone:
            return enough
        if self._number is None:
            if self._rank:
                with contextlib.suppress(FileNotFoundError):
                    self._number = int(self._file.read_text(encoding="ascii"))
            elif enough:
                self._number = steps + in_flight + 3
                half = self._file.with_suffix(".half")
                half.write_text(str(self._number), encoding="ascii")
                os.replace(half, self._file)
        return self._number is not None and steps >= self._number


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
