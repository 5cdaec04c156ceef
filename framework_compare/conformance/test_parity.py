"""The parity ladder: the adapter's network is the same function as the float64 reference's, level by level."""

import pytest

from framework_compare.parity import pictures, pipelines, ramps
from framework_compare.parity.ladder import Wrong
from framework_compare.parity.result import LEVELS, UNSUPPORTED

BELOW = {0: (), 1: (0,), 2: (0, 1), 3: (0, 1, 2), 5: (0, 1)}  # levels without which one says nothing


@pytest.mark.parametrize("number", BELOW, ids=[f"level{number}" for number in BELOW])
def test_level(ready, network, number):
    parity = ready.parity(network)
    if parity.status == UNSUPPORTED:
        pytest.skip(f"the adapter does not support this: {parity.reason}")
    _skip_above_what_fails(ready, network, number)
    level = next(level for level in parity.levels if level.number == number)
    off = "" if level.ratio is None else f" is off by {level.error:.1e}, {level.ratio:.0f} times what rounding explains"
    assert level.passed, (
        f"level {number} ({LEVELS[number]}) does not hold on {network}: {level.where}{off}"
        + (f"; {parity.diverges}" if parity.diverges else "")
    )


def _skip_above_what_fails(ready, network, number):
    levels = {level.number: level for level in ready.parity(network).levels}
    failed = [below for below in BELOW[number] if not levels[below].passed]
    if failed:
        pytest.skip(f"level {failed[0]} of {network} does not hold; mend that first")


@pytest.mark.parametrize("number", [3, 5], ids=["steps", "dropout"])
def test_a_small_network_trained_as_cells_train(ready, number):
    _skip_above_what_fails(ready, "conformance-plain", 3)
    level = ready.practised[number]
    assert level.passed, f"level {number} does not hold: {level.where}"


def test_level_4_pixels(ready):
    listed = pictures.write_scenes(ready.folder / "scenes")
    size = pipelines.SIZE
    images, labels = ready.drawn("pixels", listed, batch_size=4, image_size=size, crop="none", flip="none")
    try:
        pipelines.check_pixels(listed, (images, labels))
    except Wrong as wrong:
        pytest.fail(
            f"{wrong}; wanted, with crop and flip 'none', the whole picture as RGB, resized to {size}x{size} and"
            " normalised with ImageNet's mean and deviation",
            pytrace=False,
        )


def test_level_4_crops_and_flips(ready):
    listed = ramps.write(ready.folder / "ramps", pipelines.RAMPS)
    drawn = ready.drawn("crops", listed, **pipelines.AS_TRAINED)
    try:
        pipelines.check_crops(listed, drawn)
    except Wrong as wrong:
        pytest.fail(
            f"{wrong}; wanted all pictures in another order each epoch, and for each by itself 0.08 to 1 of the area,"
            " uniformly, a ratio from 3/4 to 4/3, its logarithm uniformly, any place, every second"
            " picture flipped, red, green and blue in this order, and each picture's own label",
            pytrace=False,
        )
