"""A cell on several devices: who trains on what, what is proved of it, and whose death is told. No real framework."""

import numpy as np
import pytest
from bounds import rounding
from image_files import copies
from parity_fixtures import climb
from processes import write_script
from reference_trainer import ReferenceTrainer

from framework_compare import compare, events, resume
from framework_compare.errors import Unsupported, UsageError
from framework_compare.launch import nodes, supervisor
from framework_compare.launch.transcript import Transcript
from framework_compare.protocol import Replicas, TrainConfig
from framework_compare.study import executors, parts
from framework_compare.study.executors import Executor
from framework_compare.study.part_run import run_part
from framework_compare.study.progress import Watcher
from framework_compare.worker.epochs import LastStep
from framework_compare.worker.refusal import refuse_undeclared

SMALL = dict(batch_size=2, image_size=32, threads=1, loader_workers=0, pipeline="shared", repeats=1, verify="off")
CPUS = ("cpu", "cpu")


@pytest.fixture
def ranks(mutate, register_mutated):
    """Registers a class of tests/plugins/ranks.py as the framework `mutated`, with what is put after it in its place."""

    def register(name: str, body: str = "    pass\n"):
        source = f"from .oracle import Mode\nfrom .ranks import {name}\n\nclass Mutated({name}):\n{body}"
        register_mutated(source, process_per_device=name != "Replicated")

    return register


@pytest.mark.cold  # two workers at once
@pytest.mark.parametrize("name", ["Replicated", "Ranked"])
def test_the_reference_on_two_devices_is_the_mean_of_two_replicas(ranks, name):
    ranks(name)
    found = climb(pipeline="memory", device="cpu:0,1")
    assert found.status == "passed", found
    assert found.levels[3].error < rounding(1, np.float32), "in float64 nothing is left to rounding"


