"""SINGA's adapter: crashes, memory, both forms of convolutions in groups, batch sizes, and its label in a study."""

import numpy as np
import pytest
import rounding_bounds
from changed_adapter import changed
from nightly import some_nightly

from framework_compare import compare, registry
from framework_compare.environments import managed

LABEL = "3.0.0.dev1 (2020), repaired at run time"
SMALL = dict(image_size=64, batch_size=4, limit=8, epochs=2, warmup_steps=0, pipeline="memory", verify="off", threads=1)


@pytest.fixture(scope="module", params=some_nightly(["branched", "mobilenet_v2"], nightly=["mobilenet_v2"]))
def study(request, real_images, tmp_path_factory):
    out, forms = tmp_path_factory.mktemp("singa") / "study", ["public", "private"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.MODELS, "branched", registry.Model("framework_compare.conformance.graphs:branched"))
        settings = {**SMALL, "pipeline": "shared"}
        limit, size = settings["limit"], settings["batch_size"]
        study = compare("singa", request.param, dataset=real_images, out=out, internals=forms, **settings)
        own = {name: settings[name] for name in ("image_size", "batch_size", "epochs", "pipeline")}
        _, allowed = rounding_bounds.of_epochs(request.param, real_images, own, limit // size, limit=limit)
        yield study, allowed


def test_both_forms_of_convolutions_in_groups_compute_the_same(study):
    (study, allowed) = study
    assert list(study.frame.status) == ["ok", "ok"], list(study.frame.reason)
    public, private = (losses.to_numpy() for _, losses in study.epochs.groupby("cell")["loss"])
    assert (np.abs(public - private) <= allowed).all(), (public, private, allowed)
    versions = study.frame.set_index("internals").framework_version
    assert versions["public"] == LABEL
    assert versions["private"] == f"{LABEL}; fields that are not public corrected where a model needs it"


def test_a_failed_check_of_its_library_is_a_crashed_cell(real_images, tmp_path, monkeypatch, small):
    """An adapter whose step reads what was never written, which SINGA ends the process for."""
    wrong = "        core = self.singa.core\n        core.ReLU(core.Tensor([3], self._device, 0))\n"
    mark = "        loss = self._loss(batch)\n"
    python = managed.ensure("singa").python
    entry = changed("singa", tmp_path / "singa", "trainer.py", mark, wrong + mark)
    monkeypatch.setitem(registry.FRAMEWORKS, "singa", entry)
    settings = {**SMALL, "dataset": real_images, "out": tmp_path / "study", "python": {"singa": str(python)}}
    row = compare("singa", small, **settings).frame.iloc[0]
    assert row.status == "crashed"
    assert "SIGABRT" in row.reason and "Check failed: initialized_ Must initialize data before reading it" in row.reason


STEPS = """
import gc
from framework_compare.graph import GraphBuilder, initial_weights, weights_size

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

import os
if BUILD:
    g = GraphBuilder("small", num_classes=3, image_size=32)
    g.conv("conv1", 16, 3, stride=2, padding=1)
    g.batchnorm("bn1")
    g.relu6("relu1")
    g.conv("conv2", 16, 3, padding=1, groups=16)
    g.maxpool("pool", 2, stride=2)
    g.flatten("flatten")
    g.dropout("dropout", 0.5)
    g.linear("fc1", 512)
    g.relu("relu2")
    g.linear("fc2", 3)
    graph = g.build()
    trainer.build(graph)
    trainer.load_weights(initial_weights(graph, 0, np.empty(weights_size(graph), np.float32)))
side = graph.image_size
rng = np.random.default_rng(0)
batches = [
    trainer.to_device_batch(rng.standard_normal((size, 3, side, side), dtype=np.float32), np.arange(size) % 3) for size in (4, 1)
]
answer = []
for step in range(10 * EVERY + 1):
    trainer.read_losses([trainer.train_step(batches[step % 10 == 9])])
    if step % EVERY == 0:
        answer.append(resident())
"""
MIB = 1 << 20


@pytest.mark.parametrize("steps", some_nightly([300, 1000], nightly=[1000]))
def test_steps_leave_no_memory_behind(trainer_script, images, steps):
    """In two batch sizes. A step's gradients alone take 4 MiB."""
    body = f"BUILD, EVERY = True, {steps // 10}\n" + STEPS
    readings = trainer_script("singa", "alexnet", body, images=images, build=False)
    assert max(readings[3:]) - readings[2] < 2 * MIB, readings


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["alexnet", "resnet50", "mobilenet_v2"])
def test_a_thousand_steps_of_a_model_leave_no_memory_behind(trainer_script, images, model):
    settings = dict(images=images, timeout_s=3600, internals="private")
    readings = trainer_script("singa", model, "BUILD, EVERY = False, 100\n" + STEPS, **settings)
    assert max(readings[3:]) - readings[2] < 8 * MIB, readings


HALF = """
from framework_compare.errors import Unsupported
from framework_compare.graph import GraphBuilder
g = GraphBuilder("frozen", num_classes=3, image_size=64)
g.conv("conv", 8, 3)
g.batchnorm("norm")
g.global_avgpool("avgpool")
g.linear("fc", 3)
try:
    trainer.build(g.build().frozen("norm"))
except Unsupported as error:
    answer = str(error)
"""


def test_a_frozen_batchnorm_behind_trained_layers_is_refused(trainer_script, images):
    assert trainer_script("singa", "alexnet", HALF, images=images, build=False) == (
        "layer norm: SINGA has no gradient of a frozen BatchNorm2d behind trained layers"
    )


@pytest.mark.nightly
@pytest.mark.parametrize("python", ["3.8", "3.9", "3.10", "3.12"])
def test_other_pythons_train(real_images, tmp_path, monkeypatch, python, own_cache):
    major, minor = map(int, python.split("."))
    name = f"singa{minor}"
    entry = registry.FRAMEWORKS["singa"]
    pinned = registry.dataclasses.replace(entry, name=name, python=((major, minor), (major, minor)))
    monkeypatch.setitem(registry.FRAMEWORKS, name, pinned)
    study = compare(name, "alexnet", dataset=real_images, out=tmp_path / "study", **SMALL)
    row = study.frame.iloc[0]
    if row.status == "not-installed" and "needs Python" in row.reason:
        pytest.skip(f"there is no Python {python} here: {row.reason}")
    assert row.status == "ok", row.reason
