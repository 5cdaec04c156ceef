"""What others take of the CPU: told by epoch, marked, left out, repeated; with real busy loops beside real cells."""

import math
import os
from types import SimpleNamespace

import pytest
from stored_study import recorded

from framework_compare import Comparison, compare
from framework_compare.cli.doctor import load_words
from framework_compare.errors import UsageError
from framework_compare.launch import disturbances
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Epoch, Run
from framework_compare.report import side_by_side, table_notes
from framework_compare.results import repeats
from framework_compare.samplers import disturbance
from framework_compare.samplers.disturbance import Counters, DisturbanceLog, Shares, SlowCounters, parse_cores
from framework_compare.samplers.samplers import CpuClockSampler
from framework_compare.store.study_file import Store
from framework_compare.study import part_run
from framework_compare.study.executors import Executor
from framework_compare.study.progress import Watcher

S = 1_000_000_000


pytestmark = pytest.mark.usefixtures("told")


def log_of(*readings):
    """(seconds, CPU seconds of others, of the hypervisor, of the parent) as a log of counters."""
    log = DisturbanceLog(1000)
    for reading in readings:
        log.add(Counters(*(round(value * S) for value in reading)))
    return log


def spans(*seconds):
    return tuple(round(second * S) for second in seconds)


def test_shares_are_of_one_core_and_interpolated_between_readings():
    # From a clock of many days on, as a float would lose it.
    day = 86_400 * 1000
    log = log_of((day, 5, 1, 0), (day + 2, 8, 1.2, 0.02), (day + 4, 8, 1.2, 0.02))
    whole = spans(day, day + 4)
    assert log.shares(spans(day + 1, day + 3), whole)[:3] == pytest.approx((0.8, 0.05, 0.005))
    assert log.shares(spans(day, day + 2), whole)[:3] == pytest.approx((1.6, 0.1, 0.01))
    log = log_of((0, 0, 0, 0), (1, 0, 0, 0), (2, 1, 0, 0), (3, 1, 0, 0))
    assert log.shares(spans(1.4, 1.6), spans(0, 3))[0] == pytest.approx(1)
    assert log.shares(spans(0.0, 0.2), spans(0, 3))[0] == pytest.approx(0)
    assert log.shares(spans(1.4, 1.6), spans(1.2, 1.9)) is None
    log = log_of((1, 0, 0, 0), (2, 1, 0, 0))
    assert log.shares(spans(0.5, 2), spans(0.5, 2)) is None
    assert log.shares(spans(1, 2.5), spans(1, 2.5)) is None
    assert DisturbanceLog(9).shares(spans(1, 2), spans(1, 2)) is None


