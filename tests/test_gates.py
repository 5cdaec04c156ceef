"""`check` and `duel` as gates: what became slower or does not work fails; what cannot be judged never passes."""

import dataclasses
import math
import shutil
import sqlite3

import pytest
from command_line import run
from drawn_study import study
from scipy import stats
from stored_study import epochs, ok, recorded

from framework_compare import api
from framework_compare.duels import judge
from framework_compare.errors import UsageError
from framework_compare.plan.values import slowdown
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.results import intervals
from framework_compare.results import regression_gate as gate
from framework_compare.results.intervals import SessionVariance, session_variance, unpaired_ratio

NONE = float("nan")


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    return study(tmp_path_factory.mktemp("gates") / "baseline")


def outcomes(baseline, other, limit=0.05):
    return [one.outcome for one in gate.judge(baseline.beside(other), limit)]


@pytest.mark.parametrize(("limit", "outcome"), [(0.5, gate.NOT_SLOWER), (0.2, gate.INCONCLUSIVE)])
def test_two_sessions_that_are_alike_pass_where_the_limit_is_above_what_sessions_differ_by(baseline, limit, outcome):
    assert set(outcomes(baseline, baseline, limit)) == {outcome, gate.FAILED}


@pytest.mark.parametrize(("faster", "outcome"), [(1.6, gate.SLOWER), (0.6, gate.NOT_SLOWER), (1.2, gate.INCONCLUSIVE)])
def test_a_change_is_seen_where_it_exceeds_the_limit(baseline, tmp_path, faster, outcome):
    other = study(tmp_path / "other", faster=faster)
    assert outcomes(baseline, other)[:5] == [outcome] * 5
    assert outcomes(baseline, other)[5] == gate.FAILED  # in both


def test_runs_of_unknown_disturbance_count_on_neither_side_where_others_are_known(tmp_path):
    """torch's rival fails in eight of ten turns, in which torch takes three times as long, and nobody knows why."""

    def known(seconds, turn):
        return ok(seconds, epochs=[dataclasses.replace(one, disturbed=False) for one in epochs(seconds)], duel=turn)

    def unknown(seconds):
        return ok(seconds, epochs=epochs(seconds), disturbed_epochs=None)

    def session(name, last):
        def run(cell, turn):
            if turn > last:
                return Run("failed", reason="x") if cell.framework == "jax" else unknown(3 + turn / 1000)
            return known(1 + turn / 1000, turn)

        cells = [Cell(name, "vgg16", "small", "cpu", TrainConfig()) for name in ("torch", "jax")]
        return recorded(tmp_path / name, cells, run, 10)

    beside = session("baseline", 10).beside(session("changed", 2))
    assert beside.ratio[0] <= 1
    assert gate.judge(beside, 0.45)[0].outcome == gate.NOT_SLOWER
    assert gate.judge(session("barred", 0).beside(session("other", 10)), 9.0)[0].outcome == gate.UNJUDGED


@pytest.mark.parametrize(("apart", "outcome"), [(0.0, gate.SLOWER), (0.3, gate.INCONCLUSIVE)])
def test_other_sessions_of_the_baseline_tell_how_much_sessions_differ(tmp_path, apart, outcome):
    """A slowdown of 20 % is shown where five sessions are alike, and not where they differ as much."""
    sessions = [study(tmp_path / f"{n}", failing=(), faster=1 + apart * (n % 2) + n / 10_000) for n in range(5)]
    changed = study(tmp_path / "changed", failing=(), faster=1.2)
    beside = sessions[0].beside(changed, sessions[1:])
    assert gate.judge(beside, 0.05)[0].outcome == outcome
    seconds = [[list(one.block_times.get(cell, {}).values()) for one in sessions] for cell in beside.index]
    expected = session_variance(seconds)
    assert (beside.session_sd[0], beside.sessions[0]) == expected
    assert (expected.sd > intervals.LEAST_SESSION_SD) == bool(apart)
    words = ["check", changed.folder, "--baseline", sessions[0].folder]
    history = [word for one in sessions[1:] for word in ("--history", one.folder)]
    said = run(*words, *history, check=1 if outcome == gate.SLOWER else 3).stdout
    assert f"is estimated as {100 * beside.session_sd[0]:.1f} % from 5 sessions" in " ".join(said.split())
    assert "is assumed to be 13.0 %, the largest measured" in " ".join(run(*words, check=3).stdout.split())


