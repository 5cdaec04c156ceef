"""What becomes of workers that should take turns and cannot: each is measured as far as it was asked, and says why."""

import collections
from types import SimpleNamespace

import pytest
from duel_fixtures import QUICK, SAMPLED, TELLS
from stored_study import selected

from framework_compare import api, compare, duel, registry
from framework_compare.errors import StudyError
from framework_compare.launch import duel as duel_module
from framework_compare.launch import rounds
from framework_compare.study import schedules
from framework_compare.study.executors import Executor
from framework_compare.study.part_run import run_part
from framework_compare.study.progress import Watcher

MANY = 1000  # epochs, of which a sample is a small part
NO_ROOM = "memory cannot hold it together with its rivals"
ENDED = "its rivals ended before the first turn"
GONE = {
    "in its turn": "def on_step(self):\n    if self.steps == 30:\n        os.kill(os.getpid(), 9)",
    "before its first turn": "def build(self, graph):\n    raise ValueError('not today')",
}


@pytest.fixture
def crowded(monkeypatch):
    """Memory holds one worker."""
    monkeypatch.setattr(duel_module.memory_limit, "free_bytes", lambda: 50 << 20)


@pytest.mark.parametrize("method", GONE.values(), ids=GONE)
def test_the_sample_of_a_worker_whose_rival_is_gone_ends_like_any_other(paced, ask, told, method):
    study = ask([paced("one"), paced("gone", method)], sample=2.0, epochs=MANY)
    assert study.frame.status[0] == "ok" and study.frame.status[1] != "ok"
    assert study.epochs.epoch.max() < MANY / 10
    if method == GONE["before its first turn"]:
        assert study.frame.alone_why[0] == ENDED and f"({ENDED})" in str(study.table(width=300))
    else:
        known = study.epochs[study.epochs.cell == 0].disturbed.notna()
        assert known.all(), "else the verdicts of other blocks are barred, too"


def test_samples_of_workers_that_memory_holds_one_at_a_time_end_and_disturbances_are_known(paced, ask, crowded, told):
    study = ask([paced("one"), paced("two")], sample=1.5, epochs=MANY, sampling_hz=20)
    assert set(selected(study.folder, "SELECT alone_why FROM run")) == {(NO_ROOM,)}
    assert study.epochs.epoch.max() < MANY / 10
    assert study.epochs.disturbed.notna().all(), "also of the run that was the first of its block"


def test_memory_of_a_rival_that_has_ended_is_free_for_the_next():
    def rival(over):
        return SimpleNamespace(run=SimpleNamespace(over=over, recorder=SimpleNamespace(peak_rss_bytes=300)))

    def fits(*over, peak=0):
        one = object.__new__(duel_module._Duel)
        one._rivals = [rival(ended) for ended in over]
        return one._fits(SimpleNamespace(peak_bytes=peak), 1000)

    assert fits(False) and not fits(False, False) and fits(False, True), "800 of 1000 are allowed"
    assert fits(True, peak=900) and not fits(False, True, peak=600), "nothing lives beside the former"


def test_memory_that_a_rival_holds_is_not_the_fault_of_a_worker_that_starts_beside_it(paced, ask, tmp_path):
    place = tmp_path / "first.pid"
    tells = TELLS.format(place=str(place))
    lacks = (
        f"def build(self, graph):\n    super().build(graph)\n    if os.path.exists('/proc/' + open({str(place)!r}).read()):\n"
        "        raise MemoryError('no room')"
    )
    study = ask([paced("one", tells), paced("two", lacks)])
    assert study.frame.status.tolist() == ["ok", "ok"]
    assert study.frame.alone_why.tolist() == [ENDED, "out of memory together with its rivals"]


def test_what_others_took_is_unknown_where_the_kernel_does_not_say(paced, ask, monkeypatch):
    def absent():
        raise OSError("no /proc/stat")

    monkeypatch.setattr(duel_module, "CoreCounter", absent)
    study = ask([paced("fast", pace_s=0.002), paced("slow", pace_s=0.01)], repeats=2)
    assert study.frame.epochs_disturbed.isna().all() and study.epochs.disturbed.isna().all()
    (verdict,) = study.verdicts()
    assert verdict.reason.startswith("the CPU time of other programs is unknown") and not verdict.shown


