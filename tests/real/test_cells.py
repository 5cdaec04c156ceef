"""Cells of the real frameworks through compare(): every network, pipeline and execution."""

import itertools
import shutil

import numpy as np
import pytest
from nightly import some_nightly

from framework_compare import compare, registry
from framework_compare.environments import managed

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax", "singa"]
PARAMETERS = {"alexnet": 57_016_131, "mobilenet_v2": 2_227_715, "vgg16": 134_272_835}
PARAMETERS.update(dict.fromkeys(("resnet50", "resnet50_v1_5"), 23_514_179))
SMALL = dict(image_size=64, batch_size=8, limit=16, warmup_steps=0, seed=3, threads=1)
# Depthwise and residual layers; other tests train a small one with each framework, and compare logits of ResNet-50.
DAILY = {("torch", "mobilenet_v2")}
PAIRS = list(itertools.product(FRAMEWORKS, PARAMETERS))


@pytest.fixture
def train(tmp_path, real_images, small):
    """Trains one cell through compare(); its row, and the study."""

    def run(framework, model, *device, **settings):
        settings = {**SMALL, "dataset": real_images, "out": tmp_path / "study", **settings}
        study = compare(framework, model, *device, **settings)
        assert len(study.frame) == 1
        return study.frame.iloc[0], study

    return run


@pytest.mark.parametrize("pair", some_nightly(PAIRS, {*PAIRS} - DAILY), ids="-".join)
def test_network_trains_on_a_held_batch_and_the_loss_falls(train, pair):
    framework, model = pair
    row, _ = train(framework, model, pipeline="memory", epochs=3, learning_rate=0.003)
    assert row.status == "ok", row.reason
    assert np.isfinite(row.loss_last) and row.loss_last < row.loss_first
    assert row.parameters == PARAMETERS[model]
    assert row.peak_rss_bytes > 1e8 and row.threads_max >= 1


FEEDS = list(itertools.product(FRAMEWORKS, ["native", "shared"]))
# What is shared is the same for all but for how a framework adopts it.
SHARED_NIGHTLY = [(framework, "shared") for framework in ("torch", "tensorflow", "paddle", "jax", "singa")]
# Which use Pillow, as torch's does; level 4 asks each for its pixels.
NATIVE_NIGHTLY = [(framework, "native") for framework in ("jax", "paddle")]


@pytest.mark.parametrize("feed", some_nightly(FEEDS, SHARED_NIGHTLY + NATIVE_NIGHTLY), ids="-".join)
def test_pipeline_reads_every_kind_of_image(train, mixed_images, feed):
    framework, pipeline = feed
    settings = dict(dataset=mixed_images, limit=None, pipeline=pipeline, epochs=2, batch_size=4, loader_workers=2)
    row, study = train(framework, "small", **settings)
    assert row.status == "ok", f"{row.reason}\n{(study.folder / row.log_path).read_text()[-3000:]}"
    assert list(study.epochs.images) == [row.images] * 2


WORKS = {
    **{"torch": {"eager", "compiled"} if shutil.which("g++") else {"eager"}, "singa": {"eager"}},
    **dict.fromkeys(("tensorflow", "jax"), {"eager", "graph", "compiled"}),
    **dict.fromkeys(("mxnet", "paddle"), {"eager", "graph"}),
}


EXECUTIONS = list(itertools.product(FRAMEWORKS, ["eager", "graph", "compiled"]))
# Neither minutes of an optimising compiler nor a compilation of each operator; what is the default, other tests train.
DAILY_EXECUTIONS = {("tensorflow", "eager"), ("mxnet", "graph"), ("paddle", "graph")}


@pytest.mark.parametrize("pair", some_nightly(EXECUTIONS, {*EXECUTIONS} - DAILY_EXECUTIONS), ids="-".join)
def test_execution_works_or_says_why_not(train, pair):
    framework, execution = pair
    row, _ = train(framework, "small", epochs=2, pipeline="memory", execution=execution)
    if execution in WORKS[framework]:
        assert row.status == "ok", row.reason
    else:
        assert row.status == "unsupported" and execution in row.reason


# Model, images, their size and epochs: seconds, at least, which are read ten times each.
WORK = [("heavy", 32, 64, 3), pytest.param("resnet50", 48, 128, 3, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("model, limit, size, epochs", WORK)
@pytest.mark.parametrize("framework", some_nightly(FRAMEWORKS, {*FRAMEWORKS} - {"mxnet"}))
def test_threads_limit_what_a_framework_uses(train, monkeypatch, framework, model, limit, size, epochs):
    monkeypatch.setitem(registry.MODELS, "heavy", registry.Model("framework_compare.conformance.graphs:heavy"))
    row, _ = train(framework, model, limit=limit, image_size=size, epochs=epochs, pipeline="memory")
    assert row.status == "ok", row.reason
    assert row.cpu_percent_mean < 120, f"{row.cpu_percent_mean:.0f} % of a core with one thread"


@pytest.mark.nightly  # that MXNet keeps to its threads is tested above
def test_mxnet_has_no_second_pool_of_threads_for_what_python_hands_over(real_images, tmp_path):
    settings = {**SMALL, "pipeline": "memory", "limit": 8, "epochs": 1, "threads": 2, "tuning": ["recommended", "none"]}
    found = compare("mxnet", "alexnet", dataset=real_images, out=tmp_path / "s", **settings)
    threads = found.frame.set_index("tuning").threads_max
    # both hand over AlexNet's weights, which OpenMP copies with as many threads of its own where it may
    assert threads["recommended"] == threads["none"] - 1


def test_a_device_that_is_not_there_is_unsupported(real_images, tmp_path, small):
    frame = compare(FRAMEWORKS, small, "cuda:7", dataset=real_images, out=tmp_path / "study", **SMALL, epochs=1).frame
    assert set(frame.status) == {"unsupported"} and frame.reason.str.contains("cuda:7").all()


# The same refusal by the framework itself, in an interpreter that the user names.
@pytest.mark.parametrize("framework", some_nightly(FRAMEWORKS, nightly=FRAMEWORKS[1:]))
def test_a_build_for_cpus_says_that_it_is_one(train, framework):
    python = {framework: str(managed.ensure(framework).python)}
    row, _ = train(framework, "small", "cuda:7", epochs=1, pipeline="memory", python=python)
    assert row.status == "unsupported" and "cuda:7" in row.reason


PRECISIONS = {"torch": {"fp32", "bf16"}, "tensorflow": {"fp32", "bf16"}, "jax": {"fp32", "bf16"}}
PRECISE = list(itertools.product(FRAMEWORKS, ["fp32", "tf32", "bf16", "fp16"]))


# A processor without bf16 takes seconds for a step in it.
BY_DAY = [("mxnet", "bf16"), ("jax", "bf16"), ("torch", "fp16")]


@pytest.mark.parametrize("pair", some_nightly(PRECISE, [pair for pair in PRECISE if pair not in BY_DAY]), ids="-".join)
def test_precision_trains_on_a_cpu_or_says_why_not(train, pair):
    framework, precision = pair
    row, _ = train(framework, "small", epochs=6, pipeline="memory", learning_rate=0.003, precision=precision)
    if precision in PRECISIONS.get(framework, {"fp32"}):
        assert row.status == "ok" and row.loss_last < row.loss_first, row.reason
    else:
        assert row.status == "unsupported" and precision in row.reason
