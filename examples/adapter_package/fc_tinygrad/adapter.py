"""The graph as tinygrad's tensor methods, the step one TinyJit for each size of batch."""

import importlib.metadata
import shutil

import numpy as np

from framework_compare.adapters.common.network import FUNCTIONS, adaptive_matrix
from framework_compare.adapters.common.trainer import TrainerDefaults, optimizer_settings
from framework_compare.batches.images import SharedPipeline
from framework_compare.graph import OPS, evaluate, trainable_names
from framework_compare.graph.image_ops import adaptive_size
from framework_compare.graph.lowering import graph_ops, lowered
from framework_compare.graph.window import Window
from framework_compare.protocol import Batch, Declared


def padded(x, window, value=0.0):
    (top, bottom), (left, right) = window.all_pads(x.shape[2:])
    return x.pad((left, right, top, bottom), value=value)


def conv2d(net, node, x, weight, bias=None):
    window = Window.of(node.attrs)
    return padded(x, window).conv2d(weight, bias, node.attrs["groups"], window.stride, window.dilation)


def batchnorm(net, node, x, weight, bias, mean, variance):
    if net.training:
        count, before = x.shape[0] * x.shape[2] * x.shape[3], (mean, variance)
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        kept = zip(("running_mean", "running_var"), before, (mean, variance * (count / max(1, count - 1))))
        net.moved.update(
            {f"{node.arrays}.{k}": old + node.attrs["momentum"] * (new.detach() - old) for k, old, new in kept}
        )
    return x.batchnorm(weight, bias, mean, (variance + node.attrs["eps"]).rsqrt())


def maxpool(net, node, x):
    window = Window.of(node.attrs)
    return padded(x, window, float("-inf")).max_pool2d(window.kernel, window.stride)


def avgpool(net, node, x):
    window = Window.of(node.attrs)
    areas = window.areas(x.shape[2:], with_pads=node.attrs["count_include_pad"])
    means = padded(x, window).avg_pool2d(window.kernel, window.stride)
    return means * net.Tensor((np.prod(window.kernel) / areas).astype(np.float32))


def adaptive_avgpool(net, node, x):
    sizes = zip(x.shape[2:], adaptive_size(node.attrs))
    rows, columns = (net.Tensor(adaptive_matrix(*pair)) for pair in sizes)
    return net.Tensor.einsum("ih,nchw,jw->ncij", rows, x, columns)


def plain(function):
    return lambda net, node, *inputs: function(None, node.attrs, *inputs)


def dropout(net, node, x):
    share = node.attrs["p"]
    return (net.Tensor.rand(*x.shape) >= share).where(x / (1 - share), 0) if net.training else x


# tinygrad compiles each kernel by clang, which Debian may name after its version.
CLANG = next(filter(None, map(shutil.which, ("clang", *(f"clang-{n}" for n in range(22, 12, -1))))), "")
# Of the trainer, a node, its input and its arrays.
LAYERS = {
    "Conv2d": conv2d,
    "BatchNorm2d": batchnorm,
    "ReLU": lambda net, node, x: x.relu(),
    "MaxPool2d": maxpool,
    "AvgPool2d": avgpool,
    "AdaptiveAvgPool2d": adaptive_avgpool,
    "Dropout": dropout,
    "Linear": lambda net, node, x, weight, bias=None: x.linear(weight.T, bias),
    **{op: plain(function) for op, function in FUNCTIONS.items()},
}


