"""Workers that compete are live together and take turns; what goes wrong with one is told, and costs the others nothing."""

import collections
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import venv

import pytest
from duel_fixtures import SAMPLED, TELLS, script
from processes import wait_for
from stored_study import selected

from framework_compare import Comparison, api, duel, registry, resume
from framework_compare.environments import locks
from framework_compare.errors import UsageError
from framework_compare.events import EventWriter
from framework_compare.launch import duel as duel_module
from framework_compare.launch import rounds
from framework_compare.launch.rounds import Lengths
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.store.folder import FILE
from framework_compare.study.executors import Executor
from framework_compare.study.part_run import run_part
from framework_compare.study.progress import Watcher
from framework_compare.study.schedules import groups, why_alone
from framework_compare.worker.turns import Stopped, Turns


def test_rivals_take_turns_and_learn_what_they_learn_alone(paced, ask):
    names = [paced("one"), paced("two")]
    turns, alone = ask(names), ask(names, "alone", schedule="sequential")
    assert turns.frame.status.eq("ok").all() and alone.slices.empty
    assert turns.epochs.loss.tolist() == alone.epochs.loss.tolist()
    first, second = (turns.slices[turns.slices.cell == cell] for cell in (0, 1))
    assert first["round"].tolist() == second["round"].tolist() and len(first) > 3
    assert first.samples.tolist() == second.samples.tolist(), "both train on the same images in a round"
    spans = sorted(
        [*zip(first.start_s + offset(turns, 0), first.seconds), *zip(second.start_s + offset(turns, 1), second.seconds)]
    )
    assert all(a + length <= b + 1e-6 for (a, length), (b, _) in itertools.pairwise(spans)), "never two at once"
    assert turns.epochs.groupby("run_id").steps.sum().eq(52).all()
    assert (turns.epochs.epoch_s < 0.5).all() and turns.epochs.waited_s.gt(0).any()
    assert first.void.iloc[0] == rounds.REHEARSAL, "the first round does not count"
    counted = first[first.void == ""]
    assert len(counted) >= rounds.LEAST_ROUNDS
    expected = counted.measured_s.sum() / counted.samples.sum() * 13
    assert turns.frame.epoch_s_median[0] == pytest.approx(expected), "the time is that of the others"
    assert turns.block_times[0] == {1: pytest.approx(expected)}


def offset(study, cell):
    """When a cell's run began, on the clock of the first."""
    query = "SELECT cell_id, min(start_ns) FROM run JOIN phase USING (run_id) GROUP BY run_id"
    return dict(selected(study.folder, query))[cell + 1] / 1e9


def test_rivals_of_several_batch_sizes_train_on_as_many_samples_in_a_round(paced, ask):
    study = ask([paced("one"), paced("two")], batch_size=[1, 2], epochs=20)
    assert study.frame.status.eq("ok").all() and study.frame.schedule.eq("interleaved").all()
    for cell, slices in study.slices.groupby("cell"):
        assert (slices.void == "").sum() >= rounds.LEAST_ROUNDS, study.frame.batch_size[cell]
    steps = study.slices[study.slices["round"] == 2].set_index("cell").steps
    assert [steps[cell] for cell in (0, 1)] == [2 * steps[2]] * 2 == [2 * steps[3]] * 2
    counted = study.slices[study.slices.void == ""].groupby("cell")[["measured_s", "samples"]].sum()
    expected = counted.measured_s / counted.samples * 13
    assert study.frame.epoch_s_median.tolist() == pytest.approx(expected.tolist()), "from its own samples"


def test_slices_of_a_sample_are_equally_long_however_slow_a_rival_is(paced, ask):
    names = [paced("one", pace_s=0.002), paced("two", pace_s=0.05)]
    study = ask(names, sample=1.5, epochs=1000, disturbance_threshold=1000)
    counted = study.slices[study.slices.void == ""]
    fast, slow = (counted[counted.cell == cell] for cell in (0, 1))
    assert fast.measured_s.sum() > 0.5 * slow.measured_s.sum() > 0.5 and fast.steps.mean() > 10 * slow.steps.mean()
    assert study.block_times[1][1] > 10 * study.block_times[0][1], "seconds are of one sample"