def test_the_variance_of_sessions_is_that_of_their_means():
    two = [[1.0, 1.1], [1.2, 1.3]]
    assert session_variance([two]) == session_variance([[*two, [1.0]]]) == SessionVariance(intervals.SESSION_SD, 0)
    assert session_variance([[*two, [1.0, 1.0]], two]).sessions == 3
    steady = [[math.exp(place)] * 2 for place in (0.0, 0.1, 0.2)]
    assert session_variance([steady]) == (pytest.approx(0.1), 3)
    noisy = [[math.exp(place - 0.09), math.exp(place + 0.09)] for place in (0.0, 0.1, 0.2)]
    assert session_variance([noisy, noisy]) == (pytest.approx(math.sqrt(0.1**2 - 0.09**2)), 3)
    alike = [[1.0, 1.0]] * 2
    few, many, known = (unpaired_ratio(*alike, SessionVariance(0.05, count)) for count in (3, 30, 0))
    ends = [math.log(one.high) / (0.05 * math.sqrt(2)) for one in (few, many, known)]
    assert ends == pytest.approx([stats.t.ppf(0.975, 2), stats.t.ppf(0.975, 29), stats.norm.ppf(0.975)])


@pytest.mark.parametrize("sessions", [3, 10, 0])
def test_noisier_runs_never_make_the_interval_of_two_sessions_narrower(sessions):
    def high(sd):
        seconds = [math.exp(sd * place) for place in (-1, 0, 1)]
        return unpaired_ratio(seconds, seconds, SessionVariance(0.03, sessions)).high

    ends = [high(sd) for sd in (0.0005, 0.01, 0.02, 0.03, 0.05, 0.1)]
    assert ends == sorted(ends)


def test_a_cell_that_no_longer_works_fails_and_one_run_proves_nothing(baseline, tmp_path):
    other = study(tmp_path / "other", failing=[("torch", "alexnet")])
    first, *_, last = gate.judge(baseline.beside(other), 0.05)
    assert first == gate.Judgement(gate.FAILED, "torch is crashed: run 1 of 3: no memory left")
    assert last.outcome == gate.UNJUDGED and last.reason.startswith("baseline: jax is crashed")
    single = study(tmp_path / "a", repeats=1), study(tmp_path / "b", repeats=1, faster=1.2)
    judged = gate.judge(single[0].beside(single[1]), 0.05)
    assert judged[0] == gate.Judgement(gate.UNJUDGED, "one run: no interval")
    every = [(f, m) for f in ("torch", "mxnet", "jax") for m in ("alexnet", "vgg16")]
    before, after = (study(tmp_path / name, failing=every).folder for name in ("before", "after"))
    assert "6 cells: 6 failed; torch is crashed" in run("check", after, "--baseline", before, check=1).stderr


def test_an_outcome_is_that_of_the_whole_interval(baseline):
    for ratio, low, high, outcome in (
        *((2.16, 0.99, 4.75, gate.INCONCLUSIVE), (1.02, 0.97, 1.07, gate.INCONCLUSIVE)),
        *((1.02, 1.00, 1.04, gate.NOT_SLOWER), (1.20, 1.10, 1.30, gate.SLOWER), (1.07, 1.01, 1.13, gate.INCONCLUSIVE)),
        *((0.90, 0.85, 0.95, gate.NOT_SLOWER), (1.50, NONE, NONE, gate.UNJUDGED)),
    ):
        beside = baseline.beside(baseline).head(1).assign(ratio=ratio, ratio_ci_low=low, ratio_ci_high=high)
        assert [one.outcome for one in gate.judge(beside, 0.05)] == [outcome]
        (disturbed,) = gate.judge(beside.assign(barred="other programs took CPU time"), 0.05)
        assert disturbed == gate.Judgement(gate.UNJUDGED, "other programs took CPU time")


