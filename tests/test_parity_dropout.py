"""Level 5's judgement of what dropout keeps, where two programs summed by two algorithms."""

import re

import numpy
import pytest
from bounds import digits

from framework_compare.parity.network.ladder import KEPT, LevelFailed, check_dropout, check_off, check_stochastic_depth
from framework_compare.parity.network.rounding import unit


def dropped(values, p=0.5, scale=2.0, passes=16):
    """Passes of `values`, a float32 product of (8, 512) images, with a mask each."""
    kept = numpy.random.default_rng(1).random((passes, *values.shape)) >= p
    return numpy.where(kept, numpy.float32(scale) * values, numpy.float32(0))


@pytest.fixture
def summed_twice():
    """ReLU of the same sums, forwards and in blocks of eight: as two algorithms round them."""
    rng = numpy.random.default_rng(0)
    x, w = rng.standard_normal((8, 4096), numpy.float32), rng.standard_normal((4096, 512), numpy.float32)
    blocks = sum(x[:, i::8] @ w[i::8] for i in range(8))
    return [numpy.maximum(sums, 0) for sums in (x @ w, blocks)]


def test_dropout_is_judged_beneath_the_rounding_of_two_algorithms(summed_twice):
    one, other = summed_twice
    both = (one > 0) & (other > 0)
    assert abs(other[both] / one[both] - 1).max() > KEPT + unit("fp32")  # a small value, by its relative error
    check_dropout("dropout", 0.5, dropped(other), one, "fp32")


@pytest.mark.parametrize("scale", [1.0, 2.001, 1.999])
def test_a_scale_of_dropout_that_is_a_little_off_is_seen_all_the_same(summed_twice, scale):
    one, other = summed_twice
    with pytest.raises(LevelFailed, match="kept values are scaled by .*, expected 2$") as caught:
        check_dropout("dropout", 0.5, dropped(other, scale=scale), one, "fp32")
    told = float(re.search("scaled by ([0-9.]+)", str(caught.value))[1])
    most = one > numpy.median(one[one > 0]) / 2  # what is smaller is not judged by its own size
    assert told == pytest.approx(scale, rel=float(abs(other[most] / one[most] - 1).max()) + digits(6))


@pytest.mark.parametrize("put", [numpy.nan, numpy.inf])
def test_a_kept_value_that_is_no_number_is_none_of_dropouts(summed_twice, put):
    passes = dropped(summed_twice[0])
    passes[tuple(numpy.argwhere(passes > 0)[0])] = put
    with pytest.raises(LevelFailed, match="kept values are scaled by"):
        check_dropout("dropout", 0.5, passes, summed_twice[0], "fp32")


def depth(scale=1.25, p=0.2, passes=32, seed=3):
    """Passes of a batch of two in which whole samples are dropped."""
    kept = numpy.random.default_rng(seed).random((passes, 2, 1, 1, 1)) >= p
    return kept * scale * DEPTH_INPUT


DEPTH_INPUT = numpy.random.default_rng(2).standard_normal((2, 3, 4, 4)).astype(numpy.float32)


def test_samples_dropped_by_chance_pass():
    check_stochastic_depth("depth", 0.2, depth(), DEPTH_INPUT, "fp32")


@pytest.mark.parametrize(
    "passes, message",
    [
        (depth(scale=1.0), "kept values are scaled by 1, expected 1.25"),
        (depth(p=0.8), "of 64 samples dropped, expected 0.2"),
        (depth() * (numpy.arange(4) > 0), "a part of a sample is dropped"),
        (depth()[:, :1].repeat(2, axis=1) * (DEPTH_INPUT / DEPTH_INPUT[:1]), "all images of a batch are dropped"),
        (1.25 * DEPTH_INPUT[None].repeat(32, axis=0), "each pass drops the same"),
    ],
    ids=["not scaled", "kept instead", "by values", "all together", "never"],
)
def test_other_ways_to_drop_samples_fail(passes, message):
    with pytest.raises(LevelFailed, match=message):
        check_stochastic_depth("depth", 0.2, passes, DEPTH_INPUT, "fp32")


def test_logits_that_two_orders_of_sums_explain_are_those_without_dropout(summed_twice):
    one, other = summed_twice
    assert not numpy.array_equal(one, other)
    check_off(other, one)


@pytest.mark.parametrize("moved", [1e-4, numpy.nan])
def test_dropout_that_is_on_in_evaluation_is_seen(summed_twice, moved):
    with_it = summed_twice[0].copy()
    with_it.flat[0] += moved * numpy.abs(with_it).max()
    with pytest.raises(LevelFailed, match="dropout is on in evaluation mode"):
        check_off(with_it, summed_twice[0])
