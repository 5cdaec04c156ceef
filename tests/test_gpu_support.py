"""What a pinned CUDA build needs of a GPU and its driver, and that a cell that lacks it costs no environment."""

import dataclasses
import os
import re
from types import SimpleNamespace

import pynvml
import pytest
from recorded_nvml import RecordedNvml
from typer.testing import CliRunner

from framework_compare import compare, registry
from framework_compare.adapters.jax import network as jax_network
from framework_compare.adapters.torch import trainer as torch_adapter
from framework_compare.cli import environments as cli_environments
from framework_compare.environments import gpu_builds, venvs
from framework_compare.environments import managed as environments
from framework_compare.environments.gpu_builds import BUILDS, Build, Gpu, lack, look, unfit
from framework_compare.errors import EnvironmentUnavailable
from framework_compare.launch.staging import worker_environment
from framework_compare.protocol import TrainConfig
from framework_compare.registry import Framework

H200 = Gpu("NVIDIA H200", (9, 0), "580.159.04")


class OneGpu(RecordedNvml):
    def nvmlDeviceGetHandleByIndex(self, index):
        if index:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return ("handle", index)


@pytest.fixture(autouse=True)
def all_gpus_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "paddle", "jax"])
def test_the_other_builds_run_on_hopper(framework):
    assert unfit(BUILDS[framework], H200) is None


def test_a_driver_that_is_too_old_is_named_and_missing_readings_speak_against_nothing():
    reason, remedy = unfit(BUILDS["torch"], dataclasses.replace(H200, driver="535.104.05"))
    assert "driver" in remedy
    assert "CUDA 13.0, which needs driver 580.65.06 or newer; this machine has 535.104.05" in reason
    assert unfit(BUILDS["mxnet"], Gpu(None, None, None)) is None
    assert unfit(None, H200) is None
    reason = unfit(BUILDS["mxnet"], H200).why
    assert "mxnet-cu112 1.9.1 has kernels for compute capability 5.0, 6.0, 7.0, 8.0, 8.6" in reason
    assert "this GPU (NVIDIA H200) has 9.0" in reason


def test_machine_code_runs_on_later_minors_and_ptx_on_all_newer():
    build = Build("x 1", "12.5", "525.60.13", ((8, 0),), ptx=(9, 0))
    runs = {(8, 0): True, (8, 6): True, (8, 7): True, (7, 5): False, (9, 0): True, (10, 0): True}
    assert {capability: gpu_builds.runs_on(build, capability) for capability in runs} == runs


def test_a_gpu_is_looked_up_as_cuda_numbers_it_and_hidden_ones_are_named(monkeypatch):
    assert look("cuda", nvml=OneGpu()) == H200
    assert "there is no such GPU; NVML finds 1" in lack("torch", "cuda:3", nvml=OneGpu()).why
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert "CUDA_VISIBLE_DEVICES='0' hides it" in lack("torch", "cuda:1", nvml=OneGpu()).why


def test_no_driver_is_a_reason_for_every_framework_and_none_on_a_cpu():
    for framework in registry.FRAMEWORKS:
        reason = lack(framework, "cuda", nvml=OneGpu(nvmlInit=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)).why
        assert reason.startswith("device 'cuda': no NVIDIA driver responds here (")
        assert lack(framework, "cpu", nvml=OneGpu(nvmlInit=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)) is None


@pytest.mark.parametrize("name", [name for name in BUILDS if name in registry.FRAMEWORKS])
def test_the_table_speaks_of_the_build_that_is_pinned(name):
    spec = registry.framework(name)
    first = venvs.read_pins(venvs.requirements_path(spec, "cuda"))[0]
    assert re.sub("=+", " ", first) == BUILDS[name].name