def test_a_study_leaves_no_descriptor_open(paced, ask):
    names = [paced("one"), paced("two")]
    ask(names, "first", sample=0.2, epochs=1000)
    before = os.listdir("/proc/self/fd")
    ask(names, "second", sample=0.2, epochs=1000)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_rival_that_dies_in_its_turn_leaves_the_others_their_rounds(paced, ask):
    dying = paced("dying", "def on_step(self):\n    if self.steps == 30:\n        os.kill(os.getpid(), 9)")
    study = ask([paced("one"), dying, paced("two")])
    assert study.frame.status.tolist() == ["ok", "crashed", "ok"]
    slices = study.slices[study.slices.cell == 0]
    assert rounds.ENDED in slices.void.tolist() and (slices.void == "").sum() >= 3
    assert study.epochs[study.epochs.framework == "two"].epoch.tolist() == [1, 2, 3, 4]
    assert "1 run per cell, interleaved" in str(study.table(width=300)), "the one that failed took no turns to the end"


def test_a_rival_that_is_killed_while_it_waits_is_told_at_once(paced, ask, tmp_path):
    place = tmp_path / "victim.pid"
    tells = TELLS.format(place=str(place))
    kills = f"def on_step(self):\n    if self.steps == 30:\n        os.kill(int(open({str(place)!r}).read()), 9)"
    study = ask([paced("killer", kills), paced("victim", tells)])
    assert dict(zip(study.frame.framework, study.frame.status)) == {"killer": "ok", "victim": "crashed"}


def test_limits_do_not_count_the_time_in_which_a_worker_waits(paced, ask):
    study = ask([paced("quick"), paced("slow", pace_s=0.02)], silence_timeout_s=30, phase_timeout_s={"epochs": 2})
    assert study.frame.status.tolist() == ["ok", "ok"]
    assert study.runs.wall_s[0] < study.runs.wall_s[1]


def test_a_sample_ends_though_others_void_its_rounds(paced, ask, monkeypatch):
    monkeypatch.setattr(rounds, "others_fault", lambda share, threshold: "other programs took CPU time")
    study = ask([paced("one"), paced("two")], epochs=400, sample="0.3s", repeats=1)
    assert study.frame.status.eq("ok").all() and study.epochs.disturbed.eq(1).all()
    took = study.slices.groupby("cell").measured_s.sum()
    assert took.between(0.8, 1.5).all(), "three times the sample, not all 400 epochs"


def test_rivals_that_memory_does_not_hold_beside_the_others_take_turns_with_the_fastest(paced, ask, monkeypatch):
    monkeypatch.setattr(duel_module._Duel, "_fits", lambda self, member, free: len(self._rivals) < 2)
    names = [paced("one", pace_s=0.001), paced("two", pace_s=0.01), paced("three", pace_s=0.005)]
    study = ask(names, repeats=2)
    assert study.frame.status.tolist() == ["ok", "ok", "ok"]
    assert study.frame.runs_ok.min() == 2 and study.frame.runs_ok.sum() == 8, "one ran once more in each block"
    duels = collections.defaultdict(set)
    for duel_id, block in selected(study.folder, "SELECT duel, repeat FROM run"):
        duels[duel_id].add(block)
    assert None not in duels and len(duels) == 4 and all(len(blocks) == 1 for blocks in duels.values())
    held = collections.Counter(selected(study.folder, "SELECT framework FROM run JOIN cell USING (cell_id)"))
    assert held[(names[0],)] >= 3, "from the second block on the fastest is among those held"
    assert resume(study.folder).frame.runs_ok.tolist() == study.frame.runs_ok.tolist()


def test_a_killed_parent_loses_no_finished_block(paced, images, own_cache, tmp_path):
    names = [paced("one", pace_s=0.01), paced("two", pace_s=0.01)]
    out = tmp_path / "s"
    code = script(names, tmp_path, dataset=images, out=out, repeats=3)
    parent = subprocess.Popen([sys.executable, "-c", code])
    assert wait_for(lambda: (out / FILE).exists() and statuses(out)["ok"] >= 2 and statuses(out)["running"] == 2, 60)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    before = selected(out, "SELECT run_id, started_at FROM run WHERE status = 'ok'")
    assert before and statuses(out)["running"]
    study = resume(out)
    assert study.frame.runs_ok.tolist() == [3, 3]
    assert set(before) <= set(selected(out, "SELECT run_id, started_at FROM run"))
    assert len({duel for (duel,) in selected(out, "SELECT duel FROM run")}) == 3


def statuses(folder):
    return collections.Counter(status for (status,) in selected(folder, "SELECT status FROM run"))


def test_a_part_on_a_cluster_node_is_one_block_of_rivals_in_turns(paced, ask, tmp_path, monkeypatch):
    study = ask([paced("one"), paced("two", pace_s=0.006)], repeats=2, executor=Executor())
    for number in (1, 2):
        monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path))
        run_part(study.folder, number, Watcher())
    _, refused = api.absorb(study.folder, say=lambda line: None)
    study = Comparison.load(study.folder)
    assert not refused and study.frame.runs_ok.tolist() == [2, 2]
    assert study.slices.groupby("run_id").size().gt(3).all() and study.slices.run_id.nunique() == 4
    (verdict,) = study.verdicts()
    assert verdict.faster == "one" and verdict.blocks == 2


