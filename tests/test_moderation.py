"""Ratios whose variance is moderated by that of other pairs: what is pooled, and how often that is right."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas
import pytest
from bounds import standard_errors

from framework_compare.results import moderation
from framework_compare.results.block_times import BlockTimes, Stratum, strata
from framework_compare.results.intervals import holm, paired_ratio

STUDIES = 150


def times(logs, **more):
    """Block times of logarithms, a row a cell; NaN for a run that is missing."""
    rows = enumerate(np.exp(np.asarray(logs, dtype=float)))
    return BlockTimes({cell: {block: s for block, s in enumerate(row) if s == s} for cell, row in rows}, **more)


def noise(seed, cells, blocks, scale=0.03):
    return np.random.default_rng(seed).normal(0, scale, (cells, blocks))


def width(interval):
    return math.log(interval.high / interval.low)


def test_two_cells_have_the_interval_that_paired_runs_have_by_themselves():
    seconds = times(noise(1, 2, 4))
    assert seconds.ratio(1, 0) == paired_ratio(seconds[1], seconds[0])


def test_cells_of_equal_noise_have_an_interval_about_the_mean_of_all_variances():
    """The mean of the variances of all pairs is twice the residual variance of the two-way analysis of variance."""
    logs = noise(2, 8, 3) + [[0.0, 0.4, -0.2]]
    residuals = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0) + logs.mean()
    prior = moderation.fit([logs])
    assert prior.variance == pytest.approx(2 * (residuals**2).sum() / (7 * 2)) and prior.pooled == 14
    assert prior.freedom == math.inf, "these differ by less than chance has it"
    variance, freedom = prior.moderate(4 * prior.variance, 2)
    assert freedom == 6 and variance == pytest.approx((4 + 2 * 4) / 6 * prior.variance)


def test_a_cell_that_is_noisier_than_the_others_keeps_a_wider_interval():
    logs = noise(3, 10, 5, 0.01)
    logs[0] *= 20
    seconds = times(logs)
    widths = {pair: width(seconds.ratio(*pair)) for pair in itertools.combinations(range(10), 2)}
    noisy = [one for pair, one in widths.items() if 0 in pair]
    others = [one for pair, one in widths.items() if 0 not in pair]
    assert min(noisy) > 2 * np.median(others)


def test_one_wild_run_names_no_fastest():
    logs = noise(4, 6, 3, 0.01)
    logs[0, 1] += 0.7
    seconds = times(logs)
    assert all(seconds.ratio(cell, 0).p > 0.05 for cell in range(1, 6))


def test_constants_neither_narrow_the_intervals_of_others_nor_lose_their_own():
    logs = noise(5, 6, 3)
    stored = np.vstack([logs, np.zeros((3, 3))])
    assert moderation.fit([stored[6:]]) is None and moderation.fit([]) is None
    assert times(stored[6:]).ratio(1, 0)[1:4] == (1, 1, 1)
    with_them, without = times(stored), times(logs)
    assert width(with_them.ratio(1, 0)) > 0.5 * width(without.ratio(1, 0))
    assert width(with_them.ratio(7, 6)) > 0, "others show that this machine has noise"


def test_a_cell_beside_itself_is_one():
    assert times(noise(6, 5, 3)).ratio(2, 2)[:3] == (1, 1, 1)


def test_noise_is_pooled_over_groups_of_one_machine_and_over_no_others():
    logs = np.vstack([noise(7, 4, 3, 0.01), noise(8, 4, 3, 0.1)])
    groups = {cell: Stratum("here", cell % 2) for cell in range(8)}
    nodes = {cell: Stratum(cell // 4, 0) for cell in range(8)}
    apart = times(logs, strata=nodes)
    assert apart.ratio(1, 0) == times(logs[:4]).ratio(1, 0)
    assert apart.ratio(4, 0) == paired_ratio(apart[4], apart[0]), "of two machines"
    both = times(logs, strata=groups)
    assert width(both.ratio(2, 0)) > width(apart.ratio(2, 0))
    nowhere = times(logs, strata=dict.fromkeys(range(8), Stratum(None)))
    assert nowhere.ratio(1, 0) == paired_ratio(nowhere[1], nowhere[0])


def test_a_cell_that_others_disturbed_throughout_says_nothing_of_the_noise_of_the_others():
    shared = {"device": "cpu", "node_id": None, "model": "m", "dataset": "d"}
    rows = [{**shared, "cell": cell, "disturbed": float(cell == 3)} for cell in range(4)]
    pools = {cell: one.pool for cell, one in strata(pandas.DataFrame(rows)).items()}
    assert pools[3] is None and None not in {pools[cell] for cell in range(3)}
    logs = noise(11, 4, 3)
    logs[3] *= 20
    groups = {cell: Stratum(pool, "m") for cell, pool in pools.items()}
    assert times(logs, strata=groups).ratio(1, 0) == times(logs[:3]).ratio(1, 0)
    means = times(logs, strata=groups).means({"a": (0,), "b": (1,), "c": (2,), "d": (3,)})
    assert means.ratio("b", "a") == times(logs[:3]).ratio(1, 0)


def test_runs_that_are_missing_leave_their_blocks_out():
    logs = noise(9, 6, 4)
    logs[0, :2] = logs[1, 3] = np.nan
    seconds = times(logs)
    assert (seconds.ratio(1, 0).runs, seconds.ratio(2, 0).runs, seconds.ratio(3, 2).runs) == (1, 2, 4)
    assert seconds.ratio(1, 0).low is None, "one block has no interval, whatever others show"
    assert width(seconds.ratio(2, 0)) > width(seconds.ratio(3, 2))
    assert moderation.fit([logs]).pooled == 21 - 6 - 4 + 1
    assert times([[0, np.nan], [np.nan, 0]]).ratio(1, 0) is None


def test_geometric_means_are_of_the_blocks_that_all_have():
    logs = noise(10, 6, 3)
    logs[3, 0] = np.nan
    means = times(logs).means({"a": (0, 1), "b": (2, 3), "c": (4, 5)})
    assert sorted(means["b"]) == [1, 2] and means["a"][2] == pytest.approx(math.exp((logs[0, 2] + logs[1, 2]) / 2))
    assert means.ratio("b", "a").runs == 2 < means.ratio("c", "a").runs


CELLS = {"alike": 1.0, "half are six times noisier": np.where(np.arange(6) % 2, 0.5, 3.0)}
SHAPES = {
    "normal": lambda generator, shape: generator.normal(0, 0.03, shape),
    "heavy tails": lambda generator, shape: generator.standard_t(3, shape) * 0.02,
    "held up": lambda generator, shape: generator.normal(0, 0.02, shape) + 0.2 * (generator.random(shape) < 0.1),
}
# One run in ten held up: a pair without such a run was narrower than it should have been.
NARROWER = {"normal": 0.8, "heavy tails": 0.8, "held up": 1.5}


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("shape", SHAPES)
def test_moderated_intervals_hold_the_truth(shape, cells):
    """Six cells, three blocks that drift by 20 %; all comparisons of all studies, and any false one after Holm's method."""
    generator = np.random.default_rng([sorted(SHAPES).index(shape), sorted(CELLS).index(cells)])
    wrong, any_wrong, before, after = [], [], [], []
    for _ in range(STUDIES):
        logs = SHAPES[shape](generator, (6, 3)) * np.reshape(CELLS[cells], (-1, 1)) + generator.normal(0, 0.2, 3)
        seconds = times(logs)
        pairs = list(itertools.combinations(range(6), 2))
        ratios = [seconds.ratio(*pair) for pair in pairs]
        wrong += [one.p < 0.05 for one in ratios]
        any_wrong.append(min(holm([one.p for one in ratios])) < 0.05)
        before += [width(paired_ratio(seconds[a], seconds[b])) for a, b in pairs]
        after += map(width, ratios)
    # Pairs of one study share cells, so the slack is that of the studies, not of the pairs.
    assert np.mean(wrong) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / STUDIES / 3), np.mean(wrong)
    assert np.mean(any_wrong) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / STUDIES), np.mean(any_wrong)
    assert np.median(after) < NARROWER[shape] * np.median(before), (np.median(before), np.median(after))


def test_a_study_of_ten_thousand_cells_needs_little_memory():
    import tracemalloc

    logs = np.random.default_rng(1).normal(0, 0.03, (10_000, 5))
    tracemalloc.start()
    prior = moderation.fit([logs])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    free = len(logs) * (logs.shape[1] - 1)  # of its rows' means
    assert peak < 50e6
    assert prior.variance == pytest.approx(2 * 0.03**2, rel=standard_errors(np.sqrt(2), free))