def test_epochs_of_other_numbers_of_samples_are_not_compared(baseline, tmp_path):
    """Half as many would hide any slowdown."""
    fewer = study(tmp_path / "fewer", faster=0.5)
    a, b = ((one.frame, one.epochs) for one in (baseline, fewer))
    b = b[0].assign(images=a[0].images / 2), b[1]
    beside = gate.side_by_side(a, b)
    reason = "fire-smoke-small has 396 samples now, and 791 in the baseline"
    assert gate.judge(beside, 0.05)[0] == gate.Judgement(gate.UNJUDGED, reason) and beside.verdict[0] == ""
    assert gate.judge(gate.side_by_side(a, (fewer.frame, fewer.epochs)), 0.05)[0].outcome == gate.NOT_SLOWER
    sessions = [gate.variance(gate.side_by_side(a, a, [a, other])).sessions for other in (a, b)]
    assert sessions == [3, 0]


def test_studies_without_a_common_cell_or_a_common_machine_are_not_compared(baseline, tmp_path):
    other = study(tmp_path / "other", faster=1.01)
    with sqlite3.connect(other.folder / "study.sqlite") as connection:
        connection.execute("UPDATE machine SET value = '\"another\"' WHERE key = 'cpu'")
    said = run("check", other.folder, "--baseline", baseline.folder, "--max-slowdown", "50%", check=2).stderr
    assert "were measured on different machines (cpu: A processor" in said and "another now" in said
    other = study(tmp_path / "paddle-other", ("paddle",))
    assert "have no cell in common" in run("check", other.folder, "--baseline", baseline.folder, check=2).stderr


BARS = [
    ("epochs_disturbed", NONE, gate.UNJUDGED, "is unknown for {}"),
    ("epochs_disturbed", 99, gate.UNJUDGED, "other programs took CPU time in every epoch of {}"),
    ("parity_status", "failed", gate.FAILED, "{} fails parity"),
    ("status", "planned", gate.FAILED, "{} is planned"),
    ("status", "not-installed", gate.FAILED, "{} is not-installed"),
]


@pytest.mark.parametrize(("column", "value", "outcome", "reason"), BARS)
def test_what_bars_a_verdict_within_a_study_bars_one_between_two(baseline, tmp_path, column, value, outcome, reason):
    other = study(tmp_path / "other", faster=0.5)
    other.frame.loc[0, [column, "disturbed_share"]] = value, 0.5
    beside = baseline.beside(other)
    first, *others = gate.judge(beside, 0.05)
    assert first.outcome == outcome and reason.format("torch") in first.reason and beside.verdict[0] == ""
    assert others[0].outcome == gate.NOT_SLOWER
    (first, *_) = gate.judge(other.beside(baseline), 5.0)
    assert first.outcome == gate.UNJUDGED and first.reason.startswith("baseline: ")


@pytest.mark.parametrize(("column", "value", "outcome", "reason"), BARS)
@pytest.mark.parametrize("side", [0, 1])
def test_only_an_inconclusive_duel_may_be_forgiven(tmp_path, monkeypatch, side, column, value, outcome, reason):
    """The interval of jax over torch contains 1.3: `faster` of the drawn study."""
    result = study(tmp_path / "s", ("torch", "jax"), ("alexnet",), repeats=3)
    monkeypatch.setattr(api, "compare", lambda **request: result)
    words = ["duel", "torch", "jax", "alexnet", "--quiet", "--out", tmp_path / "out"]
    assert ": inconclusive at a limit of 0.3." in run(*words, "--max-slowdown", "30%", check=3).stdout
    run(*words, "--max-slowdown", "30%", "--allow-inconclusive")
    result.frame.loc[side, [column, "disturbed_share"]] = value, 0.5
    for limit in ("30%", "90%"):  # inconclusive and not slower, by their times
        said = run(*words, "--max-slowdown", limit, "--allow-inconclusive", check=1).stdout
        assert said.startswith("No verdict: ") and reason.format(("torch", "jax")[side]) in said
    failed = outcome == gate.FAILED
    assert judge(result, None).outcome == (outcome if failed else "")
    run(*words, check=int(failed))


