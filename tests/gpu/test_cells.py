"""Cells on a real GPU: executions, precisions, pipelines, readings, and running out of its memory."""

import subprocess

import pytest

from framework_compare import compare

FRAMEWORKS = ["torch", "jax"]
EXECUTIONS = {"torch": ["eager", "graph", "compiled"], "jax": ["graph"]}
PRECISIONS = ["fp32", "tf32", "bf16", "fp16"]
SMALL = dict(image_size=64, batch_size=8, warmup_steps=1, seed=3, sampling_hz=20.0)
HOLD_MEMORY = """
import sys, torch
held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""


def one(frame, **wanted):
    for column, value in wanted.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1, f"{wanted}: {len(frame)} rows"
    return frame.iloc[0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_execution_and_precision_trains(framework, python_of, pictures, tmp_path):
    settings = {**SMALL, "epochs": 12, "pipeline": "memory", "learning_rate": 0.003}
    frame = compare(
        framework, "alexnet", "cuda", dataset=pictures, out=tmp_path / "s", python=python_of(framework),
        execution=EXECUTIONS[framework], precision=PRECISIONS, **settings,
    ).frame  # fmt: skip
    assert len(frame) == len(EXECUTIONS[framework]) * len(PRECISIONS)
    for row in frame.itertuples():
        assert row.status == "ok", f"{row.execution} {row.precision}: {row.reason}"
        assert row.loss_last < row.loss_first, f"{row.execution} {row.precision}"
        assert row.gpu_memory_peak_bytes > 1e8


@pytest.mark.parametrize("execution", ["eager", "graph"])
@pytest.mark.parametrize("pipeline", ["native", "shared"])
def test_pictures_reach_the_gpu_and_copying_and_computing_are_told_apart(pipeline, execution, python_of, pictures, tmp_path):
    result = compare(
        "torch", "alexnet", "cuda", dataset=pictures, out=tmp_path / "s", python=python_of("torch"),
        pipeline=pipeline, execution=execution, epochs=3, loader_workers=2, **SMALL,
    )  # fmt: skip
    assert result.frame.status[0] == "ok", result.frame.reason[0]
    epochs = result.epochs
    assert list(epochs.images) == [13] * 3
    assert (epochs.copy_s > 0).all() and (epochs.compute_s > 0).all()
    assert (epochs.compute_s < epochs.epoch_s).all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_running_out_of_the_gpus_memory_is_a_status(framework, python_of, pictures, tmp_path):
    frame = compare(
        framework, "vgg16", "cuda", dataset=pictures, out=tmp_path / "s", python=python_of(framework),
        pipeline="memory", epochs=1, batch_size=13, image_size=2048,
    ).frame  # fmt: skip
    assert frame.status[0] == "out-of-memory", frame.reason[0]
    assert "memory" in frame.reason[0].lower()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_hidden_gpu_is_unsupported(framework, python_of, pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    frame = compare(
        framework, "alexnet", "cuda", dataset=pictures, out=tmp_path / "s", python=python_of(framework), epochs=1, **SMALL
    ).frame
    assert frame.status[0] == "unsupported" and "cuda" in frame.reason[0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_gpu_that_is_not_there_is_unsupported(framework, python_of, pictures, tmp_path):
    frame = compare(
        framework, "alexnet", "cuda:99", dataset=pictures, out=tmp_path / "s", python=python_of(framework), epochs=1,
        **SMALL,
    ).frame  # fmt: skip
    assert frame.status[0] == "unsupported" and "cuda:99" in frame.reason[0]


def test_another_program_on_the_gpu_is_reported(python_of, pictures, tmp_path):
    python = python_of("torch")
    command = [python["torch"], "-c", HOLD_MEMORY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        result = compare(
            "torch", "alexnet", "cuda", dataset=pictures, out=tmp_path / "s", python=python, pipeline="memory",
            epochs=20, **SMALL,
        )  # fmt: skip
        other.stdin.close()
    assert any("GiB" in warning for warning in result.warnings), result.warnings