class TinygradTrainer(TrainerDefaults):
    name = "tinygrad"
    layout = "NCHW"
    declared = Declared(
        ops=graph_ops(LAYERS),
        losses=frozenset({"cross_entropy"}),
        optimizers=frozenset({"sgd", "adam"}),
        executions={"cpu": frozenset({"default"})},
        precisions={"cpu": frozenset({"fp32"})},
        why={"cuda": "this template is for CPUs"},
    )

    @staticmethod
    def environment(config):
        threads = config.threads
        own = {"CPU_COUNT": str(threads), "THREADS": str(int(threads > 1))}
        return {"DEV": "CPU", "CC": CLANG, "PARALLEL": "0", **own}  # no processes that compile: they outlive `release`

    def __init__(self, config):
        import tinygrad
        import tinygrad.nn

        self.config, self.tinygrad, self.Tensor = config, tinygrad, tinygrad.Tensor
        self.training, self.pipeline = False, None
        tinygrad.Tensor.manual_seed(config.seed)

    def version(self):
        return importlib.metadata.version("tinygrad")

    def unsupported(self):
        return None if CLANG else "tinygrad compiles for CPUs with clang, which is not installed; install it"

    def settings(self):
        return {"execution": "TinyJit", "device": self.tinygrad.Device.DEFAULT}

    def build(self, graph):
        zeros = self.Tensor.zeros
        self.program, self.names = lowered(graph, frozenset(LAYERS)), trainable_names(graph)
        self.arrays = {p.name: zeros(*p.shape).contiguous().realize() for p in graph.parameters()}
        self.load_weights({})

    def load_weights(self, weights):
        config, optim, settings = self.config, self.tinygrad.nn.optim, optimizer_settings(self.config)
        for name, array in weights.items():
            self.arrays[name].assign(self.Tensor(np.array(array))).realize()
        trained = [self.arrays[name] for name in self.names]
        if config.optimizer == "adam":
            betas = {f"b{n}": settings[f"beta{n}"] for n in "12"}
            self.optimizer = optim.Adam(trained, config.learning_rate, **betas, eps=settings["eps"])
            # In float32, as tinygrad 0.14.0 has its powers, 1 - beta2^t is 1e-5 off in the first steps.
            ones = (self.Tensor.ones((1,), dtype="float64").is_param_(False) for _ in betas)
            self.optimizer.b1_t, self.optimizer.b2_t = ones
        else:
            self.optimizer = optim.SGD(trained, config.learning_rate, config.momentum, config.weight_decay)
        self.steps = {}  # what is captured has the optimizer's arrays in it

    def weights(self):
        return {name: np.array(tensor.numpy()) for name, tensor in self.arrays.items()}

    def to_device_batch(self, images, labels):
        return Batch(
            self.Tensor(np.array(images)).realize(), self.Tensor(labels.astype(np.int32)).realize(), len(labels)
        )

    def read_batch(self, batch):
        return batch.images.numpy(), batch.labels.numpy().astype(np.int64)

    def open_pipeline(self, files):
        self.pipeline = SharedPipeline.of(files, self.config)
        return self.pipeline

    def epoch(self, pipeline, number):
        return (self.to_device_batch(images, labels) for images, labels in pipeline.epoch(number))

    def _outputs(self, images, training):
        def apply(node, *inputs):
            own = OPS[node.op].parameters(node) if node.op in OPS else []
            return LAYERS[node.op](self, node, *inputs, *(self.arrays[p.name] for p in own))

        self.training, self.moved = training, {}
        return evaluate(self.program, apply, images)

    def _loss(self, images, labels):
        return self._outputs(images, True).sparse_categorical_crossentropy(labels)

    def _step(self, images, labels):
        with self.tinygrad.Context(TRAINING=1):
            self.optimizer.zero_grad()
            loss = self._loss(images, labels).backward()
            moved = [self.arrays[name].assign(value) for name, value in self.moved.items()]
            return loss.realize(*self.optimizer.schedule_step(), *moved)

    def train_step(self, batch):
        step = self.steps.setdefault(batch.size, self.tinygrad.TinyJit(self._step))
        return step(batch.images, batch.labels).clone().realize()

    def read_losses(self, losses):
        return [loss.item() for loss in losses]

    def gradients(self, batch):
        found = self._loss(batch.images, batch.labels).gradient(*(self.arrays[name] for name in self.names))
        return {name: np.array(gradient.numpy()) for name, gradient in zip(self.names, found)}

    def infer(self, batch):
        return self._outputs(batch.images, False).realize()

    def forward(self, batch, *, training=False):
        return np.array(self._outputs(batch.images, training).numpy())

    def synchronize(self):
        self.tinygrad.Device[self.tinygrad.Device.DEFAULT].synchronize()

    def release(self):
        if self.pipeline:
            self.pipeline.close()
        self.arrays = self.steps = self.optimizer = None
