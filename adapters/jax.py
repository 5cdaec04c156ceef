"""JAX: the graph as a pure function, differentiated by jax.grad and updated by optax, the step one XLA program.

XLA compiles whatever jax.jit captures, so `graph` and `compiled` are the same; `eager` runs op by op. On a CPU
`recommended` states 1x1 convolutions as matrix products, depthwise ones and max pooling as sums and maxima of shifted
pictures: with XLA's own a step takes 2.4 (ResNet-50) to 2.9 times (MobileNetV2) the CPU time, at batch 16. The native
pipeline is Grain's: one or two loader workers are threads, more are processes, which live for all epochs.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import importlib
import itertools
import os
import re
import struct
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from framework_compare.batches import preprocess
from framework_compare.errors import Unsupported
from framework_compare.graph import OPS, Graph, Node, evaluate
from framework_compare.protocol import Batch, DeviceTimes, Pictures, ProfileRow, TrainConfig

# Loader workers that are processes and no threads: two threads use up what one interpreter reads (846 pictures/s of 224
# pixels a side on 2 cores, 700 by two processes; 590 to 650 by 16 threads on 16 cores).
PROCESSES_FROM = 3
CLOSED, GATE_S = -1, 0.002  # what a gate says to processes that are to end, and how long they wait between two looks
LOSS_SCALE, LOSS_SCALE_STREAK = 8192.0, 2000  # of fp16: at the start, and finite steps before it doubles
# Of a jitted step on a GPU. They stay where they are and are copied to the host together: each copy takes the host tens of
# microseconds, and for a result at another address XLA updates its CUDA graphs. Few enough that a copy has some steps'
# time before the runner asks for the first of its losses, which it does eight steps late. A program writes them to the
# host's memory: handed over by `copy_to_host_async` they take about 50 us more of a step (AlexNet, batch 1, H200).
LOSSES_TOGETHER = 4
MEMORY_FRACTION = "0.95"  # of the GPU's: CUDA's own context and libraries need some beside XLA's allocator
MATMUL_PRECISION = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "default", "fp16": "default"}


class State(NamedTuple):
    """All that a training step changes: donated to it, so that XLA updates it in place."""

    parameters: Dict[str, Any]
    statistics: Dict[str, Any]  # running ones, of BatchNorm
    optimizer: Any
    steps: Any  # dropout's key is folded with it
    scale: Any  # of the loss
    streak: Any  # finite steps since the scale changed
    losses: Any  # the last LOSSES_TOGETHER ones, each at its step modulo that; () where each is a result of its own


class LossBlock:
    """Losses of up to LOSSES_TOGETHER steps that follow each other; a handle is (block, place in the copy)."""

    def __init__(self) -> None:
        self.steps = 0
        self.copy: Any = None  # in the host's memory of all losses on the device, once the block has ended
        self.values: List[float] = []  # of the copy, once one of them was read


class JaxTrainer:
    name = "jax"

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        threads = str(config.threads)
        variables = {
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            # size of XLA's pools on a CPU (xla/pjrt/utils.cc); its own flags leave them at a thread a core
            "NPROC": threads,
            "PJRT_NPROC": threads,
        }
        if config.device == "cpu":
            return {**variables, "JAX_PLATFORMS": "cpu"}
        return {
            **variables,
            "JAX_PLATFORMS": "cuda,cpu",
            # JAX otherwise takes three quarters of the GPU's memory at its start, whatever it needs, and never more
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "XLA_CLIENT_MEM_FRACTION": MEMORY_FRACTION,
        }

    def __init__(self, config: TrainConfig) -> None:
        import jax

        self.jax = jax
        self.config = config
        self._on_gpu = config.device != "cpu"
        self._keeps_losses = self._on_gpu and config.execution != "eager"  # in the state, on the device
        jax.config.update("jax_default_matmul_precision", MATMUL_PRECISION[config.precision])
        self._device, self._found = _find_device(jax, config.device)
        jax.config.update("jax_default_device", self._device)
        self._recommended = config.tuning == "recommended"
        self.layout = "NHWC" if self._recommended else "NCHW"
        self._passes = 0
        self._block, self._taken = LossBlock(), 0  # and steps since the weights were loaded, as State has them
        self._loss_seen: Any = None
        self._feeds: List[Processes] = []

    def version(self) -> str:
        return str(self.jax.__version__)

    def unsupported(self) -> Optional[str]:
        config = self.config
        if self._device is None:
            return f"device {config.device!r}: JAX {self.jax.__version__} finds {self._found} here"
        if config.precision in ("tf32", "fp16") and not self._on_gpu:
            return f"precision {config.precision!r} is for GPUs; on a CPU JAX trains in fp32 and bf16"
        if config.precision in ("tf32", "bf16") and self._on_gpu and float(self._device.compute_capability) < 8:
            found = self._device.compute_capability
            return f"precision {config.precision!r} needs compute capability 8.0; this GPU has {found}"
        return None

    def settings(self) -> Dict[str, Any]:
        config = self.config
        return {
            "execution": "eager" if config.execution == "eager" else "jit",
            "layout": self.layout,
            "windows": "1x1 as products, depthwise and pooling shifted" if self._shifts else "XLA's",
            "matmul_precision": MATMUL_PRECISION[config.precision],
            "optimizer": "optax.sgd",
            "threads": config.threads,
            "loader_workers": "threads" if config.loader_workers < PROCESSES_FROM else "processes",
            **({"gpu": self._device.device_kind, "preallocate": False} if self._on_gpu else {}),
            **({"loss_scale": f"dynamic, from {LOSS_SCALE:g}"} if config.precision == "fp16" else {}),
        }

    @property
    def _shifts(self) -> bool:
        return self._recommended and not self._on_gpu

    def build(self, graph: Graph) -> None:
        optax = _import("optax", "its optimiser; install it beside jax")
        config, jax = self.config, self.jax
        dtype = {"bf16": "bfloat16", "fp16": "float16"}.get(config.precision, "float32")
        self._network = Network(jax, graph, dtype=dtype, layout=self.layout, shifts=self._shifts)
        sgd = optax.sgd(config.learning_rate, momentum=config.momentum or None)
        decay = [optax.add_decayed_weights(config.weight_decay)] if config.weight_decay else []
        self._optimizer = optax.chain(*decay, sgd)
        self._key = jax.random.key(config.seed & 0xFFFFFFFF)
        jit: Callable[..., Any] = jax.jit if config.execution != "eager" else lambda function, **_: function
        self._step = jit(self._step_of_leaves, donate_argnums=0)
        self._differentiate = jit(self._gradients)
        self._evaluate = jit(self._logits)
        self._train = jit(functools.partial(self._logits, training=True))
        self._trainable = {p.name for p in graph.parameters() if p.trainable}
        on_host = jax.sharding.SingleDeviceSharding(self._device, memory_kind="pinned_host")
        self._copy = jax.jit(jax.numpy.copy, out_shardings=on_host)
        self.load_weights({p.name: np.zeros(p.shape, np.float32) for p in graph.parameters()})

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        jax, jnp = self.jax, self.jax.numpy
        self._end_block()
        self._taken = 0
        self._leaves = None  # the former ones' memory is free before there are others
        # never aliased: a step writes into the memory of what it is given
        arrays = {
            name: jax.device_put(self._network.to_native(array), self._device, may_alias=False)
            for name, array in weights.items()
        }
        parameters = {name: array for name, array in arrays.items() if name in self._trainable}
        statistics = {name: array for name, array in arrays.items() if name not in self._trainable}
        scale = jnp.float32(LOSS_SCALE if self.config.precision == "fp16" else 1)
        losses = jnp.zeros(LOSSES_TOGETHER) if self._keeps_losses else ()
        optimizer = self._optimizer.init(parameters)
        start = State(parameters, statistics, optimizer, jnp.uint32(0), scale, jnp.int32(0), losses)
        leaves, self._tree = jax.tree.flatten(start)
        # as a step's results are: told apart from those by not being put anywhere, it would be compiled for twice
        self._leaves = jax.block_until_ready(jax.device_put(leaves, self._device))

    @property
    def _state(self) -> State:
        found: State = self._tree.unflatten(self._leaves)
        return found

    def weights(self) -> Dict[str, np.ndarray]:
        return self._to_graph({**self._state.parameters, **self._state.statistics})

    def _to_graph(self, arrays: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        return {name: self._network.from_native(np.asarray(array)) for name, array in arrays.items()}

    def host_array(self, shape: Tuple[int, ...]) -> np.ndarray:
        return np.empty(shape, dtype=np.float32)

    def adopt(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        return Batch(*self.jax.device_put((images, labels.astype(np.int32)), self._device), len(labels))

    def read_batch(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        return np.array(batch.images), np.asarray(batch.labels).astype(np.int64)

    def open_pipeline(self, pictures: Pictures) -> Any:
        if self.config.loader_workers < PROCESSES_FROM:
            return Threads(pictures, self.config, self.layout)
        self._feeds.append(Processes(pictures, self.config, self.layout))
        return self._feeds[-1]

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        for images, labels in pipeline.epoch(number):
            yield self.adopt(images, labels)

    def train_step(self, batch: Batch) -> Any:
        self._leaves, loss = self._step(self._leaves, batch.images, batch.labels)
        if not self._keeps_losses:
            self._loss_seen = loss
            if self._on_gpu:
                loss.copy_to_host_async()
            return loss
        handle = self._block, self._taken % LOSSES_TOGETHER
        self._taken += 1
        self._block.steps += 1
        if self._block.steps == LOSSES_TOGETHER:
            self._end_block()
        return handle

    def _end_block(self) -> None:
        """Begin another block of losses; those of the last are on their way to the host."""
        if self._block.steps:
            block, self._block = self._block, LossBlock()  # whatever becomes of the copy
            block.copy = self._copy(self._leaves[-1])  # `losses`, the last of State

    def _step_of_leaves(self, leaves: List[Any], images: Any, labels: Any) -> Tuple[List[Any], Any]:
        """Arrays in a list are handed over in less time than in dictionaries, whose keys JAX sorts at each call."""
        after, loss = self._plain_step(self._tree.unflatten(leaves), images, labels)
        return self.jax.tree.leaves(after), None if self._keeps_losses else loss

    def _plain_step(self, state: State, images: Any, labels: Any) -> Tuple[State, Any]:
        import optax

        gradients, (loss, statistics) = self._gradients(state, images, labels)
        updates, optimizer = self._optimizer.update(gradients, state.optimizer, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        losses = self._with_last(state, loss) if self._keeps_losses else ()
        after = State(parameters, statistics, optimizer, state.steps + 1, state.scale, state.streak, losses)
        return (self._unless_overflown(state, after, gradients) if self.config.precision == "fp16" else after), loss

    def _with_last(self, state: State, loss: Any) -> Any:
        """The kept losses, (LOSSES_TOGETHER,), with this step's in the place of the oldest."""
        places = self.jax.numpy.arange(LOSSES_TOGETHER, dtype=state.steps.dtype)
        return self.jax.numpy.where(places == state.steps % LOSSES_TOGETHER, loss, state.losses)

    def _unless_overflown(self, before: State, after: State, gradients: Any) -> State:
        """The step, or where a gradient is not finite none, at half the scale; torch.amp.GradScaler's rule."""
        jnp, tree = self.jax.numpy, self.jax.tree
        finite = jnp.stack([jnp.isfinite(gradient).all() for gradient in tree.leaves(gradients)]).all()
        kept = tree.map(lambda new, old: jnp.where(finite, new, old), after, before)
        streak = jnp.where(finite, before.streak + 1, 0)
        grown = jnp.where(streak == LOSS_SCALE_STREAK, 2 * before.scale, before.scale)
        return kept._replace(
            statistics=after.statistics,
            steps=after.steps,
            scale=jnp.where(finite, grown, before.scale / 2),
            streak=streak % LOSS_SCALE_STREAK,
            losses=after.losses,
        )

    def _gradients(self, state: State, images: Any, labels: Any) -> Any:
        key = self.jax.random.fold_in(self._key, state.steps)
        compute = self.jax.grad(self._loss, has_aux=True)
        gradients, kept = compute(state.parameters, state.statistics, images, labels, key, state.scale)
        if self.config.precision == "fp16":
            gradients = self.jax.tree.map(lambda gradient: gradient / state.scale, gradients)
        return gradients, kept

    def _loss(self, parameters: Any, statistics: Any, images: Any, labels: Any, key: Any, scale: Any) -> Any:
        import optax

        logits, statistics = self._network({**parameters, **statistics}, images, key)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return loss * scale, (loss, statistics)

    def gradients(self, batch: Batch) -> Dict[str, np.ndarray]:
        return self._to_graph(self._differentiate(self._state, batch.images, batch.labels)[0])

    def read_losses(self, losses: List[Any]) -> List[float]:
        return [self._read_loss(*loss) if self._keeps_losses else float(loss) for loss in losses]

    def _read_loss(self, block: LossBlock, place: int) -> float:
        if block.copy is None:
            self._end_block()
        if not block.values:
            block.values = np.asarray(block.copy).tolist()
        return block.values[place]

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        self._passes += 1
        compute = self._train if training else self._evaluate
        return np.asarray(compute(self._state, batch.images, np.uint32(self._passes)))

    def _logits(self, state: State, images: Any, number: Any, *, training: bool = False) -> Any:
        key = self.jax.random.fold_in(self._key, number) if training else None
        return self._network({**state.parameters, **state.statistics}, images, key)[0]

    def synchronize(self) -> None:
        self.jax.block_until_ready((self._leaves, self._loss_seen))

    def device_times(self) -> Optional[DeviceTimes]:
        return None

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        from framework_compare.worker.profiling import count, write_trace

        options = self.jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # at its default every call of a Python function is an event
        with self.jax.profiler.trace(folder, profiler_options=options):
            step()
        lines = list(_profile_lines(self.jax, folder))
        write_trace(lines, folder)
        return count(lines)

    def release(self) -> None:
        while self._feeds:
            self._feeds.pop().close()
        self._network = self._leaves = self._loss_seen = None
        self._block = self._step = self._differentiate = self._evaluate = self._train = self._copy = None


