"""The environment variables that a worker gets."""

import os
from pathlib import Path
from typing import Dict

# What a worker inherits. Everything else of the user's shell stays out: a forgotten OMP_NUM_THREADS or
# PYTHONPATH there would change a figure without a trace.
INHERITED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LD_LIBRARY_PATH"),
    # where CUDA is and which GPUs there are; not how it computes (NVIDIA_TF32_OVERRIDE, CUDA_LAUNCH_BLOCKING)
    *("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CUDA_MPS_PIPE_DIRECTORY"),
    # where compiled kernels are kept, and how many
    *("CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE"),
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
)
# How processes of one host reach each other and its GPUs: what a shared host allows, not how a framework computes.
TRANSPORTS = ("NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_", "GLOO_", "UCX_")


def worker_environment(*, managed: bool, temporary: Path) -> Dict[str, str]:
    """The allow-listed part of this process's environment that a worker gets, and its own temporary folder."""
    kept = {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(TRANSPORTS)}
    kept["TMPDIR"] = str(temporary)
    # CUDA numbers GPUs by speed unless told otherwise, NVML by bus: "cuda:1" must be the same one to both.
    kept["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return {**kept, "PYTHONNOUSERSITE": "1"} if managed else kept
