"""One replica of DistributedDataParallel: its process group, and the wrapped network that averages gradients."""

from __future__ import annotations

import inspect
from typing import Any, Dict

from framework_compare.protocol import Replicas

# PyTorch's notes on CUDA graphs ask for 11 steps before, as DistributedDataParallel arranges its buckets in the first ones.
# NCCL's own threads call CUDA, which would break a capture that minds all threads.
CAPTURE: Dict[str, Any] = {"steps_before": 11, "error_mode": "thread_local"}


class Group:
    """The process group of a cell's replicas. Nobody leaves it: to do so waits for ranks that may have failed."""

    def __init__(self, torch: Any, replicas: Replicas, device: str) -> None:
        self._torch, self._replicas, self._joined = torch, replicas, False
        self._on_gpu, self._device = device != "cpu", torch.device(device)
        self.backend = "nccl" if self._on_gpu else "gloo"

    def join(self) -> None:
        """Meet the other ranks, once."""
        if self._joined:
            return
        if self._on_gpu:
            self._torch.cuda.set_device(self._device)
        self._torch.distributed.init_process_group(
            self.backend,
            init_method=f"tcp://{self._replicas.address}",
            rank=self._replicas.rank,
            world_size=len(self._replicas.devices),
            **({"device_id": self._device} if self._on_gpu else {}),
        )
        self._joined = True

    def wrap(self, network: Any, *, captured: bool) -> Any:
        """The network whose backward pass leaves the mean of the ranks' gradients; statistics stay each rank's own."""
        if not captured:
            return self._wrapped(network)
        # what a CUDA graph is to hold is made on another stream than the default one
        cuda = self._torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            wrapped = self._wrapped(network)
        cuda.current_stream().wait_stream(side)
        return wrapped

    def _wrapped(self, network: Any) -> Any:
        parallel = self._torch.nn.parallel.DistributedDataParallel
        # by default rank 0 sends its running statistics to all before each forward pass; renamed in PyTorch 2.13
        names = ("forward_sync_buffers", "broadcast_buffers")
        flag = next(name for name in names if name in inspect.signature(parallel.__init__).parameters)
        devices = [self._device.index] if self._on_gpu else None
        return parallel(network, device_ids=devices, gradient_as_bucket_view=True, **{flag: False})

    def wait(self) -> None:
        """Return when all ranks are here."""
        if self._joined:
            self._torch.distributed.barrier()
