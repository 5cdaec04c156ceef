"""What spoils a duel is found and told: workers that hang, work out of turn or report what was not, and neighbours."""

import os
import subprocess
import sys

import image_files
import pytest
from duel_fixtures import TELLS

from framework_compare.launch import duel as duel_module
from framework_compare.launch import rounds
from framework_compare.launch.transcript import Turn


@pytest.mark.parametrize(
    "does, how, pipeline",
    [
        ("time.sleep(1000)", "", "memory"),
        *(("os.kill(os.getpid(), 19)", "; it was stopped by a signal", pipeline) for pipeline in ("memory", "shared")),
    ],
)
def test_a_worker_that_hangs_or_is_stopped_in_its_turn_is_ended(paced, ask, monkeypatch, does, how, pipeline):
    monkeypatch.setattr(duel_module, "LEAST_TURN_S", 1.0)
    monkeypatch.setattr(duel_module, "TURN_FACTOR", 3.0)
    hanging = paced("hanging", f"def on_step(self):\n    if self.steps == 30:\n        {does}")
    study = ask([paced("one"), hanging], pipeline=pipeline)
    assert study.frame.status.tolist() == ["ok", "timed-out"]
    said = study.frame.reason[1]
    assert said.startswith("its turn did not end within ") and said.endswith(how)


def test_a_worker_that_hangs_once_it_is_told_to_stop_is_ended_and_said_so(paced, ask, monkeypatch):
    monkeypatch.setattr(duel_module, "LEAST_TURN_S", 2.0)
    hanging = paced("hanging", "def release(self):\n    time.sleep(1000)")
    study = ask([paced("one"), hanging], epochs=1000, sample=0.3)
    assert study.frame.status.tolist() == ["ok", "timed-out"]
    assert study.frame.reason[1].startswith("it did not end within 2 s of its last turn; it was ")


@pytest.mark.alone
def test_a_worker_that_uses_cpu_while_it_waits_voids_rounds_and_is_named(paced, ask):
    spinning = """
    def build(self, graph):
        super().build(graph)
        __import__("sys").setswitchinterval(1e-4)  # or each step waits for the interpreter time and again
        def spin():
            while True:
                pass
        threading.Thread(target=spin, daemon=True).start()
    """
    study = ask([paced("one", pace_s=0.02), paced("spinning", spinning, pace_s=0.02)])
    voids = study.slices[study.slices.cell == 0].void
    assert voids.str.contains("used CPU while waiting").sum() > len(voids) / 2
    assert "rounds do not count" in study.frame.warnings[0]


@pytest.mark.alone
def test_a_loader_that_reads_ahead_is_stopped_between_turns(paced, ask):
    """A thread that never rests stands for a loader: with a pipeline its process is frozen while rivals have turns."""
    ahead = """
    def build(self, graph):
        super().build(graph)
        __import__("sys").setswitchinterval(1e-4)  # or each step waits for the interpreter time and again
        def read():
            while True:
                sum(range(1000))
        threading.Thread(target=read, daemon=True).start()
    """
    study = ask([paced("one", pace_s=0.02), paced("ahead", ahead, pace_s=0.02)], pipeline="shared")
    assert not study.slices.void.str.contains("used CPU while waiting").any()
    assert study.frame.status.eq("ok").all()


@pytest.mark.alone
def test_a_neighbour_that_starts_midway_voids_the_rounds_of_all_alike(paced, ask, told):
    names = [paced("one", pace_s=0.02), paced("two", pace_s=0.02)]
    loop = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time\ntime.sleep(2.5)\nend=time.monotonic()+60\nwhile time.monotonic()<end: pass",
        ]
    )
    try:
        study = ask(names, epochs=9)
    finally:
        loop.kill()
        loop.wait()
    voids = [study.slices[study.slices.cell == cell].void.tolist() for cell in (0, 1)]
    assert voids[0] == voids[1] and "other programs took CPU time" in voids[0]
    void = study.slices[study.slices.void == "other programs took CPU time"]
    cells = study.frame
    assert (cells.disturbed_s >= void.measured_s.sum()).all() and cells.disturbed_share.between(0, os.cpu_count()).all()
    assert cells.disturbed_share.nunique() == 1, "both are told of the same rounds, and of what others took in them"


def test_a_forged_slice_ends_its_worker_and_nobody_else(paced, ask):
    forging = """
    def on_step(self):
        if self.steps == 20:
            import gc, framework_compare.events as events
            (writer,) = [one for one in gc.get_objects() if isinstance(one, events.EventWriter)]
            fields = dict(start_ns=time.monotonic_ns(), steps=1, samples=1, measured_ns=1, cpu_ns=0, major_faults=0)
            writer.send("slice", number=999, end_ns=time.monotonic_ns(), last=False, **fields)
    """
    study = ask([paced("one"), paced("forging", forging)])
    assert study.frame.status.tolist() == ["ok", "failed"] and "malformed slice" in study.frame.reason[1]


FORGED = """
    def build(self, graph):
        super().build(graph)
        import framework_compare.worker.turns as turns
        honest = turns._Slice.fields
        def forged(part):
            told = honest(part)
            return {{**told, {}}}
        turns._Slice.fields = forged
"""