STOPS = [lambda event: event["event"] == "epoch" and event["number"] == 3, lambda event: event["event"] == "hello"]


@pytest.mark.parametrize("stops", STOPS, ids=["in-a-turn", "while-the-first-starts"])
def test_a_stop_ends_all_rivals_and_keeps_their_runs_to_be_run(paced, ask, tmp_path, stops):
    class Stopping(Watcher):
        def event(self, cell, event):
            if stops(event):
                raise KeyboardInterrupt

    names = [paced("one"), paced("two")]
    with pytest.raises(KeyboardInterrupt):
        ask(names, watcher=Stopping())
    assert statuses(tmp_path / "s") == {"interrupted": 2}
    study = ask(names)
    assert study.frame.status.tolist() == ["ok", "ok"]


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_every_rival_has_every_place_and_follows_every_other_equally_often(count):
    orders = list(itertools.islice(rounds.orders(count, random.Random(1)), count * (1 + count % 2)))
    places = collections.Counter((place, name) for order in orders for place, name in enumerate(order))
    pairs = collections.Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert len(places) == count**2 and len(set(places.values())) == 1
    assert len(pairs) == count * (count - 1) and len(set(pairs.values())) == 1


def test_slices_are_as_long_as_steps_allow_and_refill_caches_alike():
    assert Lengths.of([0.01, 0.01], 100_000, False) == (Lengths(40, 5))
    assert Lengths.of([0.01], 100_000, True).steps == 200
    assert Lengths.of([0.5, 0.5], 1000, False) == Lengths(2, 1)
    assert Lengths.of([9.0, 20.0], 1000, False, 20.0) == Lengths(1, 0)
    assert (rounds.least(20, 10), rounds.least(20, 0.4), rounds.least(0, 9)) == (2, 6, 6)
    short = Lengths.of([0.01, 0.01], 30, False)
    assert 30 // (short.steps + short.rewarm) > rounds.LEAST_ROUNDS
    assert Lengths(5, 1).times(0.2) == Lengths(1, 1)
    assert Lengths(40, 5).times(3.0) == Lengths(120, 15)
    assert Lengths(1, 0).times(0.5) == Lengths(1, 0)


def test_turns_of_few_steps_count_other_batches_of_an_epoch_each_but_the_same_for_all(paced, ask):
    generator = random.Random(1)
    steps, place, counted = 4, 0, collections.Counter()  # of an epoch
    for _ in range(400):
        place += (turn := Lengths(1, 1).shifted(generator)).rewarm
        counted[place % steps] += turn.steps
        place += turn.steps
    assert len(counted) == steps and min(counted.values()) > 60
    for lengths in (Lengths(40, 5), Lengths(1, 0)):
        assert lengths.shifted(generator) == lengths
    study = ask([paced("one"), paced("two", pace_s=0.006)], batch_size=1, epochs=2, repeats=2)
    counted = study.slices[study.slices.void == ""]
    assert counted.steps.max() < rounds.FEW_STEPS
    assert set(study.slices.groupby("run_id")["round"].size()) == {9}, "26 steps, three a turn"


def test_a_stop_at_the_last_step_of_an_epoch_holds_in_the_next(tmp_path):
    read, write = os.pipe()
    os.write(write, b"turn 0 1 0\nstop\n")
    path = tmp_path / "events"
    with open(path, "wb") as file:
        turns = Turns(read, EventWriter(file.fileno()), lambda: None)
        turns.take()
        turns.done(1)
        for _ in range(2):
            with pytest.raises(Stopped):
                turns.take()
        turns.finish()
    os.close(write)
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["ready", "slice"]


def test_cells_compete_of_the_same_samples_in_pipelines_that_stand_still(tiny):
    def cell(framework, **settings):
        return Cell(framework, "alexnet", "small", "cpu", TrainConfig(**settings))

    planned = [(1, cell("a"), 1), (2, cell("b"), 1), (3, cell("a", image_size=64), 1), (4, cell("a"), 2)]
    planned += [(5, cell("b", execution="compiled"), 1), (6, cell("b", mode="inference"), 1)]
    found = [[run_id for run_id, *_ in group] for group in groups(planned, "interleaved")]
    assert found == [[1, 2, 5], [3], [4], [6]]
    assert len(groups(planned, "sequential")) == 6
    for device, settings in (*ALONE, *IN_TURNS):
        cells = [Cell(name, "alexnet", "small", device, TrainConfig(**{"device": device, **settings})) for name in "ab"]
        assert bool(why_alone(cells[0])) == ((device, settings) in ALONE)
        found = groups([(number, cell, 1) for number, cell in enumerate(cells)], "interleaved")
        assert len(found) == (2 if (device, settings) in ALONE else 1)


