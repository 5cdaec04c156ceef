"""One model in JAX: a step that is one program, its state donated, losses that leave a GPU several at a time."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from framework_compare.adapters.common import trainer as common
from framework_compare.adapters.jax.generation import Generates
from framework_compare.adapters.jax.network import OPS, Network, has_flash
from framework_compare.adapters.jax.pipeline import PROCESSES_FROM, Processes, Threads, import_part
from framework_compare.adapters.jax.replicas import Mesh, join, stacked, unstacked
from framework_compare.adapters.jax.tasks import LOSSES, NAMES, make_optimizer, optimizer_name
from framework_compare.graph import Graph, trainable_names
from framework_compare.protocol import Batch, ImageFiles, ProfileRow, Replicas, TrainConfig

# Losses of jitted steps on a GPU stay where they are and are copied together: each copy takes the host tens of
# microseconds, and for a result at another address XLA updates its CUDA graphs. Few, as the runner asks for a loss eight
# steps late. A program copies them: by `copy_to_host_async` a step takes about 50 us more (AlexNet, batch 1, H200).
LOSSES_TOGETHER = 4
MEMORY_FRACTION = "0.95"  # of the GPU's: CUDA's own context and libraries need some beside XLA's allocator
CUDNN = "cuDNN; by XLA with a bias, with a cache and with heads that cuDNN does not take"
MATMUL_PRECISION = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "default", "fp16": "default"}


class State(NamedTuple):
    """All that a training step changes: donated to it, so that XLA updates it in place."""

    parameters: Dict[str, Any]
    statistics: Dict[str, Any]  # what is not trained: running ones of BatchNorm, frozen arrays
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


class JaxTrainer(Generates, common.TrainerDefaults):
    name = "jax"
    declared = common.declare(
        OPS,
        LOSSES,
        NAMES,
        executions={"cpu": common.STEPS | {"fast-math"}, "cuda": common.STEPS},
        replicas=dict.fromkeys(("cpu", "cuda"), common.STEPS - {"eager"}),
        several_nodes=True,
        generation=common.STEPS,
    )

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        # NPROC: size of XLA's pools on a CPU (xla/pjrt/utils.cc); its own flags leave them at a thread a core
        pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC", "PJRT_NPROC")
        variables = {**dict.fromkeys(pools, str(config.threads)), **common.xla_flags(config)}
        if config.device == "cpu":
            return {**variables, "JAX_PLATFORMS": "cpu"}
        # JAX otherwise takes three quarters of the GPU's memory at its start, whatever it needs, and never more
        memory = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_CLIENT_MEM_FRACTION": MEMORY_FRACTION}
        return {**variables, "JAX_PLATFORMS": "cuda,cpu", **memory}

    def __init__(self, config: TrainConfig, replicas: Optional[Replicas] = None) -> None:
        import jax

        self.jax, self.config, self._replicas = jax, config, replicas
        names = replicas.own if replicas else (config.device,)
        if replicas and config.device == "cpu":
            jax.config.update("jax_num_cpu_devices", len(names))
        if replicas and replicas.processes > 1:
            join(jax, replicas)
        self._on_gpu = config.device != "cpu"
        self._keeps_losses = self._on_gpu and config.execution != "eager"  # in the state, on the device
        jax.config.update("jax_default_matmul_precision", MATMUL_PRECISION[config.precision])
        found, self._found = _find_devices(jax, names)
        self._device: Any = found[0] if found else None
        self._mesh = Mesh(jax, found) if replicas and found else None
        self._flash = not self._mesh and self._device is not None and has_flash(config, self._device)
        jax.config.update("jax_default_device", self._device)
        recommended = config.tuning == "recommended"
        self.layout, self._shifts = "NHWC" if recommended else "NCHW", recommended and not self._on_gpu
        self._passes = 0
        self._block, self._taken = LossBlock(), 0  # and steps since the weights were loaded, as State has them
        self._leaves: Any = None
        self._loss_seen: Any = None
        self._feeds: List[Processes] = []
        self._target_type: Any = np.int32  # labels, until a network for another task is built

    def unsupported(self) -> Optional[str]:
        config = self.config
        if self._device is None:
            return f"device {config.device!r}: JAX {self.jax.__version__} finds {self._found} here"
        if not self._on_gpu:
            return None
        return common.needs_capability(config.precision, lambda: map(int, self._device.compute_capability.split(".")))

    def settings(self) -> Dict[str, Any]:
        config = self.config
        return {
            "execution": config.execution if config.execution in ("eager", "fast-math") else "jit",
            **common.xla_flags(config),
            "layout": self.layout,
            "windows": "1x1 as products, depthwise and pooling shifted" if self._shifts else "XLA's",
            "matmul_precision": MATMUL_PRECISION[config.precision],
            "optimizer": optimizer_name(config),
            "attention": "jax.nn.dot_product_attention by " + (CUDNN if self._flash else "XLA"),
            "threads": config.threads,
            "loader_workers": "threads" if config.loader_workers < PROCESSES_FROM else "processes",
            **({"gpu": self._device.device_kind, "preallocate": False} if self._on_gpu else {}),
            **({"replicas": f"shard_map, {common.OWN_STATISTICS}"} if self._mesh else {}),
            **common.loss_scale_settings(config),
        }

    def build(self, graph: Graph) -> None:
        config, jax = self.config, self.jax
        dtype = common.HALF_TYPES.get(config.precision, "float32")
        self._network = Network(jax, graph, dtype=dtype, layout=self.layout, shifts=self._shifts, flash=self._flash)
        self._make_task(graph)
        self._key = jax.random.key(config.seed & 0xFFFFFFFF)
        jit: Callable[..., Any] = jax.jit if config.execution != "eager" else lambda function, **_: function
        self._step = jit(self._step_of_leaves, donate_argnums=0)
        self._update, compute = self._plain_step, self._gradients
        train: Callable[..., Any] = functools.partial(self._logits, training=True)
        if self._mesh:
            all_, each = self._mesh.all, self._mesh.each
            state, on_each = _specs(self._mesh), self._mesh.on_each
            self._update = on_each(self._plain_step, (state, each, each), (state, all_))
            compute = on_each(self._gradients, (state, each, each), (all_, (all_, each)))
            train = on_each(train, (state, each, all_), each)
        self._differentiate, self._evaluate, self._train = jit(compute), jit(self._logits), jit(train)
        on_host = jax.sharding.SingleDeviceSharding(self._device, memory_kind="pinned_host")
        if self._mesh:
            on_host = self._mesh.sharding(self._mesh.all, memory_kind="pinned_host")
        self._copy = jax.jit(jax.numpy.copy, out_shardings=on_host)
        self.load_weights({p.name: np.zeros(p.shape, np.float32) for p in graph.parameters()})

    def _make_task(self, graph: Graph) -> None:
        """Loss, optimiser, and what it is to train."""
        optax = import_part("optax", "its optimiser; install it beside jax")
        self._optimizer = make_optimizer(self.jax, optax, self.config)
        self._loss_of = functools.partial(LOSSES[graph.task.named_loss], optax, **graph.task.loss_options)
        self._target_type = np.int32 if graph.task.target.dtype.startswith("int") else np.float32
        self._trainable = set(trainable_names(graph))

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        jax, jnp = self.jax, self.jax.numpy
        self._end_block()
        self._taken, self._leaves = 0, None  # the former ones' memory is free before there are others
        # never aliased: a step writes into the memory of what it is given
        arrays = {name: self._put(name, self._network.to_native(name, array)) for name, array in weights.items()}
        parameters = {name: arrays[name] for name in arrays if name in self._trainable}
        statistics = {name: arrays[name] for name in arrays if name not in self._trainable}
        scale = jnp.float32(common.LOSS_SCALE if self.config.precision == "fp16" else 1)
        losses = jnp.zeros(LOSSES_TOGETHER) if self._keeps_losses else ()
        optimizer = self._optimizer.init(self._here(parameters))
        start = State(parameters, statistics, optimizer, jnp.uint32(0), scale, jnp.int32(0), losses)
        # as a step's results are: told apart from those by not being put anywhere, it would be compiled for twice
        if self._mesh and self._mesh.spread:
            shared = jax.tree.map(self._mesh.put_all, start._replace(parameters={}, statistics={}))
            start = shared._replace(parameters=parameters, statistics=statistics)
        else:
            places = State(*map(self._mesh.sharding, _specs(self._mesh))) if self._mesh else self._device
            start = jax.device_put(start, places)
        leaves, self._tree = jax.tree.flatten(start)
        self._leaves = jax.block_until_ready(leaves)

    def _put(self, name: str, array: np.ndarray) -> Any:
        """Put an array on the device; replicas share what is trained, and each has its own of the rest."""
        if self._mesh:
            return (self._mesh.put_all if name in self._trainable else self._mesh.put_each)(array)
        return self.jax.device_put(array, self._device, may_alias=False)

    def _here(self, arrays: Any) -> Any:
        """Return this process's part of arrays that are spread over processes."""
        return self.jax.tree.map(self._mesh.here, arrays) if self._mesh else arrays

    @property
    def _state(self) -> State:
        return self._tree.unflatten(self._leaves)

    def weights(self) -> Dict[str, np.ndarray]:
        state = self._state
        return self._to_graph({**state.parameters, **unstacked(self._mesh, self._here(state.statistics))})

    def _to_graph(self, arrays: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        return {name: self._network.from_native(name, np.asarray(array)) for name, array in arrays.items()}

    def to_device_batch(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        arrays = images, labels.astype(self._target_type)
        placed = self._mesh.put_batch(*arrays) if self._mesh else self.jax.device_put(arrays, self._device)
        return Batch(placed[0], placed[1], len(labels))

    def read_batch(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        labels = np.asarray(self._here(batch.labels))
        labels = labels.astype(np.int64) if self._target_type is np.int32 else labels
        return common.each(np.array, self._here(batch.images)), labels

    def open_pipeline(self, files: ImageFiles) -> Any:
        if self.config.loader_workers < PROCESSES_FROM:
            return Threads(files, self.config, self.layout, self._replicas)
        self._feeds.append(Processes(files, self.config, self.layout, self._replicas))
        return self._feeds[-1]

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        replicas = self._mesh.own if self._mesh else 1
        for images, labels in pipeline.epoch(number):
            if even := len(labels) // replicas * replicas:
                yield self.to_device_batch(images[:even], labels[:even])

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
        after, loss = self._update(self._tree.unflatten(leaves), images, labels)
        return self.jax.tree.leaves(after), None if self._keeps_losses else loss

    def _plain_step(self, state: State, images: Any, labels: Any) -> Tuple[State, Any]:
        import optax

        gradients, (loss, statistics) = self._gradients(state, images, labels)
        updates, optimizer = self._optimizer.update(gradients, state.optimizer, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        losses: Any = ()
        if self._keeps_losses:  # with this step's in the place of the oldest
            places = self.jax.numpy.arange(LOSSES_TOGETHER, dtype=state.steps.dtype)
            losses = self.jax.numpy.where(places == state.steps % LOSSES_TOGETHER, loss, state.losses)
        after = State(parameters, statistics, optimizer, state.steps + 1, state.scale, state.streak, losses)
        return (self._unless_overflown(state, after, gradients) if self.config.precision == "fp16" else after), loss

    def _unless_overflown(self, before: State, after: State, gradients: Any) -> State:
        """The step, or where a gradient is not finite none, at half the scale; torch.amp.GradScaler's rule."""
        jnp, tree = self.jax.numpy, self.jax.tree
        finite = jnp.stack([jnp.isfinite(gradient).all() for gradient in tree.leaves(gradients)]).all()
        kept = tree.map(lambda new, old: jnp.where(finite, new, old), after, before)
        streak = jnp.where(finite, before.streak + 1, 0)
        grown = jnp.where(streak == common.STEPS_BEFORE_GROWTH, 2 * before.scale, before.scale)
        scale, streak = jnp.where(finite, grown, before.scale / 2), streak % common.STEPS_BEFORE_GROWTH
        counted = {"statistics": after.statistics, "steps": after.steps, "losses": after.losses}
        return kept._replace(scale=scale, streak=streak, **counted)

    def _gradients(self, state: State, images: Any, labels: Any) -> Any:
        compute, key = self.jax.grad(self._loss, has_aux=True), self.jax.random.fold_in(self._key, state.steps)
        key = self._mesh.own_key(key) if self._mesh else key
        gradients, (loss, statistics) = compute(state.parameters, state.statistics, images, labels, key, state.scale)
        if self._mesh:
            gradients, loss = self._mesh.mean((gradients, loss))
        if self.config.precision == "fp16":
            gradients = self.jax.tree.map(lambda gradient: gradient / state.scale, gradients)
        return gradients, (loss, statistics)

    def _loss(self, parameters: Any, statistics: Any, images: Any, labels: Any, key: Any, scale: Any) -> Any:
        logits, moved = self._network({**parameters, **unstacked(self._mesh, statistics)}, images, key)
        statistics = {**statistics, **stacked(self._mesh, moved)}
        loss = self._loss_of(logits, labels)
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

    def infer(self, batch: Batch) -> Any:
        state, images = self._here((self._state, batch.images))  # no matter of other processes
        self._loss_seen = self._evaluate(state, images, np.uint32(0))
        return self._loss_seen

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        if not training:
            return np.asarray(self.infer(batch))
        self._passes += 1
        return np.asarray(self._here(self._train(self._state, batch.images, np.uint32(self._passes))))

    def _logits(self, state: State, images: Any, number: Any, *, training: bool = False) -> Any:
        key = self.jax.random.fold_in(self._key, number) if training else None
        key = self._mesh.own_key(key) if self._mesh and training else key
        return self._network({**state.parameters, **unstacked(self._mesh, state.statistics)}, images, key)[0]

    def synchronize(self) -> None:
        self.jax.block_until_ready((self._leaves, self._loss_seen))
        if self._mesh:
            self._mesh.meet()

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        from framework_compare.adapters.common.profile import xplane_rows
        from framework_compare.adapters.jax.profile import read_trace

        options = self.jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # at its default every call of a Python function is an event
        with self.jax.profiler.trace(folder, profiler_options=options):
            step()
        return xplane_rows(folder, functools.partial(read_trace, self.jax))

    def release(self) -> None:
        while self._feeds:
            self._feeds.pop().close()
        if self._mesh and self._mesh.spread and sys.exc_info()[0] is None:
            # waits for all: one that is gone without it would be taken for dead, and the others ended
            self.jax.distributed.shutdown()
        self._network = self._leaves = self._loss_seen = None
        self._prepared = (None, 0)
        self._block = self._step = self._differentiate = self._evaluate = self._train = self._copy = None  # type: ignore[assignment]


def _specs(mesh: Mesh) -> State:
    """Return which parts of the state replicas share: all but what is not trained."""
    return State(*[mesh.all] * len(State._fields))._replace(statistics=mesh.each)


def _find_devices(jax: Any, names: Sequence[str]) -> Tuple[List[Any], str]:
    """The devices of those names, or none and what there is instead."""
    platform = names[0].partition(":")[0]
    try:
        devices = jax.local_devices(backend=platform)
    except RuntimeError as error:
        return [], f"0 devices of kind {platform!r} ({str(error).splitlines()[0]})"
    alone = jax.process_count() == 1  # else there are only those that were asked for
    wanted = [common.gpu_number(name) if alone and name != "cpu" else place for place, name in enumerate(names)]
    if max(wanted) >= len(devices):
        return [], f"{len(devices)} devices of kind {platform!r}"
    return [devices[number] for number in wanted], ""
