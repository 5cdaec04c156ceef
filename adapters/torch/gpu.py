"""One GPU beside PyTorch: copies while it computes, its own clock, and training steps as CUDA graphs."""

from __future__ import annotations

import collections
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Tuple

from framework_compare.adapters.common.trainer import arguments, each
from framework_compare.protocol import Batch, DeviceTimes


class Step(NamedTuple):
    """A step handed to a GPU: where its loss will be, and the events around it on the device."""

    loss: Any  # pinned, ()
    start: Any
    end: Any
    kept: Any  # after the loss has been copied there


class Gpu:
    """Copies to one GPU beside its computing, and what both took by the GPU's own clock."""

    def __init__(self, torch: Any, device: str) -> None:
        torch.cuda.set_device(device)
        self._torch, self._device = torch, device
        self._copies = torch.cuda.Stream(device)
        self._free: List[Any] = []  # events to use again: making one costs more than recording it
        self._copied: Deque[Tuple[Any, Any, Any]] = collections.deque()
        self._copy_ms = self._compute_ms = 0.0

    def copy(self, images: Any, labels: Any, *, channels_last: bool) -> Tuple[Any, Any]:
        """Both on the device. From pinned memory it runs beside the step before, and the step after waits for it."""
        torch, computing, source = self._torch, self._torch.cuda.current_stream(), (images, labels)
        with torch.cuda.stream(self._copies):
            start = self._record()
            images, labels = (each(lambda one: one.to(self._device, non_blocking=True), part) for part in source)
            if channels_last:
                last = torch.channels_last
                images = each(lambda one: one.contiguous(memory_format=last) if one.ndim == 4 else one, images)
            end = self._record()
        computing.wait_event(end)
        # Made on one stream and used on another: the allocator must not give their memory away in between.
        for one in (*arguments(images), labels):
            one.record_stream(computing)
        self._copied.append((start, end, source))
        self._settle()
        return images, labels

    def timed(self, step: Callable[[Any, Any], Any], batch: Batch) -> Step:
        """Hand a step over; its loss goes to memory of the host without anyone waiting for it."""
        start = self._record()
        loss = step(batch.images, batch.labels)
        end = self._record()
        kept = self._torch.empty((), pin_memory=True)
        kept.copy_(loss, non_blocking=True)
        return Step(kept, start, end, self._record())

    def read(self, steps: List[Step]) -> List[float]:
        """Losses of steps in the order they were handed over; waits for those."""
        for step in steps:
            step.kept.synchronize()
        for step in steps:
            self._compute_ms += step.start.elapsed_time(step.end)
            self._free += (step.start, step.end, step.kept)
        return [float(step.loss) for step in steps]

    def times(self) -> DeviceTimes:
        """Return the device times of everything read and copied since the last call; the device is idle."""
        self._settle()
        found = DeviceTimes(round(self._copy_ms * 1e6), round(self._compute_ms * 1e6))
        self._copy_ms = self._compute_ms = 0.0
        return found

    def _settle(self) -> None:
        """Count copies that are done, and let go of the memory they read."""
        while self._copied and self._copied[0][1].query():
            start, end, _ = self._copied.popleft()
            self._copy_ms += start.elapsed_time(end)
            self._free += (start, end)

    def _record(self) -> Any:
        event = self._free.pop() if self._free else self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class CapturedStep:
    """A training step as a CUDA graph, one for each shape of batch, captured when that shape is first met."""

    def __init__(
        self, torch: Any, step: Any, state: Callable[[], List[Any]], steps_before: int = 3, error_mode: str = "global"
    ) -> None:
        """steps_before: on another stream, before a capture, 3 in PyTorch's notes. error_mode: of torch.cuda.graph."""
        self._torch, self._step, self._state = torch, step, state
        self._steps_before, self._error_mode = steps_before, error_mode
        self._captured: Dict[Any, Tuple[Any, Any, Any, Any]] = {}
        self._pool = torch.cuda.graph_pool_handle()  # one for all: they never run at the same time
        self._filled: Tuple[Any, Any] = (None, None)  # graph and images it holds: the same need no copy

    def __call__(self, images: Any, labels: Any) -> Any:
        shape = tuple(tuple(one.shape) for one in arguments(images))
        if shape not in self._captured:
            self._captured[shape] = self._capture(images, labels)
        graph, held_images, held_labels, loss = self._captured[shape]
        if self._filled[0] is not graph or self._filled[1] is not images:
            for held, given in zip((*arguments(held_images), held_labels), (*arguments(images), labels)):
                held.copy_(given)
            self._filled = (graph, images)
        graph.replay()
        return loss

    def _capture(self, images: Any, labels: Any) -> Tuple[Any, Any, Any, Any]:
        """Capture after some steps on a side stream (they tune and allocate), then undo what those changed."""
        torch = self._torch
        images = each(lambda one: one.clone(memory_format=torch.preserve_format), images)
        labels = labels.clone()
        before = [tensor.clone() for tensor in self._state()]
        random = torch.cuda.get_rng_state()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(self._steps_before):
                self._step(images, labels)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode=self._error_mode):
            loss = self._step(images, labels)
        torch.cuda.set_rng_state(random)
        with torch.no_grad():
            for number, tensor in enumerate(self._state()):
                if number < len(before):
                    tensor.copy_(before[number])
                else:  # momentum made by the first step has no former value: it was zero
                    tensor.zero_()
        return graph, images, labels, loss