class Network:
    """The graph as a function of its arrays by graph name: convolutions HWIO if images are NHWC, linear (in, out).

    With linear weights as (out, in) XLA's update of them takes ten times as long on a CPU, at batch 1.
    """

    def __init__(self, jax: Any, graph: Graph, *, dtype: str, layout: str, shifts: bool) -> None:
        self.jax = jax
        self.graph = graph
        self.dtype = jax.numpy.dtype(dtype)  # of convolutions and linear layers, and of what lies between
        self.channels_last = layout == "NHWC"
        self.layouts = (layout, "HWIO" if self.channels_last else "OIHW", layout)
        self.shifts = shifts
        self._names = {node.name: [p.name for p in OPS[node.op].parameters(node)] for node in graph.nodes}

    def to_native(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(self._moved(array, (2, 3, 1, 0)))

    def from_native(self, array: np.ndarray) -> np.ndarray:
        return np.array(self._moved(array, (3, 2, 0, 1)), order="C")

    def _moved(self, array: np.ndarray, axes: Tuple[int, ...]) -> np.ndarray:
        if array.ndim == 4 and self.channels_last:
            return array.transpose(axes)
        return array.T if array.ndim == 2 else array

    def __call__(self, arrays: Mapping[str, Any], images: Any, key: Any = None) -> Tuple[Any, Dict[str, Any]]:
        """Float32 logits and the running statistics after; a key means training: batch statistics, dropout."""
        statistics = {name: array for name, array in arrays.items() if ".running_" in name}

        def apply(node: Node, *inputs: Any) -> Any:
            own = {name.rpartition(".")[2]: arrays[name] for name in self._names[node.name]}
            if node.op == "BatchNorm2d":
                value, moved = self.batchnorm(node, own, *inputs, training=key is not None)
                statistics.update({f"{node.name}.{name}": array for name, array in moved.items()})
                return value
            return LOWERINGS[node.op](self, node, own, *inputs, key=key)

        return evaluate(self.graph, apply, images).astype("float32"), statistics

    def conv2d(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        a = node.attrs
        y = self._convolve(x.astype(self.dtype), own["weight"].astype(self.dtype), a)
        return y + self._by_channel(own["bias"].astype(self.dtype)) if a["bias"] else y

    def _convolve(self, x: Any, weight: Any, a: Mapping[str, Any]) -> Any:
        stride, padding = a["stride"], a["padding"]
        if self.shifts and a["kernel"] == 1 and a["groups"] == 1 and not padding:
            x = x[:, ::stride, ::stride]
            return (x.reshape(-1, a["in_channels"]) @ weight[0, 0]).reshape(*x.shape[:3], -1)
        if self.shifts and a["groups"] == a["in_channels"] == a["out_channels"]:
            # summed in float32, as XLA's own convolution does: the weight's gradient has thousands of terms
            exact, kernel = x.astype("float32"), weight.astype("float32")
            return sum(view * kernel[i, j, 0] for i, j, view in self._shifted(exact, a, 0)).astype(self.dtype)
        return self.jax.lax.conv_general_dilated(
            x,
            weight,
            (stride, stride),
            [(padding, padding)] * 2,
            dimension_numbers=self.layouts,
            feature_group_count=a["groups"],
        )

    def _shifted(self, x: Any, a: Mapping[str, Any], fill: float) -> Iterator[Tuple[int, int, Any]]:
        """The pictures that a window sees at each of its places (i, j)."""
        kernel, stride, pads = a["kernel"], a["stride"], (a["padding"], a["padding"])
        x = self.jax.numpy.pad(x, [(0, 0), pads, pads, (0, 0)], constant_values=fill)
        height, width = (size - kernel + 1 for size in x.shape[1:3])
        for i, j in itertools.product(range(kernel), repeat=2):
            yield i, j, x[:, i : i + height : stride, j : j + width : stride]

    def batchnorm(self, node: Node, own: Mapping[str, Any], x: Any, *, training: bool) -> Tuple[Any, Dict[str, Any]]:
        a, exact = node.attrs, x.astype("float32")
        mean, variance, moved = own["running_mean"], own["running_var"], {}
        if training:
            axes = (0, *self._spatial)
            mean, variance, count = exact.mean(axes), exact.var(axes), x.size // a["channels"]
            batch = {"running_mean": mean, "running_var": variance * (count / max(1, count - 1))}
            moved = {name: own[name] + a["momentum"] * (new - own[name]) for name, new in batch.items()}
        scale = self.jax.lax.rsqrt(variance + a["eps"]) * own["weight"]
        y = (exact - self._by_channel(mean)) * self._by_channel(scale) + self._by_channel(own["bias"])
        return y.astype(x.dtype), moved

    def maxpool(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        a, lax = node.attrs, self.jax.lax
        if self.shifts:
            return functools.reduce(self.jax.numpy.maximum, (view for _, _, view in self._shifted(x, a, -np.inf)))
        window, strides, pads = ([at] * 4 for at in (1, 1, (0, 0)))
        for axis in self._spatial:
            window[axis], strides[axis], pads[axis] = a["kernel"], a["stride"], (a["padding"], a["padding"])
        return lax.reduce_window(x, -np.inf, lax.max, window, strides, pads)

    def adaptive_avgpool(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        # no such op in JAX: the windows of torch's adaptive pooling as one small matrix for rows and columns
        matrix = self.jax.numpy.asarray(_adaptive_matrix(x.shape[self._spatial[0]], node.attrs["output"]), x.dtype)
        how = "ih,nhwc,jw->nijc" if self.channels_last else "ih,nchw,jw->ncij"
        return self.jax.numpy.einsum(how, matrix, x, matrix)

    def global_avgpool(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        return x.mean(self._spatial, dtype="float32").astype(x.dtype)

    def flatten(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        """In (C, H, W) order whatever the layout."""
        return (x.transpose(0, 3, 1, 2) if self.channels_last else x).reshape(x.shape[0], -1)

    def linear(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        return x.astype(self.dtype) @ own["weight"].astype(self.dtype) + own["bias"].astype(self.dtype)

    def dropout(self, node: Node, own: Mapping[str, Any], x: Any, *, key: Any) -> Any:
        if key is None:
            return x
        random, kept = self.jax.random, 1 - node.attrs["p"]
        key = random.fold_in(key, self.graph.nodes.index(node))
        return self.jax.numpy.where(random.bernoulli(key, kept, x.shape), x / kept, 0).astype(x.dtype)

    @property
    def _spatial(self) -> Tuple[int, int]:
        return (1, 2) if self.channels_last else (2, 3)

    def _by_channel(self, vector: Any) -> Any:
        return vector if self.channels_last else vector[:, None, None]


LOWERINGS: Dict[str, Callable[..., Any]] = {
    "Conv2d": Network.conv2d,
    "ReLU": lambda net, node, own, x, **_: net.jax.nn.relu(x),
    "ReLU6": lambda net, node, own, x, **_: net.jax.nn.relu6(x),
    "MaxPool2d": Network.maxpool,
    "AdaptiveAvgPool2d": Network.adaptive_avgpool,
    "GlobalAvgPool": Network.global_avgpool,
    "Flatten": Network.flatten,
    "Linear": Network.linear,
    "Dropout": Network.dropout,
    "Add": lambda net, node, own, x, y, **_: x + y,
}


def _adaptive_matrix(size: int, output: int) -> np.ndarray:
    matrix = np.zeros((output, size), np.float32)
    for i in range(output):
        start, end = i * size // output, -(-(i + 1) * size // output)
        matrix[i, start:end] = 1 / (end - start)
    return matrix


def _find_device(jax: Any, name: str) -> Tuple[Any, str]:
    """The device of that name, or None and what there is instead."""
    platform, _, number = name.partition(":")
    try:
        devices = jax.devices(platform)
    except RuntimeError as error:
        return None, f"0 devices of kind {platform!r} ({str(error).splitlines()[0]})"
    wanted = int(number or 0)
    return (devices[wanted], "") if wanted < len(devices) else (None, f"{len(devices)} devices of kind {platform!r}")


def _import(module: str, why: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise Unsupported(f"this interpreter has JAX without {module}: {why}") from None


class Threads:
    """Batches from Grain's threads, which read single pictures up to two batches ahead."""

    def __init__(self, pictures: Pictures, config: TrainConfig, layout: str) -> None:
        self._grain, self._config, self._count = import_grain(), config, len(pictures)
        self._all = make_pictures(self._grain, pictures, config, layout).repeat()

    def epoch(self, number: int) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        ahead = 2 * self._config.batch_size
        reading = self._grain.ReadOptions(num_threads=self._config.loader_workers, prefetch_buffer_size=ahead)
        epoch = self._all[(number - 1) * self._count : number * self._count].to_iter_dataset(reading)
        with contextlib.closing(iter(epoch.batch(self._config.batch_size))) as batches:
            yield from batches


class Processes:
    """Batches from Grain's processes, which live as long as this and read no epoch before it has begun.

    An iterator of Grain's starts its processes, which import all of JAX. One for each epoch would count that as waiting
    for data; one for all of them would read ahead while nothing is timed.
    """

    def __init__(self, pictures: Pictures, config: TrainConfig, layout: str) -> None:
        self._grain = import_grain()
        # Grain reads absl's flags where it starts processes, which absl refuses before a command line was parsed
        _import("absl.flags", "Grain's processes need it").FLAGS.mark_as_parsed()
        self._workers = config.loader_workers
        self._batches = make_pictures(self._grain, pictures, config, layout).batch(config.batch_size)  # epochs apart
        self._gate = Gate.make()
        self._start(1)

    def epoch(self, number: int) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        """Any other than the next one, and one after an epoch not read to its end, starts the processes anew."""
        if number != self._next:
            self._stop()
            self._start(number)
        self._next = 0
        self._gate.open(number)
        yield from itertools.islice(self._iterator, len(self._batches))
        self._next = number + 1

    def close(self) -> None:
        self._stop()
        self._gate.remove()

    def _stop(self) -> None:
        self._gate.open(CLOSED)
        self._iterator.close()

    def _start(self, first: int) -> None:
        """Return when each process has said that it is there."""
        grain, self._next = self._grain, first
        reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
        processes = grain.MultiprocessingOptions(num_workers=self._workers, per_worker_buffer_size=1)
        source = gated(grain, self._batches, self._gate, first, self._workers)
        self._gate.open(first - 1)
        self._iterator = iter(source.to_iter_dataset(reading).mp_prefetch(processes))
        for _ in range(self._workers):
            next(self._iterator)


class Gate(NamedTuple):
    """The number of the epoch that may be read, in a file, as it must reach processes that are spawned."""

    path: str
    owner: int  # the process that opens it

    @classmethod
    def make(cls) -> "Gate":
        memory = "/dev/shm"  # where the supervisor removes what has a worker's pid in its name
        descriptor, path = tempfile.mkstemp(prefix=f"epoch_{os.getpid()}_", dir=memory if os.path.isdir(memory) else None)
        os.close(descriptor)
        return cls(path, os.getpid())

    def open(self, epoch: int) -> None:
        with open(self.path, "r+b", buffering=0) as file:
            file.write(struct.pack("<q", epoch))

    def wait(self, epoch: int) -> None:
        with open(self.path, "rb", buffering=0) as file:
            while True:
                now = struct.unpack("<q", os.pread(file.fileno(), 8, 0))[0]
                if now == CLOSED or self.owner not in (os.getppid(), os.getpid()):
                    raise RuntimeError("the pipeline is closed")
                if now >= epoch:
                    return
                time.sleep(GATE_S)

    def remove(self) -> None:
        os.unlink(self.path)


def gated(grain: Any, batches: Any, gate: Gate, first: int, workers: int) -> Any:
    """All batches of all epochs from the first on, none before its epoch has begun, after a sign of each worker."""

    class Gated(grain.MapDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return sys.maxsize

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, slice):
                return self.slice(index)
            if index < workers:
                return np.int64(index), np.int64(index)
            place = index - workers + (first - 1) * len(batches)
            gate.wait(place // len(batches) + 1)
            return batches[place]

    return Gated()


def import_grain() -> Any:
    return _import("grain", "pipeline 'native' needs it; install it, or use 'shared'")


def make_pictures(grain: Any, pictures: Pictures, config: TrainConfig, layout: str) -> Any:
    """Shuffled and drawn anew in each epoch by Grain's own rule."""

    def read(index: int, rng: Any) -> Tuple[np.ndarray, np.int64]:
        return _read_picture(pictures.paths[index], rng, config, layout), np.int64(pictures.labels[index])

    order = grain.MapDataset.range(len(pictures)).seed(config.seed & 0xFFFFFFFF).shuffle()
    return order.random_map(read)


def _read_picture(path: str, rng: Any, config: TrainConfig, layout: str) -> np.ndarray:
    """torchvision's ImageNet recipe with Pillow and numpy."""
    from PIL import Image

    size = config.image_size
    with Image.open(path) as image:
        crop = preprocess.draw_crop(np.random.RandomState(rng.integers(2**32)), *image.size, flip=config.flip)
        if config.crop == "none":
            crop = preprocess.whole(*image.size)._replace(flip=crop.flip)
        box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
        pixels = np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=box))
    if crop.flip != "none":
        pixels = pixels[:, ::-1] if crop.flip == "horizontal" else pixels[::-1]
    out = np.empty((size, size, 3) if layout == "NHWC" else (3, size, size), np.float32)
    preprocess.normalise_into(out, pixels, layout)
    return out


def _profile_lines(jax: Any, folder: str) -> Iterator[Any]:
    """Lines of the traces that XLA's profiler wrote: XLA's operators on a host, kernels and CUDA calls on a GPU."""
    from framework_compare.worker.profiling import lines_by_kind, xplane_kind

    for path in glob.glob(f"{folder}/**/*.xplane.pb", recursive=True):
        for plane in jax.profiler.ProfileData.from_file(path).planes:
            for line in plane.lines:
                told = [(xplane_kind(plane.name, line.name, e.name), e) for e in line.events]
                events = (
                    (kind, _span_name(e, kind), int(e.start_ns), int(e.start_ns + e.duration_ns))
                    for kind, e in told
                    if kind
                )
                yield from lines_by_kind(f"{plane.name} {line.name}", events)


def _span_name(event: Any, kind: str) -> str:
    """What an event is counted under; of a host's line the operator without its number, "" for what is none."""
    from framework_compare.worker.profiling import cuda_function

    if kind == "cuda-runtime":
        return cuda_function(event.name) or str(event.name)
    name = str(dict(event.stats).get("hlo_op", "")) if kind == "operator" else event.name
    return re.sub(r"(\.\d+)+$", "", name)