SCALED = """
    def together(self, gradients):
        return {{name: {factor} * gradient for name, gradient in gradients.items()}}
"""
MUTATIONS = {
    "synchronised BatchNorm": ("    parts = 1\n", 1, "BatchNorm in training mode"),
    "gradient times N": (SCALED.format(factor=2), 2, ""),
    "loss divided twice": (SCALED.format(factor=0.5), 2, ""),
    "weights undone": (
        "    def load_weights(self, weights):\n"
        "        if getattr(self, 'oracle', None) is None or not self.oracle.steps:\n"
        "            super().load_weights(weights)\n",
        3,
        "load_weights",
    ),
    "dropout alike": (
        "    def forward(self, batch, *, training=False):\n"
        "        halves, state = numpy.split(batch.images, 2), self.random.bit_generator.state\n"
        "        found = []\n"
        "        for half in halves:\n"
        "            self.random.bit_generator.state = state\n"
        "            found.append(self.oracle._pass(half, Mode(training, dropout=self.random), None, lambda *_: None))\n"
        "        return numpy.concatenate(found)\n",
        5,
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MUTATIONS)
def test_a_mistake_of_replicas_is_caught_at_its_level(ranks, mistake):
    body, level, words = MUTATIONS[mistake]
    ranks("Replicated", body)
    found = climb(pipeline="memory", device="cpu:0,1")
    failed = [one for one in found.levels if not one.passed]
    assert failed and failed[0].number == level and words in failed[0].where, found.levels


@pytest.mark.cold
@pytest.mark.parametrize("name", ["Replicated", "Ranked"])
def test_a_cell_on_two_devices_counts_the_images_of_both(ranks, images, name):
    """13 images: one global batch of 12 is three of 4; the last image cannot be shared."""
    ranks(name)
    study = compare("mutated", "small", "cpu", devices=2, dataset=images, epochs=2, **SMALL)
    row = study.frame.iloc[0]
    assert (row.device, row.status) == ("cpu:0,1", "ok"), row.reason
    assert list(study.epochs.images) == [12, 12] and list(study.epochs.steps) == [3, 3]
    assert row.threads == 1 and row.batch_size == 2


@pytest.mark.cold
def test_a_sample_under_a_budget_ends_in_all_ranks_after_the_same_step(ranks, images, tmp_path, monkeypatch):
    """Each step takes 50 ms, and rank 1 starts its clock half a second later."""
    many = copies(images, tmp_path / "many", 12)
    monkeypatch.setattr("framework_compare.study.strategies.LONGEST_SAMPLE_S", 1.0)
    body = """
    def train_step(self, batch):
        import time

        time.sleep(0.05)
        return super().train_step(batch)

    def synchronize(self):
        import time

        time.sleep(0.5 * self.replicas.rank)
        super().synchronize()
"""
    ranks("Ranked", body)
    settings = {**SMALL, "batch_size": 1, "repeats": None}
    study = compare("mutated", "small", "cpu:0,1", dataset=many, budget="8s", **settings)
    row = study.frame.iloc[0]
    assert row.status == "ok", row.reason
    assert study.epochs.whole_images.tolist() == len(study.epochs) * [156.0] and row.epoch_estimate_s > 3
    assert (study.epochs.steps < 78).all() and (study.epochs.steps >= 8).all()


def test_the_last_step_of_a_sample_is_one_that_no_rank_has_reached(tmp_path):
    first, other = (LastStep(tmp_path, rank, 2) for rank in (0, 1))
    assert not first.sample_ends(7, False, 8) and not other.sample_ends(16, True, 8), "the clock of rank 0 decides"
    assert not first.sample_ends(8, True, 8) and not other.sample_ends(17, False, 8)
    assert [first.sample_ends(steps, True, 8) for steps in (18, 19)] == [False, True]
    assert [other.sample_ends(steps, False, 8) for steps in (18, 19)] == [False, True]
    assert LastStep(tmp_path, 0, 1).sample_ends(5, True, 8)


@pytest.mark.cold
@pytest.mark.parametrize(
    "end, status, words",
    [
        ("", "crashed", "rank 1: killed by SIGKILL in phase epochs"),
        ("raise ValueError('no more')", "failed", "rank 1: ValueError: no more"),
        ("import os; os._exit(3)", "crashed", "rank 1: exited with code 3 in phase epochs"),
    ],
    ids=["killed", "raises", "exits"],
)
def test_the_rank_that_ended_is_told_by_its_number(ranks, images, end, status, words):
    ranks("Mortal", f"    def end(self):\n        {end}\n" if end else "    pass\n")
    row = compare("mutated", "small", "cpu:0,1", dataset=images, epochs=5, **SMALL).frame.iloc[0]
    assert row.status == status and row.reason.startswith(words), row.reason


@pytest.mark.parametrize(
    "statuses, rank",
    [((70, 3), 1), ((3, 70), 0), ((70, 0), 0), ((0, -9), 1), ((-6, -9), 1), ((3, -6), 1), ((70, 70), 0), ((0, 0), 0)],
)
def test_of_ranks_that_ended_at_once_the_one_that_took_the_others_along_is_named(statuses, rank):
    assert supervisor.TOLD_FAILURE == events.TOLD_FAILURE == 70
    ended = {pid: (-status if status < 0 else status << 8, 0) for pid, status in enumerate(statuses, start=100)}
    assert supervisor.decisive_rank([100, 101], ended) == rank


def test_of_ranks_that_told_of_a_failure_the_first_that_was_heard_is_named():
    transcript = Transcript(0, epochs=1, ranks=2)
    assert transcript.first_failed() is None
    late = {"event": "outcome", "t_ns": 1 << 62, "status": "failed", "reason": "mine", "rank": 1}
    transcript.add(late)  # by another node's clock
    transcript.add({"event": "outcome", "t_ns": 1, "status": "failed", "reason": "its connection is gone"})
    assert transcript.first_failed() == 1


def test_several_nodes_need_a_slurm_job_of_which_a_part_asks_for_as_many_as_its_largest_cell(
    tiny, images, tmp_path, monkeypatch
):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    study = tmp_path / "study"
    with pytest.raises(UsageError, match="nodes is 2, but this is not a Slurm job; add --on slurm"):
        compare(tiny, "linear", "cpu", nodes=2, dataset=images, out=study, **SMALL)
    assert not study.exists()
    compare(tiny, "linear", nodes=[1, 2], dataset=images, out=study, executor=Executor(), **SMALL)
    assert parts.PartPlan.read(study, 1).nodes == 2
    assert list(executors._chunks(study, [1], most=10)) == [(2, [1])]
    for start in (lambda: resume(study), lambda: run_part(study, 1, Watcher())):
        with pytest.raises(UsageError, match="nodes is 2, but this is not a Slurm job"):
            start()


def test_several_nodes_need_the_commands_of_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    for lacking, other in (("srun", "scontrol"), ("scontrol", "srun")):
        (tmp_path / lacking).mkdir()
        write_script(tmp_path / lacking / other, "")
        monkeypatch.setenv("PATH", str(tmp_path / lacking))
        with pytest.raises(UsageError, match=f"nodes is 2, but {lacking} is not on PATH"):
            nodes.check(2)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"mode": "inference"}, "mode is 'inference' on device 'cpu' of 2 nodes"),
        ({"budget": "1min", "repeats": None}, "nodes is 2 under a budget"),
        ({"nodes": 0}, "nodes is 0; allowed: a whole number of at least 1"),
    ],
)
def test_what_several_nodes_cannot_do_is_refused(tiny, images, settings, words):
    with pytest.raises(UsageError, match=words):
        compare(tiny, "linear", "cpu", dataset=images, **{**SMALL, "nodes": 2, **settings})


def test_an_adapter_without_replicas_or_several_nodes_says_so(tiny, images):
    declared = ReferenceTrainer.declared._replace(replicas={"cpu": frozenset({"default"})})
    trainer = type("Other", (ReferenceTrainer,), {"name": "other", "declared": declared})
    with pytest.raises(Unsupported, match="other declares no replicas on several nodes; use one node"):
        refuse_undeclared(trainer, TrainConfig(nodes=2), [], Replicas(CPUS, 0, "a:9", 2))
    row = compare(tiny, "linear", "cpu:0,1", dataset=images, **SMALL).frame.iloc[0]
    reason = "tiny declares no replicas on 2 devices of kind 'cpu'; use one device"
    assert (row.status, row.reason) == ("unsupported", reason)


def test_what_several_devices_cannot_do_is_refused_before_anything_is_written(tiny, images, tmp_path):
    for settings in ({"mode": "inference"}, {"limit": 3}):
        with pytest.raises(UsageError, match="device"):
            compare(tiny, "linear", "cpu:0,1,2,3", dataset=images, out=tmp_path / "study", **{**SMALL, **settings})
        assert not (tmp_path / "study").exists()
