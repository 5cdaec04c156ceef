"""Cells on a real GPU: executions, precisions, pipelines, losses, readings, profiles, and running out of its memory."""

import contextlib
import re
import subprocess
import sys

import pytest

from framework_compare import compare, registry
from framework_compare.launch import staging

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax"]
# Those that a framework has on a GPU. JAX has the others, too: `compiled` is its `graph`, op by op takes minutes.
EXECUTIONS = {
    "torch": ["eager", "graph", "compiled"],
    "tensorflow": ["eager", "graph", "compiled"],
    "mxnet": ["eager", "graph"],
    "paddle": ["eager", "graph"],
    "jax": ["graph"],
}
PRECISIONS = {**dict.fromkeys(FRAMEWORKS, ["fp32", "tf32", "bf16", "fp16"]), "mxnet": ["fp32", "tf32", "fp16"]}
UNSUPPORTED = [("mxnet", "precision", "bf16"), ("mxnet", "execution", "compiled"), ("paddle", "execution", "compiled")]
PLAIN = [(framework, name) for framework in FRAMEWORKS for name in EXECUTIONS[framework] if name != "compiled"]
SMALL = dict(image_size=64, batch_size=8, warmup_steps=1, seed=3, sampling_hz=20.0)
# By the driver's own library: of the frameworks none needs to be here.
HOLD_MEMORY = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, f"{name}: CUDA error {code}"
context, free, total, held = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
left = int(float(sys.argv[1]) * 2**30)
call("cuMemAlloc_v2", ctypes.byref(held), ctypes.c_size_t(free.value - left if left else 2**30))
print("held", flush=True)
sys.stdin.read()
"""
SMALL_GRAPH = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from framework_compare.graph import GraphBuilder, initial_weights, weight_views, weights_size
from framework_compare.protocol import TrainConfig
g = GraphBuilder("small", num_classes=3, image_size=32)
g.conv("conv", 8, 3, stride=2, padding=1)
g.flatten("flatten")
g.linear("fc", 3)
graph = g.build()
flat = np.empty(weights_size(graph), np.float32)
initial_weights(graph, 0, flat)
"""
READ_AT_ONCE = """
from framework_compare.adapters.torch import TorchTrainer
config = TrainConfig(device="cuda", execution=sys.argv[2], image_size=32, batch_size=4, learning_rate=1e-6)
trainer = TorchTrainer(config)
trainer.build(graph)
trainer.load_weights(weight_views(graph, flat))
rng = np.random.default_rng(0)
batches = [trainer.to_device_batch(rng.random((4, 32, 32, 3), np.float32), rng.integers(0, 3, 4)) for _ in range(7)]
for number in range(2000):
    step = trainer.train_step(batches[number % 7])
    loss = trainer.read_losses([step])[0]
    trainer.synchronize()
    assert loss == float(step.loss), f"step {number}: read {loss}, was {float(step.loss)}"
"""
READ_LATE = """
import importlib, os
module, _, name = sys.argv[2].partition(":")
trainer_class = getattr(importlib.import_module(module), name)
config = TrainConfig(device="cuda", execution=sys.argv[3], image_size=32, batch_size=4, learning_rate=1e-4)
os.environ.update(trainer_class.environment(config))
trainer = trainer_class(config)
trainer.build(graph)
rng = np.random.default_rng(0)
shape = (4, 32, 32, 3) if trainer.layout == "NHWC" else (4, 3, 32, 32)
batches = [trainer.to_device_batch(rng.random(shape, np.float32), rng.integers(0, 3, 4)) for _ in range(7)]
found = {}
for lag in (0, 8):
    trainer.load_weights(weight_views(graph, flat))
    read, pending = [], []
    for number in range(1001):
        pending.append(trainer.train_step(batches[number % 7]))
        if len(pending) > lag:
            read += trainer.read_losses([pending.pop(0)])
    found[lag] = np.array(read + trainer.read_losses(pending))
assert len(found[0]) == len(found[8]) == 1001
# A loss of another step is one of another batch: farther off than half of what the seven batches differ by.
apart = np.diff(np.sort(found[0][:7])).min()
assert apart > 0, found[0][:7]
worst = np.abs(found[8] - found[0]).argmax()
assert abs(found[8][worst] - found[0][worst]) < apart / 2, f"step {worst}: {found[8][worst]} late, {found[0][worst]} at once"
"""


