"""Test that a pipeline draws as the protocol does: the distribution of crops and flips, their independence, the order.

Each of 82 tests fails an honest pipeline with a probability of about ALPHA, so that one of 12,000 fails by chance. 35
test crops: for each of six statistics a Kolmogorov-Smirnov test and four tests of its edges, one test of flips, and two tests
each of wide and of tall images. 29 test for correlations, and 18 test orders.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from typing import Iterator, NamedTuple

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
LEAST_ROOM = 20  # pixels that a crop could lie elsewhere: with less, rounding decides where it seems to lie
PLACES = ("place from the left", "place from the top")
MATES = 5.5  # deviations that shared batch-mates may be off: their distribution leans to the right


class Statistic(NamedTuple):
    """Values of a number of crops, and how far each may be off."""

    values: Array
    slack: Array


def check_crops(crops: Array) -> None:
    """LevelFailed unless crops, (N, 5) as `ramps.crops_of` has them, are drawn as the protocol's and are not repeated."""
    expected = statistics_of(reference(REFERENCES, 1))
    for name, found in statistics_of(crops).items():
        check_edges(name, found, expected[name])
        check_distribution(name, found.values, expected[name].values)
    check_flips(crops[:, 4])
    check_repeats(crops)


@functools.lru_cache(maxsize=4)
def reference(count: int, seed: int, size: tuple[int, int] = SIZE) -> Array:
    """Crops as the protocol draws them, (count, 5) as `ramps.crops_of` has them."""
    state = np.random.RandomState(seed)
    drawn = (preprocess.draw_crop(state, *size, flip="horizontal") for _ in range(count))
    return np.array([(*crop[:4], float(crop.flip != "none")) for crop in drawn])


def statistics_of(crops: Array) -> dict[str, Statistic]:
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


def check_narrow(crops: Array, size: tuple[int, int]) -> None:
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


def _shares(crops: Array, size: tuple[int, int]) -> dict[str, float]:
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


def check_independence(crops: Array, labels: Array, count: int, batch_size: int) -> None:
    """LevelFailed if something drawn, of epochs of `count` images in the order they came, goes with something else."""
    drawn = draws_of(crops)
    flips = drawn["flip"].reshape(-1, count)
    check_flips_by_epoch(flips)
    check_flips_by_batch(flips, batch_size)
    check_pairs(drawn)
    epochs = np.repeat(np.arange(len(flips)), count)
    order = np.argsort(labels.reshape(-1, count), axis=1) + np.arange(len(flips))[:, None] * count  # (epochs, count)
    for name, values in drawn.items():
        _check(f"the {name} of random crops depends on the epoch", values, epochs)
        check_between_epochs(name, values[order])
        _check(f"the {name} of random crops correlates with that of the previous image", values[:-1], values[1:])


def draws_of(crops: Array) -> dict[str, Array]:
    """Return what was drawn for each crop, (N, 5) as `ramps.crops_of` has them; a place is NaN where there was no choice."""
    left, top, width, height, flipped = crops.T
    places = {}
    for name, start, side, full in zip(PLACES, (left, top), (width, height), SIZE):
        room = full - side
        places[name] = np.where(room >= LEAST_ROOM, start / np.maximum(room, 1), np.nan)
    return {"area": width * height, "ratio": np.log(width / height), **places, "flip": flipped}


def check_flips_by_epoch(flips: Array) -> None:
    """LevelFailed unless about half of the images of each epoch are flipped; `flips` is (epochs, images)."""
    allowed = DEVIATIONS * math.sqrt(0.25 / flips.shape[1])
    for number, share in enumerate(flips.mean(axis=1), start=1):
        if abs(share - 0.5) > allowed:
            raise LevelFailed(f"in epoch {number}, {share:.3f} of {flips.shape[1]} images are flipped, expected 0.5")


def check_flips_by_batch(flips: Array, batch_size: int) -> None:
    """LevelFailed where flips are as many in each batch, or as few or as many in some, as single draws would not make them.

    The sum over batches of (flips - n / 2)^2 / (n / 4) has nearly a chi-squared distribution.
    """
    from scipy.stats import chi2

    starts = np.arange(0, flips.shape[1], batch_size)
    sizes = np.diff([*starts, flips.shape[1]])
    spread = float(((np.add.reduceat(flips, starts, axis=1) - sizes / 2) ** 2 / (sizes / 4)).sum())
    batches = len(starts) * len(flips)
    least, most = chi2.interval(1 - ALPHA, batches)
    if not least <= spread <= most:
        raise LevelFailed(
            f"flips are drawn per batch, not per image: over {batches} batches the variance of their number is"
            f" {spread / batches:.2f} times that of independent draws, by chance {least / batches:.2f} to {most / batches:.2f}"
        )


