"""Cells of the real frameworks through compare(): every network, pipeline and execution."""

import shutil

import numpy as np
import pytest

from framework_compare import compare
from framework_compare.environments import managed

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax"]
MODELS = ["alexnet", "mobilenet_v2", "resnet50", "resnet50_v1_5", "vgg16"]
PARAMETERS = {
    "alexnet": 57_016_131,
    "mobilenet_v2": 2_227_715,
    "resnet50": 23_514_179,
    "resnet50_v1_5": 23_514_179,
    "vgg16": 134_272_835,
}
SMALL = dict(image_size=64, batch_size=8, limit=16, warmup_steps=0, seed=3)


@pytest.fixture(scope="module")
def networks(real_pictures, tmp_path_factory):
    """All frameworks and models on one held batch."""
    out = tmp_path_factory.mktemp("networks") / "study"
    settings = {**SMALL, "pipeline": "memory", "epochs": 6, "learning_rate": 0.003}
    return compare(FRAMEWORKS, MODELS, dataset=real_pictures, out=out, **settings).frame


def cell(frame, **wanted):
    for column, value in wanted.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1, f"{wanted}: {len(frame)} rows"
    return frame.iloc[0]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_network_trains_on_a_held_batch_and_the_loss_falls(networks, framework, model):
    row = cell(networks, framework=framework, model=model)
    assert row.status == "ok", row.reason
    assert np.isfinite(row.loss_last) and row.loss_last < row.loss_first
    assert row.parameters == PARAMETERS[model]
    assert row.peak_rss_bytes > 1e8 and row.threads_max >= 1


@pytest.fixture(scope="module")
def pipelines(mixed_pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("pipelines") / "study"
    return compare(
        FRAMEWORKS, "mobilenet_v2", dataset=mixed_pictures, out=out, pipeline=["native", "shared"], epochs=2,
        image_size=64, batch_size=4, loader_workers=2, warmup_steps=0,
    )  # fmt: skip


@pytest.mark.parametrize("pipeline", ["native", "shared"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_pipeline_reads_every_kind_of_picture(pipelines, framework, pipeline):
    row = cell(pipelines.frame, framework=framework, pipeline=pipeline)
    assert row.status == "ok", f"{row.reason}\n{(pipelines.folder / row.log_path).read_text()[-3000:]}"
    epochs = pipelines.epochs
    epochs = epochs[(epochs.framework == framework) & (epochs.pipeline == pipeline)]
    assert list(epochs.images) == [row.pictures] * 2


def test_a_loader_of_paddle_hands_over_arrays(trainer_script, real_pictures):
    """Batches of tensors stopped or crashed its processes in about one of a hundred epochs (3.3.1)."""
    kinds = trainer_script(
        "paddle", "alexnet", """
loader = trainer.open_pipeline(pictures)
answer = [type(part).__module__ for part in loader.dataset[0]]
trainer.release()
""", pictures=real_pictures, pipeline="native", loader_workers=1,
    )  # fmt: skip
    assert kinds == ["numpy", "numpy"]


WORKS = {
    "torch": {"eager", "compiled"} if shutil.which("g++") else {"eager"},
    "tensorflow": {"eager", "graph", "compiled"},
    "mxnet": {"eager", "graph"},
    "paddle": {"eager", "graph"},
    "jax": {"eager", "graph", "compiled"},
}


@pytest.fixture(scope="module")
def executions(real_pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("executions") / "study"
    settings = {**SMALL, "epochs": 2, "pipeline": "memory", "execution": ["eager", "graph", "compiled"]}
    return compare(FRAMEWORKS, "alexnet", dataset=real_pictures, out=out, **settings).frame


@pytest.mark.parametrize("execution", ["eager", "graph", "compiled"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_execution_works_or_says_why_not(executions, framework, execution):
    row = cell(executions, framework=framework, execution=execution)
    if execution in WORKS[framework]:
        assert row.status == "ok", row.reason
    else:
        assert row.status == "unsupported" and execution in row.reason


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_threads_limit_what_a_framework_uses(framework, real_pictures, tmp_path):
    settings = {**SMALL, "image_size": 128, "limit": 64, "epochs": 3, "pipeline": "memory", "threads": 1}
    row = compare(framework, "resnet50", dataset=real_pictures, out=tmp_path / "s", **settings).frame.iloc[0]
    assert row.status == "ok", row.reason
    assert row.cpu_percent_mean < 120, f"{row.cpu_percent_mean:.0f} % of a core with one thread"


def test_mxnet_has_no_second_pool_of_threads_for_what_python_hands_over(real_pictures, tmp_path):
    settings = {**SMALL, "pipeline": "memory", "epochs": 2, "threads": 2}
    found = compare("mxnet", "alexnet", dataset=real_pictures, tuning=["recommended", "none"], out=tmp_path / "s", **settings)
    threads = found.frame.set_index("tuning").threads_max
    # both hand over AlexNet's weights, which OpenMP copies with as many threads of its own where it may
    assert threads["recommended"] == threads["none"] - 1


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_device_that_is_not_there_is_unsupported(framework, real_pictures, tmp_path):
    frame = compare(framework, "alexnet", "cuda:7", dataset=real_pictures, out=tmp_path / "s", epochs=1, **SMALL).frame
    assert frame.status[0] == "unsupported" and "cuda:7" in frame.reason[0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_build_for_cpus_says_that_it_is_one(framework, real_pictures, tmp_path):
    python = {framework: str(managed.ensure(framework).python)}
    settings = {**SMALL, "epochs": 1, "pipeline": "memory", "python": python}
    frame = compare(framework, "alexnet", "cuda:7", dataset=real_pictures, out=tmp_path / "s", **settings).frame
    assert frame.status[0] == "unsupported" and "cuda:7" in frame.reason[0]


PRECISIONS = {"torch": {"fp32", "bf16"}, "tensorflow": {"fp32", "bf16"}, "jax": {"fp32", "bf16"}}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_precision_trains_on_a_cpu_or_says_why_not(framework, real_pictures, tmp_path):
    settings = {**SMALL, "epochs": 6, "pipeline": "memory", "learning_rate": 0.003}
    precision = ["fp32", "tf32", "bf16", "fp16"]
    study = compare(framework, "alexnet", dataset=real_pictures, out=tmp_path / "s", precision=precision, **settings)
    for row in study.frame.itertuples():
        if row.precision in PRECISIONS.get(framework, {"fp32"}):
            assert row.status == "ok" and row.loss_last < row.loss_first, f"{row.precision}: {row.reason}"
        else:
            assert row.status == "unsupported" and row.precision in row.reason
