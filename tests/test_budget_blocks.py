"""Which cells run in the next block of a budget."""

import pytest

from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import IDENTITY
from framework_compare.results.precision import LEAST_RUNS, to_reference
from framework_compare.study.strategies import NEAR_BLOCKS, Budget, Progress, of_settings


def cells(*frameworks, models=("a",)):
    return [Cell(name, model, "d", "cpu", TrainConfig()) for model in models for name in frameworks]


def progress(planned, half_widths, runs=LEAST_RUNS, wall_s=10.0, status="ok"):
    known = {cell: arm for cell, arm in zip(planned, half_widths) if arm is not None}
    outcomes = {cell: [status] * runs for cell in planned}
    return Progress(outcomes, {cell: [wall_s] * runs for cell in planned}, known)


def test_the_next_block_is_the_one_that_is_likely_to_make_a_cell_sure_soonest():
    planned = cells("x", "y", models=("a", "b"))
    now = progress(planned, [0.06, 0.06, 0.3, 0.3])
    assert list(Budget(1000, 0.05, 1).next(now)) == planned[:2]
    slow = now._replace(wall_s={cell: [600.0 if cell.model == "a" else 1.0] for cell in planned})
    assert list(Budget(1e6, 0.05, 1).next(slow)) == planned[2:]
    planned = cells("x", "y", "z", models=("a", "b"))
    now = progress(planned, [0.01, 0.01, 0.3, 0.01, 0.06, 0.9], runs=NEAR_BLOCKS)
    assert list(Budget(1000, 0.05, 1).next(now)) == planned[3:], "y of model b is the next that can be sure"
    sure = now._replace(half_widths={**now.half_widths, planned[4]: 0.04})
    assert list(Budget(1000, 0.05, 1).next(sure)) == [planned[0], planned[2]]


def test_cells_of_the_fewest_runs_come_first():
    planned = cells("x", "y")
    budget = Budget(1000, 0.05, 1)
    assert list(budget.next(progress(planned, [0.001, 0.001], runs=LEAST_RUNS - 1))) == planned
    assert list(budget.next(progress(planned, [0.001, 0.001]))) == []
    planned = cells("x", "y", models=("a", "b"))
    now = progress(planned, [0.5, 0.5, 0.5, 0.5], runs=LEAST_RUNS - 1)
    fewer = now._replace(outcomes={**now.outcomes, **{cell: ["ok"] for cell in planned[2:]}})
    assert list(Budget(1000, 0.05, 1).next(fewer)) == planned[2:]


def test_a_block_that_does_not_fit_and_a_cell_that_failed_give_way():
    planned = cells("x", "y", models=("a", "b"))
    now = progress(planned, [0.5, 0.5, 0.1, 0.1])
    long = now._replace(wall_s={**now.wall_s, planned[0]: [60.0]})
    assert list(Budget(long.spent_s + 30, 0.05, 1).next(long)) == planned[2:]
    assert list(Budget(long.spent_s + 5, 0.05, 1).next(long)) == []
    planned = cells("x", "y")
    now = progress(planned, [0.5, 0.5])
    failed = now._replace(outcomes={**now.outcomes, planned[0]: ["ok", "crashed"]})
    assert list(Budget(1000, 0.05, 1).next(failed)) == planned[1:]


def test_near_rivals_come_first_once_all_have_an_interval():
    fastest, near, slow = planned = cells("x", "y", "z")
    paces = {fastest: 1.0, near: 1.1, slow: 4.0}

    def following(blocks, half_widths):
        now = progress(planned, half_widths)
        outcomes = {cell: ["ok"] * count for cell, count in zip(planned, blocks)}
        return list(Budget(1000, 0.05, 1).next(now._replace(outcomes=outcomes, slowness=paces)))

    assert following([1, 1, 1], [None] * 3) == [fastest, near]
    assert following([2, 2, 1], [None] * 3) == [fastest, slow], "a slow one has an interval before near ones are sure"
    assert following([3, 2, 2], [None] * 3) == [fastest, near]
    assert following([NEAR_BLOCKS, NEAR_BLOCKS, 2], [0.06, 0.06, None]) == [fastest, slow]
    assert following([NEAR_BLOCKS, NEAR_BLOCKS, LEAST_RUNS], [0.06, 0.06, 0.2]) == [fastest, near]
    assert following([NEAR_BLOCKS + 1, NEAR_BLOCKS, LEAST_RUNS], [0.04, 0.04, 0.2]) == [fastest, slow]
    assert following([9, 9, 9], [0.04, 0.04, 0.04]) == []
    assert following([2, 2, 2], [None] * 3) == [fastest, near]
    planned = cells("x", "z")
    now = progress(planned, [None, None], runs=1)._replace(slowness={planned[0]: 1.0, planned[1]: 4.0})
    assert list(Budget(1000, 0.05, 1).next(now)) == planned


def test_ratios_and_half_widths_are_of_the_reference_that_is_named():
    fastest, reference, slow = planned = cells("x", "y", "z")
    now = progress(planned, [0.01, 0.01, 0.2])._replace(slowness={fastest: 0.4, reference: 1.0, slow: 1.5})
    assert list(Budget(1000, 0.05, 1, reference="y").next(now)) == [reference, slow]
    fast = now._replace(half_widths={fastest: 0.2, reference: 0.01, slow: 0.01})
    assert list(Budget(1000, 0.05, 1, reference="y").next(fast)) == [reference, fastest]
    budget = Budget(1000, 0.05, 1, "y")
    assert of_settings({"strategy": budget.to_dict()}, "s") == budget
    rows = [{**dict.fromkeys(IDENTITY, ""), "framework": name, "status": "ok"} for name in ("x", "y", "z")]
    blocks = BlockTimes({0: {0: 1.0, 1: 1.0, 2: 1.0}, 1: {0: 2.0, 1: 2.2, 2: 2.1}, 2: {0: 3.0, 1: 3.3, 2: 3.15}})
    named, fastest = (to_reference(rows, blocks, to) for to in ("y", ""))
    assert named[2].ratio.half_width < fastest[2].ratio.half_width
    assert named[0].ratio == named[1].ratio and fastest[0].ratio == fastest[1].ratio
    assert named[1].slowness == 1.0 > named[0].slowness


@pytest.mark.parametrize("status", ["crashed", "timed-out", "diverged"])
def test_a_reference_that_failed_decides_no_ratio(status):
    rows = [{**dict.fromkeys(IDENTITY, ""), "framework": name, "status": "ok"} for name in ("x", "y", "z")]
    blocks = BlockTimes({0: {0: 1.0, 1: 1.0}, 1: {0: 2.0, 1: 2.2, 2: 2.1}, 2: {0: 3.0, 1: 3.3, 2: 3.15}})
    rows[0]["status"] = status
    found = to_reference(rows, blocks, "x")
    assert list(found) == [1, 2] and found[1].slowness == 1.0
    assert found[2].ratio == blocks.ratio(2, 1) and found[2].ratio.runs == 3
