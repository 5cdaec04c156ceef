"""PyTorch: the graph becomes a torch.fx module of torch.nn layers, so eager runs straight-line code.

On a CPU `recommended` is channels_last with an allocator that keeps freed memory: the fastest fp32 mode of all
four networks, ahead of torch.compile. On a GPU it is channels_last, cuDNN's choice of algorithm and the fused
optimizer; `graph` captures the whole step as a CUDA graph, `compiled` does so with torch.compile's kernels. The
native pipeline is torchvision's ImageNet recipe in a DataLoader.
"""

from __future__ import annotations

import collections
import contextlib
import operator
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from framework_compare.worker.allocator import keep_freed_memory
from framework_compare.batches.order import EpochOrder, start_loader
from framework_compare.errors import Unsupported
from framework_compare.graph import INPUT, Graph, Node
from framework_compare.protocol import Batch, DeviceTimes, Pictures, ProfileRow, TrainConfig

LOSS_SCALE = 8192.0  # of fp16 at the start; a power of two, low enough that the first steps do not overflow
STEPS_BEFORE_CAPTURE = 3  # as PyTorch's notes on CUDA graphs have it
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class TorchTrainer:
    name = "torch"

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        threads = str(config.threads)
        variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        if config.tuning == "recommended":
            # PyTorch's tuning guide shortens the spinning of idle OpenMP threads (KMP_BLOCKTIME; its wheels have
            # GNU's library): loader workers need the cores, and a spinning step takes five times as long then
            variables["GOMP_SPINCOUNT"] = "10000"
        return variables

    def __init__(self, config: TrainConfig) -> None:
        recommended = config.tuning == "recommended"
        self._on_gpu = config.device != "cpu"
        self._device = "cuda:0" if config.device == "cuda" else config.device
        self._keeps_memory = recommended and not self._on_gpu and keep_freed_memory()
        import torch

        self.torch = torch
        self.config = config
        torch.set_num_threads(config.threads)
        torch.set_num_interop_threads(1)
        torch.manual_seed(config.seed)
        if self._on_gpu:
            torch.backends.cudnn.benchmark = recommended
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = config.precision == "tf32"
        self._channels_last = recommended
        self.layout = "NHWC" if self._channels_last else "NCHW"
        self._gpu: Optional[Gpu] = None  # a pipeline may be opened before the network is built

    def version(self) -> str:
        return str(self.torch.__version__)

    def unsupported(self) -> Optional[str]:
        config = self.config
        if self._on_gpu:
            asked = (self.torch, config, self._device)
            return _no_device(self.torch, config.device) or _no_precision(*asked) or _no_compiling(*asked)
        if config.execution == "graph":
            return "execution 'graph' is CUDA graphs in PyTorch, which a CPU does not have; use 'compiled'"
        if config.execution == "compiled" and not _cpp_compiler():
            return "execution 'compiled': torch.compile needs a C++ compiler on a CPU; install g++"
        if config.precision not in ("fp32", "bf16"):
            return f"precision {config.precision!r} on a CPU; PyTorch has fp32 and bf16 (autocast) there"
        return None

    def settings(self) -> Dict[str, Any]:
        config, torch = self.config, self.torch
        execution = "eager" if config.execution == "default" else config.execution
        common = {
            "execution": execution + (" in a CUDA graph" if self._captures and execution == "compiled" else ""),
            "memory_format": "channels_last" if self._channels_last else "contiguous",
            "optimizer": "torch.optim.SGD" + (" (fused)" if self._fused else ""),
            "threads": torch.get_num_threads(),
        }
        if not self._on_gpu:
            return {**common, "allocator": "keeps freed memory" if self._keeps_memory else "system default"}
        return {
            **common,
            "gpu": torch.cuda.get_device_name(self._device),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "tf32": torch.backends.cudnn.allow_tf32,
            **({"loss_scale": f"dynamic, from {LOSS_SCALE:g}"} if config.precision == "fp16" else {}),
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
        self._network = _lower(torch, graph).to(self._device)
        if self._channels_last:
            self._network.to(memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(
            self._network.parameters(),
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            **({"fused": True} if self._fused else {}),
        )
        self._loss = torch.nn.CrossEntropyLoss()
        self._scaler = torch.amp.GradScaler(enabled=config.precision == "fp16", init_scale=LOSS_SCALE)
        self._first_scale = self._scaler.state_dict()
        self._call = torch.compile(self._network, dynamic=False) if config.execution == "compiled" else self._network
        self._gpu = Gpu(torch, self._device) if self._on_gpu else None
        self._step: Callable[[Any, Any], Any] = self._plain_step
        if self._captures:
            self._step = CapturedStep(torch, self._plain_step, self._kept_state)

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        held = self._arrays()
        with self.torch.no_grad():
            for name, array in weights.items():
                held[name].copy_(_readonly_tensor(self.torch, array))
            for momentum in self._momenta():
                momentum.zero_()
            self._scaler.load_state_dict(self._first_scale)

    def _momenta(self) -> List[Any]:
        states = self._optimizer.state.values()
        return [state["momentum_buffer"] for state in states if state.get("momentum_buffer") is not None]

    def _kept_state(self) -> List[Any]:
        """All tensors that a training step changes."""
        return [*self._network.state_dict().values(), *self._momenta()]

    def weights(self) -> Dict[str, Any]:
        contiguous = self.torch.contiguous_format
        return {name: t.detach().clone(memory_format=contiguous).cpu().numpy() for name, t in self._arrays().items()}

    def _arrays(self) -> Dict[str, Any]:
        state = self._network.state_dict(keep_vars=True)
        return {name: t for name, t in state.items() if not name.endswith("num_batches_tracked")}

    def host_array(self, shape: Tuple[int, ...]) -> Any:
        return self.torch.empty(shape, pin_memory=self._on_gpu).numpy()

    def adopt(self, images: Any, labels: Any) -> Batch:
        tensor = self.torch.from_numpy(images)
        if self._channels_last:
            tensor = tensor.permute(0, 3, 1, 2)
        return self._batch(tensor, self.torch.from_numpy(labels))

    def _batch(self, images: Any, labels: Any) -> Batch:
        """A batch on the device, in its memory format; on a GPU the copy may still be under way."""
        if self._gpu:
            images, labels = self._gpu.copy(images, labels, channels_last=self._channels_last)
        elif self._channels_last:
            images = images.to(memory_format=self.torch.channels_last)
        return Batch(images, labels, len(labels))

    def read_batch(self, batch: Batch) -> Any:
        images = batch.images.permute(0, 2, 3, 1) if self._channels_last else batch.images
        return images.contiguous().cpu().numpy(), batch.labels.cpu().numpy()

    def open_pipeline(self, pictures: Pictures) -> Any:
        config = self.config
        loader = self.torch.utils.data.DataLoader(
            PictureDataset(pictures, _transforms(config)),
            batch_size=config.batch_size,
            sampler=EpochOrder(len(pictures), config.seed),
            num_workers=config.loader_workers,
            persistent_workers=config.loader_workers > 0,
            pin_memory=self._on_gpu,
        )
        start_loader(loader)
        return loader

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        return (self._batch(images, labels) for images, labels in pipeline)

    def train_step(self, batch: Batch) -> Any:
        if self._gpu:
            return self._gpu.timed(self._step, batch)
        return self._step(batch.images, batch.labels)

    def _plain_step(self, images: Any, labels: Any) -> Any:
        loss = self._backward(images, labels)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss

    def _backward(self, images: Any, labels: Any) -> Any:
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self._loss(self._call(images), labels)
        self._scaler.scale(loss).backward()
        return loss.detach()

    def gradients(self, batch: Batch) -> Dict[str, Any]:
        self._backward(batch.images, batch.labels)
        self._scaler.unscale_(self._optimizer)
        self._scaler.update()
        held = {name: p.grad.contiguous() for name, p in self._network.named_parameters()}
        self._optimizer.zero_grad(set_to_none=True)
        return {name: gradient.cpu().numpy() for name, gradient in held.items()}

    def _autocast(self) -> Any:
        if self.config.precision in ("fp32", "tf32"):
            return contextlib.nullcontext()
        dtype = {"bf16": self.torch.bfloat16, "fp16": self.torch.float16}[self.config.precision]
        return self.torch.autocast(self.config.device.partition(":")[0], dtype=dtype)

    def read_losses(self, losses: List[Any]) -> List[float]:
        return self._gpu.read(losses) if self._gpu else [loss.item() for loss in losses]

    def forward(self, batch: Batch, *, training: bool = False) -> Any:
        self._network.train(training)
        with self.torch.no_grad(), self._autocast():
            logits = self._network(batch.images)
        self._network.train()
        return logits.float().cpu().numpy()

    def synchronize(self) -> None:
        """A CPU step has ended when it returns."""
        if self._gpu:
            self.torch.cuda.synchronize(self._device)

    def device_times(self) -> Optional[DeviceTimes]:
        return self._gpu.times() if self._gpu else None

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        profiler = self.torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self._on_gpu:
            activities.append(profiler.ProfilerActivity.CUDA)
        # the first step makes CUPTI's buffers and loads its callbacks, and is left out
        schedule = profiler.schedule(wait=0, warmup=1, active=1)
        with profiler.profile(activities=activities, schedule=schedule) as session:
            step()
            session.step()
            step()
        session.export_chrome_trace(f"{folder}/trace.json.gz")
        return [row for row in map(_profile_row, session.key_averages()) if row.self_ns]

    def release(self) -> None:
        self._network = self._optimizer = self._call = self._step = self._gpu = None


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
        self._torch = torch
        self._device = device
        self._copies = torch.cuda.Stream(device)
        self._free: List[Any] = []  # events to use again: making one costs more than recording it
        self._copied: Deque[Tuple[Any, Any, Any]] = collections.deque()
        self._copy_ms = self._compute_ms = 0.0

    def copy(self, images: Any, labels: Any, *, channels_last: bool) -> Tuple[Any, Any]:
        """Both on the device. From pinned memory it runs beside the step before, and the step after waits for it."""
        torch, computing = self._torch, self._torch.cuda.current_stream()
        source = (images, labels)
        with torch.cuda.stream(self._copies):
            start = self._record()
            images, labels = (tensor.to(self._device, non_blocking=True) for tensor in source)
            if channels_last:
                images = images.contiguous(memory_format=torch.channels_last)
            end = self._record()
        computing.wait_event(end)
        # Made on one stream and used on another: the allocator must not give their memory away in between.
        images.record_stream(computing), labels.record_stream(computing)
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
        return [self._read(step) for step in steps]

    def _read(self, step: Step) -> float:
        self._compute_ms += step.start.elapsed_time(step.end)
        self._free += (step.start, step.end, step.kept)
        return float(step.loss)

    def times(self) -> DeviceTimes:
        """Of all that was read and copied since the last call; the device is idle."""
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

    def __init__(self, torch: Any, step: Callable[[Any, Any], Any], state: Callable[[], List[Any]]) -> None:
        self._torch = torch
        self._step = step
        self._state = state
        self._captured: Dict[Any, Tuple[Any, Any, Any, Any]] = {}
        self._pool = torch.cuda.graph_pool_handle()  # one for all: they never run at the same time
        self._filled: Tuple[Any, Any] = (None, None)  # graph and images it holds: the same need no copy

    def __call__(self, images: Any, labels: Any) -> Any:
        shape = tuple(images.shape)
        if shape not in self._captured:
            self._captured[shape] = self._capture(images, labels)
        graph, held_images, held_labels, loss = self._captured[shape]
        if self._filled[0] is not graph or self._filled[1] is not images:
            held_images.copy_(images), held_labels.copy_(labels)
            self._filled = (graph, images)
        graph.replay()
        return loss

    def _capture(self, images: Any, labels: Any) -> Tuple[Any, Any, Any, Any]:
        """Capture after some steps on a side stream (they tune and allocate), then undo what those changed."""
        torch = self._torch
        images, labels = images.clone(memory_format=torch.preserve_format), labels.clone()
        before = [tensor.clone() for tensor in self._state()]
        random = torch.cuda.get_rng_state()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(STEPS_BEFORE_CAPTURE):
                self._step(images, labels)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            loss = self._step(images, labels)
        torch.cuda.set_rng_state(random)
        self._restore(before)
        return graph, images, labels, loss

    def _restore(self, before: List[Any]) -> None:
        """Momentum made by the first step has no former value: it was zero."""
        with self._torch.no_grad():
            for number, tensor in enumerate(self._state()):
                if number < len(before):
                    tensor.copy_(before[number])
                else:
                    tensor.zero_()


class PictureDataset:
    """Map-style data set of (picture, label), decoded by Pillow as torchvision's ImageFolder does."""

    def __init__(self, pictures: Pictures, transform: Any) -> None:
        self._pictures = pictures
        self._transform = transform

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(self._pictures.paths[index]) as image:
            return self._transform(image.convert("RGB")), self._pictures.labels[index]


def import_torchvision(torch: Any) -> Any:
    """Import torchvision beside a CPU build of torch.

    PyPI's torchvision wheel is built for CUDA: its C++ library does not load with a CPU torch, so its operators
    are not defined, and the import stops at registering a shape function for one (seen with 0.28.0). Defining the
    two lets it import; neither is used in a classification pipeline.
    """
    try:
        import torchvision
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise Unsupported("pipeline 'native' needs torchvision beside torch; install it, or use 'shared'") from None
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept_alive.append(library)
        _forget("torchvision")
        import torchvision
    return torchvision


_kept_alive: List[Any] = []


def _profile_row(event: Any) -> ProfileRow:
    """A row of an average over events of one name; ranges that only annotate others count nothing."""
    from framework_compare.worker.profiling import cuda_function

    if event.is_user_annotation:
        return ProfileRow("operator", event.key, event.count, 0)
    if event.device_type.name != "CPU":
        return ProfileRow("kernel", event.key, event.count, round(event.self_device_time_total * 1e3))
    self_ns = round(event.self_cpu_time_total * 1e3)
    if event.key == "INVALID":  # Kineto's name for a function of CUDA's runtime that is newer than its list of them
        return ProfileRow("cuda-runtime", "(of no known name)", event.count, self_ns)
    kind = "cuda-runtime" if cuda_function(event.key) else "operator"
    return ProfileRow(kind, event.key, event.count, self_ns)


def _no_device(torch: Any, device: str) -> Optional[str]:
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(device.partition(":")[2] or 0) < found:
        return None
    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a build for CPUs"
    return f"device {device!r}: PyTorch {torch.__version__} is {build} and sees {found} GPUs here"


def _no_precision(torch: Any, config: TrainConfig, device: str) -> Optional[str]:
    major, minor = torch.cuda.get_device_capability(device)
    if config.precision in ("tf32", "bf16") and major < 8:
        return f"precision {config.precision!r} needs compute capability 8.0; this GPU has {major}.{minor}"
    return None


def _no_compiling(torch: Any, config: TrainConfig, device: str) -> Optional[str]:
    """torch.compile's kernels for GPUs are Triton's, which builds what launches them with a C compiler."""
    import shutil

    if config.execution != "compiled":
        return None
    major, minor = torch.cuda.get_device_capability(device)
    if major < 7:
        return f"execution 'compiled' needs compute capability 7.0; this GPU has {major}.{minor}"
    # in Triton's order of choice (triton/runtime/build.py); a worker does not inherit CC
    if not (shutil.which("gcc") or shutil.which("clang")):
        return "execution 'compiled': torch.compile needs a C compiler for a GPU, too; install gcc"
    return None


def _cpp_compiler() -> Optional[str]:
    """The compiler torch.compile would use, in its order of choice (torch/_inductor/cpp_builder.py)."""
    import os
    import shutil

    return next((found for found in map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")) if found), None)


def _forget(package: str) -> None:
    import sys

    for name in [n for n in sys.modules if n == package or n.startswith(package + ".")]:
        del sys.modules[name]


def _transforms(config: TrainConfig) -> Any:
    import torch

    transforms = import_torchvision(torch).transforms
    flips = {
        "horizontal": [transforms.RandomHorizontalFlip()],
        "vertical": [transforms.RandomVerticalFlip()],
        "none": [],
    }
    size = config.image_size
    crops = {"random": transforms.RandomResizedCrop(size), "none": transforms.Resize((size, size))}
    return transforms.Compose(
        [
            crops[config.crop],
            *flips[config.flip],
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def _readonly_tensor(torch: Any, array: Any) -> Any:
    """A tensor over a read-only (memory-mapped) array, without torch's warning that writing would be undefined."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def _lower(torch: Any, graph: Graph) -> Any:
    modules = {node.name: LAYERS[node.op](torch.nn, node.attrs) for node in graph.nodes if node.op in LAYERS}
    code = torch.fx.Graph()
    values = {INPUT: code.placeholder("images")}
    for node in graph.nodes:
        values[node.name] = _emit(torch, code, node, [values[name] for name in node.inputs])
    code.output(values[graph.nodes[-1].name])
    return torch.fx.GraphModule(modules, code, graph.name)


def _emit(torch: Any, code: Any, node: Node, inputs: List[Any]) -> Any:
    if node.op == "Add":
        return code.call_function(operator.iadd, tuple(inputs))
    if node.op == "Flatten":
        return code.call_function(torch.flatten, (inputs[0], 1))
    value = code.call_module(node.name, tuple(inputs))
    if node.op == "GlobalAvgPool":
        value = code.call_function(torch.flatten, (value, 1))
    return value


def _conv2d(nn: Any, a: Mapping[str, Any]) -> Any:
    # skip_init: the initial weights are loaded over it; drawing them twice takes a second for VGG-16
    return nn.utils.skip_init(
        nn.Conv2d,
        a["in_channels"],
        a["out_channels"],
        a["kernel"],
        stride=a["stride"],
        padding=a["padding"],
        groups=a["groups"],
        bias=a["bias"],
    )


LAYERS = {
    "Conv2d": _conv2d,
    "BatchNorm2d": lambda nn, a: nn.BatchNorm2d(a["channels"], eps=a["eps"], momentum=a["momentum"]),
    "ReLU": lambda nn, a: nn.ReLU(inplace=True),
    "ReLU6": lambda nn, a: nn.ReLU6(inplace=True),
    "MaxPool2d": lambda nn, a: nn.MaxPool2d(a["kernel"], stride=a["stride"], padding=a["padding"]),
    "AdaptiveAvgPool2d": lambda nn, a: nn.AdaptiveAvgPool2d(a["output"]),
    "GlobalAvgPool": lambda nn, a: nn.AdaptiveAvgPool2d(1),
    "Linear": lambda nn, a: nn.utils.skip_init(nn.Linear, a["in_features"], a["out_features"]),
    "Dropout": lambda nn, a: nn.Dropout(a["p"]),
}
