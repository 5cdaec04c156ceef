"""Runs of different cells take turns in randomised blocks, whose order is stored and can be made again."""

import itertools

import numpy as np
from stored_study import selected

from framework_compare import compare
from framework_compare.results.intervals import holm, paired_ratio
from framework_compare.study import schedules

DEFAULT = schedules.REPEATS  # as the package has it: the tests of this suite run with one
QUICK = {"batch_size": 4, "epochs": 1, "threads": 1, "loader_workers": 0, "image_size": 32, "sampling_hz": 0}


def test_each_block_has_every_cell_once_in_an_order_of_its_own():
    made = schedules.orders(6, 20, seed=1)
    assert all(sorted(order) == list(range(6)) for order in made)
    assert len({*map(tuple, made)}) == 20 and made == schedules.orders(6, 20, seed=1) != schedules.orders(6, 20, seed=2)
    firsts = [order[0] for order in schedules.orders(4, 4000, seed=7)]
    assert all(850 < firsts.count(place) < 1150 for place in range(4))
    assert schedules.orders(3, 1, seed=5) == [[0, 1, 2]]


def test_a_study_stores_its_order_and_the_seed_that_makes_it(tiny, images, own_cache, tmp_path):
    asked = {**QUICK, "batch_size": [1, 2, 4, 13], "repeats": 3}
    result = compare(tiny, "linear", dataset=images, out=tmp_path / "s", **asked)
    expected = schedules.orders(4, 3, result.settings["order_seed"])
    runs = selected(tmp_path / "s", "SELECT cell_id, repeat FROM run ORDER BY run_id")
    assert runs == [(place + 1, block) for block, order in enumerate(expected, 1) for place in order]
    assert result.frame.batch_size.tolist() == [1, 2, 4, 13] and result.frame.runs_ok.tolist() == [3] * 4
    assert result.epochs.groupby("cell").block.apply(list).tolist() == [[1, 2, 3]] * 4
    query = "SELECT repeat FROM run JOIN phase USING (run_id) GROUP BY run_id ORDER BY min(start_ns)"
    starts = selected(tmp_path / "s", query)
    assert starts == sorted(starts), "a block begins before the one before it has ended"


def test_a_cell_is_run_as_often_as_a_verdict_needs_where_nobody_says(tiny, images, own_cache, tmp_path, monkeypatch):
    monkeypatch.setattr(schedules, "REPEATS", 2)
    ask = {"dataset": images, "out": tmp_path / "s", **QUICK}
    assert compare(tiny, "linear", **ask).frame.runs.tolist() == [2]
    monkeypatch.setattr(schedules, "REPEATS", 5)
    assert compare(tiny, "linear", **ask).frame.runs.tolist() == [2], "a study keeps the number it was planned with"


def test_the_default_gives_verdicts_among_five_frameworks():
    """Five cells with 3 % of noise, one of them 10 % slower: Holm's correction over ten comparisons leaves it shown."""
    generator = np.random.default_rng(0)
    shown = {runs: 0 for runs in (3, DEFAULT)}
    for runs, _ in itertools.product(shown, range(200)):
        seconds = np.exp(generator.normal(0, 0.03 / np.sqrt(2), (5, runs)))
        seconds[0] *= 1.1
        pairs = list(itertools.combinations(range(5), 2))
        ratios = [paired_ratio(dict(enumerate(seconds[b])), dict(enumerate(seconds[a]))) for a, b in pairs]
        corrected = dict(zip(pairs, holm([one.p for one in ratios])))
        shown[runs] += all(corrected[0, other] < 0.05 for other in range(1, 5))
    few, default = shown.values()
    assert few < 40 and default > 60
