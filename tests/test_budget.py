"""A budget gives runs where intervals are widest, samples long epochs, stops where it says, and is resumed."""

import dataclasses
import math
from types import SimpleNamespace

import image_files
import pytest
from heard import Heard

from framework_compare import Comparison, compare, resume
from framework_compare.errors import StudyError, UsageError
from framework_compare.plan import values
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Epoch, Run
from framework_compare.results import precision
from framework_compare.results.columns import CELL_COLUMNS
from framework_compare.results.precision import LEAST_RUNS
from framework_compare.results.runs import refresh_figures
from framework_compare.results.steadiness import whole_epoch_s
from framework_compare.store.study_file import Store
from framework_compare.study import strategies
from framework_compare.study.progress import Watcher, length
from framework_compare.study.run_options import RunOptions
from framework_compare.study.study import Study

QUICK = {"batch_size": 1, "epochs": 2, "threads": 1, "loader_workers": 0, "image_size": 32, "sampling_hz": 0}
SECOND = 1_000_000_000


def test_times_and_shares_are_read_and_anything_else_is_refused():
    times = {"30min": 1800, "1h30min": 5400, "90s": 90, "2 h": 7200, 45: 45, "300": 300, "0.5h": 1800}
    for given, seconds in times.items():
        assert values.seconds("budget", given) == seconds
    for given, share in {"5%": 0.05, 0.1: 0.1, "0.02": 0.02, "2.5 %": 0.025}.items():
        assert values.share("precision_target", given) == pytest.approx(share)
    for given in ("", "0", "min", "30 parsecs", 0, -1, True, None, math.inf, "1h30"):
        with pytest.raises(UsageError, match='budget is .*; allowed: a time such as "30min"'):
            values.seconds("budget", given)
    for given in ("5", 0, 1, 5, "x%", True, None, math.nan):
        with pytest.raises(UsageError, match="precision_target is .*; allowed: a share above 0 and below 1"):
            values.share("precision_target", given)


def test_what_does_not_go_with_a_budget_is_refused(tiny, images, tmp_path):
    for asked, message in (
        ({"precision_target": 0.05}, "precision_target is 0.05 without a budget"),
        ({"reference": "torch"}, "reference is 'torch' without a budget"),
        ({"budget": "1min", "repeats": 3}, "repeats is 3 with a budget"),
        ({"budget": "1min", "rungs": {"a": {"batch_size": 2}}}, "a ladder takes no budget"),
        ({"budget": "1min", "reference": "mxnet"}, "unknown reference 'mxnet'; allowed: tiny"),
    ):
        with pytest.raises(UsageError, match=message):
            compare(tiny, "linear", dataset=images, out=tmp_path / "s", **QUICK, **asked)
        assert not (tmp_path / "s").exists()


def test_samples_are_as_long_as_the_budget_allows_and_two_runs_are_not_sure():
    assert strategies.Budget.of(600, 0.05, 20, False).sample_s == 600 / (20 * LEAST_RUNS * 2)
    assert strategies.Budget.of(6, 0.05, 100, True).sample_s == strategies.SHORTEST_SAMPLE_S
    assert strategies.Budget.of(86400, 0.05, 1, False).sample_s == strategies.LONGEST_SAMPLE_S
    assert strategies.Budget.of(86400, 0.05, 1, True).sample_s == strategies.LONGEST_SAMPLE_IN_TURNS_S
    budget = strategies.Budget.of(600, 0.05, 20, True)
    assert strategies.of_settings({"strategy": budget.to_dict()}, "s") == budget
    outcome = outcome_of("ok", runs=LEAST_RUNS - 1)
    assert not outcome.within and outcome.unsure == ("f0 same ±1.0 % over 2 blocks",)


