"""Intervals over runs: what they need, what they hold, and how often they cover the true value."""

import itertools
import math

import numpy as np
import pandas
import pytest
from bounds import standard_errors
from scipy import stats

from framework_compare.results import intervals, moderation
from framework_compare.results.block_times import BlockTimes, Stratum, strata
from framework_compare.results.intervals import geometric_mean, holm, paired_ratio, unpaired_ratio

SIMULATIONS = 2000
# Logarithms of run times as machines make them: even, heavy on both sides, one run in ten held up by a fifth, skewed.
NOISE = {
    "normal": lambda generator, shape: generator.normal(0, 0.03, shape),
    "laplace": lambda generator, shape: generator.laplace(0, 0.03, shape),
    "held up": lambda generator, shape: generator.normal(0, 0.02, shape) + 0.1823 * (generator.random(shape) < 0.1),
    "skewed": lambda generator, shape: generator.exponential(0.04, shape),
}


def by_block(values):
    return dict(enumerate(values, 1))


def test_intervals_of_one_or_equal_runs_have_no_width():
    one = geometric_mean([3.0])
    assert (one.value, one.low, one.high, one.p, one.runs) == (pytest.approx(3), None, None, None, 1)
    with pytest.raises(ValueError, match="needs at least one"):
        geometric_mean([])
    assert geometric_mean([2.0] * 3)[1:4] == (pytest.approx(2), pytest.approx(2), 0.0)
    assert geometric_mean([1.0] * 3).p == 1.0 and unpaired_ratio([2.0, 2.0], [1.0, 1.0]).p == 0.0


def test_intervals_are_students_and_welchs_of_the_logarithms():
    values = [1.0, 1.1, 1.3, 0.9]
    found, known = geometric_mean(values), stats.ttest_1samp(np.log(values), 0)
    ends = known.confidence_interval(0.95)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((ends.low, ends.high))
    assert found.p == pytest.approx(known.pvalue) and found.value == pytest.approx(stats.gmean(values))
    now, before = [2.0, 2.2, 2.1], [1.0, 1.3, 1.1, 0.9]
    found, known = unpaired_ratio(now, before), stats.ttest_ind(np.log(now), np.log(before), equal_var=False)
    ends = known.confidence_interval(0.95)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((ends.low, ends.high))
    assert found.p == pytest.approx(known.pvalue)
    assert unpaired_ratio([1.0], [2.0, 2.0]).low is None and unpaired_ratio([], [1.0]) is None


def test_a_ratio_is_of_the_blocks_that_both_have_whatever_they_share():
    found = paired_ratio({1: 2.0, 2: 4.4, 4: 9.0}, {1: 1.0, 2: 2.0, 3: 5.0})
    assert found.runs == 2 and found.value == pytest.approx(math.sqrt(2 * 2.2))
    assert paired_ratio({1: 1.0}, {2: 1.0}) is None
    fast, slow = (1.0, 2.0, 1.5), (1.1, 2.2, 1.651)
    paired, apart = paired_ratio(by_block(slow), by_block(fast)), unpaired_ratio(slow, fast)
    assert paired.p < 0.01 < 0.5 < apart.p and paired.high - paired.low < 0.01 < 1 < apart.high - apart.low


@pytest.mark.parametrize("runs", [2, 3, 5, 8])
@pytest.mark.parametrize("noise", NOISE)
def test_the_interval_of_a_paired_ratio_holds_the_truth_19_times_of_20(noise, runs):
    """What two cells' runs lose, whatever it is, their ratio loses on either side: it is even round the truth."""
    generator = np.random.default_rng([runs, sorted(NOISE).index(noise)])
    logs = NOISE[noise](generator, (SIMULATIONS, 2, runs))
    drift = generator.normal(0, 0.2, (SIMULATIONS, 1, runs))  # of the machine, which a block shares
    seconds = np.exp(logs + drift) * np.array([1.0, 1.1])[:, None]
    found = [paired_ratio(by_block(slow), by_block(fast)) for fast, slow in seconds]
    truth = np.mean([one.low <= 1.1 <= one.high for one in found])
    # Three standard errors below 95 %; outliers make it hold more often.
    assert truth >= 0.935, f"{truth:.3f} of the intervals cover the true value"
    if noise == "normal":
        assert truth <= 0.965, f"{truth:.3f}: the intervals are wider than they need to be"


