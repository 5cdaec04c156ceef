"""Find the release that changed a figure: a binary search of duels with the first one, and an error bound on all of it.

Each duel gives log ratios, one per block of fresh workers: the figure of a release over that of the first. After each
number of blocks in LOOKS it asks which side of a cut the ratio is on. All intervals of a search are so wide that all
hold together with probability 1 - alpha: alpha is shared out among the most duels that a search may take and the looks
at each (Bonferroni). So a wrong release, or any where nothing changed, has at most that probability.

The first duel, of the last release, finds a change if its interval lies beyond half the threshold, and none of the
threshold if it lies within that. Later duels ask whether more than half of the last release's change is there.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

from framework_compare.results.intervals import exp

ALPHA = 0.05
# Blocks of a duel after which its answer is sought: these are twice as many as doublings from 8 would be, which
# widens the intervals by a tenth, but a quiet machine needs only the first, and no answer waits for twice the blocks.
LOOKS = (6, 8, 12, 16, 24, 32, 48, 64)
CHANGED, UNCHANGED, INCONCLUSIVE, FAILED = "changed", "unchanged", "inconclusive", "failed"
# The log ratios of the first blocks, so many at least, of a release and the first; None where it does not work.
Measure = Callable[[int, int], "Sequence[float] | None"]


@dataclasses.dataclass(frozen=True)
class Answer:
    """Result of one duel: the release by its place, its ratio with the interval of the search, on which side it is."""

    place: int
    blocks: int
    ratio: float
    low: float
    high: float
    outcome: str  # CHANGED, UNCHANGED, INCONCLUSIVE, or FAILED of a release that does not work


@dataclasses.dataclass(frozen=True)
class Found:
    """End of a search. before, after: places of the last release that is as the first, and of the first that is as the
    last; neighbours where the outcome is CHANGED, unless what is between them does not work.
    """

    outcome: str
    before: int
    after: int
    answers: tuple[Answer, ...]


def most_duels(releases: int) -> int:
    """Duels that a search takes at most, those of releases that do not work apart."""
    return 1 + math.ceil(math.log2(max(releases - 1, 1)))


def search(
    releases: int, threshold: float, measure: Measure, alpha: float = ALPHA, looks: Sequence[int] = LOOKS
) -> Found:
    """Search `releases` releases, two or more, for a change of at least `threshold`, such as 0.05."""
    level = alpha / most_duels(releases) / len(looks)
    whole = math.log1p(threshold)

    def beyond(low: float, high: float) -> str:
        if low > whole / 2 or high < -whole / 2:
            return CHANGED
        return UNCHANGED if -whole < low and high < whole else INCONCLUSIVE

    last = _ask(releases - 1, measure, level, looks, beyond)
    answers = [last]
    before, after = 0, releases - 1
    if last.outcome != CHANGED:
        return Found(last.outcome, before, after, tuple(answers))
    sign = math.copysign(1, math.log(last.ratio))
    # not beyond the nearer end: a change that this interval holds is then on its own side of the cut
    cut = min(math.log(last.ratio) * sign / 2, math.log(last.low if sign > 0 else 1 / last.high)) * sign

    def side(low: float, high: float) -> str:
        """Beyond the cut in the direction of the last release's change, or before it."""
        nearest, furthest = (low - cut, high - cut) if sign > 0 else (cut - high, cut - low)
        return CHANGED if nearest > 0 else UNCHANGED if furthest < 0 else INCONCLUSIVE

    untried = set(range(1, releases - 1))
    while between := [place for place in untried if before < place < after]:
        middle = min(between, key=lambda place: abs(place - (before + after) / 2))
        untried.remove(middle)
        answers.append(_ask(middle, measure, level, looks, side))
        if answers[-1].outcome == INCONCLUSIVE:
            return Found(INCONCLUSIVE, before, after, tuple(answers))
        before = middle if answers[-1].outcome == UNCHANGED else before
        after = middle if answers[-1].outcome == CHANGED else after
    return Found(CHANGED, before, after, tuple(answers))


def _ask(
    place: int, measure: Measure, level: float, looks: Sequence[int], decide: Callable[[float, float], str]
) -> Answer:
    """Look after more and more blocks until the answer is sure."""
    answer = Answer(place, 0, math.nan, 0.0, math.inf, INCONCLUSIVE)
    for blocks in looks:
        logs = measure(place, blocks)
        if logs is None:
            return dataclasses.replace(answer, outcome=FAILED)
        mean, low, high = interval(logs, level)
        outcome = decide(low, high)
        answer = Answer(place, len(logs), math.exp(mean), exp(low), exp(high), outcome)
        if outcome != INCONCLUSIVE:
            break
    return answer


def interval(logs: Sequence[float], level: float) -> tuple[float, float, float]:
    """The mean of log ratios and the ends of Student's interval that misses with probability `level`."""
    from scipy.special import stdtrit

    count = len(logs)
    if count < 2:
        return (float(logs[0]) if count else math.nan), -math.inf, math.inf
    mean = statistics.fmean(logs)
    arm = float(stdtrit(count - 1, 1 - level / 2)) * statistics.stdev(logs) / math.sqrt(count)
    return mean, mean - arm, mean + arm
