"""One model in TensorFlow: devices and precisions, the step as a tf.function, arrays in and out."""

from __future__ import annotations

import collections
import contextlib
import functools
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from framework_compare.adapters.common import trainer as common
from framework_compare.adapters.tensorflow.generation import Generates
from framework_compare.adapters.tensorflow.network import OPS, Network
from framework_compare.adapters.tensorflow.pipeline import make_dataset, one_pass
from framework_compare.adapters.tensorflow.recurrent import kernels
from framework_compare.adapters.tensorflow.replicas import Mirrored
from framework_compare.adapters.tensorflow.tasks import LOSSES, OPTIMIZERS, make_optimizer, optimizer_name
from framework_compare.graph import Graph, trainable_names
from framework_compare.protocol import Batch, ImageFiles, ProfileRow, Replicas, TrainConfig

MOST_UNREAD = 64  # steps whose losses are kept to be read together; the runner asks for each eight steps late


class StepLoss:
    """The loss of a step that was handed over: on the device, and once it has been read its value, too."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.value: Any = None


class TensorFlowTrainer(Generates, common.TrainerDefaults):
    name = "tensorflow"
    layout = "NHWC"
    declared = common.declare(
        OPS,
        LOSSES,
        OPTIMIZERS,
        executions={"cpu": common.STEPS | {"fast-math"}, "cuda": common.STEPS},
        gpu_threads=frozenset({"shared", "private"}),
        replicas=dict.fromkeys(("cpu", "cuda"), common.STEPS - {"eager"}),
        generation=frozenset({"default", "eager", "graph"}),
    )

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        threads = str(config.threads)
        # on a GPU it would otherwise take all of its memory at once, and hide what a cell needs
        device = {"CUDA_VISIBLE_DEVICES": "-1"} if config.device == "cpu" else {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        return {
            "OMP_NUM_THREADS": threads,
            "TF_NUM_INTRAOP_THREADS": threads,
            "TF_NUM_INTEROP_THREADS": threads,
            "TF_CPP_MIN_LOG_LEVEL": "1",
            **device,
            **common.xla_flags(config),
            # read when a GPU is opened; two threads, unless TF_GPU_THREAD_COUNT says otherwise
            **({"TF_GPU_THREAD_MODE": "gpu_private"} if config.gpu_threads == "private" else {}),
        }

    def __init__(self, config: TrainConfig, replicas: Optional[Replicas] = None) -> None:
        import tensorflow

        self.tf, self.config = tensorflow, config
        self._execution = "graph" if config.execution == "default" else config.execution
        self._compiles = self._execution in ("compiled", "fast-math")
        self._dtype = common.HALF_TYPES.get(config.precision, "float32")
        self._unread: Deque[StepLoss] = collections.deque(maxlen=MOST_UNREAD)
        tensorflow.config.threading.set_intra_op_parallelism_threads(config.threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(config.threads)
        tensorflow.random.set_seed(config.seed)
        self._on_gpu = config.device != "cpu"
        self._place = "/GPU:0" if self._on_gpu else "/CPU:0"  # the only GPU that TensorFlow was left to see
        names = replicas.devices if replicas else (config.device,)
        self._gpu = _choose_gpus(tensorflow, names) if self._on_gpu else None
        if replicas and not self._on_gpu:  # one CPU counts as several devices
            parts = [tensorflow.config.LogicalDeviceConfiguration()] * len(names)
            processor = tensorflow.config.list_physical_devices("CPU")[0]
            tensorflow.config.set_logical_device_configuration(processor, parts)
        there = replicas is not None and (self._gpu is not None or not self._on_gpu)
        devices = [f"{self._place[:-1]}{number}" for number in range(len(names))]
        self._mirrored: Any = Mirrored(tensorflow, devices) if there else None
        self._compiles_whole = self._compiles and self._mirrored is None
        tensorflow.config.experimental.enable_tensor_float_32_execution(config.precision == "tf32")

    def unsupported(self) -> Optional[str]:
        config = self.config
        if config.accumulation > 1 and self._mirrored:
            return f"accumulation {config.accumulation}: MirroredStrategy updates no variables under a condition"
        if self._on_gpu and self._gpu is None:
            return _no_device(self.tf, config.device)
        if not self._on_gpu:
            threads = f"gpu_threads {config.gpu_threads!r} on device {config.device!r}, which launches no GPU kernels"
            return None if config.gpu_threads == "shared" else threads
        return common.needs_capability(config.precision, lambda: self._details.get("compute_capability") or (8, 0))

    @property
    def _details(self) -> Dict[str, Any]:
        """Return what TensorFlow says of the GPU: device_name, compute_capability."""
        return dict(self.tf.config.experimental.get_device_details(self._gpu))

    def settings(self) -> Dict[str, Any]:
        gpu: Dict[str, Any] = {}
        if self._gpu:
            build = self.tf.sysconfig.get_build_info()
            gpu = {"gpu": self._details.get("device_name")}
            gpu.update(cuda=build.get("cuda_version"), cudnn=build.get("cudnn_version"), memory_growth=True)
            tf32 = self.tf.config.experimental.tensor_float_32_execution_enabled()
            gpu.update(gpu_threads=self.config.gpu_threads, tf32=tf32)
        return {
            "execution": self._execution,
            "layout": self.layout,
            "jit_compile": self._compiles,
            **common.xla_flags(self.config),
            "optimizer": optimizer_name(self.config),
            "attention": "products and a softmax: TensorFlow has no fused kernel",
            "recurrent": kernels(self._dtype, gpu=self._on_gpu, compiled=self._compiles),
            "threads": self.tf.config.threading.get_intra_op_parallelism_threads(),
            **gpu,
            **common.loss_scale_settings(self.config),
            **({"replicas": f"MirroredStrategy, {common.OWN_STATISTICS}"} if self._mirrored else {}),
        }

    def build(self, graph: Graph) -> None:
        with self._mirrored.variables() if self._mirrored else contextlib.nullcontext():
            more = {"replica": self._mirrored.number} if self._mirrored else {}
            self._network = Network(self.tf, graph, self._dtype, compiled=self._compiles, **more)
            self._scale = LossScale(self.tf) if self.config.precision == "fp16" else None
            self._trainable = [self._network.variables[name] for name in trainable_names(graph)]
            self._optimizer = make_optimizer(self.tf, self.config, self._trainable)
        self._loss = functools.partial(LOSSES[graph.task.named_loss], **graph.task.loss_options)
        self._stepped, self._infer, self._differentiate = False, self._network, self._scaled_gradients
        self._step = self._step_eagerly if self._mirrored is None else self._step_on_each
        if self._execution != "eager":
            compiles = self._compiles and self.config.mode == "inference"
            self._infer = self.tf.function(self._network, jit_compile=compiles)
            # XLA compiles no step with a collective of MirroredStrategy in it: of replicas what comes before alone
            if self._compiles and self._mirrored:
                self._differentiate = self.tf.function(self._scaled_gradients, jit_compile=True)
            self._step = self.tf.function(self._step, jit_compile=self._compiles_whole)

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, array in weights.items():
            self._network.variables[name].assign(self._network.to_native(name, array))
        if self._stepped:  # fresh ones are zero, and half a gigabyte for VGG-16
            self._optimizer.forget()
        if self._scale:
            self._scale.reset()

    def weights(self) -> Dict[str, np.ndarray]:
        variables = self._network.variables
        return {name: self._network.from_native(name, v.numpy()) for name, v in variables.items()}

    def to_device_batch(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        if self._mirrored:
            return Batch(common.each(self._mirrored.split, images), self._mirrored.split(labels), len(labels))
        with self.tf.device(self._place):
            return Batch(common.each(self.tf.constant, images), self.tf.constant(labels), len(labels))

    def read_batch(self, batch: Batch) -> Any:
        if self._mirrored:
            return common.each(self._mirrored.whole, batch.images), self._mirrored.whole(batch.labels)
        return common.each(lambda tensor: tensor.numpy(), batch.images), batch.labels.numpy()

    def open_pipeline(self, files: ImageFiles) -> Any:
        dataset = make_dataset(self.tf, files, self.config)
        if not self._on_gpu or self._mirrored:
            return dataset
        return dataset.apply(self.tf.data.experimental.prefetch_to_device(self._place))

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        for images, labels in one_pass(pipeline):
            size = int(labels.shape[0])
            if self._mirrored is None:
                yield Batch(images, labels, size)
            elif even := size // self._mirrored.count * self._mirrored.count:
                split = self._mirrored.split
                yield Batch(split(images[:even]), split(labels[:even]), even)

    def train_step(self, batch: Batch) -> Any:
        self._stepped = True
        loss = StepLoss(self._step(batch.images, batch.labels))
        self._unread.append(loss)
        return loss

    def read_losses(self, losses: List[StepLoss]) -> List[float]:
        """A copy to the host waits for every step handed over by then, so that the GPU runs dry: all unread ones in one."""
        for loss in losses:
            if loss.value is None:
                together = [loss]
                if loss in self._unread:
                    together = list(self._unread)
                    self._unread.clear()
                for one, value in zip(together, self.tf.stack([one.tensor for one in together]).numpy()):
                    one.value = float(value)
        return [loss.value for loss in losses]

    def gradients(self, batch: Batch) -> Dict[str, np.ndarray]:
        compute = self._loss_and_gradients if self._mirrored is None else self._gradients_of_first
        if self._execution != "eager":
            compute = self.tf.function(compute, jit_compile=self._compiles_whole)
        names = [name for name, variable in self._network.variables.items() if variable.trainable]
        _, found = compute(batch.images, batch.labels)
        return {name: self._network.from_native(name, g.numpy()) for name, g in zip(names, found)}

    def _gradients_of_first(self, images: Any, labels: Any) -> Any:
        """They are the same on each replica."""
        mirrored = self._mirrored
        loss, gradients = mirrored.run(self._loss_and_gradients, images, labels)
        return mirrored.mean(loss), [mirrored.parts(gradient)[0] for gradient in gradients]

    def _step_on_each(self, images: Any, labels: Any) -> Any:
        """The mean of the replicas' losses."""
        return self._mirrored.mean(self._mirrored.run(self._step_eagerly, images, labels))

    def _step_eagerly(self, images: Any, labels: Any) -> Any:
        loss, gradients = self._loss_and_gradients(images, labels)
        if self._scale:
            self._scale.update_if_finite(gradients, lambda: self._optimizer.apply(self._trainable, gradients))
        else:
            self._optimizer.apply(self._trainable, gradients)
        return loss

    def _loss_and_gradients(self, images: Any, labels: Any) -> Tuple[Any, List[Any]]:
        loss, gradients = self._differentiate(images, labels)
        if self._mirrored:  # before the loss's scale is looked at, which all replicas do alike then
            gradients = self._mirrored.mean_in_replica(gradients)
        return loss, self._scale.undo(gradients) if self._scale else gradients

    def _scaled_gradients(self, images: Any, labels: Any) -> Tuple[Any, List[Any]]:
        tf = self.tf
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._trainable)
            logits = self._network(images, training=True)
            loss = self._loss(tf, logits, labels)
            scaled = self._scale.times(loss) if self._scale else loss
        # dense, an embedding's too: sparse ones leave the moments of rows that no token names as they are
        return loss, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(scaled, self._trainable)]

    def infer(self, batch: Batch) -> Any:
        if self._mirrored:
            several, parts_of = isinstance(batch.images, tuple), self._mirrored.parts
            parts = zip(*map(parts_of, batch.images)) if several else parts_of(batch.images)
            return self.tf.concat([self._infer(part, training=False) for part in parts], axis=0)
        return self._infer(batch.images, training=False)

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        if not training:
            return self.infer(batch).numpy()
        how = {"training": True, "keep_statistics": True}
        if self._mirrored:
            return self._mirrored.whole(self._mirrored.run(self._network, batch.images, **how))
        return self._network(batch.images, **how).numpy()

    def synchronize(self) -> None:
        """Wait for the GPU; on a CPU a tf.function returns when it has run."""
        if self._on_gpu:
            self.tf.test.experimental.sync_devices()

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        from framework_compare.adapters.common.profile import xplane_rows
        from framework_compare.adapters.tensorflow.profile import read_trace

        self.tf.profiler.experimental.start(folder)
        try:
            step()
        finally:
            self.tf.profiler.experimental.stop()
        return xplane_rows(folder, read_trace)

    def release(self) -> None:
        self._network = self._step = self._trainable = self._optimizer = None  # type: ignore[assignment]
        self._prepared = (None, 0)