def test_a_duel_of_one_block_is_not_forgiven(tmp_path, monkeypatch):
    monkeypatch.setattr(
        api, "compare", lambda **request: study(tmp_path / "s", ("torch", "jax"), ("alexnet",), repeats=1)
    )
    words = ["duel", "torch", "jax", "alexnet", "--quiet", "--out", tmp_path / "out", "--allow-inconclusive"]
    said = run(*words, "--max-slowdown", "90%", check=1).stdout
    assert said.startswith("No verdict: an interval needs 2 blocks in which both ran; there is 1.")


def test_missing_cells_are_told_and_fail_where_strict(baseline, tmp_path):
    few = study(tmp_path / "few", ("torch",), faster=1.01)
    words = ["check", few.folder, "--baseline", baseline.folder, "--max-slowdown", "50%"]
    done = run(*words)
    said = " ".join(f"{done.stdout} {done.stderr}".split())
    assert "of the baseline are missing" in said and "Missing: " in said
    run(*words, "--strict", check=1)


LENIENT = ["--allow-inconclusive"]


@pytest.mark.parametrize(
    ("faster", "more", "code", "said"),
    [
        (1.6, [], 1, "6 cells: 6 slower"),
        (1.6, LENIENT, 1, "6 cells: 6 slower"),
        (1.01, [], 3, "6 cells: 6 inconclusive; `framework-compare duel` is more precise"),
        (1.01, LENIENT, 0, "6 cells: 6 inconclusive"),
        (0.6, [], 0, "6 cells: 6 not slower"),
    ],
)
def test_the_command_exits_by_the_outcome(tmp_path, faster, more, code, said):
    before, after = (study(tmp_path / name, failing=(), faster=by).folder for name, by in (("a", 1), ("b", faster)))
    done = run("check", after, "--baseline", before, *more, check=code)
    assert said in (done.stderr if code else done.stdout)


@pytest.mark.parametrize("repeats", [3, 1])
def test_the_command_forgives_no_cell_that_failed_or_has_no_interval(baseline, tmp_path, repeats):
    other = study(tmp_path / "other", repeats=repeats, faster=0.6)
    said = run("check", other.folder, "--baseline", baseline.folder, *LENIENT, check=1).stderr
    counts = "5 not slower, 1 failed; jax is crashed" if repeats > 1 else "5 not judged, 1 failed; one run: no interval"
    assert f"6 cells: {counts}" in said


@pytest.mark.parametrize("words", [["show"], ["check", "--baseline"]])
def test_a_copy_of_a_study_is_no_second_sample(baseline, tmp_path, words):
    copy = shutil.copytree(baseline.folder, tmp_path / "copy")
    said = run(words[0], copy, *words[1:], baseline.folder, check=2).stderr
    assert "share 15 runs, so they are not independent samples; name another" in said


def test_a_limit_is_a_share_and_nothing_else():
    limits = {"5%": 0.05, "0.1": 0.1, ".05": 0.05, " 12.5 % ": 0.125, "0%": 0, 0: 0, "150%": 1.5}
    for given, value in limits.items():
        assert slowdown("max_slowdown", given) == pytest.approx(value)
    for given in ("", "five", "-1", "-5%", "5%%", "5", 5, "1.0", "nan", "inf%", True, None):
        with pytest.raises(UsageError, match="allowed"):
            slowdown("max_slowdown", given)