def test_full_logs_keep_their_sums_and_slow_counters_their_edges():
    log = DisturbanceLog(10)
    for second in range(100):
        log.add(Counters(second * S, second * S // 2, 0, 0))
    assert len(log._columns["t_ns"]) <= 11 and log.last_ns() == 99 * S
    assert log.shares(spans(3, 97), spans(0, 99))[0] == pytest.approx(0.5)
    log = log_of((0, 0, 0, 0), (9, 0, 0, 0))
    for second, pages, heat in ((0, 10, 5), (2, 10, 5), (4, 15, None), (6, 15, 7)):
        log.add_slow(second * S, pages, heat)
    assert log.shares(spans(2, 4), spans(0, 9))[3:] == (5 * os.sysconf("SC_PAGE_SIZE"), None)
    assert log.shares(spans(4, 6), spans(0, 9))[3:] == (0, None)
    assert log.shares(spans(0, 6), spans(0, 9))[3:] == (5 * os.sysconf("SC_PAGE_SIZE"), 2)


STAT = b"cpu  10 1 2 100 7 0 1 3 5 0\ncpu0 4 0 1 60 3 0 1 1 2 0\ncpu1 6 1 1 40 4 0 0 2 3 0\nintr 99 0\n"


def test_only_the_cores_that_a_run_may_use_are_counted_and_what_is_not_told_is_none(tmp_path):
    assert parse_cores(STAT, {b"cpu"}) == (17, 124, 107, 3)
    assert parse_cores(STAT, {b"cpu1"}) == (17, 124, 44, 2)
    assert parse_cores(STAT, {b"cpu0", b"cpu1"}) == (17, 124, 107, 3)
    assert SlowCounters(cpus=tmp_path, vmstat=tmp_path / "vmstat").read() == (None, None)
    assert CpuClockSampler(cpus=tmp_path).read() == {}
    core = min(os.sched_getaffinity(0))
    for name, text in (("thermal_throttle/core_throttle_count", "7\n"), ("cpufreq/scaling_cur_freq", "2450000\n")):
        path = tmp_path / f"cpu{core}" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    (tmp_path / "vmstat").write_text("pgpgin 1\npswpin 42\npswpout 0\n")
    assert SlowCounters(cpus=tmp_path, vmstat=tmp_path / "vmstat").read() == (42, 7)
    clock = CpuClockSampler(cpus=tmp_path)
    assert clock.read() == {"cpu_mhz": 2450.0} and clock.read() == {}, "read again within the second"


def epoch(number, seconds, share=None, **more):
    start, disturbed = 100 * number * S, None if share is None else int(share > 0.1)
    return Epoch(
        number, start, start + round(seconds * S), 0.0, 13, 13, 1.0, 0.1, 0.1, 0.1, None, None,
        disturbed_share=share, disturbed=disturbed, **more,
    )  # fmt: skip


def run_of(*epochs):
    return Run("ok", epochs=epochs, warnings=tuple(disturbances.warnings(epochs)), **disturbances.summary(epochs))


def test_epochs_above_the_threshold_are_marked_and_told_with_share_and_seconds():
    lost = {1: Shares(0.05, 0.0, 0.01, 0, None), 2: Shares(0.9, 0.2, 0.0, 3 << 20, 4), 3: None}
    epochs = disturbances.marked([epoch(n, 2) for n in lost], lambda span, _: lost[span[0] // (100 * S)], 0.1)
    assert [e.disturbed for e in epochs] == [0, 1, None]
    assert (epochs[1].disturbed_share, epochs[1].steal_share, epochs[1].swap_in_bytes) == (0.9, 0.2, 3 << 20)
    assert disturbances.summary(epochs) == {"disturbed_epochs": 1, "disturbed_s": 2.0, "disturbed_share": 0.9}
    assert disturbances.warnings(epochs) == [
        "other programs took 90 % of a core (20 % by the hypervisor for other machines) during 1 of 3 epochs, 2.0 s of 6.0 s",
        "3 MiB were swapped in during the epochs",
        "the CPU throttled 4 times during the epochs because of heat",
    ]
    assert disturbances.summary([epoch(1, 2)]) == {} and disturbances.warnings([epoch(1, 2, 0.1)]) == []
    for disturbed, measured, words in (
        (1, 4, "1 of 4 epochs, which is excluded"),
        (2, 4, "2 of 4 epochs, which are excluded"),
        (1, 1, "its only epoch, so there is no verdict"),
        (3, 3, "all 3 epochs, so there is no verdict"),
    ):
        cell = SimpleNamespace(
            epochs_disturbed=disturbed, epochs_measured=measured, disturbed_share=0.4, disturbed_s=1.0
        )
        assert table_notes.disturbance(cell) == f"other programs took 40 % of a core for 1.0 s: {words}"


CELLS = [Cell(name, "linear", "colours", "cpu", TrainConfig(epochs=3)) for name in ("fast", "slow")]


def study(folder, *runs, repeats=1):
    return recorded(folder, CELLS, runs, repeats)


def quiet(seconds):
    return run_of(*(epoch(n, seconds + n / 1000, 0.0) for n in (1, 2, 3, 4)))


def test_what_is_unknown_of_a_run_without_a_rival_bars_no_verdict(tmp_path):
    unknown = run_of(*(epoch(n, 1.0) for n in (1, 2)))
    rows = [quiet(1), Run("failed", "it died"), quiet(1), quiet(2), quiet(1), quiet(2)]
    lone = study(tmp_path / "lone", unknown, *rows[1:], repeats=3)
    assert lone.frame.epochs_disturbed.tolist() == [0, 0]
    both = study(tmp_path / "both", unknown, quiet(2), *rows[2:], repeats=3)
    assert math.isnan(both.frame.epochs_disturbed[0]) and both.verdicts()[0].reason.endswith("unknown for fast")


def test_disturbed_epochs_are_left_out_of_times_and_noted(tmp_path):
    mixed = run_of(*(epoch(n, 1 + n / 1000, 0.0) for n in (1, 2, 3)), epoch(4, 9, 0.8))
    result = study(tmp_path / "a", mixed, quiet(2), mixed, quiet(2), repeats=2)
    row = result.frame.iloc[0]
    assert row.epoch_s == pytest.approx(1.002) and row.images_per_s == pytest.approx(13 / 1.002)
    assert (row.epochs_measured, row.epochs_disturbed, row.disturbed_s, row.disturbed_share) == (8, 2, 18.0, 0.8)
    table = result.table(style="markdown")
    assert "(1) other programs took 80 % of a core for 18.0 s: 2 of 8 epochs, which are excluded" in table
    assert "Bold: significantly faster" in table
    assert "Warning, fast linear: other programs took 80 % of a core during 1 of 4 epochs, 9.0 s of 12.0 s" in table
    assert result.epochs.disturbed.tolist() == 2 * [0, 0, 0, 1] + 8 * [0]


def test_where_no_verdict_stands_its_ratio_is_that_of_the_figures_shown(tmp_path):
    def noisy(seconds):
        return run_of(*(epoch(n, seconds + n / 1000, 0.8) for n in (1, 2, 3)))

    result = study(tmp_path / "a", quiet(1), noisy(2), quiet(1), noisy(2), noisy(9), noisy(9), repeats=3)
    (one,) = result.verdicts()
    first, second = result.frame.epoch_s_median
    assert second / first > 3, "by the pairs of quiet blocks it would be 2"
    assert one.reason and one.ratio == pytest.approx(second / first) and (one.low, one.high) == (None, None)


def test_no_fastest_is_named_beside_a_cell_that_was_disturbed_throughout(tmp_path):
    mixed = run_of(*(epoch(n, 1 + n / 1000, 0.8) for n in (1, 2, 3)))
    runs = quiet(1), run_of(*(epoch(n, 2 + n / 1000, 0.8) for n in (1, 2, 3)))
    result = study(tmp_path / "a", *runs, *runs, repeats=2)
    assert result.frame.epoch_s[1] == pytest.approx(2.002)
    table = result.table(style="markdown")
    assert "other programs took CPU time in every epoch of slow" in table and "faster than every" not in table
    assert "all 6 epochs, so there is no verdict" in table
    assert [one.reason for one in result.verdicts()] == ["other programs took CPU time in every epoch of slow"]
    other = study(tmp_path / "b", mixed, quiet(1), mixed, quiet(1), repeats=2)
    pairs = result.beside(other)
    assert pairs.verdict.tolist() == ["", ""] and (pairs.ratio_ci_low > 0).all()
    assert "other programs took 80 % of a core" in "".join(side_by_side.table(pairs, ("A", "B"), (2, 2)).notes)
    assert study(tmp_path / "c", *4 * [quiet(2)], repeats=2).beside(result).verdict.tolist() == ["faster", ""]


def test_a_disturbed_run_is_planned_once_more_and_the_one_that_lost_least_counts(tmp_path):
    noisy, calm = run_of(epoch(1, 2, 0.8), epoch(2, 2, 0.0)), run_of(epoch(1, 1, 0.0), epoch(2, 1, 0.0))
    study(tmp_path, noisy, calm, calm, noisy, repeats=2)
    with Store.open(tmp_path, readonly=False) as store:
        assert store.repeat_disturbed(0) == 0
        assert store.repeat_disturbed(1) == 2
        assert store.repeat_disturbed(1) == 0, "repeats that are still to be run are planned again"
        planned = [(run_id, cell.framework, repeat) for run_id, cell, repeat in store.plan()]
        assert planned == [(5, "fast", 3), (6, "slow", 3)] and store.repeats() == 2
        store.record(5, calm)
        store.record(6, Run("crashed", "by a signal"))
        assert store.repeat_disturbed(5) == 0
    frame = Comparison.load(tmp_path).frame
    assert frame.status.tolist() == ["ok", "ok"] and frame.runs.tolist() == [2, 2]
    assert frame.epochs_disturbed.tolist() == [0, 1] and frame.runs_set_aside.tolist() == [1, 0]
    assert "run 1 does not count, because other programs took 80 % of a core for 2.0 s; another" in frame.warnings[0]
    assert "run 3, which repeats another, ended as crashed: by a signal" in frame.warnings[1]
    assert Comparison.load(tmp_path).epochs.groupby("run_id").counts.first().tolist() == [False, True, True, True, True]


def test_of_two_disturbed_runs_the_less_disturbed_counts_and_a_damaged_repeat_leaves_every_row(tmp_path):
    study(tmp_path, run_of(epoch(1, 2, 0.3)), quiet(1))
    with Store.open(tmp_path, readonly=False) as store:
        for run_id, share in ((3, 0.9), (4, 0.2)):
            assert store.repeat_disturbed(2) == 1
            store.record(run_id, run_of(epoch(1, 2, share)))
        assert store.repeat_disturbed(2) == 0
    row = Comparison.load(tmp_path).frame.iloc[0]
    assert row.disturbed_share == pytest.approx(0.2) and row.runs_set_aside == 2
    study(tmp_path / "damaged", quiet(1), run_of(epoch(1, 2, 0.3)))
    with Store.open(tmp_path / "damaged", readonly=False) as store:
        store._connection.execute("UPDATE run SET retry_of = 1, disturbed_share = NULL WHERE run_id = 2")
    frame = Comparison.load(tmp_path / "damaged").frame
    assert frame.runs.tolist() == [1, 1] and frame.epochs_disturbed.tolist() == [0, 1]
    assert str(Comparison.load(tmp_path / "damaged").table())


@pytest.mark.parametrize("name, value", [("disturbance_threshold", 0), ("disturbance_threshold", "10 %"),
                                         ("retries_when_disturbed", -1), ("retries_when_disturbed", 1.5)])  # fmt: skip
def test_a_senseless_option_is_refused(tiny, images, name, value):
    with pytest.raises(UsageError, match=f"{name} is .*; allowed: "):
        compare(tiny, "linear", dataset=images, **{name: value})


def test_doctor_says_who_is_busy():
    named = (disturbance.BusyProcess(7, "cc1plus", 0.81), disturbance.BusyProcess(9, "x", 0.03))
    assert load_words(disturbance.Load(0.04, 0.0, 2, named)) == "quiet, other programs take 4 % of a core"
    said = load_words(disturbance.Load(0.86, 0.2, 2, named))
    assert said.startswith(
        "not quiet, other programs take 86 % of a core, the hypervisor 20 %: cc1plus (pid 7) 81 %, x"
    )
    assert "by processes that are not visible from here" in load_words(disturbance.Load(0.86, 0.0, 2, ()))


def test_rounds_of_several_runs_that_do_not_count_are_one_warning():
    runs = [
        {"warnings": ["slow disk"], "gauges": {"void_rounds": {"other programs took CPU time": 2, "paging": 1}}},
        {"warnings": ["slow disk"], "gauges": {"void_rounds": {"other programs took CPU time": 4}}},
    ]
    assert repeats.warnings(runs) == ["7 rounds do not count (6: other programs took CPU time; 1: paging)", "slow disk"]
    assert repeats.warnings(runs[1:]) == ["4 rounds do not count (other programs took CPU time)", "slow disk"]
    (paging,) = repeats.warnings([{"warnings": [], "gauges": {"void_rounds": {"paging": 1}}}])
    assert paging == "1 round does not count (paging)"
    for odd in ({}, {"void_rounds": {}}, {"void_rounds": 3}, {"void_rounds": {"paging": "many"}}):
        assert repeats.warnings([{"warnings": [], "gauges": odd}]) == []
    old = {"warnings": ["3 of 8 rounds do not count (2: others took CPU time; 1: paging)", "slow disk"], "gauges": {}}
    new = {"warnings": [], "gauges": {"void_rounds": {"other programs took CPU time": 1}}}
    four = "4 rounds do not count (3: other programs took CPU time; 1: paging)"
    assert repeats.warnings([old, new]) == [four, "slow disk"]


@pytest.mark.parametrize(("asked", "used"), [(None, 6.4), (0.3, 0.3)])
def test_a_node_has_the_threshold_of_its_own_cores(tiny, images, own_cache, tmp_path, monkeypatch, asked, used):
    small = {"batch_size": 4, "epochs": 1, "threads": 1, "loader_workers": 0, "image_size": 32}
    request = {"dataset": images, "out": tmp_path / "s", "executor": Executor(), "disturbance_threshold": asked}
    folder = compare(tiny, "linear", **small, **request).folder
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path))
    monkeypatch.setattr(part_run.disturbances, "threshold", lambda: 6.4)  # of 128 cores
    found = []

    class Seen(part_run.Study):
        def run(self, retry=()):
            found.append(self.options.disturbance_threshold)
            super().run(retry)

    monkeypatch.setattr(part_run, "Study", Seen)
    part_run.run_part(folder, 1, Watcher())
    assert found == [used]
