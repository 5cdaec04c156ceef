"""PaddlePaddle 3: dynamic graph of paddle.nn layers by default, paddle.jit.to_static for `graph`.

Linear weights are (in, out); BatchNorm's momentum is the share of the old statistics that is kept.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from framework_compare.worker.allocator import keep_freed_memory
from framework_compare.batches.order import EpochOrder, start_loader
from framework_compare.graph import Graph, Node, evaluate
from framework_compare.protocol import Batch, DeviceTimes, Pictures, ProfileRow, TrainConfig

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AUTO_CAST = {"bf16": "bfloat16", "fp16": "float16"}
LOSS_SCALE = 8192.0  # of fp16 at the start; a power of two, low enough that the first steps do not overflow


class PaddleTrainer:
    name = "paddle"
    layout = "NCHW"

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        threads = str(config.threads)
        # without it, importing paddle sets OMP_NUM_THREADS to 1
        variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "FLAGS_paddle_num_threads": threads}
        if config.device != "cpu":
            if config.precision != "tf32":
                variables["NVIDIA_TF32_OVERRIDE"] = "0"  # Paddle has no public switch; this is that of the libraries
            variables["FLAGS_cudnn_exhaustive_search"] = "1" if config.tuning == "recommended" else "0"
        return variables

    def __init__(self, config: TrainConfig) -> None:
        self._on_gpu = config.device != "cpu"
        self._keeps_memory = config.tuning == "recommended" and not self._on_gpu and keep_freed_memory()
        import paddle

        self.paddle = paddle
        self.config = config
        self._index = int(config.device.partition(":")[2] or 0)
        self._gpus = paddle.device.cuda.device_count() if self._on_gpu else 0
        paddle.set_device(f"gpu:{self._index}" if self._index < self._gpus else "cpu")
        paddle.seed(config.seed)
        self._loaders: List[Any] = []

    def version(self) -> str:
        return str(self.paddle.__version__)

    def unsupported(self) -> Optional[str]:
        config = self.config
        if self._on_gpu and self._index >= self._gpus:
            return self._no_device()
        if config.precision != "fp32" and not self._on_gpu:
            return f"precision {config.precision!r}: on a CPU PaddlePaddle's auto_cast does nothing; use 'fp32'"
        if config.precision in ("tf32", "bf16"):
            major, minor = self.paddle.device.cuda.get_device_capability(self._index)
            if major < 8:
                return f"precision {config.precision!r} needs compute capability 8.0; this GPU has {major}.{minor}"
        if config.execution == "compiled" and not self._on_gpu:
            return "execution 'compiled' is CINN in PaddlePaddle, which its CPU package is built without; use 'graph'"
        if config.execution == "compiled":
            return "execution 'compiled' is CINN in PaddlePaddle, which this adapter has no path for; use 'graph'"
        return None

    def _no_device(self) -> str:
        here = f"device {self.config.device!r}: PaddlePaddle {self.paddle.__version__}"
        if not self.paddle.is_compiled_with_cuda():
            return f"{here} is a build for CPUs; install paddlepaddle-gpu in that interpreter"
        return f"{here} is built for CUDA {self.paddle.version.cuda()} and sees {self._gpus} GPUs here"

    def settings(self) -> Dict[str, Any]:
        return {
            "execution": "graph" if self.config.execution == "graph" else "eager",
            "layout": self.layout,
            "allocator": "keeps freed memory" if self._keeps_memory else "system default",
            "optimizer": "paddle.optimizer.Momentum",
            "running_variance": "biased",
            "threads": self.config.threads,
            **(self._gpu_settings() if self._on_gpu else {}),
        }

    def _gpu_settings(self) -> Dict[str, Any]:
        precision, version = self.config.precision, self.paddle.version
        return {
            "gpu": self.paddle.device.cuda.get_device_name(self._index),
            "cuda": version.cuda(),
            "cudnn": version.cudnn(),
            "cudnn_exhaustive_search": self.config.tuning == "recommended",
            "tf32": precision == "tf32",
            **({"auto_cast": "O1"} if precision in AUTO_CAST else {}),
            **({"loss_scale": f"dynamic, from {LOSS_SCALE:g}"} if precision == "fp16" else {}),
        }

    def build(self, graph: Graph) -> None:
        config, paddle = self.config, self.paddle
        self._graph = graph
        self._layers = {n.name: LAYERS[n.op](paddle.nn, n.attrs) for n in graph.nodes if n.op in LAYERS}
        self._network = _make_network(paddle, graph, self._layers)
        # full_graph: the bytecode translator that is otherwise used fails on the loop over the graph (3.3.1)
        graphed = config.execution == "graph"
        self._call = paddle.jit.to_static(self._network, full_graph=True) if graphed else self._network
        self._loss = paddle.nn.CrossEntropyLoss()
        scales = self._on_gpu and config.precision == "fp16"
        self._scaler = paddle.amp.GradScaler(enable=scales, init_loss_scaling=LOSS_SCALE) if scales else None
        self._first_scale = self._scaler.state_dict() if self._scaler else None
        self._optimizer = paddle.optimizer.Momentum(
            learning_rate=config.learning_rate,
            momentum=config.momentum,
            parameters=self._network.parameters(),
            weight_decay=config.weight_decay or None,
        )
        self._arrays = _by_graph_name(self._layers)

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, array in weights.items():
            self._arrays[name].set_value(array.T if array.ndim == 2 else array)
        for accumulators in self._optimizer._accumulators.values():
            for momentum in accumulators.values():
                momentum.zero_()
        if self._scaler:
            self._scaler.load_state_dict(self._first_scale)

    def weights(self) -> Dict[str, np.ndarray]:
        arrays = {name: tensor.numpy() for name, tensor in self._arrays.items()}
        return {name: np.ascontiguousarray(a.T if a.ndim == 2 else a) for name, a in arrays.items()}

    def host_array(self, shape: Tuple[int, ...]) -> Any:
        return np.empty(shape, dtype=np.float32)

    def adopt(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        return Batch(self.paddle.to_tensor(images), self.paddle.to_tensor(labels), len(labels))

    def read_batch(self, batch: Batch) -> Any:
        return batch.images.numpy(), batch.labels.numpy()

    def open_pipeline(self, pictures: Pictures) -> Any:
        config, io = self.config, self.paddle.io
        order = EpochOrder(len(pictures), config.seed)
        loader = io.DataLoader(
            PictureDataset(pictures, _transforms(self.paddle, config)),
            batch_sampler=io.BatchSampler(sampler=order, batch_size=config.batch_size, drop_last=False),
            num_workers=config.loader_workers,
            persistent_workers=config.loader_workers > 0,
        )
        self._loaders.append(loader)
        start_loader(loader)
        return loader

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        for images, labels in pipeline:
            yield Batch(images, labels, len(labels))

    def train_step(self, batch: Batch) -> Any:
        loss = self._backward(batch)
        if self._scaler:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._optimizer.step()
        self._optimizer.clear_grad()
        return loss.detach()

    def _backward(self, batch: Batch) -> Any:
        with self._auto_cast():
            loss = self._loss(self._call(batch.images), batch.labels)
        (self._scaler.scale(loss) if self._scaler else loss).backward()
        return loss

    def _auto_cast(self) -> Any:
        dtype = AUTO_CAST.get(self.config.precision)
        return self.paddle.amp.auto_cast(dtype=dtype) if dtype else contextlib.nullcontext()

    def gradients(self, batch: Batch) -> Dict[str, np.ndarray]:
        self._backward(batch)
        if self._scaler:
            self._scaler.unscale_(self._optimizer)
            self._scaler.update()
        held = {name: t.grad.numpy() for name, t in self._arrays.items() if not t.stop_gradient}
        self._optimizer.clear_grad()
        return {name: np.ascontiguousarray(a.T if a.ndim == 2 else a) for name, a in held.items()}

    def read_losses(self, losses: List[Any]) -> List[float]:
        return [float(loss) for loss in losses]

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        if not training:
            self._network.eval()
        with self.paddle.no_grad(), self._auto_cast():
            logits = self._network(batch.images).astype("float32").numpy()
        self._network.train()
        return logits

    def synchronize(self) -> None:
        """A CPU step has ended when it returns."""
        if self._on_gpu:
            self.paddle.device.synchronize()

    def device_times(self) -> Optional[DeviceTimes]:
        return None

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        profiler = self.paddle.profiler
        targets = [profiler.ProfilerTarget.CPU]
        if self.paddle.device.is_compiled_with_cuda():
            targets.append(profiler.ProfilerTarget.GPU)
        # without a handler of our own it writes a second trace where it likes
        session = profiler.Profiler(targets=targets, on_trace_ready=lambda session: None)
        session.start()
        step()
        session.stop()
        session.export(f"{folder}/trace.json", format="json")
        trees = session.profiler_result.get_data().values()
        return [row for tree in trees for row in _profile_rows(tree)[0]]

    def release(self) -> None:
        self._network = self._optimizer = self._call = None
        while self._loaders:
            # a thread of the loader's own holds its iterator, so that persistent workers outlive the loader (3.3.1)
            iterator = self._loaders.pop()._iterator
            if iterator is not None:
                iterator._try_shutdown_all(1)


def _profile_rows(node: Any) -> Tuple[List[ProfileRow], int]:
    """Rows of a host event and all within it, and the nanoseconds that those rows of the host stand for.

    An operator is its kernel's launch, which on a CPU is its computing: static and dynamic graphs have these alike,
    and what holds them in one thread waits in another.
    """
    rows, within = [], 0
    for child in node.children_node:
        found, covered = _profile_rows(child)
        rows += found
        within += covered
    for call in node.runtime_node:
        rows.append(ProfileRow("cuda-runtime", call.name, 1, call.end_ns - call.start_ns))
        within += call.end_ns - call.start_ns
        rows += [ProfileRow("kernel", work.name, 1, work.end_ns - work.start_ns) for work in call.device_node]
    if not node.name.endswith(" kernel launch"):
        return rows, within
    took = node.end_ns - node.start_ns
    return [*rows, ProfileRow("operator", node.name[: -len(" kernel launch")], 1, took - within)], took


class PictureDataset:
    """Map-style data set of (picture, label), decoded by Pillow, paddle.vision's default backend."""

    def __init__(self, pictures: Pictures, transform: Any) -> None:
        self._pictures = pictures
        self._transform = transform

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(self._pictures.paths[index]) as image:
            return self._transform(image.convert("RGB")), np.int64(self._pictures.labels[index])


