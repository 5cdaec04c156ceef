"""A cell on two Slurm nodes of this host, of a framework that is numpy alone; tests/real/test_nodes.py has real ones."""

import contextlib

import psutil
import pytest
from processes import naming, wait_for
from reference_adapter import write_adapter
from slurm_cluster import install_plugin, run, start_command, trains

from framework_compare.comparison import Comparison

pytestmark = pytest.mark.slurm
PLUGIN = """
from framework_compare import registry
from framework_compare.registry import Framework

def register():
    for name in ("Ranked", "Mortal", "Raising", "Waiting", "Alone"):
        place = {place!r} + f"/mutated:{{name}}"
        framework = Framework(name.lower(), place, "", "numpy", ((3, 8), (3, 99)), process_per_device=True)
        registry.register_framework(framework)
    registry.register_model("small", "small:without_dropout")
"""
TRAINERS = """
from .ranks import Mortal, Ranked


class Raising(Mortal):
    def end(self):
        raise ValueError("no more")


class Waiting(Ranked):
    def train_step(self, batch):
        import time

        time.sleep(0.05)
        return super().train_step(batch)


class Alone(Ranked):
    declared = Ranked.declared._replace(several_nodes=False)
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    place = tmp_path_factory.mktemp("plugin")
    write_adapter(place / "mutated", TRAINERS)
    return install_plugin(place, PLUGIN.format(place=str(place)))


@pytest.fixture
def command(cluster, plugin, tmp_path):
    return start_command(cluster, plugin, tmp_path)


def request(images, out, **given):
    options = {"frameworks": "ranked", "models": "small", "dataset": images, "batch-size": 2, "epochs": 2, "out": out}
    quick = {"threads": 1, "loader-workers": 0, "image-size": 32, "repeats": 1, "disturbance-threshold": 1000}
    own = {"pipeline": "shared", "verify": "off"}
    return ["run", *(f"--{name}={value}" for name, value in {**options, **quick, **own, **given}.items())]


def is_clean(tmp_path):
    """Whether nothing of a study, its cache and its scratch still runs, on whatever node."""
    nodes = tmp_path / "cache" / "nodes"
    return wait_for(lambda: not naming(tmp_path), 15) and not list(nodes.iterdir())


def test_two_nodes_train_what_two_devices_of_one_do(cluster, command, images, tmp_path):
    """And another framework says why it does not."""
    there, here = tmp_path / "there", tmp_path / "here"
    run(command, *request(images, there, nodes=2, frameworks="ranked,alone"), "--on", "slurm")
    run(command, *request(images, here, device="cpu:0,1"))
    study = Comparison.load(there)
    rows = study.frame.set_index("framework")
    assert (rows.status.ranked, rows.status.alone) == ("ok", "unsupported"), list(rows.reason)
    assert rows.reason.alone.startswith("mutated declares no replicas on several nodes")
    epochs = [one.epochs for one in (study, Comparison.load(here))]
    assert list(epochs[0].loss) == list(epochs[1].loss) and list(epochs[0].images) == [12, 12]
    assert [path.name for path in there.glob("parts/1/runs/00001-*/rank-*")] == ["rank-1"], "what rank 1 wrote"
    assert is_clean(tmp_path)


@pytest.mark.parametrize(
    "framework, words",
    [
        ("mortal", "rank 1 (node 2 of 2): killed by SIGKILL in phase epochs"),
        pytest.param("raising", "rank 1 (node 2 of 2): ValueError: no more", marks=pytest.mark.nightly),
    ],
)
def test_a_rank_that_ends_on_another_node_is_told_with_its_node(cluster, command, images, tmp_path, framework, words):
    out = tmp_path / "study"
    run(command, *request(images, out, nodes=2, frameworks=framework, epochs=9), "--on", "slurm")
    row = Comparison.load(out).frame.iloc[0]
    assert row.reason.startswith(words), row.reason
    assert is_clean(tmp_path)


def kill(tmp_path, wanted):
    """Every process of the study that is wanted, by SIGKILL."""
    for process, line in naming(tmp_path):
        if wanted(line):
            with contextlib.suppress(psutil.Error):
                process.kill()


def rank(line):
    """That a supervisor of a worker serves."""
    return int(line[4] == "1") if line[1:3] == ["-I", "-S"] else None


# What happens, and how the study then has the run. A node that is gone is nobody's fault.
ENDS = {
    "scancel": (lambda cluster, place: cluster.ask("scancel", *cluster.jobs()), "planned"),
    "time limit": (lambda cluster, place: None, "timed-out"),
    "the part is killed": (lambda cluster, place: kill(place, lambda line: "part" in line[3:5]), "planned"),
    "srun is killed": (lambda cluster, place: kill(place, lambda line: line[0] == "srun"), "planned"),
    "the first supervisor is killed": (lambda cluster, place: kill(place, lambda line: rank(line) == 0), "crashed"),
    "the other supervisor is killed": (lambda cluster, place: kill(place, lambda line: rank(line) == 1), "planned"),
    "the other node dies": (lambda cluster, place: cluster.kill_node("n2"), "planned"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("how", ENDS)
def test_what_ends_the_cell_leaves_no_process_on_any_node(cluster, command, images, tmp_path, how):
    end, status = ENDS[how]
    out, limit = tmp_path / "study", ["--timeout=8"] if how == "time limit" else []
    study = command(*request(images, out, nodes=2, frameworks="waiting", epochs=500), "--on", "slurm", *limit)
    assert wait_for(lambda: trains(tmp_path)), "the first epoch"
    end(cluster, tmp_path)
    if how == "the other node dies":
        assert wait_for(lambda: not naming(tmp_path / "disk"), 30), "the part ends by itself"
        cluster.ask("scancel", *cluster.jobs(), *cluster.jobs("PENDING"))
        cluster.start_node("n2")
    text = study.communicate(timeout=120)[0]
    assert study.returncode == 0, text
    row = Comparison.load(out).frame.iloc[0]
    assert row.status == status, (row.reason, text)
    assert wait_for(lambda: not naming(tmp_path), 15), naming(tmp_path)
    assert cluster.idle(60)
