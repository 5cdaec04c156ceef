"""Whether random crops and flips are drawn for each image by themselves: correlations that must not be there.

Each of the 29 tests fails independent draws with a probability of about ALPHA.
"""

import itertools
import math
from typing import Dict, Tuple

import numpy as np

from framework_compare.parity.network.ladder import LevelFailed
from framework_compare.parity.pipeline.crops import ALPHA, DEVIATIONS, REFERENCES, reference
from framework_compare.parity.pipeline.ramps import SIZE

Array = np.ndarray
LEAST_ROOM = 20  # pixels that a crop could lie elsewhere: with less, rounding decides where it seems to lie
PLACES = ("place from the left", "place from the top")


def check(crops: Array, labels: Array, count: int, batch_size: int) -> None:
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


def draws_of(crops: Array) -> Dict[str, Array]:
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


def check_pairs(drawn: Dict[str, Array]) -> None:
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


def correlation(first: Array, second: Array) -> Tuple[float, int]:
    """Return the correlation of the pairs that have both values, and their number."""
    both = np.isfinite(first) & np.isfinite(second)
    first, second = first[both], second[both]
    if not first.std() or not second.std():
        return 0.0, int(both.sum())
    return float(np.corrcoef(first, second)[0, 1]), int(both.sum())