def _transforms(paddle: Any, config: TrainConfig) -> Any:
    transforms = paddle.vision.transforms
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
            # arrays, not ToTensor: a loader's process seems to free a batch of tensors while its queue still writes it, which
            # crashed it or stopped it for ever in about one of a hundred epochs (seen in 3.3.1)
            transforms.Transpose(),
            transforms.Normalize([255 * m for m in MEAN], [255 * s for s in STD]),
        ]
    )


def _make_network(paddle: Any, graph: Graph, layers: Dict[str, Any]) -> Any:
    class Network(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            for name, layer in layers.items():
                self.add_sublayer(name.replace(".", "_"), layer)

        def forward(self, images: Any) -> Any:
            def apply(node: Node, *inputs: Any) -> Any:
                if node.op in LAYERS:
                    return layers[node.name](*inputs)
                return FUNCTIONS[node.op](paddle, *inputs)

            return evaluate(graph, apply, images)

    return Network()


SUFFIXES = {"_mean": "running_mean", "_variance": "running_var"}


def _by_graph_name(layers: Dict[str, Any]) -> Dict[str, Any]:
    return {
        f"{name}.{SUFFIXES.get(local, local)}": tensor
        for name, layer in layers.items()
        for local, tensor in layer.state_dict().items()
    }


LAYERS: Dict[str, Callable[..., Any]] = {
    "Conv2d": lambda nn, a: nn.Conv2D(
        a["in_channels"],
        a["out_channels"],
        a["kernel"],
        stride=a["stride"],
        padding=a["padding"],
        groups=a["groups"],
        bias_attr=None if a["bias"] else False,
    ),
    "BatchNorm2d": lambda nn, a: nn.BatchNorm2D(a["channels"], momentum=1 - a["momentum"], epsilon=a["eps"]),
    "ReLU": lambda nn, a: nn.ReLU(),
    "ReLU6": lambda nn, a: nn.ReLU6(),
    "MaxPool2d": lambda nn, a: nn.MaxPool2D(a["kernel"], stride=a["stride"], padding=a["padding"]),
    "AdaptiveAvgPool2d": lambda nn, a: nn.AdaptiveAvgPool2D(a["output"]),
    "Linear": lambda nn, a: nn.Linear(a["in_features"], a["out_features"]),
    "Dropout": lambda nn, a: nn.Dropout(a["p"], mode="upscale_in_train"),
}
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "GlobalAvgPool": lambda paddle, x: paddle.flatten(paddle.nn.functional.adaptive_avg_pool2d(x, 1), 1),
    "Flatten": lambda paddle, x: paddle.flatten(x, 1),
    "Add": lambda paddle, x, y: x + y,
}