def outcome_of(*statuses, runs=LEAST_RUNS):
    """That of cells of these statuses, each with an interval of 1 %."""
    fixed = {name: "same" for name in CELL_COLUMNS}
    rows = [{**fixed, "framework": f"f{n}", "status": status} for n, status in enumerate(statuses)]
    figures = {"ratio_half_width": 0.01, "ratio_blocks": runs, "budget_s": 60.0, "precision_target": 0.05}
    return precision.outcome([SimpleNamespace(**{**row, **figures}) for row in rows], 30.0)


def test_intervals_are_within_the_target_only_where_cells_worked_and_ended():
    for statuses, within, text in (
        (("ok", "ok"), True, "Every ratio that decides is within ±5 %, under the budget of 1 minutes. B"),
        (("ok", "crashed"), True, "under the budget of 1 minutes; 1 of 2 cells failed."),
        (("crashed", "failed"), False, "No cell finished, so none has an interval."),
        (("ok", "interrupted"), False, "Not finished: f1 same."),
        (("running", "planned"), False, "Not run, because the budget of 1 minutes was used up: f1 same. Not fin"),
    ):
        outcome = outcome_of(*statuses)
        assert outcome.within is within and text in outcome.sentence
        assert ("Every ratio" in outcome.sentence) is within


def test_repeats_of_disturbed_runs_make_no_interval_surer_and_stay_inside_the_budget(tmp_path):
    """Of three runs two count: the first was disturbed, and the last repeats it."""
    planned = Cell("x", "a", "d", "cpu", TrainConfig())
    epoch = Epoch(1, 0, SECOND, 0.0, 10, 10, 1.0, 0.1, 0.1, 0.1)
    quiet = Run("ok", wall_s=5.0, disturbed_epochs=0, epochs=(dataclasses.replace(epoch, disturbed=0),))
    loud = dataclasses.replace(quiet, disturbed_epochs=1, disturbed_s=1.0, disturbed_share=0.5)
    with Store.create(tmp_path / "s", settings={}, machine={}, cells=[planned], repeats=2) as store:
        for (run_id, *_), run in zip(store.plan(), (loud, quiet)):
            store.record(run_id, run)
        assert store.repeat_disturbed(1) == 1
        store.record(store.plan()[0][0], quiet)
        refresh_figures(store)
        budget = strategies.Budget(1000, 0.05, 1)
        now = Study(store, RunOptions(), Watcher(), budget)._progress()
        assert len(now.outcomes[planned]) == LEAST_RUNS and not now.half_widths
        assert list(budget.next(now)) == [planned]
    disturbed = Run("ok", wall_s=5.0, disturbed_epochs=1)
    planned = [Cell(name, "a", "d", "cpu", TrainConfig()) for name in "xyz"]
    with Store.create(tmp_path / "inside-s", settings={}, machine={}, cells=planned, repeats=1) as store:
        for run_id, *_ in store.plan():
            store.record(run_id, disturbed)
        assert store.repeat_disturbed(1, 11.0, {1: 5.0, 2: 5.0, 3: 5.0}) == 2
        assert store.repeat_disturbed(1, -1.0, {3: 0.0}) == 0
        assert len(store.plan()) == 2


def sample_of(steps_s, whole_images, pipeline_s=None):
    length_ns = int(sum(steps_s) * SECOND)
    steps = len(steps_s)
    return Epoch(1, 0, length_ns, 0.0, steps, steps, 1.0, 0, 0, 0, whole_images=whole_images, pipeline_s=pipeline_s)


def estimate(steps_s, whole_images, warm_up=0, **fields):
    import numpy as np

    steps_ns = np.array(steps_s) * SECOND
    return whole_epoch_s(sample_of(steps_s, whole_images, **fields), steps_ns, warm_up)


def test_an_epoch_is_its_first_step_and_steady_ones_but_no_faster_than_its_pipeline():
    assert estimate([3.0, 1.0, 1.0, 1.0], 101) == pytest.approx(3 + 100)
    assert estimate([3.0, 2.0, 1.0, 1.0, 1.0], 101, warm_up=1) == pytest.approx(3 + 100)
    assert estimate([3.0, 1.0, 1.0, 1.0], 101, pipeline_s=1.5) == pytest.approx(3 + 150)
    assert estimate([3.0, 1.0, 1.0, 1.0], 101, pipeline_s=0.5) == pytest.approx(3 + 100)
    assert whole_epoch_s(sample_of([2.0, 1.0], 30), None, 0) == pytest.approx(45)