def test_a_run_too_short_for_a_round_that_counts_is_not_called_undisturbed(paced, ask):
    study = ask([paced("one"), paced("two", pace_s=0.02)], batch_size=13, epochs=2, repeats=2)
    assert study.frame.schedule.eq("interleaved").all() and not (study.slices.void == "").any()
    assert study.epochs.disturbed.isna().all() and study.verdicts()[0].reason.startswith("the CPU time of other")


def test_a_duel_without_turns_says_so(paced, images, own_cache, tmp_path, crowded):
    names = paced("one", pace_s=0.01), paced("two", pace_s=0.02)
    sampled = {**SAMPLED, "sampling_hz": 20}  # else no peak is known
    found = duel(*names, "linear", images, max_slowdown=0, out=tmp_path / "a", **sampled)
    assert found.alone_why == NO_ROOM and found.sentence.endswith(f"They did not take turns: {NO_ROOM}.")
    found = duel(*names, "linear", images, out=tmp_path / "b", schedule="sequential", **sampled)
    assert found.sentence.endswith("They did not take turns: the schedule asked for is sequential.")


def test_a_run_that_is_made_up_for_later_takes_turns_with_the_fastest_of_its_rivals(paced, ask, tmp_path):
    first = tmp_path / "once"
    fails = f"def on_step(self):\n    if not os.path.exists({str(first)!r}):\n        raise ValueError"
    names = [paced("one", pace_s=0.01), paced("failing", fails, pace_s=0.005), paced("two", pace_s=0.002)]
    study = ask(names, repeats=2)
    assert study.frame.status.tolist() == ["ok", "failed", "ok"]
    first.touch()
    study = ask(names, repeats=2, retry=["failed"])
    assert study.frame.status.tolist() == ["ok", "ok", "ok"]
    assert dict(zip(study.frame.framework, study.frame.runs_ok)) == {"one": 2, "failing": 2, "two": 4}
    assert set(study.frame.schedule) == {"interleaved"}
    blocks = {frozenset((one.faster, one.slower)): one.blocks for one in study.verdicts()}
    assert blocks == {frozenset(("one", "two")): 2, frozenset(("failing", "two")): 2, frozenset(("one", "failing")): 0}


@pytest.mark.parametrize("named", [True, False], ids=["named", "by default"])
def test_a_study_keeps_its_repeats_though_each_cell_has_run_once_more_as_an_anchor(
    paced, ask, tmp_path, monkeypatch, named
):
    monkeypatch.setattr(schedules, "REPEATS", 2)
    place = str(tmp_path / "starts of ")
    fails = (
        f"def build(self, graph):\n    super().build(graph)\n    place = {place!r} + self.name\n"
        "    with open(place, 'a') as starts:\n        starts.write('.')\n"
        "    if os.path.getsize(place) == {start}:\n        raise ValueError"
    )
    names = [paced("one", fails.format(start=1)), paced("two", fails.format(start=2))]
    repeats = {"repeats": 2} if named else {"repeats": None}
    assert ask(names, **repeats).frame.status.tolist() == ["failed", "failed"]
    study = ask(names, **repeats, retry=["failed"])
    assert study.frame.status.tolist() == ["ok", "ok"] and study.frame.runs_ok.tolist() == [3, 3]
    study = ask(names, repeats=2)
    assert f" (in 1 of 3 runs: {ENDED})." in str(study.table(width=300))
    with pytest.raises(StudyError, match="repeats: 2 in the study, 3 now"):
        ask(names, repeats=3)