@pytest.fixture
def managed(own_cache, monkeypatch, tmp_path):
    """Registers a framework with requirements for both devices, of which no environment can be made."""
    for kind in ("cpu", "cuda"):
        (tmp_path / f"{kind}.txt").write_text(f"never-made-{kind}==1.0\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    def register(cuda: bool) -> None:
        gpu = str(tmp_path / "cuda.txt") if cuda else ""
        python = ((3, 10), (3, 99))
        entry = Framework("managed", "m:T", str(tmp_path / "cpu.txt"), "never_made", python, gpu)
        monkeypatch.setitem(registry.FRAMEWORKS, "managed", entry)

    register(cuda=True)
    return register


def test_each_device_has_an_environment_unless_the_user_has_an_interpreter(managed):
    cpu, cuda = (environments.plan_for("managed", device) for device in ("cpu", "cuda:1"))
    assert cpu.pins == ("never-made-cpu==1.0",) and cuda.pins == ("never-made-cuda==1.0",)
    assert cpu.folder != cuda.folder and (cpu.device, cuda.device) == ("cpu", "cuda")
    labels = [environments.label("managed", device) for device in ("cpu", "cuda", "cuda:1")]
    assert labels == ["managed", "managed (cuda)", "managed (cuda)"]
    assert environments.label("managed", "cuda", "/usr/bin/python") == "managed"


def test_a_package_of_an_index_of_its_own_is_told_with_it(managed, monkeypatch):
    monkeypatch.setitem(BUILDS, "managed", Build("managed 1.0", "12.6", "525.60.13", index="https://example.org/x/"))
    with pytest.raises(EnvironmentUnavailable, match="--index managed=https://example.org/x/"):
        environments.ensure("managed", device="cuda")
    with pytest.raises(EnvironmentUnavailable, match="find-links"):
        environments.ensure("managed")


@pytest.mark.parametrize(
    "capability, compilers, said",
    [
        ((9, 0), ["gcc"], None),
        ((9, 0), ["clang"], None),
        ((9, 0), ["g++"], "torch.compile needs a C compiler even for a GPU; install gcc"),
        ((6, 1), ["gcc"], "execution 'compiled' needs compute capability 7.0; this GPU has 6.1"),
    ],
)
def test_torch_compiles_for_a_gpu_where_triton_can(capability, compilers, said, monkeypatch, tmp_path):
    for name in compilers:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = torch_adapter._no_compiling(*capability)
    assert found is None if said is None else said in found


def test_a_framework_that_no_gpu_here_can_run_costs_no_environment(managed, images, tmp_path, monkeypatch):
    frame = compare("managed", "alexnet", "cuda:99", dataset=images, out=tmp_path / "s", epochs=1).frame
    assert frame.status[0] == "unsupported" and frame.reason[0].startswith("device 'cuda:99': ")
    assert not (tmp_path / "cache/envs").exists()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    done = CliRunner().invoke(cli_environments.app, ["create", "managed", "--device", "cuda"])
    assert done.exit_code == 1 and "managed: this machine cannot run it (device 'cuda': " in done.output
    managed(cuda=False)
    frame = compare("managed", "alexnet", "cuda", dataset=images, out=tmp_path / "without-s", epochs=1).frame
    assert frame.status[0] == "unsupported"
    assert "has no requirements for it" in frame.reason[0]
    assert frame.reason[0].endswith("; name an interpreter that has a build for it: --python managed=/path/to/python")


def test_an_interpreter_of_the_users_own_is_asked_all_the_same(tiny, images, tmp_path):
    frame = compare("tiny", "linear", "cuda:99", dataset=images, out=tmp_path / "s", epochs=1).frame
    assert frame.status[0] == "unsupported" and "NVIDIA driver" not in frame.reason[0]


def test_a_worker_hears_which_gpus_there_are_and_not_how_the_shell_would_have_them_compute(monkeypatch, tmp_path):
    for name in ("NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    given = worker_environment(managed=False, temporary=tmp_path)
    told = {name: value for name, value in given.items() if name.startswith(("CUDA_", "NVIDIA_"))}
    assert told == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_cudnn_has_fused_attention_in_half_precisions_from_ampere_on():
    for device, precision, capability, has in (
        *(("cuda", "bf16", "9.0", True), ("cuda:1", "fp16", "8.0", True), ("cuda", "fp16", "7.5", False)),
        *(("cuda", "tf32", "9.0", False), ("cuda", "fp32", "12.0", False), ("cpu", "bf16", None, False)),
    ):
        config = TrainConfig(device=device, precision=precision)
        assert jax_network.has_flash(config, SimpleNamespace(compute_capability=capability)) is has
    fits = jax_network.fits_flash
    assert fits((16, 1024, 12, 64)) and not fits((16, 1024, 4, 256)) and not fits((16, 1024, 12, 36))