@pytest.mark.alone
@pytest.mark.parametrize(
    ("forged", "pace_s", "said"),
    [
        ('"measured_ns": told["measured_ns"] // 2', 0.004, "less time than its turn took"),
        pytest.param(
            *('"measured_ns": told["end_ns"] - told["start_ns"]', 0.3, "more time than its turn allowed"),
            marks=pytest.mark.nightly,  # steps of 0.3 s: half a minute in which no other test runs
        ),
    ],
)
def test_a_time_that_is_not_that_of_its_turn_ends_its_worker(paced, ask, told, monkeypatch, forged, pace_s, said):
    monkeypatch.setattr(duel_module, "QUIET", 1000)
    one, two = paced("one", pace_s=pace_s), paced("two", pace_s=pace_s)
    study = ask(
        [one, paced("forging", FORGED.format(forged), pace_s=pace_s), two],
        epochs=200,
        sample=1,
        disturbance_threshold=1000,
    )
    assert study.frame.status.tolist() == ["ok", "failed", "ok"]
    assert f"rounds it reported {said}: in the last " in study.frame.reason[1]
    slices = study.slices[study.slices.cell == 0]
    assert slices.void.str.contains(said).sum() >= rounds.MOST_CLAIMS
    assert (slices.void == "").sum() >= rounds.LEAST_ROUNDS, "the others go on"


def test_a_time_that_others_may_have_taken_does_not_count_but_ends_nobody(paced, ask, told, monkeypatch):
    monkeypatch.setattr(duel_module, "QUIET", -1)
    forging = paced("forging", FORGED.format('"measured_ns": told["measured_ns"] // 3'), pace_s=0.004)
    study = ask([paced("one", pace_s=0.004), forging], epochs=40, sample=0.5, disturbance_threshold=1000)
    assert (
        study.frame.status.eq("ok").all()
        and study.slices.void.str.contains("less time than its turn took").sum() > 2 * rounds.MOST_CLAIMS
    )


@pytest.mark.alone
@pytest.mark.parametrize(
    "copies",
    [
        pytest.param(1, id="an-epoch-ends-in-every-turn", marks=pytest.mark.nightly),
        pytest.param(30, id="an-epoch-ends-in-few-turns"),
    ],
)
def test_with_loaders_too_a_third_of_a_time_never_counts(paced, ask, told, images, tmp_path, monkeypatch, copies):
    """Where loaders start in the uncounted steps of all turns nobody can be blamed, but no round counts."""
    monkeypatch.setattr(duel_module, "QUIET", 1000)

    third = FORGED.format('"measured_ns": told["measured_ns"] // 3')  # half of the shortest slice is near the bound
    settings = {"epochs": 100, "sample": 1, "disturbance_threshold": 1000, "pipeline": "shared"}
    many = image_files.copies(images, tmp_path / "many", copies)
    study = ask([paced("one"), paced("forging", third)], dataset=many, **settings)
    assert not (study.slices.void == "").any()
    blamed = study.frame.status[1] == "failed" and "less time than its turn took" in study.frame.reason[1]
    assert blamed or (copies == 1 and rounds.UNCHECKED in study.frame.warnings[0])


@pytest.mark.parametrize(
    ("forged", "settings", "said"),
    [("2 * ", {}, rounds.MORE), ("2 * ", {"sample": 0.2}, rounds.MORE), ("-1 + ", {"batch_size": 2}, rounds.UNEQUAL)],
)
def test_a_worker_that_reports_other_samples_voids_the_rounds_and_says_so(paced, ask, forged, settings, said):
    settings = {"epochs": 1000, **settings} if "sample" in settings else settings
    study = ask([paced("one"), paced("forging", FORGED.format(f'"samples": {forged}told["samples"]'))], **settings)
    assert said in study.frame.warnings[0] and not (study.slices.void == "").any()


def test_other_programs_are_blamed_only_where_most_void_rounds_are_theirs():
    assert rounds.blames_others({rounds.OTHERS: 3, "spinner used CPU while waiting": 3})
    assert not rounds.blames_others({rounds.OTHERS: 1, "spinner used CPU while waiting": 32})
    assert not rounds.blames_others({})


def test_what_a_worker_reports_must_fit_its_turn():
    for turn, reopens, said in (
        (Turn(0.5, 0.06, 5, 0), False, ""),
        (Turn(0.5, 0.25, 5, 0), False, "less time than its turn took"),
        (Turn(0.5, 0.25, 5, 1), False, "less time than its turn took"),
        (Turn(0.5, 0.25, 5, 1), True, rounds.UNCHECKED),
        (Turn(0.5, 0.06, 5, 1), True, ""),
        (Turn(0.5, 0.25, 5, 0), True, "less time than its turn took"),  # an epoch may have ended in the slice
        (Turn(0.5, 0.005, 5, 0), False, "more time than its turn allowed"),
        (Turn(0.5, 0.005, 1, 1), False, ""),  # the uncounted step may have been of few images
        (Turn(9.0, 0.001, 0, 0), False, ""),
    ):
        assert rounds.claim_fault(turn, 0.01, 0.01, reopens) == said


STOPS = """
    def on_step(self):
        if self.steps in {steps}:
            os.kill(int(open({place!r}).read()), 19)
"""


@pytest.mark.parametrize("pipeline", ["memory", "shared"])
def test_a_worker_that_is_stopped_while_it_waits_is_continued_and_said_so(paced, ask, tmp_path, pipeline):
    """With a pipeline the parent stops waiting workers itself, and continues them."""
    place = tmp_path / "victim.pid"
    tells = TELLS.format(place=str(place))
    study = ask(
        [paced("stopper", STOPS.format(steps=(30, 31), place=str(place))), paced("victim", tells)], pipeline=pipeline
    )
    assert study.frame.status.eq("ok").all() and study.epochs.groupby("run_id").size().eq(4).all()
    voids = study.slices.void[study.slices.void.str.contains("stopped")]
    if pipeline == "memory":
        assert voids.str.fullmatch(r"a signal stopped run \d \(victim\) while waiting").all()
        assert voids.groupby(study.slices.cell).size().tolist() in ([1, 1], [2, 2])
        assert study.frame.warnings.str.contains("a signal stopped run").all()
    else:
        assert voids.empty