@contextlib.contextmanager
def another_program(left_gib):
    """Holds 1 GiB of the GPU's memory, or all but left_gib."""
    command = [sys.executable, "-c", HOLD_MEMORY, str(left_gib)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        yield
        other.stdin.close()


@pytest.fixture
def run_cells(python_of, images, tmp_path):
    def run(framework, model="alexnet", device="cuda", **settings):
        python, out = python_of(framework), tmp_path / "s"
        settings = {**SMALL, **settings}
        return compare(framework, model, device, dataset=images, out=out, python=python, **settings)

    return run


@pytest.mark.parametrize("framework, execution", [(name, how) for name in FRAMEWORKS for how in EXECUTIONS[name]])
def test_every_execution_trains_in_every_precision(framework, execution, lacking, run_cells):
    precisions = [precision for precision in PRECISIONS[framework] if not lacking(precision)]
    settings = {"epochs": 12, "pipeline": "memory", "learning_rate": 0.003}
    frame = run_cells(framework, execution=execution, precision=precisions, **settings).frame
    assert len(frame) == len(precisions)
    for row in frame.itertuples():
        assert row.status == "ok", f"{row.execution} {row.precision}: {row.reason}"
        assert row.loss_last < row.loss_first, f"{row.execution} {row.precision}"
        assert row.gpu_memory_peak_bytes > 1e8


@pytest.mark.parametrize("framework, setting, value", UNSUPPORTED)
def test_what_a_framework_has_not_is_unsupported(framework, setting, value, run_cells):
    frame = run_cells(framework, pipeline="memory", epochs=1, **{setting: value}).frame
    assert frame.status[0] == "unsupported" and f"{setting} {value!r}" in frame.reason[0]


@pytest.mark.parametrize("framework, execution", PLAIN)
@pytest.mark.parametrize("pipeline", ["native", "shared"])
def test_copying_and_computing_of_images_are_told_apart(pipeline, framework, execution, run_cells):
    result = run_cells(framework, pipeline=pipeline, execution=execution, epochs=3, loader_workers=2)
    assert result.frame.status[0] == "ok", result.frame.reason[0]
    epochs = result.epochs
    assert list(epochs.images) == [13] * 3
    # a copy as small as these may be no longer than noise where the device's own clock does not tell
    assert (epochs.copy_s >= 0).all() and (epochs.compute_s > 0).all()
    assert (epochs.compute_s <= epochs.epoch_s).all()  # all of it where steps wait for the host, op by op


@pytest.mark.parametrize("execution", ["eager", "graph"])
def test_a_loss_that_is_read_at_once_is_that_of_its_step(execution, python_of):
    source = staging.stage(registry.framework("torch"))
    command = [python_of("torch")["torch"], "-c", SMALL_GRAPH + READ_AT_ONCE, str(source), execution]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("framework, execution", PLAIN)
def test_losses_that_are_read_late_are_those_of_their_steps(framework, execution, python_of):
    spec = registry.framework(framework)
    words = [str(staging.stage(spec)), staging.trainer_target(spec), execution]
    command = [python_of(framework)[framework], "-c", SMALL_GRAPH + READ_LATE, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_running_out_of_the_gpus_memory_is_a_status(framework, run_cells):
    settings = {"pipeline": "memory", "epochs": 1, "batch_size": [1, 13], "image_size": 448, "timeout_s": 200}
    with another_program(left_gib=6):
        frame = run_cells(framework, "vgg16", **settings).frame.set_index("batch_size")
    assert frame.status[1] == "ok", frame.reason[1]
    assert frame.status[13] == "out-of-memory", frame.reason[13]
    assert re.search("(?i)memory|OOM", frame.reason[13])


# MXNet's profiler tells the operators of its engine only.
@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "mxnet"])
def test_a_profile_tells_kernels_and_functions_of_cuda(framework, run_cells):
    result = run_cells(framework, pipeline="memory", epochs=1, profile=True)
    assert result.frame.status[0] == "ok", result.frame.reason[0]
    profile = result.profile
    assert {"cuda-runtime", "kernel"} <= set(profile.kind), profile
    assert profile[profile.kind == "cuda-runtime"].name.str.contains("Launch").any(), profile
    kernels = profile[profile.kind == "kernel"]
    assert kernels[kernels.kernel_class == "other"].share.sum() < 0.1, kernels


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_hidden_gpu_is_unsupported(framework, run_cells, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    frame = run_cells(framework, epochs=1).frame
    assert frame.status[0] == "unsupported" and "cuda" in frame.reason[0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_gpu_that_is_not_there_is_unsupported(framework, run_cells):
    frame = run_cells(framework, device="cuda:99", epochs=1).frame
    assert frame.status[0] == "unsupported" and "cuda:99" in frame.reason[0]


def test_another_program_on_the_gpu_is_reported(run_cells):
    with another_program(left_gib=0):
        result = run_cells("torch", pipeline="memory", epochs=20)
    assert any("GiB" in warning for warning in result.warnings), result.warnings
