"""Real frameworks on two Slurm nodes of this host: the function that two devices of one node train, proved; deaths, told."""

import contextlib
from pathlib import Path

import numpy as np
import psutil
import pytest
import rounding_bounds
from changed_adapter import changed
from nightly import some_nightly
from processes import naming, wait_for
from slurm_cluster import install_plugin, run, start_command, trains

from framework_compare import registry
from framework_compare.comparison import Comparison
from framework_compare.environments import managed

pytestmark = pytest.mark.slurm
PLUGIN = """
import dataclasses
import os

from framework_compare import registry

def register():
    registry.register_model("small", "small:build")
    registry.register_model("plain", "small:without_dropout")
    adapter = os.environ.get("CHANGED_TORCH")
    if adapter:
        changed = dataclasses.replace(registry.FRAMEWORKS["torch"], trainer=adapter)
        registry.FRAMEWORKS["torch"] = changed
"""
FRAMEWORKS = ("torch", "jax")
PROVED = {"nodes": 2, "models": "small", "pipeline": "memory", "verify": "require"}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return install_plugin(tmp_path_factory.mktemp("plugin"), PLUGIN)


@pytest.fixture
def unaveraged(tmp_path, monkeypatch):
    """PyTorch's adapter with a mistake: each rank trains by its own gradients."""
    right = "self._group.wrap(self._network, captured=self._captures)"
    monkeypatch.setenv(
        "CHANGED_TORCH", changed("torch", tmp_path / "torch", "trainer.py", right, "self._network").trainer
    )


@pytest.fixture
def command(cluster, plugin, tmp_path):
    environments = Path(managed.ensure("torch").python).parents[2]
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "envs").symlink_to(environments)
    return start_command(cluster, plugin, tmp_path)


def request(images, out, framework, **given):
    options = {"frameworks": framework, "models": "plain", "dataset": images, "batch-size": 2, "epochs": 2, "out": out}
    quick = {"threads": 1, "loader-workers": 1, "image-size": 32, "repeats": 1, "disturbance-threshold": 1000}
    own = {"pipeline": "shared", "verify": "off"}
    return ["run", *(f"--{name}={value}" for name, value in {**options, **quick, **own, **given}.items())]


def ranks():
    """The workers that run now, by their number."""
    found = {}
    for process, _ in naming("run_worker.py"):
        with contextlib.suppress(psutil.Error, KeyError):
            found[process.environ()["RANK"]] = process
    return found


@pytest.mark.parametrize("framework", some_nightly(FRAMEWORKS, nightly=["jax"]))
def test_two_nodes_train_what_two_devices_of_one_do(cluster, command, images, tmp_path, framework):
    """12 of 13 images, six a replica. Sums over ranks may be taken in another order, which float32 rounds."""
    run(command, *request(images, tmp_path / "there", framework, nodes=2), "--on", "slurm")
    run(command, *request(images, tmp_path / "here", framework, device="cpu:0,1"))
    there, here = (Comparison.load(tmp_path / name) for name in ("there", "here"))
    assert list(there.frame.status) == list(here.frame.status) == ["ok"], [*there.frame.reason, *here.frame.reason]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.MODELS, "plain", registry.Model("small:without_dropout"))
        settings = {"image_size": 32, "batch_size": 4, "epochs": 2, "pipeline": "shared"}  # of both replicas
        _, allowed = rounding_bounds.of_epochs("plain", images, settings, 3, limit=12)
    assert (np.abs(there.epochs.loss - here.epochs.loss) <= allowed).all(), allowed
    assert list(there.epochs.images) == list(here.epochs.images) == [12, 12]
    assert wait_for(lambda: not naming(tmp_path), 15), naming(tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_validation_on_two_nodes_is_that_of_two_devices_of_one(cluster, command, tmp_path, framework):
    """Rank 0 alone validates, while the others wait for the next epoch; its last batch is a part of one."""
    given = {"framework": framework, "models": "diabetes_ann", "batch-size": 32, "images": "(none)"}
    asked = [option for option in request(**given, out=tmp_path / "there", nodes=2) if not_of_images(option)]
    run(command, *asked, "--on", "slurm")
    asked = [option for option in request(**given, out=tmp_path / "here", device="cpu:0,1") if not_of_images(option)]
    run(command, *asked)
    there, here = (Comparison.load(tmp_path / name) for name in ("there", "here"))
    assert list(there.frame.status) == list(here.frame.status) == ["ok"], [*there.frame.reason, *here.frame.reason]
    steps = int(here.epochs.steps.sum())
    _, allowed = rounding_bounds.of_rows(tmp_path, "diabetes_ann", {"batch_size": 64, "epochs": 2}, steps)
    assert (np.abs(there.epochs.loss - here.epochs.loss) <= allowed.max()).all(), allowed
    validation = there.quality.validation_loss - here.quality.validation_loss
    assert (np.abs(validation) <= allowed.max()).all(), allowed
    counted = [name for name in here.quality if name.startswith("validation_") and name != "validation_loss"]
    assert counted and there.quality[counted].equals(here.quality[counted]), "shares of the same rows"


def not_of_images(option):
    return not option.startswith(("--dataset", "--image-size"))


@pytest.mark.nightly
@pytest.mark.parametrize("device", ["cpu", "cpu:0,1"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ranks_of_two_nodes_are_proved(cluster, command, images, tmp_path, framework, device):
    """Levels 0 to 3 and 5 by the oracle's replicas, and what the ranks trained is the same bit for bit."""
    run(command, *request(images, tmp_path / "study", framework, **PROVED, device=device), "--on", "slurm")
    row = Comparison.load(tmp_path / "study").frame.iloc[0]
    assert (row.status, row.parity) == ("ok", "0-3, 5"), row.reason


@pytest.mark.nightly
def test_a_mistake_is_caught_over_nodes(unaveraged, cluster, command, images, tmp_path):
    run(command, *request(images, tmp_path / "study", "torch", **PROVED), "--on", "slurm")
    row = Comparison.load(tmp_path / "study").frame.iloc[0]
    assert row.status == "failed" and row.reason.startswith("parity is required: 0-1, not 2"), row.reason


@pytest.mark.nightly
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_frameworks_own_loader_is_shared_out(cluster, command, images, tmp_path, framework):
    """With 0 loader workers and with as many as make Grain start processes."""
    workers = {"loader-workers": "0,3", "pipeline": "native", "nodes": 2}
    run(command, *request(images, tmp_path / "study", framework, **workers), "--on", "slurm")
    study = Comparison.load(tmp_path / "study")
    assert set(study.frame.status) == {"ok"}, list(study.frame.reason)
    assert set(study.epochs.images) == {12} and set(study.epochs.steps) == {3}


@pytest.mark.nightly
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rank_that_is_killed_is_told_with_its_node(cluster, command, images, tmp_path, framework):
    """Rank 0 then fails, too, as its connection is gone: that is not what is told."""
    endless = {"nodes": 2, "epochs": 100000, "pipeline": "memory"}
    study = command(*request(images, tmp_path / "study", framework, **endless), "--on", "slurm")
    assert wait_for(lambda: trains(tmp_path), 90)
    ranks()["1"].kill()
    text = study.communicate(timeout=120)[0]
    row = Comparison.load(tmp_path / "study").frame.iloc[0]
    assert row.status == "crashed", (row.reason, text)
    assert row.reason.startswith("rank 1 (node 2 of 2): killed by SIGKILL in phase epochs"), row.reason
    assert wait_for(lambda: not naming(tmp_path), 15), naming(tmp_path)
