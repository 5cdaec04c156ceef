"""Whether random crops are drawn as the protocol draws them: two-sample tests against crops that it drew itself.

Each test fails an honest pipeline with a probability of about ALPHA. There are 35 of them: of each of six statistics a
Kolmogorov-Smirnov test and four of its edges, one of flips, and two each of wide and of tall images. So one
honest pipeline of 30,000 fails by chance.
"""

from __future__ import annotations

import functools
import math
import statistics
from typing import Dict, NamedTuple, Tuple

import numpy as np

from framework_compare.batches import preprocess
from framework_compare.parity.network.ladder import LevelFailed
from framework_compare.parity.pipeline.ramps import SIZE

Array = np.ndarray
REFERENCES = 40_000
ALPHA = 1e-6  # probability that a test fails an honest pipeline
DEVIATIONS = statistics.NormalDist().inv_cdf(1 - ALPHA / 2)  # that a normal variable exceeds, to either side, so rarely
BY_ROUNDING = 0.01  # of distribution functions: frameworks round crops to the nearest pixel, downwards or not at all
# Pixels by which an edge is another for sure: of a side one, as it is rounded; of a place two, as the fast transform
# of JPEG decoders moves colours by up to 1.8 levels, and with them where a crop seems to lie.
OFF_SIDE, OFF_PLACE = 1, 2
LONGEST = 1.45  # 4/3 of the smallest crops of narrow images, 38 pixels, with a pixel more and one less
OFF_MEDIAN = 0.15  # of the area of 186 crops: six deviations
MOST_REPEATS = 0.02  # share of the crops; an honest pipeline repeats none or one


class Statistic(NamedTuple):
    """Values of a number of crops, and how far each may be off."""

    values: Array
    slack: Array


def check(crops: Array) -> None:
    """LevelFailed unless crops, (N, 5) as `ramps.crops_of` has them, are drawn as the protocol's and are not repeated."""
    expected = statistics_of(reference(REFERENCES, 1))
    for name, found in statistics_of(crops).items():
        check_edges(name, found, expected[name])
        check_distribution(name, found.values, expected[name].values)
    check_flips(crops[:, 4])
    check_repeats(crops)


@functools.lru_cache(maxsize=4)
def reference(count: int, seed: int, size: Tuple[int, int] = SIZE) -> Array:
    """Crops as the protocol draws them, (count, 5) as `ramps.crops_of` has them."""
    state = np.random.RandomState(seed)
    drawn = (preprocess.draw_crop(state, *size, flip="horizontal") for _ in range(count))
    return np.array([(*crop[:4], float(crop.flip != "none")) for crop in drawn])


def statistics_of(crops: Array) -> Dict[str, Statistic]:
    """Return statistics of crops rounded to whole pixels, as the reference's are: measuring is less noisy."""
    left, top, width, height = crops[:, :4].T
    left, top, right, bottom = (np.round(edge) for edge in (left, top, left + width, top + height))
    width, height = right - left, bottom - top
    relative = OFF_SIDE * (1 / width + 1 / height)
    area = width * height / (SIZE[0] * SIZE[1])
    places = {"left": left, "right": right, "top": top, "bottom": bottom}
    return {
        "area": Statistic(area, area * relative),
        "ratio": Statistic(np.log(width / height), relative),
        **{f"{name} edge": Statistic(place, np.full(len(crops), OFF_PLACE)) for name, place in places.items()},
    }


def check_edges(name: str, found: Statistic, expected: Statistic) -> None:
    """LevelFailed where too many values of one sample lie beyond all of the other, at the lower or the upper end.

    Of two samples of n and m values drawn alike, the k largest are all of the second with probability
    m (m - 1) ... (m - k + 1) / (n + m) (n + m - 1) ... (n + m - k + 1).
    """
    for end, sign in (("smallest", -1), ("largest", 1)):
        ours, theirs = (Statistic(sign * one.values, one.slack) for one in (found, expected))
        for wide, inner, outer in (("wide", theirs, ours), ("narrow", ours, theirs)):
            count = int((outer.values - outer.slack > inner.values.max()).sum())
            if count >= least_beyond(len(inner.values), len(outer.values)):
                seen, drawn = (sign * float(one.values.max()) for one in (ours, theirs))
                raise LevelFailed(
                    f"the range of the {name} of random crops is too {wide}: the {end} of {len(found.values)} is {seen:.4g}"
                    f", that of {len(expected.values)} references {drawn:.4g}; {count} values lie beyond"
                )


