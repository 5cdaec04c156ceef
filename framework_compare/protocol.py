"""The contract between the runner and an adapter: what a Trainer is, what it declares, and what it gets.

Shared by both sides of the process boundary; standard library and numpy only.
"""

from __future__ import annotations

import dataclasses
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Tuple,
    Union,
)

from framework_compare.json_types import Document as Document
from framework_compare.json_types import Fields as Fields

if TYPE_CHECKING:
    import numpy as np

    from framework_compare.graph import Graph

    Inputs = Union[np.ndarray, Tuple[np.ndarray, ...]]  # the only input of a model, or several in the task's order

Loss = Any  # of a step, in the framework's own form: perhaps not computed yet
EXECUTIONS = ("default", "eager", "graph", "compiled", "max-autotune", "fast-math", "fit")
PIPELINES = ("native", "shared", "memory")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
TUNINGS = ("recommended", "none")
FLIPS = ("horizontal", "vertical", "none")
CROPS = ("random", "none")
MODES = ("train", "inference", "generation")
INTERNALS = ("public", "private")
OPTIMIZER_VARIANTS = ("equal", "native")
GPU_THREADS = ("shared", "private")
UPDATES = ("clip_norm", "schedule", "accumulation")  # a schedule is one of ramp_updates or decay_updates


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Settings of a cell: everything that can affect a result, stored with it."""

    batch_size: int = 16
    epochs: int = 3
    device: str = "cpu"
    learning_rate: float = 0.001
    momentum: float = 0.9
    weight_decay: float = 0.0
    precision: str = "fp32"
    execution: str = "default"
    pipeline: str = "native"
    tuning: str = "recommended"
    threads: int = 1  # number of threads in each compute pool; resolved by the planner, never "as many as you like"
    loader_workers: int = 1  # processes (or threads) that only read images
    warmup_steps: int = 2
    seed: int = 0
    image_size: int = 224
    num_classes: int = 3
    flip: str = "horizontal"
    crop: str = "random"  # "none": the whole image, stretched to image_size x image_size
    optimizer: str = "sgd"
    loss: str = "cross_entropy"  # that of the task
    mode: str = "train"  # others: epochs of forward passes alone, with the initial weights
    patience: int = 0  # epochs without a lower validation loss after which training stops; 0: it never does
    epsilon: float = 1e-7  # of adam, adamw, rmsprop and nadam; graph/optimizer.py says where each adds it
    internals: str = "public"  # "private": fields that a framework keeps to itself may be corrected
    optimizer_variant: str = "equal"  # "native": the framework's own optimizer with its own defaults, except the rate
    batch_growth: float = 1.0  # batches/sizes.py has the rule
    batch_size_limit: int = 500  # of batches that grow
    gpu_threads: str = "shared"  # "private": of each GPU alone, to launch its kernels
    nodes: int = 1  # of a Slurm job; each has the devices that `device` names
    beta2: float = 0.999  # of adam, adamw and nadam
    clip_norm: float = 0.0  # of the gradients of all parameters together; 0: they are not clipped
    ramp_updates: int = 0  # graph.Schedule has the rule of these three
    decay_updates: int = 0
    final_rate: float = 0.1
    accumulation: int = 1  # batches whose mean gradient makes one update
    label_smoothing: float = 0.0  # of the task that is trained; graph.Task has the rule
    new_tokens: int = 32  # of mode "generation": behind a prompt that has the rest of a window

    def to_dict(self) -> Fields:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Document) -> "TrainConfig":
        return cls(**fields)


def devices_of(device: str) -> Tuple[str, ...]:
    """The devices of a cell: "cuda:0" and "cuda:1" of "cuda:0,1", "cpu" twice of "cpu:0,1", one of any other."""
    kind, _, numbers = device.partition(":")
    if "," not in numbers:
        return (device,)
    return tuple(kind if kind == "cpu" else f"{kind}:{number}" for number in numbers.split(","))


def replicas_of(config: Any) -> Tuple[str, ...]:
    """The devices of all replicas of a cell, node by node; `config` is a TrainConfig, or a row with its settings."""
    return devices_of(config.device) * int(config.nodes)


def where(config: TrainConfig) -> str:
    """A cell's devices in words, for sentences that refuse it."""
    return f"device {config.device!r}" + (f" of {config.nodes} nodes" if config.nodes > 1 else "")


