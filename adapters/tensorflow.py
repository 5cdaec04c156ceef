"""TensorFlow: tf.nn ops on NHWC variables in a tf.Module, the step a tf.function, momentum by its fused op.

tf.nn rather than Keras layers, for the fused BatchNorm: its running variance is the unbiased one the graph asks for,
and its step is faster (0.7 of Keras 3.15's on ResNet-50 and MobileNetV2, benchmarks/results/step_time.json).
"""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from framework_compare.graph import Graph, Node, evaluate
from framework_compare.protocol import Batch, DeviceTimes, Pictures, ProfileRow, TrainConfig

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LOSS_SCALE = 8192.0  # of fp16 at the start; a power of two, low enough that the first steps do not overflow
STEPS_BEFORE_GROWTH = 2000
SEEDS_A_LAYER = 65536  # of dropout: one for each size of batch


class TensorFlowTrainer:
    name = "tensorflow"
    layout = "NHWC"

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
        }

    def __init__(self, config: TrainConfig) -> None:
        import tensorflow

        self.tf = tensorflow
        self.config = config
        tensorflow.config.threading.set_intra_op_parallelism_threads(config.threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(config.threads)
        tensorflow.random.set_seed(config.seed)
        self._on_gpu = config.device != "cpu"
        self._gpu = _choose_gpu(tensorflow, config.device) if self._on_gpu else None
        tensorflow.config.experimental.enable_tensor_float_32_execution(config.precision == "tf32")

    def version(self) -> str:
        return str(self.tf.__version__)

    def unsupported(self) -> Optional[str]:
        config = self.config
        if self._on_gpu and self._gpu is None:
            return _no_device(self.tf, config.device)
        if config.precision in ("tf32", "fp16") and not self._on_gpu:
            return f"precision {config.precision!r} is for GPUs; on a CPU TensorFlow trains in fp32 and bf16"
        if config.precision in ("tf32", "bf16") and self._on_gpu:
            capability = self._details.get("compute_capability") or (8, 0)
            if capability < (8, 0):
                found = "{}.{}".format(*capability)
                return f"precision {config.precision!r} needs compute capability 8.0; this GPU has {found}"
        return None

    @property
    def _details(self) -> Dict[str, Any]:
        """What TensorFlow says of the GPU: device_name, compute_capability."""
        return dict(self.tf.config.experimental.get_device_details(self._gpu))

    def settings(self) -> Dict[str, Any]:
        return {
            "execution": self._execution,
            "layout": self.layout,
            "jit_compile": self._execution == "compiled",
            "optimizer": "ResourceApplyMomentum",
            "threads": self.tf.config.threading.get_intra_op_parallelism_threads(),
            **(self._gpu_settings() if self._gpu else {}),
            **({"loss_scale": f"dynamic, from {LOSS_SCALE:g}"} if self._scales else {}),
        }

    def _gpu_settings(self) -> Dict[str, Any]:
        build = self.tf.sysconfig.get_build_info()
        return {
            "gpu": self._details.get("device_name"),
            "cuda": build.get("cuda_version"),
            "cudnn": build.get("cudnn_version"),
            "memory_growth": True,
            "tf32": self.tf.config.experimental.tensor_float_32_execution_enabled(),
        }

    @property
    def _scales(self) -> bool:
        return self.config.precision == "fp16"

    @property
    def _execution(self) -> str:
        return "graph" if self.config.execution == "default" else self.config.execution

    def build(self, graph: Graph) -> None:
        dtype = {"bf16": "bfloat16", "fp16": "float16"}.get(self.config.precision, "float32")
        self._network = Network(self.tf, graph, dtype)
        self._scale = LossScale(self.tf) if self._scales else None
        trainable = [p.name for p in graph.parameters() if p.trainable]
        self._trainable = [self._network.variables[name] for name in trainable]
        self._momenta = [self.tf.Variable(self.tf.zeros_like(v), trainable=False) for v in self._trainable]
        self._stepped = False
        self._step = self._step_eagerly
        if self._execution != "eager":
            self._step = self.tf.function(self._step_eagerly, jit_compile=self._execution == "compiled")

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, array in weights.items():
            self._network.variables[name].assign(self._network.to_native(name, array))
        if self._stepped:  # fresh ones are zero, and half a gigabyte for VGG-16
            for momentum in self._momenta:
                momentum.assign(self.tf.zeros_like(momentum))
        if self._scale:
            self._scale.reset()

    def weights(self) -> Dict[str, np.ndarray]:
        variables = self._network.variables
        return {name: self._network.from_native(name, v.numpy()) for name, v in variables.items()}

    def host_array(self, shape: Tuple[int, ...]) -> Any:
        return np.empty(shape, dtype=np.float32)

    def adopt(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        with self.tf.device(self._place):
            return Batch(self.tf.constant(images), self.tf.constant(labels), len(labels))

    @property
    def _place(self) -> str:
        return "/GPU:0" if self._on_gpu else "/CPU:0"  # the only GPU that TensorFlow was left to see

    def read_batch(self, batch: Batch) -> Any:
        return batch.images.numpy(), batch.labels.numpy()

    def open_pipeline(self, pictures: Pictures) -> Any:
        dataset = make_dataset(self.tf, pictures, self.config)
        if not self._on_gpu:
            return dataset
        return dataset.apply(self.tf.data.experimental.prefetch_to_device(self._place))

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        for images, labels in pipeline:
            yield Batch(images, labels, int(labels.shape[0]))

    def train_step(self, batch: Batch) -> Any:
        self._stepped = True
        return self._step(batch.images, batch.labels)

    def gradients(self, batch: Batch) -> Dict[str, np.ndarray]:
        compute = self._loss_and_gradients
        if self._execution != "eager":
            compute = self.tf.function(compute, jit_compile=self._execution == "compiled")
        names = [name for name, variable in self._network.variables.items() if variable.trainable]
        _, found = compute(batch.images, batch.labels)
        return {name: self._network.from_native(name, g.numpy()) for name, g in zip(names, found)}

    def _step_eagerly(self, images: Any, labels: Any) -> Any:
        loss, gradients = self._loss_and_gradients(images, labels)
        if self._scale:
            self._scale.update_if_finite(gradients, lambda: self._update_all(gradients))
        else:
            self._update_all(gradients)
        return loss

    def _update_all(self, gradients: List[Any]) -> None:
        for variable, momentum, gradient in zip(self._trainable, self._momenta, gradients):
            self._update(variable, momentum, gradient)

    def _loss_and_gradients(self, images: Any, labels: Any) -> Tuple[Any, List[Any]]:
        tf = self.tf
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._trainable)
            logits = self._network(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
            scaled = self._scale.times(loss) if self._scale else loss
        gradients = tape.gradient(scaled, self._trainable)
        return loss, self._scale.undo(gradients) if self._scale else gradients

    def _update(self, variable: Any, momentum: Any, gradient: Any) -> None:
        if self.config.weight_decay:
            gradient = gradient + self.config.weight_decay * variable
        self.tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=momentum.handle,
            lr=self.config.learning_rate,
            grad=gradient,
            momentum=self.config.momentum,
        )

    def read_losses(self, losses: List[Any]) -> List[float]:
        return [float(loss) for loss in losses]

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        return self._network(batch.images, training=training, keep_statistics=True).numpy()

    def synchronize(self) -> None:
        """On a CPU a tf.function returns when it has run."""
        if self._on_gpu:
            self.tf.test.experimental.sync_devices()

    def device_times(self) -> Optional[DeviceTimes]:
        return None

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        from framework_compare.worker.profiling import count, write_trace

        self.tf.profiler.experimental.start(folder)
        try:
            step()
        finally:
            self.tf.profiler.experimental.stop()
        lines = list(_profile_lines(folder))
        write_trace(lines, folder)
        return count(lines)

    def release(self) -> None:
        self._network = self._step = self._trainable = self._momenta = None


def _profile_lines(folder: str) -> Iterator[Any]:
    """Lines of the traces that TensorBoard's profile plug-in reads, in TensorFlow's own format."""
    import glob

    from framework_compare.worker.profiling import lines_by_kind, xplane_kind
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    for path in glob.glob(f"{folder}/**/*.xplane.pb", recursive=True):
        with open(path, "rb") as file:
            space = XSpace.FromString(file.read())
        for plane, line in ((plane, line) for plane in space.planes for line in plane.lines):
            names = plane.event_metadata
            told = [(xplane_kind(plane.name, line.name, names[e.metadata_id].name), e) for e in line.events]
            spans = [(line.timestamp_ns + e.offset_ps // 1000, e.duration_ps // 1000) for _, e in told]
            events = (
                (kind, _span_name(plane, e, kind) if kind else "", start, start + duration)
                for (kind, e), (start, duration) in zip(told, spans)
            )
            yield from lines_by_kind(f"{plane.name} {line.name}", events)


def _span_name(plane: Any, event: Any, kind: str) -> str:
    """What an event is counted under: of a host's line the type of an operator, "" for what is none."""
    known = plane.event_metadata[event.metadata_id]
    if kind != "operator":
        return known.name
    facts = {plane.stat_metadata[stat.metadata_id].name: stat for stat in event.stats}
    stat = facts.get("hlo_op") or facts.get("eager_op")
    name = known.display_name if stat is None else stat.str_value or plane.stat_metadata[stat.ref_value].name
    # a whole function, called __inference_..., waits for its operators
    return "" if name.startswith("__") else re.sub(r"\.\d+$", "", name)


class LossScale:
    """Keeps small gradients of fp16 from vanishing: the loss is multiplied, and halved again where they overflow."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        self._scale = tf.Variable(LOSS_SCALE, trainable=False)
        self._since = tf.Variable(0, trainable=False)  # steps that went well since the scale was changed

    def reset(self) -> None:
        self._scale.assign(LOSS_SCALE)
        self._since.assign(0)

    def times(self, loss: Any) -> Any:
        return loss * self._scale

    def undo(self, gradients: List[Any]) -> List[Any]:
        return [gradient / self._scale for gradient in gradients]

    def update_if_finite(self, gradients: List[Any], update: Callable[[], None]) -> None:
        tf = self._tf
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
        tf.cond(finite, lambda: self._went_well(update), self._overflowed)

    def _went_well(self, update: Callable[[], None]) -> Any:
        tf = self._tf
        update()
        grows = self._since + 1 >= STEPS_BEFORE_GROWTH
        self._scale.assign(tf.where(grows, self._scale * 2, self._scale))
        return self._since.assign(tf.where(grows, 0, self._since + 1))

    def _overflowed(self) -> Any:
        self._scale.assign(self._scale / 2)
        return self._since.assign(0)


class Network:
    """The graph over float32 tf.Variables, by graph name: convolutions HWIO, linear layers (in, out).

    It computes in `dtype`, and BatchNorm's statistics and the logits in float32.
    """

    def __init__(self, tf: Any, graph: Graph, dtype: str = "float32") -> None:
        self.tf = tf
        self.graph = graph
        self.dtype = dtype
        self._nodes = {parameter.name: node for node in graph.nodes for parameter in _parameters(node)}
        shapes = graph.shapes()
        # a Linear behind a Flatten reads (C, H, W) order; NHWC flattens to (H, W, C)
        self._flattened = {
            node.name: shapes[flatten.inputs[0]]
            for flatten in graph.nodes
            for node in graph.nodes
            if flatten.op == "Flatten" and _source_through_dropout(graph, node) == flatten.name
        }
        self.variables = {
            p.name: tf.Variable(
                tf.zeros(self._native_shape(p.name, p.shape)), trainable=p.trainable, name=p.name
            )
            for p in graph.parameters()
        }

    def _native_shape(self, name: str, shape: Tuple[int, ...]) -> Tuple[int, ...]:
        order = self._native_order(name, len(shape))
        return tuple(shape[::-1]) if len(shape) == 2 else tuple(shape[i] for i in order or range(len(shape)))

    def to_native(self, name: str, array: np.ndarray) -> Any:
        """The tensor of a graph array in TensorFlow's layout; transposed by TensorFlow, which does it in parallel."""
        order = self._native_order(name, array.ndim)
        if order is None:
            return self.tf.constant(array)
        if len(order) == 4 and array.ndim == 2:
            array = array.reshape(-1, *self._flattened[self._nodes[name].name])
            tensor = self.tf.transpose(self.tf.constant(array), order)
            return self.tf.reshape(tensor, (-1, tensor.shape[-1]))
        return self.tf.transpose(self.tf.constant(array), order)

    def _native_order(self, name: str, ndim: int) -> Optional[Tuple[int, ...]]:
        """Axes of a graph array in native order, a flattened picture's counted apart; None to leave it as it is."""
        node = self._nodes[name]
        if ndim == 4:
            return (2, 3, 0, 1) if _is_depthwise(node.attrs) else (2, 3, 1, 0)
        if ndim == 2:
            return (2, 3, 1, 0) if node.name in self._flattened else (1, 0)
        return None

    def from_native(self, name: str, array: np.ndarray) -> np.ndarray:
        node = self._nodes[name]
        if array.ndim == 4:
            array = array.transpose(2, 3, 0, 1) if _is_depthwise(node.attrs) else array.transpose(3, 2, 0, 1)
        elif array.ndim == 2:
            array = array.T
            if node.name in self._flattened:
                c, h, w = self._flattened[node.name]
                array = array.reshape(-1, h, w, c).transpose(0, 3, 1, 2).reshape(len(array), -1)
        return np.ascontiguousarray(array)

    def __call__(self, images: Any, *, training: bool, keep_statistics: bool = False) -> Any:
        """Logits; `training` uses batch statistics and dropout, and updates the running ones unless told to keep them."""

        def apply(node: Node, *inputs: Any) -> Any:
            return LOWERINGS[node.op](self, node, *inputs, training=training, keep_statistics=keep_statistics)

        return self.tf.cast(evaluate(self.graph, apply, self.tf.cast(images, self.dtype)), "float32")

    def _of(self, node: Node, parameter: str) -> Any:
        return self.variables[f"{node.name}.{parameter}"]

    def _cast(self, node: Node, parameter: str) -> Any:
        return self.tf.cast(self._of(node, parameter), self.dtype)

    def conv2d(self, node: Node, x: Any, **_: Any) -> Any:
        a = node.attrs
        x, pads = _pad(self.tf, x, a)
        weight = self._cast(node, "weight")
        if _is_depthwise(a):
            y = self.tf.nn.depthwise_conv2d(x, weight, [1, a["stride"], a["stride"], 1], pads)
        elif a["groups"] == 1:
            y = self.tf.nn.conv2d(x, weight, a["stride"], pads)
        else:  # tf.nn.conv2d has no grouped kernels on a CPU
            parts = zip(*(self.tf.split(array, a["groups"], axis=3) for array in (x, weight)))
            y = self.tf.concat([self.tf.nn.conv2d(part, kernel, a["stride"], pads) for part, kernel in parts], axis=3)
        return self.tf.nn.bias_add(y, self._cast(node, "bias")) if a["bias"] else y

    def batchnorm(self, node: Node, x: Any, *, training: bool, keep_statistics: bool) -> Any:
        tf, a = self.tf, node.attrs
        mean, variance = self._of(node, "running_mean"), self._of(node, "running_var")
        y, new_mean, new_variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=self._of(node, "weight"),
            offset=self._of(node, "bias"),
            mean=mean,
            variance=variance,
            epsilon=a["eps"],
            exponential_avg_factor=a["momentum"],
            is_training=training,
        )
        if training and not keep_statistics:
            mean.assign(new_mean)
            variance.assign(new_variance)
        return y

    def maxpool(self, node: Node, x: Any, **_: Any) -> Any:
        a = node.attrs
        if a["padding"]:
            pads = [[0, 0], [a["padding"]] * 2, [a["padding"]] * 2, [0, 0]]
            x = self.tf.pad(x, pads, constant_values=-math.inf)
        return self.tf.nn.max_pool2d(x, a["kernel"], a["stride"], "VALID")

    def adaptive_avgpool(self, node: Node, x: Any, **_: Any) -> Any:
        size, output = int(x.shape[1]), node.attrs["output"]
        if size % output == 0:
            return self.tf.nn.avg_pool2d(x, size // output, size // output, "VALID")
        # no such op in TensorFlow: the windows of torch's adaptive pooling as one small matrix for rows and columns
        matrix = self.tf.cast(_adaptive_matrix(size, output), x.dtype)
        return self.tf.einsum("ih,nhwc,jw->nijc", matrix, x, matrix)

    def linear(self, node: Node, x: Any, **_: Any) -> Any:
        return self.tf.nn.bias_add(self.tf.linalg.matmul(x, self._cast(node, "weight")), self._cast(node, "bias"))

    def dropout(self, node: Node, x: Any, *, training: bool, **_: Any) -> Any:
        if not training:
            return x
        # a function that is traced for a batch of another size starts TensorFlow's own seeds anew, and its masks again
        seed = SEEDS_A_LAYER * self.graph.nodes.index(node) + (x.shape[0] or 0)
        return self.tf.nn.dropout(x, rate=node.attrs["p"], seed=seed)


LOWERINGS: Dict[str, Callable[..., Any]] = {
    "Conv2d": Network.conv2d,
    "BatchNorm2d": Network.batchnorm,
    "ReLU": lambda net, node, x, **_: net.tf.nn.relu(x),
    "ReLU6": lambda net, node, x, **_: net.tf.nn.relu6(x),
    "MaxPool2d": Network.maxpool,
    "AdaptiveAvgPool2d": Network.adaptive_avgpool,
    "GlobalAvgPool": lambda net, node, x, **_: net.tf.reduce_mean(x, axis=[1, 2]),
    "Flatten": lambda net, node, x, **_: net.tf.reshape(x, [-1, math.prod(x.shape[1:])]),
    "Linear": Network.linear,
    "Dropout": Network.dropout,
    "Add": lambda net, node, x, y, **_: x + y,
}


def _is_depthwise(a: Mapping[str, Any]) -> bool:
    return 1 < a["groups"] == a["in_channels"] == a["out_channels"]


def _choose_gpu(tf: Any, device: str) -> Any:
    """The GPU of "cuda:N", made the only one TensorFlow sees, its memory taken as needed; None if it is not there."""
    found = tf.config.list_physical_devices("GPU")
    index = int(device.partition(":")[2] or 0)
    if index >= len(found):
        return None
    tf.config.set_visible_devices(found[index], "GPU")
    tf.config.experimental.set_memory_growth(found[index], True)
    return found[index]


def _no_device(tf: Any, device: str) -> str:
    found = len(tf.config.list_physical_devices("GPU"))
    here = f"device {device!r}: TensorFlow {tf.__version__}"
    if not tf.test.is_built_with_cuda():
        return f"{here} is a build for CPUs; install tensorflow[and-cuda] in that interpreter"
    remedy = "" if found else "; if nvidia-smi shows one, install tensorflow[and-cuda] for the CUDA libraries"
    return f"{here} is built with CUDA and sees {found} GPUs here{remedy}"


def _pad(tf: Any, x: Any, a: Mapping[str, Any]) -> Tuple[Any, str]:
    """The input and the named padding that come to a layer's symmetric one.

    tf.nn also takes explicit pads, but oneDNN's kernels do not: VGG-16 was 1.24 times slower with them (2.21).
    """
    if a["padding"] == 0:
        return x, "VALID"
    if a["stride"] == 1 and 2 * a["padding"] == a["kernel"] - 1:
        return x, "SAME"
    return tf.pad(x, [[0, 0], [a["padding"]] * 2, [a["padding"]] * 2, [0, 0]]), "VALID"


def _parameters(node: Node) -> List[Any]:
    from framework_compare.graph import OPS

    return OPS[node.op].parameters(node)


def _source_through_dropout(graph: Graph, node: Node) -> Optional[str]:
    """What a Linear reads, looking through Dropout, which keeps the order; None for other ops."""
    if node.op != "Linear":
        return None
    nodes = {n.name: n for n in graph.nodes}
    source = node.inputs[0]
    while source in nodes and nodes[source].op == "Dropout":
        source = nodes[source].inputs[0]
    return source


def _adaptive_matrix(size: int, output: int) -> np.ndarray:
    matrix = np.zeros((output, size), np.float32)
    for i in range(output):
        start, end = i * size // output, -(-(i + 1) * size // output)
        matrix[i, start:end] = 1 / (end - start)
    return matrix


def make_dataset(tf: Any, pictures: Pictures, config: TrainConfig) -> Any:
    """tf.data as its performance guide has it: shuffled file names, parallel map, batch, prefetch."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = max(1, config.loader_workers)
    options.threading.max_intra_op_parallelism = 1
    is_jpeg = [kind == "JPEG" for kind in pictures.formats]
    columns = (list(pictures.paths), is_jpeg, np.array(pictures.labels, np.int64))
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    dataset = dataset.shuffle(len(pictures), seed=config.seed, reshuffle_each_iteration=True)

    # random ops with a state would draw the same crops again in every epoch: tf.data starts them anew with each
    seeds = tf.data.Dataset.random(seed=config.seed, rerandomize_each_iteration=True).batch(2)

    @tf.autograph.experimental.do_not_convert  # nothing to convert, and looking for it takes 0.4 s
    def read(row: Any, seed: Any) -> Any:
        path, jpeg, label = row
        draws = tf.random.stateless_uniform([DRAWS], seed)
        return _read_picture(tf, path, jpeg, draws, config), label

    dataset = tf.data.Dataset.zip(dataset, seeds)

    dataset = dataset.map(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    return dataset.batch(config.batch_size).prefetch(tf.data.AUTOTUNE).with_options(options)


TRIES = 10
DRAWS = 2 * TRIES + 3  # areas, ratios, place in two directions, flip


def _read_picture(tf: Any, path: Any, jpeg: Any, draws: Any, config: TrainConfig) -> Any:
    data = tf.io.read_file(path)
    crop = tf.cond(jpeg, lambda: _crop_jpeg(tf, data, draws, config), lambda: _crop_other(tf, path, draws, config))
    size = config.image_size
    image = tf.image.resize(crop, (size, size), antialias=False)
    if config.flip != "none":
        flip = {"horizontal": tf.image.flip_left_right, "vertical": tf.image.flip_up_down}[config.flip]
        image = tf.cond(draws[-1] < 0.5, lambda: flip(image), lambda: image)
    image.set_shape((size, size, 3))
    return (image / 255.0 - tf.constant(MEAN)) / tf.constant(STD)


def _crop_jpeg(tf: Any, data: Any, draws: Any, config: TrainConfig) -> Any:
    shape = tf.image.extract_jpeg_shape(data)
    return tf.image.decode_and_crop_jpeg(data, _crop_window(tf, shape, draws, config), channels=3)


def _crop_other(tf: Any, path: Any, draws: Any, config: TrainConfig) -> Any:
    """Formats TensorFlow cannot crop while decoding, some of which it cannot decode: through Pillow."""
    image = tf.numpy_function(_read_with_pillow, [path], tf.uint8)
    image.set_shape((None, None, 3))
    top, left, height, width = tf.unstack(_crop_window(tf, tf.shape(image), draws, config))
    return image[top : top + height, left : left + width]


def _crop_window(tf: Any, shape: Any, draws: Any, config: TrainConfig) -> Any:
    """(top, left, height, width) of the part of a picture that is used."""
    if config.crop == "none":
        return tf.stack([0, 0, shape[0], shape[1]])
    return _random_crop(tf, shape[0], shape[1], draws)


def _read_with_pillow(path: bytes) -> np.ndarray:
    from PIL import Image

    with Image.open(path.decode()) as image:
        return np.asarray(image.convert("RGB"))


def _random_crop(tf: Any, height: Any, width: Any, draws: Any) -> Any:
    """(top, left, height, width) of RandomResizedCrop: ten draws, the first that fits, else the centre.

    tf.image.sample_distorted_bounding_box draws the aspect ratio uniformly; the protocol draws its logarithm so.
    """
    area = tf.cast(height * width, tf.float32) * (0.08 + 0.92 * draws[:TRIES])
    ratio = tf.exp((2 * draws[TRIES : 2 * TRIES] - 1) * math.log(4 / 3))
    w = tf.cast(tf.round(tf.sqrt(area * ratio)), tf.int32)
    h = tf.cast(tf.round(tf.sqrt(area / ratio)), tf.int32)
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = tf.argmax(tf.cast(fits, tf.int32))
    fallback = _centre_size(tf, height, width)
    size = tf.where(tf.reduce_any(fits), tf.stack([h[first], w[first]]), fallback)
    room = tf.stack([height, width]) - size
    offset = tf.cast(draws[2 * TRIES : 2 * TRIES + 2] * tf.cast(room + 1, tf.float32), tf.int32)
    offset = tf.where(tf.reduce_any(fits), tf.minimum(offset, room), room // 2)
    return tf.concat([offset, size], axis=0)


def _centre_size(tf: Any, height: Any, width: Any) -> Any:
    ratio = tf.cast(width, tf.float32) / tf.cast(height, tf.float32)
    too_narrow = tf.cast(tf.round(tf.cast(width, tf.float32) / (3 / 4)), tf.int32)
    too_wide = tf.cast(tf.round(tf.cast(height, tf.float32) * (4 / 3)), tf.int32)
    h = tf.where(ratio < 3 / 4, too_narrow, height)
    w = tf.where(ratio > 4 / 3, too_wide, width)
    return tf.stack([h, w])