def check_pairs(drawn: dict[str, Array]) -> None:
    """LevelFailed if two things drawn for a crop go together otherwise than as the protocol draws them.

    Those that fit into no image are drawn again, so that there area and ratio go together a little.
    """
    expected = draws_of(reference(REFERENCES, 1))
    for one, other in itertools.combinations(drawn, 2):
        usual = correlation(expected[one], expected[other])[0]
        _check(f"the {one} and the {other} of random crops are correlated", drawn[one], drawn[other], usual)


def check_between_epochs(name: str, values: Array) -> None:
    """LevelFailed if what is drawn for an image goes with what another epoch drew for it; `values` is (epochs, images)."""
    pairs = list(itertools.combinations(range(len(values)), 2))
    first, second = (np.concatenate([values[pair[side]] for pair in pairs]) for side in (0, 1))
    _check(f"the {name} of an image's random crop correlates with that of another epoch", first, second)


def _check(what: str, first: Array, second: Array, expected: float = 0.0) -> None:
    found, count = correlation(first, second)
    allowed = DEVIATIONS * math.sqrt(1 / count + (1 / REFERENCES if expected else 0))
    if abs(found - expected) > allowed:
        raise LevelFailed(f"{what}: correlation {found:.2f}, expected {expected:.2f}, by chance within {allowed:.2f}")


def correlation(first: Array, second: Array) -> tuple[float, int]:
    """Return the correlation of the pairs that have both values, and their number."""
    both = np.isfinite(first) & np.isfinite(second)
    first, second = first[both], second[both]
    if not first.std() or not second.std():
        return 0.0, int(both.sum())
    return float(np.corrcoef(first, second)[0, 1]), int(both.sum())


class Pair(NamedTuple):
    """Two orders of the same images, by number, and what to call them."""

    first: Array
    second: Array
    names: str
    short: str  # what of both is kept


def check_orders(labels: Array, count: int, batch_size: int) -> None:
    """LevelFailed unless the epochs in `labels`, of `count` images each, are shuffled over all of them, and anew."""
    epochs = labels.reshape(-1, count)
    for pair in _pairs(epochs):
        if np.array_equal(pair.first, pair.second):
            raise LevelFailed(f"{pair.names} have their images in the same order")
    for pair in _pairs(epochs):
        check_ranks(pair)
        check_neighbours(pair)
        check_mates(pair, batch_size)


def _pairs(epochs: Array) -> Iterator[Pair]:
    listed = np.arange(epochs.shape[1])
    for number, order in enumerate(epochs, start=1):
        yield Pair(listed, order, f"the list and epoch {number}", "of the list")
    for (i, one), (j, other) in itertools.combinations(enumerate(epochs, start=1), 2):
        yield Pair(one, other, f"epochs {i} and {j}", "of another epoch")


def check_ranks(pair: Pair) -> None:
    """LevelFailed where images that come early in one order come early, or late, in the other.

    Spearman's correlation of two random orders of n has mean 0 and variance 1 / (n - 1), and is nearly normal.
    """
    found = float(np.corrcoef(np.argsort(pair.first), np.argsort(pair.second))[0, 1])
    allowed = DEVIATIONS / math.sqrt(len(pair.first) - 1)
    if abs(found) > allowed:
        raise LevelFailed(
            f"images are not shuffled over the whole set: positions in {pair.names} have a rank correlation of"
            f" {found:.2f}, by chance at most {allowed:.2f}"
        )


def check_neighbours(pair: Pair) -> None:
    """LevelFailed where too many images that follow each other in one order are next to each other in the other.

    Of two random orders about a Poisson number with mean 2 are.
    """
    from scipy.stats import poisson

    steps = np.abs(np.diff(np.argsort(pair.first)[pair.second]))
    found, allowed = int((steps == 1).sum()), int(poisson.isf(ALPHA, 2.0))
    if found > allowed:
        raise LevelFailed(
            f"images are not shuffled over the whole set: {found} of {len(pair.first) - 1} neighbours {pair.short}"
            f" are neighbours again in {pair.names.rpartition(' and ')[2]}, by chance at most {allowed}"
        )


def check_mates(pair: Pair, batch_size: int) -> None:
    """LevelFailed where too many pairs of images share a batch in both orders.

    Of random orders their number has mean P^2 / T, of T pairs in all and P in a batch together, and about its square
    root as deviation.
    """
    count = len(pair.first)
    sizes = np.bincount(np.arange(count) // batch_size)
    mean = float((sizes * (sizes - 1) / 2).sum()) ** 2 / (count * (count - 1) / 2)
    batches = [np.argsort(order) // batch_size for order in (pair.first, pair.second)]
    together = np.bincount(batches[0] * len(sizes) + batches[1])
    found, allowed = int((together * (together - 1) // 2).sum()), mean + MATES * math.sqrt(mean)
    if found > allowed:
        raise LevelFailed(
            f"batches are not reshuffled: {found} pairs of images share a batch in {pair.names}, {mean:.0f} expected,"
            f" by chance at most {allowed:.0f}"
        )
