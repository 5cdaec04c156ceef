"""Check that the CUDA build that a framework pins runs on a GPU and its driver, before gigabytes are fetched."""

from __future__ import annotations

import dataclasses
import os
from types import ModuleType
from typing import NamedTuple

import pynvml

from framework_compare.environments.interpreters import Unavailable
from framework_compare.samplers.nvml import ask, find_handle, gpu_indices

Capability = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Build:
    """Contents and needs of a pinned CUDA build.

    kernels: compute capabilities it has machine code for; empty where that is not known. ptx: the newest it has
    intermediate code for, which the driver compiles for newer GPUs; None where it has none.
    """

    name: str  # as in the requirements: "torch 2.13.0"
    cuda: str
    driver: str  # the oldest that runs programs of that CUDA version
    kernels: tuple[Capability, ...] = ()
    ptx: Capability | None = None
    index: str = ""  # the package index that has it, where pip's own has not


class Lack(NamedTuple):
    """The reason that a device cannot be used, in a sentence, and what to do about it."""

    why: str
    remedy: str


# Oldest drivers: CUDA 11.x from 11.1 on 450.80.02, 12.x 525.60.13, 13.x 580.65.06
# (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html and the toolkit's release notes).
# Kernels and PTX: read from the headers in the sections .nv_fatbin of each wheel's libraries (x86-64, Linux).
BUILDS: dict[str, Build] = {
    # of libtorch_cuda.so, which holds no PTX, although a list of PyTorch's builds names 12.0+PTX
    # (github.com/pytorch/test-infra/pull/7046)
    "torch": Build("torch 2.13.0", "13.0", "580.65.06", ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))),
    # of libtensorflow_cc.so.2; 2.21 is built with CUDA 12.5 and cuDNN 9.3 (tensorflow.org/install/source)
    "tensorflow": Build(
        "tensorflow 2.21.0", "12.5", "525.60.13", ((6, 0), (7, 0), (8, 0), (8, 9), (9, 0)), ptx=(9, 0)
    ),
    # of libmxnet.so: no PTX at all, as its builds dropped it (github.com/apache/mxnet/pull/17521), so nothing newer
    # than 8.x can run it. It is the last CUDA build: the project was archived in 2023.
    "mxnet": Build("mxnet-cu112 1.9.1", "11.2", "450.80.02", ((5, 0), (6, 0), (7, 0), (8, 0), (8, 6))),
    # on Paddle's own index only, which was not read: the worker says what does not run there. (2.6.2, the last on
    # PyPI, is of CUDA 11.8 with kernels for 6.1, 7.0, 7.5, 8.0 and 8.6.)
    "paddle": Build(
        "paddlepaddle-gpu 3.3.1", "12.6", "525.60.13", index="https://www.paddlepaddle.org.cn/packages/stable/cu126/"
    ),
    # of xla_cuda_plugin.so of jax-cuda13-pjrt; github.com/jax-ml/jax/pull/16256 says why PTX is of the newest only
    "jax": Build(
        "jax 0.10.2", "13.0", "580.65.06", ((7, 5), (8, 0), (9, 0), (10, 0), (11, 0), (12, 0)), ptx=(12, 0)
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU as NVML describes it; what it does not say is None."""

    name: str | None
    capability: Capability | None
    driver: str | None


class NoGpu(Unavailable):
    """There is no such device; its reason follows "device 'cuda': "."""


def lack(framework: str, device: str, *, nvml: ModuleType = pynvml) -> Lack | None:
    """Return why a framework's pinned build, or any build, cannot run on a device; None if nothing is known."""
    for index in gpu_indices(device):
        try:
            shortfall = unfit(BUILDS.get(framework), look(f"cuda:{index}", nvml=nvml), framework)
        except NoGpu as error:
            shortfall = Lack(error.why, error.remedy)
        if shortfall:
            return shortfall._replace(why=f"device {device!r}: {shortfall.why}")
    return None


def look(device: str, *, nvml: ModuleType = pynvml) -> Gpu:
    """The GPU that "cuda" or "cuda:1" names here, CUDA_VISIBLE_DEVICES followed; raises NoGpu."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        remedy = "use device 'cpu', or a machine with an NVIDIA GPU and its driver"
        raise NoGpu(f"no NVIDIA driver responds here ({error})", remedy) from None
    try:
        index = next(iter(gpu_indices(device)), 0)
        handle = find_handle(index, nvml=nvml, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
        pair = ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
        capability = None if pair is None else (pair[0], pair[1])
        return Gpu(ask(nvml, "nvmlDeviceGetName", handle), capability, ask(nvml, "nvmlSystemGetDriverVersion"))
    except LookupError as error:
        raise NoGpu(str(error), "name one that it shows, or change CUDA_VISIBLE_DEVICES") from None
    except nvml.NVMLError as error:
        count = ask(nvml, "nvmlDeviceGetCount")
        raise NoGpu(f"there is no such GPU; NVML finds {count} ({error})", "name one of these") from None
    finally:
        ask(nvml, "nvmlShutdown")


def unfit(build: Build | None, gpu: Gpu, framework: str = "") -> Lack | None:
    """Return why a build does not run on a GPU, or None; an unknown build or reading is no reason."""
    if build is None:
        return None
    other = f"name an interpreter with a build that fits: --python {framework}=/path/to/python"
    if gpu.driver and _numbers(gpu.driver) < _numbers(build.driver):
        needs = f"is built for CUDA {build.cuda}, which needs driver {build.driver} or newer"
        return Lack(f"{build.name} {needs}; this machine has {gpu.driver}", f"install a newer driver, or {other}")
    if gpu.capability and build.kernels and not runs_on(build, gpu.capability):
        kernels = ", ".join(map(_text, build.kernels))
        no_ptx = "" if build.ptx else ", and none that the driver could compile for newer ones"
        has = f"{build.name} has kernels for compute capability {kernels}{no_ptx}"
        return Lack(f"{has}; this GPU ({gpu.name or 'unnamed'}) has {_text(gpu.capability)}", other)
    return None


def runs_on(build: Build, capability: Capability) -> bool:
    """Machine code runs on its own and later minor versions of one major; PTX on anything that is not older."""
    major, minor = capability
    return any(own == major and first <= minor for own, first in build.kernels) or (
        build.ptx is not None and build.ptx <= capability
    )


def _text(capability: Capability) -> str:
    return "{}.{}".format(*capability)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
