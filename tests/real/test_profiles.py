"""Profiles of the real frameworks on a CPU, by operator."""

import gzip
import json

import pytest
from nightly import some_nightly

from framework_compare import compare
from framework_compare.worker.profiling import STEPS

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax", "singa"]
SMALL = dict(image_size=64, batch_size=4, limit=8, epochs=2, warmup_steps=0, pipeline="memory", verify="off", threads=1)


# By day PyTorch's, MXNet's and XLA's, which TensorFlow shares with JAX.
@pytest.fixture(scope="module", params=some_nightly(FRAMEWORKS, ["tensorflow", "paddle", "singa"]))
def study(request, real_images, tmp_path_factory, small):
    out = tmp_path_factory.mktemp("profiles") / "study"
    return compare(request.param, small, dataset=real_images, out=out, profile=True, **SMALL)


@pytest.fixture
def cell(study):
    row = study.frame.iloc[0]
    assert row.status == "ok", row.reason
    return row


def of(cell, frame):
    return frame[frame.framework == cell.framework]


def test_operators_hold_a_convolution_each_way_and_no_time_twice(cell, study):
    rows = of(cell, study.profile)
    assert set(rows.kind) == {"operator"}
    # XLA calls a fusion after the library that computes the convolution in it (YNNPACK)
    convolutions = rows[rows.name.str.lower().str.contains("conv|ynn")]
    assert convolutions.calls.sum() >= 2 * STEPS and convolutions.share.sum() > 0, rows.to_string()
    rows = of(cell, study.profile)
    phases = of(cell, study.phases).set_index("phase")
    assert rows.share.sum() == pytest.approx(1)
    threads = 2 * of(cell, study.frame).threads.iloc[0] + 2
    assert rows.self_s.sum() <= phases.seconds["profile"] * threads


def test_the_trace_can_be_opened_and_starts_when_the_epochs_have_ended(cell, study):
    path = study.folder / cell.trace_path
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        assert len(json.load(file)["traceEvents"]) > 10
    phases = of(cell, study.phases).set_index("phase")
    epochs = of(cell, study.epochs)
    assert len(epochs) == 2
    assert phases.start_s["profile"] >= (epochs.start_s + epochs.epoch_s).max()


@pytest.mark.nightly
@pytest.mark.parametrize("framework, execution", [("tensorflow", "eager"), ("paddle", "graph")])
def test_operators_have_names_in_the_other_execution(framework, execution, real_images, tmp_path):
    settings = {**SMALL, "execution": execution, "profile": True}
    rows = compare(framework, "alexnet", dataset=real_images, out=tmp_path / "study", **settings).profile
    assert rows.name.str.lower().str.contains("conv").sum() >= 2, rows.to_string()
