"""The search for the release that changed a figure: right release, false alarms, what is not sure, what does not work."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from framework_compare.results import version_search
from framework_compare.results.version_search import CHANGED, FAILED, INCONCLUSIVE, UNCHANGED, search

SEARCHES = 10_000


def synthetic(truth, noise, random, tail=math.inf):
    """Measures releases whose log ratios to the first are `truth`; blocks are looked at again, not drawn again."""
    drawn = {}

    def measure(place, blocks):
        if place not in drawn:
            most = version_search.LOOKS[-1]
            errors = random.standard_normal(most) if math.isinf(tail) else random.standard_t(tail, most)
            drawn[place] = (truth[place] + noise * errors).tolist()
        return drawn[place][:blocks]

    return measure


def share(count):
    """The highest rate that so many of SEARCHES could show (99.9 %)."""
    return stats.binomtest(count, SEARCHES).proportion_ci(0.998).low


def step(releases, at, size):
    return [size if place >= at else 0.0 for place in range(releases)]


@pytest.mark.parametrize(("noise", "tail"), [(0.01, math.inf), (0.05, math.inf), (0.05, 4.0)])
def test_where_nothing_changed_an_alarm_is_rarer_than_alpha(noise, tail):
    random, alarms = np.random.default_rng(1), 0
    for _ in range(SEARCHES):
        releases = int(random.integers(2, 40))
        found = search(releases, 0.05, synthetic([0.0] * releases, noise, random, tail))
        alarms += found.outcome == CHANGED
    assert share(alarms) <= version_search.ALPHA


@pytest.mark.parametrize(("size", "noise"), [(0.07, 0.01), (-0.07, 0.03), (0.25, 0.08)])
def test_the_release_that_changed_is_found_or_nothing_is_claimed(size, noise):
    random, wrong, right = np.random.default_rng(2), 0, 0
    for _ in range(SEARCHES):
        releases = int(random.integers(2, 40))
        at = int(random.integers(1, releases))
        found = search(releases, 0.05, synthetic(step(releases, at, math.log1p(size)), noise, random))
        hit = found.outcome == CHANGED and (found.before, found.after) == (at - 1, at)
        right += hit
        wrong += not hit and (found.outcome == UNCHANGED or (found.outcome == CHANGED and found.after != at))
        assert found.outcome in (CHANGED, UNCHANGED, INCONCLUSIVE)
        assert len(found.answers) <= version_search.most_duels(releases)
    assert share(wrong) <= version_search.ALPHA
    # what the bound leaves is doubt, not error: at a noise of 1 % none is left
    assert right >= (0.99 if noise == 0.01 else 0.5) * SEARCHES


def test_too_much_noise_is_inconclusive_and_names_what_is_left():
    random = np.random.default_rng(3)
    found = search(9, 0.05, synthetic(step(9, 5, 0.07), 0.5, random))
    assert (found.outcome, found.before, found.after) == (INCONCLUSIVE, 0, 8)
    assert found.answers[0].blocks == version_search.LOOKS[-1]


def test_a_release_that_does_not_work_is_passed_over():
    random = np.random.default_rng(4)
    inner = synthetic(step(8, 6, 0.3), 0.01, random)
    found = search(8, 0.05, lambda place, blocks: None if place in (3, 5) else inner(place, blocks))
    assert (found.outcome, found.before, found.after) == (CHANGED, 4, 6), "whether 5 or 6 changed it nobody knows"
    assert [one.outcome for one in found.answers if one.place in (3, 5)] == [FAILED, FAILED]
    assert search(3, 0.05, lambda place, blocks: None).outcome == FAILED


def test_a_change_in_two_steps_is_found_where_half_of_it_is_there():
    truth = [0.0, 0.02, 0.02, 0.02, 0.12, 0.12]
    found = search(6, 0.05, synthetic(truth, 0.002, np.random.default_rng(5)))
    assert (found.outcome, found.before, found.after) == (CHANGED, 3, 4)


def test_figures_without_noise_need_one_look():
    found = search(6, 0.05, lambda place, blocks: [math.log(2.0) if place >= 2 else 0.0] * blocks)
    assert (found.outcome, found.before, found.after) == (CHANGED, 1, 2)
    assert {one.blocks for one in found.answers} == {version_search.LOOKS[0]}


def test_a_look_without_blocks_claims_nothing():
    assert search(4, 0.05, lambda place, blocks: [0.5]).outcome == INCONCLUSIVE
    assert search(4, 0.05, lambda place, blocks: []).outcome == INCONCLUSIVE