class LossScale:
    """Keeps small gradients of fp16 from vanishing: the loss is multiplied, and halved again where they overflow."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        self._scale = tf.Variable(common.LOSS_SCALE, trainable=False)
        # steps that went well since the scale was changed; an int32 would be in the host's memory, out of XLA's reach
        self._since = tf.Variable(0, trainable=False, dtype=tf.int64)

    def reset(self) -> None:
        self._scale.assign(common.LOSS_SCALE)
        self._since.assign(0)

    def times(self, loss: Any) -> Any:
        return loss * self._scale

    def undo(self, gradients: List[Any]) -> List[Any]:
        return [gradient / self._scale for gradient in gradients]

    def update_if_finite(self, gradients: List[Any], update: Callable[[], None]) -> None:
        tf = self._tf
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])

        def went_well() -> Any:
            update()
            grows = self._since + 1 >= common.STEPS_BEFORE_GROWTH
            self._scale.assign(tf.where(grows, self._scale * 2, self._scale))
            return self._since.assign(tf.where(grows, tf.constant(0, tf.int64), self._since + 1))

        def overflowed() -> Any:
            self._scale.assign(self._scale / 2)
            return self._since.assign(0)

        tf.cond(finite, went_well, overflowed)


def _choose_gpus(tf: Any, devices: Sequence[str]) -> Any:
    """The first GPU of "cuda:N"s, made the only ones TensorFlow sees, their memory taken as needed; None if one is not there."""
    found, indices = tf.config.list_physical_devices("GPU"), list(map(common.gpu_number, devices))
    if max(indices) >= len(found):
        return None
    chosen = [found[index] for index in indices]
    tf.config.set_visible_devices(chosen, "GPU")
    for gpu in chosen:
        tf.config.experimental.set_memory_growth(gpu, True)
    return chosen[0]


def _no_device(tf: Any, device: str) -> str:
    found = len(tf.config.list_physical_devices("GPU"))
    here = f"device {device!r}: TensorFlow {tf.__version__}"
    if not tf.test.is_built_with_cuda():
        return f"{here} is a build for CPUs; install tensorflow[and-cuda] in that interpreter"
    remedy = "" if found else "; if nvidia-smi shows one, install tensorflow[and-cuda] for the CUDA libraries"
    return f"{here} is built with CUDA and sees {found} GPUs here{remedy}"