def test_a_duel_of_which_one_block_was_not_in_turns_says_so_of_that_block(paced, images, own_cache, tmp_path):
    first = tmp_path / "once"
    fails = (
        f"def build(self, graph):\n    super().build(graph)\n    if not os.path.exists({str(first)!r}):\n"
        f"        open({str(first)!r}, 'w').close()\n        raise ValueError"
    )
    names = paced("one", pace_s=0.01), paced("two", fails, pace_s=0.02)
    asked = {**SAMPLED, "blocks": 2, "out": tmp_path / "s"}
    duel(*names, "linear", images, **asked)
    found = duel(*names, "linear", images, retry=["failed"], **asked)
    assert found.alone_why == ENDED and found.alone_blocks == (1, 3)
    assert found.sentence.endswith(f". 1 of 3 blocks was not in turns: {ENDED}.")


def test_a_companion_that_fails_leaves_its_cell_as_it_was(paced, ask, tmp_path):
    place = tmp_path / "once"
    fails = f"def on_step(self):\n    if os.path.exists({str(place)!r}) == {{late}}:\n        raise ValueError"
    names = [paced("early", fails.format(late=False), pace_s=0.005), paced("late", fails.format(late=True))]
    before = ask(names, repeats=2)
    assert before.frame.status.tolist() == ["failed", "ok"]
    place.touch()
    study = ask(names, repeats=2, retry=["failed"])
    assert study.frame.status.tolist() == ["ok", "ok"] and study.frame.runs_ok.tolist() == [2, 2]
    assert study.frame.epoch_s_median[1] == before.frame.epoch_s_median[1]
    assert "which repeats another, ended as failed: ValueError" in study.frame.warnings[1]


def test_what_memory_parts_takes_turns_with_the_reference_and_says_so(paced, ask, monkeypatch):
    monkeypatch.setattr(duel_module._Duel, "_fits", lambda self, member, free: len(self._rivals) < 2)
    names = [paced("one", pace_s=0.001), paced("two", pace_s=0.01), paced("three", pace_s=0.005)]
    study = ask(names, budget="20s", precision_target=0.9, reference="two")
    assert set(study.frame.schedule) == {"interleaved"} and study.frame.ratio_half_width.notna().all()
    query = "SELECT group_concat(framework) FROM run JOIN cell USING (cell_id) GROUP BY repeat"
    assert all("two" in rivals for (rivals,) in selected(study.folder, query))
    parted = "memory cannot hold it together with all its rivals, so it took turns with some of them"
    assert study.frame.warnings.str.contains(parted).sum() in (1, 2) and parted in study.table(style="markdown")


def test_a_rival_too_many_for_one_duel_takes_turns_with_the_fastest(paced, ask, monkeypatch):
    monkeypatch.setattr(schedules, "MOST_RIVALS", 2)
    study = ask([paced("one", pace_s=0.001), paced("two", pace_s=0.01), paced("three", pace_s=0.005)])
    assert set(study.frame.schedule) == {"interleaved"} and study.frame.runs_ok.tolist() == [2, 1, 1]


def test_a_part_in_which_memory_does_not_hold_all_rivals_is_taken_over(paced, ask, tmp_path, monkeypatch):
    monkeypatch.setattr(duel_module._Duel, "_fits", lambda self, member, free: len(self._rivals) < 2)
    names = [paced("one", pace_s=0.001), paced("two", pace_s=0.01), paced("three", pace_s=0.005)]
    study = ask(names, repeats=2, executor=Executor())
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path))
    for number in (1, 2):
        run_part(study.folder, number, Watcher())
    _, refused = api.absorb(study.folder, say=lambda line: None)
    assert not refused
    held = collections.Counter(selected(study.folder, "SELECT framework FROM run JOIN cell USING (cell_id)"))
    assert sum(held.values()) == 8 and min(held.values()) == 2, "one ran once more in each block"
    pairs = selected(study.folder, "SELECT count(*), count(DISTINCT duel) FROM run WHERE status = 'ok' GROUP BY repeat")
    assert sorted(pairs) == [(2, 1)] * 4


