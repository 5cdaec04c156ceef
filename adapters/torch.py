"""PyTorch: the graph becomes a torch.fx module of torch.nn layers, so eager runs straight-line code.

On a CPU `recommended` is channels_last with an allocator that keeps freed memory: the fastest fp32 mode of all
four networks, ahead of torch.compile. The native pipeline is torchvision's ImageNet recipe in a DataLoader.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any, Dict, Iterator, List, Mapping, Optional

from framework_compare.allocator import keep_freed_memory
from framework_compare.datasets.order import EpochOrder, start_loader
from framework_compare.errors import Unsupported
from framework_compare.graph import INPUT, Graph, Node
from framework_compare.protocol import Batch, Pictures, TrainConfig

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
        self._keeps_memory = recommended and keep_freed_memory()
        import torch

        self.torch = torch
        self.config = config
        torch.set_num_threads(config.threads)
        torch.set_num_interop_threads(1)
        torch.manual_seed(config.seed)
        self._channels_last = recommended
        self.layout = "NHWC" if self._channels_last else "NCHW"

    def version(self) -> str:
        return str(self.torch.__version__)

    def unsupported(self) -> Optional[str]:
        config = self.config
        if config.device != "cpu":
            return f"device {config.device!r}: this adapter trains on cpu"
        if config.execution == "graph":
            return "execution 'graph' is CUDA graphs in PyTorch, which a CPU does not have; use 'compiled'"
        if config.execution == "compiled" and not _cpp_compiler():
            return "execution 'compiled': torch.compile needs a C++ compiler on a CPU; install g++"
        if config.precision not in ("fp32", "bf16"):
            return f"precision {config.precision!r} on a CPU; PyTorch has fp32 and bf16 (autocast) there"
        return None

    def settings(self) -> Dict[str, Any]:
        return {
            "execution": "compiled" if self.config.execution == "compiled" else "eager",
            "memory_format": "channels_last" if self._channels_last else "contiguous",
            "allocator": "keeps freed memory" if self._keeps_memory else "system default",
            "optimizer": "torch.optim.SGD",
            "threads": self.torch.get_num_threads(),
        }

    def build(self, graph: Graph) -> None:
        config, torch = self.config, self.torch
        self._network = _lower(torch, graph)
        if self._channels_last:
            self._network.to(memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(
            self._network.parameters(),
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
        self._loss = torch.nn.CrossEntropyLoss()
        self._call = torch.compile(self._network) if config.execution == "compiled" else self._network

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        held = self._arrays()
        with self.torch.no_grad():
            for name, array in weights.items():
                held[name].copy_(_readonly_tensor(self.torch, array))
            for state in self._optimizer.state.values():
                state["momentum_buffer"].zero_()

    def weights(self) -> Dict[str, Any]:
        contiguous = self.torch.contiguous_format
        return {name: t.detach().clone(memory_format=contiguous).numpy() for name, t in self._arrays().items()}

    def _arrays(self) -> Dict[str, Any]:
        state = self._network.state_dict(keep_vars=True)
        return {name: t for name, t in state.items() if not name.endswith("num_batches_tracked")}

    def adopt(self, images: Any, labels: Any) -> Batch:
        tensor = self.torch.from_numpy(images)
        if self._channels_last:
            tensor = tensor.permute(0, 3, 1, 2)
        return Batch(tensor, self.torch.from_numpy(labels), len(labels))

    def read_batch(self, batch: Batch) -> Any:
        images = batch.images.permute(0, 2, 3, 1) if self._channels_last else batch.images
        return images.contiguous().numpy(), batch.labels.numpy()

    def open_pipeline(self, pictures: Pictures) -> Any:
        config = self.config
        loader = self.torch.utils.data.DataLoader(
            PictureDataset(pictures, _transforms(config)),
            batch_size=config.batch_size,
            sampler=EpochOrder(len(pictures), config.seed),
            num_workers=config.loader_workers,
            persistent_workers=config.loader_workers > 0,
        )
        start_loader(loader)
        return loader

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        for images, labels in pipeline:
            if self._channels_last:
                images = images.to(memory_format=self.torch.channels_last)
            yield Batch(images, labels, len(labels))

    def train_step(self, batch: Batch) -> Any:
        loss = self._backward(batch)
        self._optimizer.step()
        return loss

    def _backward(self, batch: Batch) -> Any:
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self._loss(self._call(batch.images), batch.labels)
        loss.backward()
        return loss.detach()

    def gradients(self, batch: Batch) -> Dict[str, Any]:
        self._backward(batch)
        held = {name: p.grad.contiguous() for name, p in self._network.named_parameters()}
        self._optimizer.zero_grad(set_to_none=True)
        return {name: gradient.numpy() for name, gradient in held.items()}

    def _autocast(self) -> Any:
        if self.config.precision == "fp32":
            return contextlib.nullcontext()
        return self.torch.autocast("cpu", dtype=self.torch.bfloat16)

    def read_losses(self, losses: List[Any]) -> List[float]:
        return [loss.item() for loss in losses]

    def forward(self, batch: Batch, *, training: bool = False) -> Any:
        self._network.train(training)
        with self.torch.no_grad(), self._autocast():
            logits = self._network(batch.images)
        self._network.train()
        return logits.float().numpy()

    def synchronize(self) -> None:
        """Nothing to wait for: a CPU step has ended when it returns."""

    def release(self) -> None:
        self._network = self._optimizer = self._call = None


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