def test_holm_corrects_for_the_number_of_comparisons_so_that_false_verdicts_are_rare():
    assert list(holm([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.06, 0.06])
    assert list(holm([0.9, 0.8])) == [1.0, 1.0] and list(holm([])) == []
    generator = np.random.default_rng(5)
    logs = generator.normal(0, 0.03, (400, 10, 5))
    wrong = [min(holm([geometric_mean(np.exp(row)).p for row in study])) < 0.05 for study in logs]
    assert np.mean(wrong) <= 0.08


def test_means_over_models_are_of_common_blocks_and_hold_the_truth():
    found = intervals.mean_of_ratios([[1.1, 1.2, 1.3], [2.0, 2.2]])
    logs = [np.log([1.1, 1.2, 1.3]), np.log([2.0, 2.2])]
    parts = [logs[0].var(ddof=1) / 3, logs[1].var(ddof=1) / 2]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 1)
    mean, error = (logs[0].mean() + logs[1].mean()) / 2, np.sqrt(sum(parts)) / 2
    arm = stats.t.ppf(0.975, freedom) * error
    assert found.value == pytest.approx(np.exp(mean)) and found.runs == 2
    assert (found.low, found.high) == (pytest.approx(np.exp(mean - arm)), pytest.approx(np.exp(mean + arm)))
    assert found.p == pytest.approx(2 * stats.t.sf(mean / error, freedom))
    alone = intervals.mean_of_ratios([[1.1, 1.2], [2.0]])
    assert alone.value == pytest.approx(np.sqrt(np.sqrt(1.1 * 1.2) * 2.0)) and alone.low is None and alone.runs == 1
    assert intervals.mean_of_ratios([[1.1, 1.2], []]) is None
    assert intervals.mean_of_ratios([]) is None
    random = np.random.RandomState(4)
    held = 0
    for _ in range(2000):
        found = intervals.mean_of_ratios([np.exp(random.normal(0.0, spread, 3)) for spread in (0.02, 0.05, 0.1, 0.05)])
        held += found.low <= 1 <= found.high
    assert 0.94 < held / 2000 < 0.985


STUDIES = 150


def times(logs, **more):
    """Block times of logarithms, a row a cell; NaN for a run that is missing."""
    rows = enumerate(np.exp(np.asarray(logs, dtype=float)))
    return BlockTimes({cell: {block: s for block, s in enumerate(row) if s == s} for cell, row in rows}, **more)


def noise(seed, cells, blocks, scale=0.03):
    return np.random.default_rng(seed).normal(0, scale, (cells, blocks))


def width(interval):
    return math.log(interval.high / interval.low)


def test_two_cells_or_a_cell_beside_itself_have_the_plain_interval():
    seconds = times(noise(1, 2, 4))
    assert seconds.ratio(1, 0) == paired_ratio(seconds[1], seconds[0])
    assert times(noise(6, 5, 3)).ratio(2, 2)[:3] == (1, 1, 1)


def test_cells_of_equal_noise_share_the_mean_of_all_variances_and_constants_keep_theirs():
    """The mean of the variances of all pairs is twice the residual variance of the two-way analysis of variance."""
    logs = noise(2, 8, 3) + [[0.0, 0.4, -0.2]]
    residuals = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0) + logs.mean()
    prior = moderation.fit([logs])
    assert prior.variance == pytest.approx(2 * (residuals**2).sum() / (7 * 2)) and prior.pooled == 14
    assert prior.freedom == math.inf, "these differ by less than chance has it"
    variance, freedom = prior.moderate(4 * prior.variance, 2)
    assert freedom == 6 and variance == pytest.approx((4 + 2 * 4) / 6 * prior.variance)
    logs = noise(5, 6, 3)
    stored = np.vstack([logs, np.zeros((3, 3))])
    assert moderation.fit([stored[6:]]) is None and moderation.fit([]) is None
    assert times(stored[6:]).ratio(1, 0)[1:4] == (1, 1, 1)
    with_them, without = times(stored), times(logs)
    assert width(with_them.ratio(1, 0)) > 0.5 * width(without.ratio(1, 0))
    assert width(with_them.ratio(7, 6)) > 0, "others show that this machine has noise"


def test_a_noisy_cell_or_run_stays_unsure():
    logs = noise(3, 10, 5, 0.01)
    logs[0] *= 20
    seconds = times(logs)
    widths = {pair: width(seconds.ratio(*pair)) for pair in itertools.combinations(range(10), 2)}
    noisy = [one for pair, one in widths.items() if 0 in pair]
    others = [one for pair, one in widths.items() if 0 not in pair]
    assert min(noisy) > 2 * np.median(others)
    logs = noise(4, 6, 3, 0.01)
    logs[0, 1] += 0.7
    seconds = times(logs)
    assert all(seconds.ratio(cell, 0).p > 0.05 for cell in range(1, 6))


def test_noise_is_pooled_over_groups_of_one_machine_without_disturbed_cells():
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