def under(budget_s, sample_s, monkeypatch):
    """Budgets whose samples have this length."""
    monkeypatch.setattr("framework_compare.study.strategies.LONGEST_SAMPLE_S", sample_s)
    monkeypatch.setattr("framework_compare.study.strategies.SHORTEST_SAMPLE_S", sample_s)
    return {"budget": budget_s}


def test_long_epochs_are_sampled_and_estimated(paced, images, own_cache, tmp_path, monkeypatch):
    names = [paced("steady", pace_s=0.02), paced("slower", pace_s=0.03)]
    many = image_files.copies(images, tmp_path / "many", 9)
    request = {"dataset": many, "schedule": "sequential", **QUICK, **under("60s", 0.3, monkeypatch)}
    study = compare(names, "linear", out=tmp_path / "s", precision_target="60%", **request)
    frame = study.frame.set_index("framework")
    assert frame.status.eq("ok").all() and frame.epoch_s_median.isna().all() and frame.epoch_s.isna().all()
    assert frame.loss_last.isna().all(), "the loss of a part of an epoch is not that of an epoch"
    epochs = study.epochs
    assert epochs.whole_images.eq(117).all() and epochs.steps.lt(117).all() and epochs.epoch.eq(1).all()
    assert epochs.pipeline_s.gt(0).all()
    for name, step_s in (("steady", 0.02), ("slower", 0.03)):
        assert 117 * step_s <= frame.epoch_estimate_s[name] < 1.6 * 117 * step_s
        assert frame.epoch_estimate_s_low[name] < frame.epoch_estimate_s[name] < frame.epoch_estimate_s_high[name]
    (verdict,) = study.verdicts()
    assert (verdict.faster, verdict.blocks) == ("steady", LEAST_RUNS)
    table = str(study.table("time"))
    assert "≈" in table and "estimated for a whole epoch" in table and "$\\approx$" in study.table("time", "latex")
    assert "≈" in str(study.table("startup")) and "epoch_estimate_s" in study.table("time", "csv")


def test_short_epochs_are_whole(tiny, images, own_cache, tmp_path):
    study = compare(tiny, "linear", dataset=images, out=tmp_path / "s", budget="20s", precision_target=0.9, **QUICK)
    assert study.frame.epoch_estimate_s.isna().all() and study.frame.epoch_s_median.gt(0).all()
    assert study.epochs.whole_images.isna().all() and study.epochs.epoch.max() == 2


@pytest.mark.parametrize("schedule", ["interleaved", "sequential"])
def test_short_epochs_fill_the_sample(paced, images, own_cache, tmp_path, schedule):
    asked = {name: value for name, value in QUICK.items() if name != "epochs"}
    names = [paced("one", pace_s=0.01), paced("two", pace_s=0.01)]
    study = compare(
        names, "linear", dataset=images, out=tmp_path / "s", sample="0.5s", repeats=1, schedule=schedule, **asked
    )
    assert (study.epochs.groupby("run_id").epoch_s.sum() > 0.45).all(), "not three epochs of a tenth of a second"
    assert "as many as fit into the sample" in str(study.table()).replace("\n", " "), "not a million epochs"


