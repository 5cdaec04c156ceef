"""One model in PyTorch: devices and precisions, the step and its optimizer, arrays in and out."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from framework_compare.adapters.common import trainer as common
from framework_compare.adapters.torch import replicas as data_parallel
from framework_compare.adapters.torch.generation import Generates
from framework_compare.adapters.torch.gpu import CapturedStep, Gpu
from framework_compare.adapters.torch.network import OPS, by_graph_name, make_network
from framework_compare.adapters.torch.pipeline import open_loader
from framework_compare.adapters.torch.tasks import LOSSES, Updates, forget, make_optimizer, optimizer_name
from framework_compare.graph import OPTIMIZERS, Graph, trainable_names
from framework_compare.protocol import Batch, DeviceTimes, ImageFiles, ProfileRow, Replicas, TrainConfig
from framework_compare.worker.processes import keep_freed_memory

COMPILED = {"compiled": None, "max-autotune": "max-autotune"}  # the mode of torch.compile


class TorchTrainer(Generates, common.TrainerDefaults):
    name = "torch"
    declared = common.declare(
        OPS,
        LOSSES,
        OPTIMIZERS,
        # `graph` is CUDA graphs in PyTorch, which a CPU does not have
        executions={"cpu": frozenset({"default", "eager", *COMPILED}), "cuda": common.STEPS},
        replicas={"cpu": frozenset({"default", "eager"}), "cuda": common.STEPS},
        several_nodes=True,
        generation=frozenset({"default", "eager"}),
    )

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(config.threads))
        if config.tuning == "recommended":
            # PyTorch's tuning guide shortens the spinning of idle OpenMP threads (KMP_BLOCKTIME; its wheels have
            # GNU's library): loader workers need the cores, and a spinning step takes five times as long then
            variables["GOMP_SPINCOUNT"] = "10000"
        return variables

    def __init__(self, config: TrainConfig, replicas: Optional[Replicas] = None) -> None:
        recommended = config.tuning == "recommended"
        self._on_gpu = config.device != "cpu"
        self._device = "cuda:0" if config.device == "cuda" else config.device
        self._keeps_memory = recommended and not self._on_gpu and keep_freed_memory()
        import torch

        self.torch, self.config = torch, config
        torch.set_num_threads(config.threads)
        if torch.get_num_interop_threads() != 1:  # it can be set once; a search has several trainers in a process
            torch.set_num_interop_threads(1)
        self._replicas = replicas
        self._group = data_parallel.Group(torch, replicas, self._device) if replicas else None
        torch.manual_seed(config.seed + (replicas.rank or 0 if replicas else 0))
        if self._on_gpu:
            torch.backends.cudnn.benchmark = recommended
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = config.precision == "tf32"
        self._channels_last, self.layout = recommended, "NHWC" if recommended else "NCHW"
        self._gpu: Optional[Gpu] = None  # a pipeline may be opened before the network is built

    def unsupported(self) -> Optional[str]:
        config = self.config
        if self._on_gpu:
            if self._captures and config.accumulation > 1:
                return f"accumulation {config.accumulation}: a captured step is one update; use execution 'eager'"
            capability = functools.partial(self.torch.cuda.get_device_capability, self._device)
            unable = _no_device(self.torch, config.device) or common.needs_capability(config.precision, capability)
            return unable or (_no_compiling(*capability()) if config.execution == "compiled" else None)
        # in torch's order of choice (torch/_inductor/cpp_builder.py)
        compilers = (os.environ.get("CXX", "g++"), "g++", "clang++")
        if config.execution in COMPILED and not any(map(shutil.which, compilers)):
            return f"execution {config.execution!r}: torch.compile needs a C++ compiler on a CPU; install g++"
        return None

    def settings(self) -> Dict[str, Any]:
        config, torch = self.config, self.torch
        execution = "eager" if config.execution == "default" else config.execution
        found = {
            "execution": execution + (" in a CUDA graph" if self._captures and execution == "compiled" else ""),
            "memory_format": "channels_last" if self._channels_last else "contiguous",
            "optimizer": optimizer_name(config, self._fused),
            "attention": "scaled_dot_product_attention",
            "threads": torch.get_num_threads(),
        }
        if self._group is not None:
            found["replicas"] = f"DistributedDataParallel through {self._group.backend}, {common.OWN_STATISTICS}"
        if not self._on_gpu:
            return {**found, "allocator": "keeps freed memory" if self._keeps_memory else "system default"}
        return {
            **found,
            "gpu": torch.cuda.get_device_name(self._device),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "tf32": torch.backends.cudnn.allow_tf32,
            **common.loss_scale_settings(config),
        }

    @property
    def _captures(self) -> bool:
        return self._on_gpu and self.config.execution in ("graph", "compiled")

    @property
    def _fused(self) -> bool:
        """One kernel for all parameters; the loss scaler of a captured step works with no other."""
        return self._on_gpu and (self.config.tuning == "recommended" or self.config.precision == "fp16")

    def build(self, graph: Graph) -> None:
        config, torch = self.config, self.torch
        self._network = self._make_network(graph).to(self._device)
        if self._channels_last:
            self._network.to(memory_format=torch.channels_last)
        self._graph = graph
        self._freeze(graph)
        trained = [parameter for parameter in self._network.parameters() if parameter.requires_grad]
        self._optimizer = make_optimizer(torch, config, trained, fused=self._fused, captured=self._captures)
        self._updates = Updates(torch, config, self._optimizer)
        self._scaler = torch.amp.GradScaler(enabled=config.precision == "fp16", init_scale=common.LOSS_SCALE)
        self._first_scale = self._scaler.state_dict()
        self._trained = self._network
        if self._group is not None:
            self._group.join()
            self._trained = self._group.wrap(self._network, captured=self._captures)
        self._call, compiled = self._trained, config.execution in COMPILED
        compiler = functools.partial(torch.compile, dynamic=False, mode=COMPILED.get(config.execution))
        if compiled:
            if config.batch_growth > 1:  # each size is a graph: after 8, its default, torch would run eagerly, silently
                torch._dynamo.config.recompile_limit = config.batch_size_limit + 8
            self._call = compiler(self._trained)
        # compiled with the network, a loss of many tokens needs no float32 copy of their logits
        together = compiled and self._group is None
        network, task = self._trained if together else self._call, graph.task
        loss = LOSSES[task.named_loss](torch, **task.loss_options)
        loss_of: Callable[[Any, Any], Any] = lambda images, labels: loss(network(*common.arguments(images)), labels)  # noqa: E731
        self._loss_of = compiler(loss_of) if together else loss_of
        self._gpu = Gpu(torch, self._device) if self._on_gpu else None
        self._step: Callable[[Any, Any], Any] = self._plain_step
        if self._captures:
            how = data_parallel.CAPTURE if self._group else {}
            self._step = CapturedStep(torch, self._plain_step, self._kept_state, **how)

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        with self.torch.no_grad():
            self._copy_in(weights)
            forget(self._optimizer)
            self._updates.forget()
            self._scaler.load_state_dict(self._first_scale)

    def _make_network(self, graph: Graph) -> Any:
        return make_network(self.torch, graph)

    def _freeze(self, graph: Graph) -> None:
        """Differentiate what the graph trains, and nothing else."""
        trainable = set(trainable_names(graph))
        self._network.requires_grad_(False)
        for name, parameter in by_graph_name(graph, dict(self._network.named_parameters())).items():
            parameter.requires_grad_(name in trainable)

    def _copy_in(self, weights: Mapping[str, Any]) -> None:
        held = self._arrays()
        with warnings.catch_warnings():  # torch warns that writing to a read-only (memory-mapped) array is undefined
            warnings.simplefilter("ignore", UserWarning)
            for name, array in weights.items():
                held[name].copy_(self.torch.from_numpy(array))

    def _kept_state(self) -> List[Any]:
        """All tensors that a training step changes."""
        momenta = [value for state in self._optimizer.state.values() for value in state.values() if value is not None]
        return [*self._network.state_dict().values(), *momenta]

    def weights(self) -> Dict[str, Any]:
        contiguous = self.torch.contiguous_format
        return {name: t.detach().clone(memory_format=contiguous).cpu().numpy() for name, t in self._arrays().items()}

    def _arrays(self) -> Dict[str, Any]:
        return by_graph_name(self._graph, self._network.state_dict(keep_vars=True))

    def host_array(self, shape: Tuple[int, ...]) -> Any:
        return self.torch.empty(shape, pin_memory=self._on_gpu).numpy()

    def to_device_batch(self, images: Any, labels: Any) -> Batch:
        return self._batch(common.each(self._tensor, images), self.torch.from_numpy(labels))

    def _tensor(self, array: Any) -> Any:
        tensor = self.torch.from_numpy(array)
        return tensor.permute(0, 3, 1, 2) if self._channels_last and tensor.ndim == 4 else tensor

    def _batch(self, images: Any, labels: Any) -> Batch:
        """A batch on the device, in its memory format; on a GPU the copy may still be under way."""
        if self._gpu:
            images, labels = self._gpu.copy(images, labels, channels_last=self._channels_last)
        elif self._channels_last:
            last = self.torch.channels_last
            images = common.each(lambda one: one.to(memory_format=last) if one.ndim == 4 else one, images)
        return Batch(images, labels, len(labels))

    def read_batch(self, batch: Batch) -> Any:
        def array(tensor: Any) -> Any:
            tensor = tensor.permute(0, 2, 3, 1) if self._channels_last and tensor.ndim == 4 else tensor
            return tensor.contiguous().cpu().numpy()

        return common.each(array, batch.images), batch.labels.cpu().numpy()

    def open_pipeline(self, files: ImageFiles) -> Any:
        return open_loader(self.torch, files, self.config, self._replicas, pinned=self._on_gpu)

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        return (self._batch(images, labels) for images, labels in pipeline)

    def train_step(self, batch: Batch) -> Any:
        self._set_training(True)
        step = self._step
        if self.config.accumulation > 1:
            step = functools.partial(self._plain_step, first=self._updates.begins)
        self._last = self._updates.gathered()
        if self._gpu:
            return self._gpu.timed(step, batch)
        return step(batch.images, batch.labels)

    def _plain_step(self, images: Any, labels: Any, first: bool = True) -> Any:
        loss = self._backward(images, labels, first, self.config.accumulation)
        if not self._last:
            return loss
        if self.config.clip_norm:
            self._scaler.unscale_(self._optimizer)
            self._updates.clip()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss

    def _backward(self, images: Any, labels: Any, first: bool = True, batches: int = 1) -> Any:
        """Gradients of the mean loss; or of one of several batches their share, added to those of others but the first."""
        if first:
            self._optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self._loss_of(images, labels)
        self._scaler.scale(loss / batches if batches > 1 else loss).backward()
        return loss.detach()

    def gradients(self, batch: Batch) -> Dict[str, Any]:
        self._set_training(True)
        self._backward(batch.images, batch.labels)
        self._scaler.unscale_(self._optimizer)
        self._scaler.update()
        held = self._held_gradients()
        self._optimizer.zero_grad(set_to_none=True)
        return held

    def _held_gradients(self) -> Dict[str, Any]:
        parameters = by_graph_name(self._graph, dict(self._network.named_parameters()))
        return {name: p.grad.contiguous().cpu().numpy() for name, p in parameters.items() if p.requires_grad}

    def _autocast(self) -> Any:
        if self.config.precision in ("fp32", "tf32"):
            return contextlib.nullcontext()
        dtype = getattr(self.torch, common.HALF_TYPES[self.config.precision])
        return self.torch.autocast(self.config.device.partition(":")[0], dtype=dtype)

    def read_losses(self, losses: List[Any]) -> List[float]:
        return self._gpu.read(losses) if self._gpu else [loss.item() for loss in losses]

    def infer(self, batch: Batch) -> Any:
        call = self._call if self.config.mode == "inference" else self._network
        self._set_training(False)
        with self.torch.no_grad(), self._autocast():
            return call(*common.arguments(batch.images))

    def _set_training(self, training: bool) -> None:
        if self._network.training != training:  # going through all modules takes as long as a small step
            self._network.train(training)

    def forward(self, batch: Batch, *, training: bool = False) -> Any:
        if not training:
            return self.infer(batch).float().cpu().numpy()
        self._set_training(True)
        with self.torch.no_grad(), self._autocast():
            return self._network(*common.arguments(batch.images)).float().cpu().numpy()

    def synchronize(self) -> None:
        """A CPU step has ended when it returns."""
        if self._group is not None:
            self._group.wait()
        if self._gpu:
            self.torch.cuda.synchronize(self._device)

    def device_times(self) -> Optional[DeviceTimes]:
        return self._gpu.times() if self._gpu else None

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        from framework_compare.adapters.torch.profile import profile_row

        profiler = self.torch.profiler
        activities = [profiler.ProfilerActivity.CPU, *([profiler.ProfilerActivity.CUDA] if self._on_gpu else [])]
        # the first step makes CUPTI's buffers and loads its callbacks, and is left out
        schedule = profiler.schedule(wait=0, warmup=1, active=1)
        with profiler.profile(activities=activities, schedule=schedule) as session:
            step()
            session.step()
            step()
        session.export_chrome_trace(f"{folder}/trace.json.gz")
        return [row for row in map(profile_row, session.key_averages()) if row.self_ns]

    def release(self) -> None:
        self._network = self._trained = self._optimizer = self._call = self._loss_of = self._step = self._gpu = None  # type: ignore[assignment]
        self._prepared = (None, 0)


def _no_device(torch: Any, device: str) -> Optional[str]:
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if common.gpu_number(device) < found:
        return None
    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a build for CPUs"
    return f"device {device!r}: PyTorch {torch.__version__} is {build} and sees {found} GPUs here"


def _no_compiling(major: int, minor: int) -> Optional[str]:
    """torch.compile's kernels for GPUs are Triton's, which builds what launches them with a C compiler."""
    if major < 7:
        return f"execution 'compiled' needs compute capability 7.0; this GPU has {major}.{minor}"
    # in Triton's order of choice (triton/runtime/build.py); a worker does not inherit CC
    if not (shutil.which("gcc") or shutil.which("clang")):
        return "execution 'compiled': torch.compile needs a C compiler even for a GPU; install gcc"
    return None