@dataclasses.dataclass(frozen=True)
class Job:
    """One worker's job; a JSON document at the process boundary.

    "train" runs a cell: graph is Graph.to_dict(), images and weights are files. A data set of arrays is in `data`, and
    then there are no images: {"kind": "arrays", "path": file that batches.arrays reads}. "search" trains its
    `tasks` one after the other; "verify", "conformance" and "trace" answer them, each a document of its own.
    """

    config: TrainConfig
    kind: str = "train"
    trainer: str = ""  # "module:Class", as the staged worker finds it
    graph: Optional[Document] = None
    images: str = ""
    data: Optional[Document] = None
    weights: str = ""
    steps: str = ""  # file that step times are appended to, little-endian int64 nanoseconds; "" for none
    tasks: Tuple[Document, ...] = ()
    profile: bool = False
    written: Optional[Mapping[str, str]] = None  # a source, as "trace" takes it, whose model is trained as written
    sample_s: float = 0.0  # seconds after which training ends: within the first epoch, else with an epoch; 0: never
    turns: bool = False  # it trains only in the turns that the parent grants, and waits between them

    def to_dict(self) -> Fields:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, document: Document) -> "Job":
        tasks = tuple(document.get("tasks", ()))
        return cls(**{**document, "config": TrainConfig.from_dict(document["config"]), "tasks": tasks})


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """The images of a data set, in one fixed order, all of them known to decode.

    paths are absolute; labels are indices into classes; formats are "JPEG", "PNG", ... read from the bytes.
    """

    classes: Tuple[str, ...]
    paths: Tuple[str, ...]
    labels: Tuple[int, ...]
    formats: Tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)


class Batch(NamedTuple):
    """Images and labels of one step in the framework's own arrays; the runner reads only the size.

    For tasks other than image classification, `images` is the input (tokens, a series, a row) or a tuple of inputs, and
    `labels` the target.
    """

    images: Any
    labels: Any
    size: int


class Replicas(NamedTuple):
    """The replicas of a model that a cell on several devices trains, one per device; a process trains one, or all.

    Over several nodes a process trains one replica, or all of its node.

    devices: of the replicas in their order, ("cuda:0", "cuda:1"), node by node; those on a CPU share it, ("cpu", "cpu").
    rank: the number of this process; None where it trains all.
    address: HOST:PORT at which rank 0 meets the others; "" where one process trains all.
    processes: how many train together; the devices are divided equally among them, in order.
    """

    devices: Tuple[str, ...]
    rank: Optional[int] = None
    address: str = ""
    processes: int = 1

    @property
    def own(self) -> Tuple[str, ...]:
        """The devices of this process."""
        each, rank = len(self.devices) // self.processes, self.rank or 0
        return self.devices[rank * each : (rank + 1) * each]


class DeviceTimes(NamedTuple):
    """Nanoseconds of a device: copying batches to it, and computing."""

    copy_ns: int
    compute_ns: int


class ProfileRow(NamedTuple):
    """Nanoseconds spent under one name, over all calls, without the functions called from it."""

    kind: str  # "operator" (host), "cuda-runtime" (host calls of the CUDA API) or "kernel" (device)
    name: str
    calls: int
    self_ns: int


class Declared(NamedTuple):
    """Features that an adapter implements. Before it imports the framework, the worker refuses a cell that needs others.

    Quality metrics are not declared: the runner computes them in the same way for all frameworks.

    Executions, precisions, replicas and untested are mappings by kind of device, "cpu" or "cuda"; a missing kind is not
    supported.
    """

    ops: FrozenSet[str]  # of the graph
    losses: FrozenSet[str]
    optimizers: FrozenSet[str]  # "native adam" is the framework's own, with its defaults
    executions: Mapping[str, FrozenSet[str]]  # "default" among them
    precisions: Mapping[str, FrozenSet[str]]
    replicas: Mapping[str, FrozenSet[str]] = {}  # executions in which it trains replicas on several devices
    untested: Mapping[str, FrozenSet[str]] = {}  # precisions that no such device has run: tables and doctor say so
    several_nodes: bool = False  # whether replicas may be on several nodes
    several_inputs: bool = False  # whether models may have several; batches hold a tuple of them then
    internals: FrozenSet[str] = frozenset({"public"})  # "private" for one that corrects private fields where asked
    updates: FrozenSet[str] = frozenset()  # of UPDATES, what may come in front of an optimizer's step
    gpu_threads: FrozenSet[str] = frozenset({"shared"})  # "private" for one that can keep threads for each GPU alone
    generation: FrozenSet[str] = frozenset()  # executions in which it has `generate` and `read_generated`
    why: Mapping[str, str] = {}  # why something is not declared: by its name, "graph", "bf16", "replicas"


