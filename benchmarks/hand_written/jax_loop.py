"""JAX as its guides have it: a pure function of lists of arrays, jax.value_and_grad, optax, one donated jitted step.

JAX has no networks of its own; these are torchvision's, NHWC. On a CPU 1x1 convolutions are matrix products,
depthwise ones and max pooling shifted slices, as someone who profiled XLA's own there would write them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

LAYOUTS = ("NHWC", "HWIO", "NHWC")
MATMUL_PRECISION = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "default"}


class Layers:
    """Hands out parameters in the order of their use, or makes and keeps them where they are not `made` yet."""

    def __init__(self, parameters, statistics, key=None, dtype=jnp.float32, made=False):
        self.parameters, self.statistics, self.made = iter(parameters), iter(statistics), made
        self.key, self.dtype, self.moved = key, dtype, []
        self.new_parameters, self.new_statistics = [], []
        self.slow = jax.default_backend() == "cpu"

    def parameter(self, shape, std):
        if self.made:
            return next(self.parameters)
        rng = np.random.default_rng(len(self.new_parameters))
        self.new_parameters.append((std * rng.standard_normal(shape) if std else np.zeros(shape)).astype(np.float32))
        return self.new_parameters[-1]

    def statistic(self, value, channels):
        if self.made:
            return next(self.statistics)
        self.new_statistics.append(np.full(channels, value, np.float32))
        return self.new_statistics[-1]

    def conv(self, x, out, kernel, stride=1, padding=0, groups=1, bias=False):
        channels = x.shape[-1]
        shape = (kernel, kernel, channels // groups, out)
        weight = self.parameter(shape, (2 / (kernel * kernel * out / groups)) ** 0.5).astype(self.dtype)
        x, pads = x.astype(self.dtype), (padding, padding)
        if self.slow and kernel == 1:
            y = x[:, ::stride, ::stride] @ weight[0, 0]
        elif self.slow and groups > 1:
            x = jnp.pad(x, [(0, 0), pads, pads, (0, 0)])
            y = sum(view * weight[i, j, 0] for i, j, view in slices(x, kernel, stride))
        else:
            y = lax.conv_general_dilated(
                x, weight, (stride, stride), [pads, pads], dimension_numbers=LAYOUTS, feature_group_count=groups
            )
        return y + self.parameter((out,), 0).astype(self.dtype) if bias else y

    def norm(self, x):
        channels, exact = x.shape[-1], x.astype(jnp.float32)
        weight, bias = 1 + self.parameter((channels,), 0), self.parameter((channels,), 0)
        mean, variance = exact.mean((0, 1, 2)), exact.var((0, 1, 2))
        for start, new in ((0, mean), (1, variance)):
            self.moved.append(0.9 * self.statistic(start, channels) + 0.1 * new)
        return ((exact - mean) * (lax.rsqrt(variance + 1e-5) * weight) + bias).astype(x.dtype)

    def pool(self, x, kernel, stride, padding=0):
        pads = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
        if self.slow:
            x = jnp.pad(x, pads, constant_values=-np.inf)
            return functools.reduce(jnp.maximum, (view for _, _, view in slices(x, kernel, stride)))
        return lax.reduce_window(x, -np.inf, lax.max, (1, kernel, kernel, 1), (1, stride, stride, 1), pads)

    def dense(self, x, out):
        weight = self.parameter((x.shape[-1], out), 0.01).astype(self.dtype)
        return x.astype(self.dtype) @ weight + self.parameter((out,), 0).astype(self.dtype)

    def dropout(self, x, p):
        self.key, key = jax.random.split(self.key)
        return jnp.where(jax.random.bernoulli(key, 1 - p, x.shape), x / (1 - p), 0)


def slices(x, kernel, stride):
    height, width = (size - kernel + 1 for size in x.shape[1:3])
    for i in range(kernel):
        for j in range(kernel):
            yield i, j, x[:, i : i + height : stride, j : j + width : stride]


def alexnet(layers, x):
    for out, kernel, stride, padding, pooled in (
        (64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False), (256, 3, 1, 1, False), (256, 3, 1, 1, True)
    ):  # fmt: skip
        x = jax.nn.relu(layers.conv(x, out, kernel, stride, padding, bias=True))
        x = layers.pool(x, 3, 2) if pooled else x
    x = layers.dropout(x.reshape(len(x), -1), 0.5)
    x = layers.dropout(jax.nn.relu(layers.dense(x, 4096)), 0.5)
    return layers.dense(jax.nn.relu(layers.dense(x, 4096)), 3)


def vgg16(layers, x):
    for out, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = jax.nn.relu(layers.conv(x, out, 3, 1, 1, bias=True))
        x = layers.pool(x, 2, 2)
    x = layers.dropout(jax.nn.relu(layers.dense(x.reshape(len(x), -1), 4096)), 0.5)
    return layers.dense(layers.dropout(jax.nn.relu(layers.dense(x, 4096)), 0.5), 3)


def resnet50(layers, x):
    x = layers.pool(jax.nn.relu(layers.norm(layers.conv(x, 64, 7, 2, 3))), 3, 2, 1)
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            stride, width = (2 if stage and not block else 1), 64 << stage
            short = x if block else layers.norm(layers.conv(x, 4 * width, 1, stride))
            y = jax.nn.relu(layers.norm(layers.conv(x, width, 1)))
            y = jax.nn.relu(layers.norm(layers.conv(y, width, 3, stride, 1)))
            x = jax.nn.relu(layers.norm(layers.conv(y, 4 * width, 1)) + short)
    return layers.dense(x.mean((1, 2)), 3)


def mobilenet_v2(layers, x):
    x = jax.nn.relu6(layers.norm(layers.conv(x, 32, 3, 2, 1)))
    for expand, out, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
    ):  # fmt: skip
        for stride in [first] + [1] * (count - 1):
            before, wide = x, expand * x.shape[-1]
            y = jax.nn.relu6(layers.norm(layers.conv(x, wide, 1))) if expand > 1 else x
            y = jax.nn.relu6(layers.norm(layers.conv(y, wide, 3, stride, 1, groups=wide)))
            x = layers.norm(layers.conv(y, out, 1))
            x = x + before if stride == 1 and x.shape == before.shape else x
    x = jax.nn.relu6(layers.norm(layers.conv(x, 1280, 1)))
    return layers.dense(layers.dropout(x.mean((1, 2)), 0.2), 3)


def make(model: str, images, labels, threads: int, execution: str = "", precision: str = "fp32"):
    jax.config.update("jax_default_matmul_precision", MATMUL_PRECISION[precision])
    network = {"alexnet": alexnet, "vgg16": vgg16, "resnet50": resnet50, "mobilenet_v2": mobilenet_v2}[model]
    dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
    optimizer = optax.sgd(0.001, momentum=0.9)
    x, y = jax.device_put(images), jax.device_put(labels.astype(np.int32))
    first = Layers([], [], jax.random.key(0), dtype)
    jax.eval_shape(lambda x: network(first, x), x)
    parameters, statistics = jax.device_put((first.new_parameters, first.new_statistics), may_alias=False)

    def loss_of(parameters, statistics, key, x, y):
        layers = Layers(parameters, statistics, key, dtype, made=True)
        logits = network(layers, x).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), layers.moved

    def train_step(state, x, y):
        parameters, statistics, momenta, key = state
        key, dropout = jax.random.split(key)
        value_and_grad = jax.value_and_grad(loss_of, has_aux=True)
        (loss, statistics), gradients = value_and_grad(parameters, statistics, dropout, x, y)
        updates, momenta = optimizer.update(gradients, momenta)
        return (optax.apply_updates(parameters, updates), statistics, momenta, key), loss

    jitted = train_step if execution == "eager" else jax.jit(train_step, donate_argnums=0)
    held = [(parameters, statistics, optimizer.init(parameters), jax.random.key(1))]

    def step():
        held[0], loss = jitted(held[0], x, y)
        return loss if execution else float(loss)

    return step, lambda: jax.block_until_ready(held[0])
