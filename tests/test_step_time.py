"""How benchmarks/step_time.py compares our step with a hand-written one: turns, intervals, and a child that fails."""

import collections
import itertools
import sys

import pytest


@pytest.fixture(scope="module")
def step_time(benchmark):
    return benchmark("step_time")


@pytest.mark.parametrize("roles", [("ours", "hand"), ("ours", "hand", "control")])
def test_each_side_has_each_place_and_follows_each_equally_often(step_time, roles):
    cycle = 2 if len(roles) == 2 else 6
    orders = list(itertools.islice(step_time.turns(roles), cycle + 1))
    assert all(sorted(order) == sorted(roles) for order in orders) and orders[0] == orders[cycle] == list(roles)
    for place in zip(*orders[:cycle]):
        assert set(collections.Counter(place).values()) == {cycle // len(roles)}
    run = [role for order in orders for role in order]
    followed = collections.Counter(itertools.islice(itertools.pairwise(run), cycle * len(roles)))
    assert followed == dict.fromkeys(itertools.product(roles, roles), cycle // len(roles))


def test_the_interval_of_a_median_and_a_child_that_ends(step_time, tmp_path):
    # of 10 values the 2nd and the 9th: 1 - 2 (1 + 10) / 1024 = 0.979, where the 3rd and the 8th have 0.891
    assert step_time.median_interval([10, 1, 9, 2, 8, 3, 7, 4, 6, 5]) == (2, 9)
    assert step_time.median_interval([3, 1, 2]) == (1, 3)
    child = step_time.Child(sys.executable, tmp_path, tmp_path / "no-job.json")
    with pytest.raises(RuntimeError, match="ended with 1"):
        child.run("ours", 1)
    child.close()