def test_a_part_measures_as_little_of_each_run_as_the_study_was_asked_for(paced, ask, tmp_path, monkeypatch):
    study = ask([paced("one"), paced("two")], sample=0.3, epochs=MANY, executor=Executor())
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path))
    run_part(study.folder, 1, Watcher())
    study, refused = api.absorb(study.folder, say=lambda line: None)
    assert not refused and study.frame.status.tolist() == ["ok", "ok"]
    assert study.epochs.epoch.max() < MANY / 10


def test_rounds_after_a_rival_has_finished_are_void_where_enough_are_left():
    def rival(last, number):
        return SimpleNamespace(transcript=SimpleNamespace(last=last, slices=[SimpleNamespace(round=number)]))

    def voids(first_end):
        one = object.__new__(duel_module._Duel)
        one._rivals, one._number = [rival(True, first_end), rival(True, 11), rival(False, 3)], 12
        one._voids = {0: rounds.REHEARSAL, 9: "other programs took CPU time"}
        one._void_later_rounds()
        return {number for number, void in one._voids.items() if void == rounds.FEWER}

    assert voids(8) == {10, 11} and voids(11) == set() and voids(5) == set()


def test_disturbed_runs_of_a_duel_are_repeated_as_a_duel(paced, ask, monkeypatch, told):
    """Also where one has run once more than its rivals."""
    monkeypatch.setattr(duel_module._Duel, "_fits", lambda self, member, free: len(self._rivals) < 2)
    monkeypatch.setattr(rounds, "others_fault", lambda share, threshold: "other programs took CPU time")
    names = [paced("one", pace_s=0.001), paced("two", pace_s=0.01), paced("three", pace_s=0.005)]
    study = ask(names, retries_when_disturbed=1)
    query = "SELECT duel, retry_of FROM run JOIN cell USING (cell_id) WHERE status = 'ok' ORDER BY run_id"
    runs = selected(study.folder, query)
    first, again = ([duel for duel, of in runs if (of is None) is firsts] for firsts in (True, False))
    assert sorted(collections.Counter(first).values()) == [2, 2]
    assert sorted(collections.Counter(again).values()) == [2, 2] and None not in again


def test_disturbed_runs_of_two_parts_are_repeated_as_two_duels(paced, ask, tmp_path, monkeypatch, told):
    """Each part numbers its duels by runs of its own."""
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path))
    monkeypatch.setattr(rounds, "others_fault", lambda share, threshold: "other programs took CPU time")
    names = [paced("one"), paced("two")]
    study = ask(names, repeats=2, executor=Executor())
    for number in (1, 2):
        run_part(study.folder, number, Watcher())
    api.absorb(study.folder, say=lambda line: None)
    ask(names, repeats=2, retries_when_disturbed=1)
    again = selected(study.folder, "SELECT duel, repeat FROM run WHERE retry_of IS NOT NULL AND status = 'ok'")
    assert sorted(collections.Counter(again).values()) == [2, 2]


def test_a_repeat_counts_instead_of_a_run_whose_rounds_are_void(paced, ask, monkeypatch, told):
    began = []
    compete = duel_module._Duel._compete
    monkeypatch.setattr(duel_module._Duel, "_compete", lambda self: (began.append(self), compete(self))[1])
    monkeypatch.setattr(rounds, "idle_fault", lambda *_: "one used CPU while waiting" if len(began) == 1 else "")
    study = ask([paced("one"), paced("two")], retries_when_disturbed=1)
    assert study.epochs.groupby("run_id").counts.first().tolist() == [False, False, True, True]
    assert study.frame.epochs_disturbed.eq(0).all() and study.frame.runs_set_aside.eq(1).all()


def test_a_part_of_a_study_across_models_has_all_of_them(paced, images, own_cache, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.MODELS, "linear2", registry.Model("linear:build"))
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path))
    settings = {**QUICK, "dataset": images, "across_models": True, "executor": Executor()}
    study = compare(paced("one"), ["linear", "linear2"], out=tmp_path / "s", **settings)
    run_part(study.folder, 1, Watcher())
    study, refused = api.absorb(study.folder, say=lambda line: None)
    assert not refused and set(study.frame.schedule) == {"interleaved"}