def least_beyond(inner: int, outer: int) -> int:
    """Return how many values of `outer` beyond all of `inner` have a probability below ALPHA if both are drawn alike."""
    probability = 1.0
    for count in range(outer):
        if probability < ALPHA:
            return count
        probability *= (outer - count) / (inner + outer - count)
    return outer + 1  # too few values to say anything


def check_distribution(name: str, values: Array, expected: Array) -> None:
    """LevelFailed if a Kolmogorov-Smirnov test sets the two samples apart."""
    # scipy.stats takes a second to import, and whoever looks a verdict up does not need it.
    from scipy.stats import ks_2samp, kstwobign

    distance = float(ks_2samp(values, expected, method="asymp").statistic)
    allowed = float(kstwobign.isf(ALPHA)) * math.sqrt(1 / len(values) + 1 / len(expected)) + BY_ROUNDING
    if distance > allowed:
        medians = f"median {np.median(values):.4g}, expected {np.median(expected):.4g}"
        differs = f"the {name} of random crops has another distribution"
        raise LevelFailed(f"{differs} ({medians}; KS {distance:.3f} > {allowed:.3f})")


def check_cut(crops: Array) -> None:
    """LevelFailed if the median of too few crops to test them otherwise is far from the protocol's."""
    samples = (crops, reference(REFERENCES, 1))
    median, expected = (float(np.median(some[:, 2] * some[:, 3])) / (SIZE[0] * SIZE[1]) for some in samples)
    if abs(median - expected) > OFF_MEDIAN:
        raise LevelFailed(f"random crops have a median area of {median:.2f}, expected {expected:.2f}")


def check_narrow(crops: Array, size: Tuple[int, int]) -> None:
    """LevelFailed unless crops of images so narrow are as the protocol's where none of ten tries fits: large, in the middle."""
    kind = "wide" if size[0] > size[1] else "tall"
    drawn = reference(REFERENCES, 2, size)
    if size[0] < size[1]:  # places and sides along the longer side of the image first
        crops, drawn = (some[:, [1, 0, 3, 2, 4]] for some in (crops, drawn))
    longest = crops[:, 2] / crops[:, 3]
    if longest.max() > LONGEST:
        ratio = f"a side ratio of up to {longest.max():.2f}, expected at most {preprocess.RATIO[1]:.2f}"
        raise LevelFailed(f"{(longest > LONGEST).sum()} of {len(crops)} random crops of {kind} images have {ratio}")
    expected = _shares(drawn, size)
    for what, share in _shares(crops, size).items():
        if abs(share - expected[what]) > _chance(expected[what], len(crops)):
            raise LevelFailed(f"{share:.3f} of the random crops of {kind} images {what}, expected {expected[what]:.3f}")


def _shares(crops: Array, size: Tuple[int, int]) -> Dict[str, float]:
    long, short = max(size), min(size)
    across = crops[:, 3] > short - 1.5
    middle = np.abs(crops[:, 0] + crops[:, 2] / 2 - long / 2) < 1 + OFF_PLACE
    return {"reach across": float(across.mean()), "do so in the middle": float((across & middle).mean())}


def check_flips(flipped: Array) -> None:
    share, count = float(flipped.mean()), len(flipped)
    if abs(share - 0.5) > _chance(0.5, count):
        raise LevelFailed(f"{share:.3f} of {count} images are flipped, expected 0.5")


def _chance(share: float, count: int) -> float:
    """Return how far off a share that is seen in `count` draws may be."""
    return DEVIATIONS * math.sqrt(share * (1 - share) * (1 / count + 1 / REFERENCES))


def check_repeats(crops: Array) -> None:
    repeats = len(crops) - len(np.unique(np.round(crops), axis=0))
    if repeats > MOST_REPEATS * len(crops):
        raise LevelFailed(f"{repeats} of {len(crops)} crops appear more than once: generators share a seed")