ON_GPU = {"device": "cuda", "pipeline": "memory"}
ALONE = [
    *(("cpu", {"batch_growth": 1.5}), ("cuda:0,1", {**ON_GPU, "device": "cuda:0,1"})),
    ("cuda", {**ON_GPU, "pipeline": "native", "loader_workers": 0}),
    ("cuda", {**ON_GPU, "pipeline": "shared", "loader_workers": 2}),
]
IN_TURNS = [("cpu", {"pipeline": "native"}), ("cuda", {**ON_GPU, "loader_workers": 2})]
IN_TURNS += [("cuda", {"device": "cuda", "pipeline": "shared", "loader_workers": 0})]


def test_a_duel_gives_one_verdict_and_an_outcome(paced, images, own_cache, tmp_path):
    one, two = paced("one", pace_s=0.005), paced("two", pace_s=0.01)
    found = duel(one, two, "linear", images, max_slowdown="5%", out=tmp_path / "a", **SAMPLED)
    assert found.outcome == "slower" and not found.passed and 1.6 < found.ratio.value < 2.2
    assert found.verdict.faster == "one" and "two takes" in found.sentence
    epochs, steps = found.comparison.epochs, found.comparison.steps
    took = steps.groupby("run_id").step_s.sum()
    assert (epochs.groupby("run_id").epoch_s.sum() < 1.2 * took + 0.02).all(), "no wait for a turn is in an epoch"
    turned = duel(two, one, "linear", images, max_slowdown=0.05, out=tmp_path / "b", **SAMPLED)
    assert turned.outcome == "not slower" and turned.passed
    assert found.names == ("one", "two") and turned.names == ("two", "one"), "A and B, whichever is faster"


def test_a_framework_may_duel_with_itself_in_another_interpreter(paced, images, own_cache, tmp_path):
    one = paced("one", pace_s=0.01)
    found = duel(one, f"{one}={sys.executable}", "linear", images, out=tmp_path / "s", **SAMPLED)
    names = found.comparison.frame.framework.tolist()
    assert names[0] == "one" and names[1].startswith("one@") and 0.8 < found.ratio.value < 1.25
    assert found.outcome == "", "without a limit"
    assert Comparison.load(tmp_path / "s").table() is not None


def test_a_duel_of_what_does_not_fit_is_refused(tiny, images, tmp_path):
    with pytest.raises(UsageError, match="mnist_cnn on mnist and cifar_cnn on cifar10 are trained; allowed: two"):
        duel("mnist_cnn", "cifar_cnn", "torch", out=tmp_path / "s")
    with pytest.raises(UsageError, match="two frameworks and a model, or two models and a framework"):
        duel(tiny, "linear", "linear", images, out=tmp_path / "s")
    for several in ({"batch_size": [4, 8]}, {"device": ["cpu", "cuda"]}, {"devices": [1, 2], "device": "cpu"}):
        with pytest.raises(UsageError, match="allowed in a duel: one value, which both have"):
            duel("torch", "jax", "alexnet", images, out=tmp_path / "s", **several)
    for name, value in {"repeats": 3, "budget": "3min"}.items():
        with pytest.raises(UsageError, match=f"{name} is {value!r}, but a duel has blocks; allowed: blocks and sample"):
            duel("torch", "jax", "alexnet", images, out=tmp_path / "s", **{name: value})
    with pytest.raises(UsageError, match="are not a duel, because tourch is not a framework; allowed: two"):
        duel("torch", "tourch", "alexnet", images, out=tmp_path / "s")
    with pytest.raises(
        UsageError, match="torch and torch@.* are the same version of torch; name another, or torch twice"
    ):
        duel("torch", f"torch@{locks.pinned(registry.FRAMEWORKS['torch'])}", "alexnet", images, out=tmp_path / "s")


def test_a_duel_with_an_interpreter_that_lacks_the_framework_measures_nothing(tiny, images, tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    bare = tmp_path / "bare/bin/python"
    with pytest.raises(UsageError, match=f"torch: {bare} .* lacks torch, .*name another interpreter"):
        duel(tiny, f"torch={bare}", "linear", images, out=tmp_path / "s")
    with pytest.raises(UsageError, match="jax: .* lacks jax, "):
        duel(tiny, "jax", "linear", images, out=tmp_path / "s", python={"jax": str(bare)})
    assert not (tmp_path / "s").exists()
