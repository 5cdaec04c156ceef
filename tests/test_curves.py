"""Loss curves: they hold for a framework that is the reference in float32, and do not for one that trains otherwise."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from network_mistakes import NESTEROV

from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.graph import Field, Task
from framework_compare.parity.network.oracle.losses import LOSSES, cross_entropy
from framework_compare.parity.training import curves
from framework_compare.parity.verify import Where
from framework_compare.report import curves as curves_report
from framework_compare.report.figures import look

HONEST = "    name = 'honest'\n"
BROKEN = "    def train_step(self, batch):\n        raise RuntimeError('no kernel')\n"


@pytest.fixture
def framework(mutate, short_level_4):
    """Registers a framework of a name: the float32 reference with the body given; and the model `small`."""
    return lambda name, body: mutate(body, name)


def train(names, images, **settings):
    where = Where(python={name: sys.executable for name in names})
    settings = {"steps": 6, "batch_size": 4, "image_size": 32, "learning_rate": 0.01, "threads": 1, **settings}
    (found,) = curves.train_curves(names, ["small"], images, where=where, **settings)
    return found


def test_the_reference_in_float32_stays_within_the_yardstick_and_is_not_trained_again(framework, images):
    framework("honest", HONEST)
    found = train(["honest"], images)
    assert found.hold and len(found.losses["honest"]) == 6
    assert found.ratio(found.off("honest")) <= 1
    framework("honest", HONEST)
    first = train(["honest"], images)
    told: list = []
    assert train(["honest"], images, say=told.append) == first
    assert not told


def test_frameworks_that_train_otherwise_are_further_apart(framework, images):
    framework("honest", HONEST)
    framework("nesterov", NESTEROV)
    found = train(["honest", "nesterov"], images)
    assert not found.hold
    assert found.ratio(found.off("nesterov")) > 10


def test_training_goes_on_into_the_next_epoch_and_a_missing_execution_is_no_failure(framework, images):
    framework("honest", HONEST)
    found = train(["honest"], images, steps=5)  # 13 images are 4 batches
    assert found.hold and len(found.exact) == 5
    framework("honest", HONEST)
    found = train(["honest"], images, execution=["default", "graph"])
    assert found.hold and list(found.losses) == ["honest default"]
    assert "declares no execution 'graph'" in found.unsupported["honest graph"]


def test_other_batches_than_the_references_are_noticed(framework, images, monkeypatch):
    framework("honest", HONEST)
    monkeypatch.setattr(curves.zlib, "crc32", lambda *given: 0)
    assert "other batches" in train(["honest"], images).failures["honest"]


def test_the_yardstick_is_rounding_of_logits_of_the_loss_and_of_its_reading():
    exact = {"losses": [1.0, 1.0], "logits": [[[0.0, 1.0]], [[0.0, 1.0]]]}
    loss, _ = cross_entropy(np.array([[0.0, 1.0]]), np.array([0]))
    run = {"losses": [loss, loss], "logits": [[[0.0, 1.0]], [[0.0, 1.0]]]}
    off = {"losses": [loss, loss], "logits": [[[0.0, 1.25]], [[0.0, 1.0]]]}
    labels = [np.array([0]), np.array([0])]
    assert curves.yardstick(exact, [run], labels) == [2**-23, 2**-23]
    first, second = curves.yardstick(exact, [off], labels)
    assert first == second > 0.5, "what the first step moved counts from then on"


def test_no_loss_can_move_by_more_than_its_bound():
    for loss, one, other, target, moved, smoothing in (
        ("cross_entropy", [[0.0, 1.0]], [[0.0, 1.5]], [0], 1.0, 0),
        ("cross_entropy", [[0.0, 1.0]], [[0.0, 1.5]], [0], 1.0, 0.1),
        ("binary_cross_entropy", [[1.0]], [[1.5]], [[1.0]], 1.0, 0),
        ("token_cross_entropy", [[[0.0, 1.0], [0.0, 0.0]]], [[[0.0, 1.5], [9.0, 0.0]]], [[0, -1]], 1.0, 0),
        ("mse", [[3.0]], [[2.0]], [[1.0]], 3.0, 0),
    ):
        outputs, target = [np.array(one), np.array(other)], np.array(target)
        task = Task((), Field("y", ()), 1, loss, smoothing=smoothing)
        losses = [float(LOSSES[task.named_loss](each, target, **task.loss_options)[0]) for each in outputs]
        runs = [{"losses": [value], "logits": [each.tolist()]} for value, each in zip(losses, outputs)]
        (allowed,) = curves.yardstick(runs[0], [runs[1]], [target], task)
        assert abs(losses[0] - losses[1]) <= allowed == pytest.approx(moved)


def test_a_workload_trains_on_its_own_arrays(framework):
    framework("honest", HONEST)
    where = Where(python={"honest": sys.executable})
    found = curves.train_workload_curves("honest", "quanv_classical", steps=4, where=where, threads=1, optimizer="sgd")
    assert found.hold and len(found.losses["honest"]) == 4, found.unsupported


def test_the_report_has_a_table_numbers_and_an_image(framework, images, tmp_path):
    framework("honest", HONEST)
    framework("broken", BROKEN)
    found = train(["honest", "broken"], images)
    assert not found.hold and "no kernel" in found.failures["broken"]
    curves_report.write([found], tmp_path / "out")
    assert "| small |" in (tmp_path / "out" / "curves.md").read_text()
    assert "no kernel" in (tmp_path / "out" / "curves.md").read_text()
    assert len(json.loads((tmp_path / "out" / "curves.json").read_text())[0]["exact"]) == 6
    assert (tmp_path / "out" / "curves.svg").read_text().startswith("<svg")


def test_the_image_has_a_mark_for_each_loss_that_is_a_number(tmp_path):
    losses = {"torch": [1.0, 0.9, 0.8], "jax": [1.0, float("nan"), 0.8]}
    one = curves.Curves("alexnet", {}, [1.0, 0.9, 0.8], [1e-6] * 3, losses, {}, {})
    curves_report.draw([one, dataclasses.replace(one, model="vgg16")], tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text()
    assert all(name in text for name in ("AlexNet", "VGG-16", "PyTorch", "JAX", "yardstick"))
    colours = [look.COLOURS[look.place(name, ["torch", "jax"])] for name in ("torch", "jax")]
    # Two panels for each of two models, and the legend.
    assert [text.count(f'fill="{colour}"') for colour in colours] == [3 * 4 + 1, 2 * 4 + 1]


def fairness(name: str, out: Path, images: Path, check: int = 0):
    options = ["--frameworks", name, "--models", "small", "--dataset", images, "--steps", "4", "--threads", "1"]
    more = ["--image-size", "32", "--learning-rate", "0.01", "--python", f"{name}={sys.executable}"]
    run("fairness", "--out", out, *options, *more, check=check)


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_the_command_writes_ladder_and_curves_and_fails_for_who_trains_otherwise(framework, images, tmp_path):
    framework("honest", HONEST)
    fairness("honest", tmp_path / "out", images)
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert found == ["curves.json", "curves.md", "curves.svg", "ladder.md"]
    framework("nesterov", NESTEROV)
    fairness("nesterov", tmp_path / "nesterov-out", images, check=1)


def test_curves_refuse_what_would_train_otherwise_before_an_environment_is_sought(own_cache, images, monkeypatch):
    monkeypatch.setattr(Where, "environment", lambda *asked: pytest.fail("an environment was sought"))
    with pytest.raises(UsageError, match="alexnet does not accept image_size 8: .*; use a larger one"):
        curves.train_curves(["torch"], ["alexnet"], images, image_size=8)
    with pytest.raises(UsageError, match="fp32"):
        curves.train_curves(["torch"], ["alexnet"], images, precision="bf16")
    with pytest.raises(UsageError, match="only execution may be a list"):
        curves.train_curves("torch", "alexnet", "fire-smoke-tiny", batch_size=[2, 4])
    with pytest.raises(UnknownNameError, match="lstm_ibm"):
        curves.train_workload_curves("torch", "alexnet")