@pytest.mark.alone  # beside other tests three runs may differ by more
def test_it_stops_when_every_cell_is_within_the_target(paced, images, own_cache, tmp_path):
    watcher = Heard()
    asked = {"dataset": images, "out": tmp_path / "s", "watcher": watcher, **QUICK}
    study = compare([paced("one"), paced("two")], "linear", budget="10min", precision_target=0.9, **asked)
    assert study.frame.runs.tolist() == [LEAST_RUNS] * 2
    assert study.epochs.groupby("framework").block.unique().map(list).tolist() == [[1, 2, 3]] * 2, "paired"
    outcome = study.budget
    assert outcome.within and not outcome.unsure and outcome.spent_s < outcome.budget_s == 600
    assert "Every ratio that decides is within ±90 %" in str(study.table())
    assert watcher.said[-1] == outcome.sentence and "used" in outcome.sentence
    assert all(at_most and 0 < seconds < 600 for seconds, at_most in watcher.left_s)


def test_it_stops_when_the_budget_is_spent_and_names_what_is_not_sure(paced, images, own_cache, tmp_path):
    asked = {"dataset": images, "out": tmp_path / "s", **QUICK, "batch_size": [1, 2]}
    study = compare(paced("one"), "linear", budget="3s", precision_target=1e-9, **asked)
    outcome = study.budget
    assert not outcome.within and len(outcome.unsure) == 2 and "batch_size 1" in outcome.unsure[0]
    assert study.runs.wall_s.sum() <= 3 + study.runs.wall_s.max()
    assert "Ratios not within ±1e-07 % under the budget of 0.05 minutes: one linear" in str(study.table())
    assert study.frame.runs.min() >= 1 and len(study.runs) > 2


def test_a_budget_that_is_spent_before_every_cell_ran_says_so_and_is_resumed(paced, images, own_cache, tmp_path):
    asked = {"dataset": images, "out": tmp_path / "s", **QUICK, "seed": [1, 2, 3]}
    study = compare(paced("one"), "linear", budget=0.01, **asked)
    assert sorted(study.frame.status) == ["ok", "planned", "planned"]
    assert len(study.budget.not_run) == 2 and "was used up" in str(study.table())
    assert sorted(resume(tmp_path / "s").frame.status) == ["ok", "planned", "planned"], "its time is spent"


def test_a_study_under_a_budget_is_resumed_where_it_stopped(paced, images, own_cache, tmp_path):
    name = paced("one")
    stop_after = 2

    class Stop(Watcher):
        def __init__(self):
            self.ended = 0

        def end(self, cell, run):
            self.ended += 1
            if self.ended == stop_after:
                raise KeyboardInterrupt

    asked = {"dataset": images, "out": tmp_path / "s", "budget": "10min", "precision_target": 0.9, **QUICK}
    with pytest.raises(KeyboardInterrupt):
        compare(name, "linear", watcher=Stop(), **asked)
    before = Comparison.load(tmp_path / "s").runs.started_at.tolist()
    assert len(before) == stop_after
    after = compare(name, "linear", **asked)
    assert after.runs.started_at.tolist()[:stop_after] == before and after.frame.runs.tolist() == [LEAST_RUNS]
    with pytest.raises(StudyError, match="seconds: 600.0 in the study, 60.0 now"):
        compare(name, "linear", **{**asked, "budget": "1min"})
    plain = {key: value for key, value in asked.items() if key not in ("budget", "precision_target")}
    with pytest.raises(StudyError, match="contains a study under a budget; name another folder"):
        compare(name, "linear", **plain)


def test_patience_and_a_budget_exclude_each_other(tiny, tmp_path, own_cache):
    with pytest.raises(UsageError, match="patience is 2 under a budget"):
        compare(tiny, "diabetes_ann", out=tmp_path / "s", budget="1min", patience=2)


def test_a_plain_study_says_how_long_the_rest_takes(tiny, images, own_cache, tmp_path):
    watcher = Heard()
    compare(tiny, "linear", dataset=images, out=tmp_path / "s", watcher=watcher, repeats=3, **QUICK)
    (first, bound), (second, _) = watcher.left_s
    assert first > second > 0 and not bound


@pytest.mark.parametrize("seconds, text", [(40, "40 s"), (89, "89 s"), (720, "12 min"), (12240, "3.4 h")])
def test_times_are_in_units_of_their_size(seconds, text):
    assert length(seconds) == text