class Trainer(Protocol):
    """A framework that trains one model. The runner is responsible for timing, warm-up and the epoch loop.

    Arrays that cross this interface are numpy float32 arrays in the layout of `torch.nn`: images (N, C, H, W),
    Conv2d weights (out, in / groups, kH, kW), Linear weights (out, in). The task of the model built last determines what
    `to_device_batch` receives: the only input (N, ...), or a tuple of inputs in the task's order, and the target; see graph.Task.
    """

    name: str
    layout: str  # of the image batches it adopts without a copy: "NCHW" or "NHWC"
    declared: Declared  # an attribute of the class: it is read before there is a trainer

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        """Environment variables to set before the framework is imported (thread pools, logging)."""

    def __init__(self, config: TrainConfig, replicas: Optional[Replicas] = None) -> None:
        """Import the framework, limit every thread pool to `config.threads`, and seed its generators.

        replicas: for cells on several devices, if the adapter declares any. The config then describes this process: the
        device of its first replica, and batch size, threads and loader workers of its replicas together. A step averages
        the gradients of all replicas' mean losses, each with the batch statistics of its own part of the batch, in
        order. Running statistics are those of replica 0; generators differ between replicas.
        """

    def version(self) -> str:
        """Version of the framework as it reports it."""

    def unsupported(self) -> Optional[str]:
        """Return why this cell cannot run here although it is declared (no such device or compiler), or None."""

    def settings(self) -> Fields:
        """Return what `default` and `recommended` mean here (layout, allocator, flags), to be stored with the result."""

    def build(self, graph: "Graph") -> None:
        """Build the model from native layers, the optimizer and the training step; a second call replaces them.

        A parameter whose `trainable` is False is neither differentiated nor updated.
        """

    def load_weights(self, weights: Mapping[str, "np.ndarray"]) -> None:
        """Copy in parameters and running statistics by their names in the graph, and reset the optimizer's state."""

    def weights(self) -> Dict[str, "np.ndarray"]:
        """Return copies of all parameters and running statistics, by graph name, in the graph's shapes."""

    def host_array(self, shape: Tuple[int, ...]) -> "np.ndarray":
        """Return a new, uninitialised float32 array in the memory from which `to_device_batch` copies fastest."""

    def to_device_batch(self, images: "Inputs", labels: "np.ndarray") -> Batch:
        """Return a batch on the device, from float32 images in `layout`, (N, C, H, W) or (N, H, W, C), and int64 labels (N,).

        For other tasks: from the input, (N, ...) float32 or integer tokens, and the target.
        """

    def read_batch(self, batch: Batch) -> Tuple["Inputs", "np.ndarray"]:
        """Return the images and labels of a batch in the form that `to_device_batch` takes."""

    def open_pipeline(self, files: ImageFiles) -> Any:
        """Start the framework's own input pipeline and return it; each epoch passes it to `epoch`."""

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        """Yield the batches of one epoch: every image once, in a new order; the last batch may be shorter."""

    def train_step(self, batch: Batch) -> Loss:
        """Forward, loss, backward, update; return the loss without reading it, possibly before the device is done."""

    def infer(self, batch: Batch) -> object:
        """Compute outputs in evaluation mode and leave them on the device; `synchronize` waits until they are there.

        In mode "inference" it uses the config's execution mode. `forward` returns the same outputs.
        """

    def generate(self, batch: Batch) -> Iterator[Any]:
        """Yield the likeliest token after the prompts (N, steps) of a batch, one at a time, up to the end of the window.

        Each item has the tokens (N, 1) and their logits (N, vocabulary), left on the device. Keys and values of earlier
        steps come from a cache; the current weights are used. Only for adapters that declare `generation`.
        """

    def read_generated(self, steps: List[Any]) -> Tuple["np.ndarray", "np.ndarray"]:
        """Return the tokens (N, steps) and the float32 logits (N, steps, vocabulary) that `generate` yielded."""

    def gradients(self, batch: Batch) -> Dict[str, "np.ndarray"]:
        """Return the gradient of the mean loss for every trainable parameter, as in `train_step`, without an update."""

    def read_losses(self, losses: List[Loss]) -> List[float]:
        """Wait for the mean losses per sample of these steps and return them as Python floats."""

    def forward(self, batch: Batch, *, training: bool = False) -> "np.ndarray":
        """Return outputs in evaluation mode: (N, num_classes), or (N, ..., outputs) for other tasks.

        With `training`, use batch statistics and dropout. This may change the running statistics, so the caller then
        loads the weights again.
        """

    def synchronize(self) -> None:
        """Return when all work submitted to the device is done and all ranks have reached this call."""

    def device_times(self) -> Optional[DeviceTimes]:
        """Return the device's own times since the last call; None if it has no clock, and the runner times steps separately."""

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        """Run `step` under the framework's own profiler, write its trace into `folder`, and return its rows.

        The file for Perfetto is trace.json or trace.json.gz. `step` runs a few training steps, and may be called twice.
        """

    def release(self) -> None:
        """Stop the loader workers and free all memory."""
