"""Rounds of turns: their order, their length, and which of them count."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Iterator, Mapping, Sequence

from framework_compare.launch.transcript import Turn

# Seconds of a slice: long enough that readings of 10 ms say what others took, short enough that a slow minute meets all
# rivals alike. A device is given work ahead, which costs a little at each end of a slice.
SLICE_S, SLICE_ON_DEVICE_S = 0.4, 2.0
REWARM_S = 0.05  # of steps at the start of a turn, which fill caches again
LONG_STEP_S = 1.0  # of which the part that fills caches is less than one percent: no step is left uncounted
LEAST_ROUNDS = 6  # that count, of a block; fewer say little
FEWEST_ROUNDS = 2  # of steps so long that more do not fit into a sample
JITTER = 0.25  # so that slices do not always begin at the same batch of an epoch
FEW_STEPS = 4  # of which that much is none
PATIENCE = 3.0  # times the length of a sample: where others void its rounds, it ends then
MOST_FAULTS = 20  # pages read from disk in a slice
UNCOUNTED_S = 0.1  # of a turn, beside its uncounted steps: waking the worker, hearing of its end
UNCHECKED = "a time that cannot be checked, because loaders started during uncounted steps"
MOST_CLAIMS = 3  # slices that do not fit their turns, at least half of all: their worker is ended
REHEARSAL = "first round: not counted"
ENDED = "a competitor ended during it"
OTHERS = "other programs took CPU time"
UNEQUAL = "competitors reported different numbers of samples"
MORE = "a competitor reported more samples than its steps have"
ALONE = "no competitor was left"
FEWER = "a competitor had finished before it"
EXPECTED = ("", REHEARSAL, ENDED, ALONE, FEWER)


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Steps of each slice, and of what comes before it in a turn; some rivals have them `times` a factor."""

    steps: int
    rewarm: int

    @classmethod
    def of(
        cls, step_s: Sequence[float], steps: int, on_device: bool, sample_s: float = 0.0, longest_s: float = 0.0
    ) -> "Lengths":
        """Return lengths from the seconds of each rival's step, and the steps, or seconds, that each trains in all.

        A run as short as that of a demonstration still has LEAST_ROUNDS that count. longest_s: of one step of the slowest
        rival, which the others' slices last for, too.
        """
        middle_s = math.exp(sum(math.log(max(one, 1e-6)) for one in step_s) / len(step_s))
        rewarm = math.ceil(REWARM_S / middle_s) if middle_s < LONG_STEP_S else 0
        slice_s = SLICE_ON_DEVICE_S if on_device else SLICE_S
        slice_s = min(max(slice_s, longest_s), sample_s / LEAST_ROUNDS) if sample_s else slice_s
        wanted = max(math.ceil(slice_s / middle_s), 2 * rewarm, 1)
        most = steps // (LEAST_ROUNDS + 2)  # of a turn
        if rewarm + wanted > most:
            rewarm = min(rewarm, max(1, most // 3))
            wanted = max(1, most - rewarm)
        return cls(wanted, rewarm)

    def drawn(self, generator: random.Random) -> "Lengths":
        """The lengths of one round."""
        return dataclasses.replace(self, steps=max(1, round(self.steps * generator.uniform(1 - JITTER, 1 + JITTER))))

    def times(self, factor: float) -> "Lengths":
        """The lengths of a rival whose steps are shorter by this factor, or train on fewer samples."""
        return Lengths(max(1, round(self.steps * factor)), max(min(1, self.rewarm), round(self.rewarm * factor)))

    def shifted(self, generator: random.Random) -> "Lengths":
        """The lengths of one turn: of few steps sometimes one later, else epochs of 2 n steps would have the same n counted."""
        few = self.rewarm > 0 and self.steps < FEW_STEPS
        return dataclasses.replace(self, rewarm=self.rewarm + generator.randint(0, 1)) if few else self


def least(sample_s: float, round_s: float) -> int:
    """Return how many rounds must count: LEAST_ROUNDS, or fewer if a sample of these seconds does not hold them."""
    fitting = math.ceil(sample_s / round_s) if sample_s and round_s else LEAST_ROUNDS
    return max(FEWEST_ROUNDS, min(LEAST_ROUNDS, fitting))


def orders(count: int, generator: random.Random) -> Iterator[list[int]]:
    """Orders of rivals, one a round, without end: each has every place, and follows every other, equally often.

    Williams 1949, Australian Journal of Scientific Research A 2(2), 149-168.
    """
    while True:
        names = generator.sample(range(count), count)
        square = _williams(count)
        generator.shuffle(square)
        for row in square:
            yield [names[place] for place in row]


def _williams(count: int) -> list[list[int]]:
    first = [0]
    for step in range(1, count):
        first.append((first[-1] + (step if step % 2 else -step)) % count)
    rows = [[(place + turn) % count for place in first] for turn in range(count)]
    return rows if count % 2 == 0 else [*rows, *(row[::-1] for row in rows)]


def idle_fault(idle_cpu_s: Mapping[str, float], idle_s: Mapping[str, float]) -> str:
    """Return the rivals that used more than 1 % of a core while waiting, beyond two clock ticks of 10 ms."""
    busy = [name for name, cpu_s in idle_cpu_s.items() if cpu_s > 0.02 + 0.01 * idle_s[name]]
    return f"{', '.join(busy)} used CPU while waiting" if busy else ""


def claim_fault(turn: Turn, step_s: float, full_step_s: float, reopens: bool) -> str:
    """Return whether the time that a worker reported is not that of its turn by the parent's clock; "" if it is.

    step_s: of its slice, by its own account; full_step_s: so scaled to a whole batch. reopens: whether an epoch begins
    with the start of loaders. Where one begins in the uncounted steps, the fault is UNCHECKED, and perhaps nobody's.
    """
    if turn.uncounted_s > UNCOUNTED_S + 2 * turn.rewarm * full_step_s:
        return UNCHECKED if turn.epochs and reopens else "less time than its turn took"
    whole = max(turn.rewarm - turn.epochs, 0)  # the last batch of an epoch may be small
    if turn.uncounted_s < whole * step_s / 4:
        return "more time than its turn allowed"
    return ""


def others_fault(share: float, threshold: float) -> str:
    return OTHERS if share > threshold else ""


def blames_others(voids: Mapping[str, int]) -> bool:
    """Return whether other programs are why at least half of the rounds do not count; voids: rounds by reason."""
    return 2 * voids.get(OTHERS, 0) >= sum(voids.values()) > 0


def stop_fault(stopped: Sequence[str]) -> str:
    """Return which rivals somebody else had stopped while they waited."""
    return f"a signal stopped {', '.join(stopped)} while waiting" if stopped else ""


def faults_fault(faults: dict[str, int]) -> str:
    """Return which rivals had to wait for pages from disk."""
    found = [name for name, count in faults.items() if count > MOST_FAULTS]
    return f"{', '.join(found)} read memory back from disk" if found else ""
