"""The parity ladder: the adapter's network is the same function as the float64 reference's, level by level."""

import pytest

from framework_compare.conformance import graphs
from framework_compare.graph import OPTIMIZERS
from framework_compare.parity.network.ladder import LevelFailed
from framework_compare.parity.pipeline import pipelines
from framework_compare.parity.training import training_check
from framework_compare.results.parity import LEVELS, UNSUPPORTED

BELOW = {0: (), 1: (0,), 2: (0, 1), 3: (0, 1, 2), 5: (0, 1)}  # levels without which one says nothing
TRAINED = graphs.ops_of(training_check.network()) | graphs.ops_of(training_check.network(0.5))


@pytest.mark.parametrize("number", BELOW, ids=[f"level{number}" for number in BELOW])
def test_level(ready, network, number):
    _check_level(ready, ready.parity(network), network, number)


@pytest.mark.parametrize("optimizer", sorted(set(OPTIMIZERS) - {"sgd"}))
def test_steps_of_each_optimizer(ready, optimizer):
    """test_level has those of SGD."""
    if optimizer not in ready.its_class["declared"]["optimizers"]:
        pytest.skip(f"the adapter declares no optimizer {optimizer!r}")
    _check_level(ready, ready.parity("conformance-plain", optimizer), "conformance-plain", 3)


def _check_level(ready, parity, network, number):
    if parity.status == UNSUPPORTED:
        pytest.skip(f"the adapter does not support this: {parity.reason}")
    _skip_above_what_fails(ready, network, number)
    level = next(level for level in parity.levels if level.number == number)
    off = "" if level.ratio is None else f" is off by {level.error:.1e}, {level.ratio:.0f} times what rounding explains"
    assert level.passed, f"level {number} ({LEVELS[number]}) fails on {network}: {level.where}{off}" + (
        f"; {parity.diverges}" if parity.diverges else ""
    )


def _skip_above_what_fails(ready, network, number):
    levels = {level.number: level for level in ready.parity(network).levels}
    failed = [below for below in BELOW[number] if not levels[below].passed]
    if failed:
        pytest.skip(f"level {failed[0]} of {network} fails; fix that first")


@pytest.mark.parametrize("number", [3, 5], ids=["steps", "dropout"])
def test_a_small_network_trained_as_cells_train(ready, number):
    missing = sorted(TRAINED - set(ready.ops))
    if missing:
        pytest.skip(f"the adapter declares no {', '.join(missing)}, which this model needs")
    if ready.parity("conformance-plain").status != UNSUPPORTED:
        _skip_above_what_fails(ready, "conformance-plain", 3)
    level = ready.practised[number]
    assert level.passed, f"level {number} fails: {level.where}"


@pytest.mark.parametrize("part", pipelines.PARTS, ids=[part.name.replace(" ", "-") for part in pipelines.PARTS])
def test_level_4(ready, part):
    level = ready.drawn(part.name)
    if not level.asked or level.where.startswith("not asked: "):
        pytest.skip(f"the adapter does not support this: {level.where}")
    assert level.passed, f"level 4 fails: {level.where}; expected {_wanted(part.settings)}"


def test_level_4_resizes_all_alike(ready):
    levels = [ready.drawn(part.name) for part in pipelines.PARTS]
    try:
        pipelines.check_alike([level.where for level in levels if level.passed and level.ratio is not None])
    except LevelFailed as wrong:
        pytest.fail(f"level 4 fails: {wrong}; expected one resampler for all", pytrace=False)


def _wanted(settings):
    """Return in words what the protocol has for such settings."""
    crops = {
        "none": f"the whole image, resized to {settings['image_size']} x {settings['image_size']} pixels",
        "random": "a separate crop for each image: 0.08 to 1 of the area, uniformly, a ratio from 3/4 to 4/3, its"
        " logarithm uniformly, any place, and the largest in the middle where none of ten tries fits",
    }
    flips = {
        "none": "none flipped",
        "horizontal": "every second mirrored left to right",
        "vertical": "every second upside down",
    }
    crop, flip = settings["crop"], settings["flip"]
    return (
        f"with crop={crop!r} and flip={flip!r} each image once per epoch, with its own label, in a new order each time;"
        f" {crops[crop]}; {flips[flip]}; red, green and blue in this order, normalised with ImageNet's mean and"
        " deviation"
    )
