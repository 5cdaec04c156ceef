"""Layers that Keras has not, or has with another rule: each of its own ops, for any back end."""

import math
from typing import Any, Callable, Dict, Mapping, Sequence

import numpy as np

from framework_compare.adapters.common import quanv


def own_layers(keras: Any) -> Dict[str, Callable[..., Any]]:
    """Return what makes each layer, once Keras is imported; each also takes what any layer of Keras does."""
    ops = keras.ops

    class Layer(keras.layers.Layer):
        """A function of an array with this shape, None where it has none, and of the inputs."""

        def __init__(self, function: Callable[..., Any], shape: Sequence[int] = (), **how: Any) -> None:
            super().__init__(**how)
            self.function = function
            self.value = self.add_weight(shape=tuple(shape), initializer="zeros", name="value") if shape else None

        def call(self, *inputs: Any) -> Any:
            return self.function(self.value, *inputs)

    def relative_bias(index: np.ndarray, heads: int, **how: Any) -> Any:
        def rows(table: Any, x: Any) -> Any:
            return ops.expand_dims(ops.transpose(ops.take(table, index, axis=0), (2, 0, 1)), 0)

        return Layer(rows, (int(index.max()) + 1, heads), **how)

    def repeated(_: Any, x: Any, like: Any) -> Any:
        return ops.broadcast_to(x, (ops.shape(like)[0], *x.shape[1:]))

    def quanv2d(gates: Any, trained: bool, **how: Any) -> Any:
        functions = quanv.Functions(ops.cos, ops.sin, lambda arrays: ops.concatenate(arrays, axis=-1), ops.matmul)
        constants = quanv.constants(gates, trained)

        def circuit(value: Any, patches: Any) -> Any:
            angles = None if value is None else ops.expand_dims(value, 0)
            known = [ops.convert_to_tensor(array) for array in constants]
            pixels = ops.reshape(patches, (-1, quanv.QUBITS))
            return ops.reshape(quanv.expectations(functions, pixels, gates, known, angles), (-1, *patches.shape[1:]))

        return Layer(circuit, (quanv.rotations(gates),) if trained else (), **how)

    return {
        "BatchNorm": _batchnorm(keras),
        "Parameter": lambda shape, **how: Layer(lambda value, x: ops.expand_dims(value, 0), shape, **how),
        "Constant": lambda array, **how: Layer(lambda _, x: ops.convert_to_tensor(array), **how),
        "RelativeBias": relative_bias,
        "Repeat": lambda **how: Layer(repeated, **how),
        "Quanv2d": quanv2d,
        "Attention": lambda attrs, **how: Layer(lambda _, *inputs: _attend(ops, attrs, *inputs), **how),
    }


def _attend(ops: Any, a: Mapping[str, Any], *inputs: Any) -> Any:
    """ops.dot_product_attention; MultiHeadAttention has projections of its own, which are Dense layers here.

    Arrays are (N, ..., steps, heads, features of a head); keys that several queries share are repeated.
    """
    heads, scale = a["heads"], a["scale"]
    q, k, v = ops.split(inputs[0], 3, axis=-1) if a["operands"] == 1 else inputs[:3]
    width = q.shape[-1] // heads
    q, k, v = (ops.reshape(x, (-1, *x.shape[1:-1], x.shape[-1] // width, width)) for x in (q, k, v))
    k, v = (x if x.shape[-2] == heads else ops.repeat(x, heads // x.shape[-2], axis=-2) for x in (k, v))
    bias = inputs[-1] if a.get("bias") else None
    if len(q.shape) == 4:
        y = ops.dot_product_attention(q, k, v, bias=bias, scale=scale, is_causal=a.get("causal", False))
    else:
        scores = scale * ops.einsum("nrcqhf,nrckhf->nrchqk", q, k)
        if bias is not None:
            scores = scores + ops.expand_dims(bias, (1, 2))
        if a["mask"] is not None:
            scores = scores + ops.convert_to_tensor(a["mask"], scores.dtype)
        rows = ops.reshape(scores, (-1, scores.shape[-1]))  # TensorFlow's softmax on a CPU takes at most five axes
        shares = ops.reshape(ops.softmax(rows, axis=-1), (-1, *scores.shape[1:]))
        y = ops.einsum("nrchqk,nrckhf->nrcqhf", shares, v)
    return ops.reshape(y, (-1, *y.shape[1:-2], y.shape[-2] * y.shape[-1]))


def _batchnorm(keras: Any) -> Any:
    ops = keras.ops

    class BatchNorm(keras.layers.BatchNormalization):
        """Keras keeps the biased running variance; the graph the unbiased one, n / (n - 1) times the batch's."""

        def call(self, x: Any, training: Any = None, mask: Any = None) -> Any:
            if not (training and self.trainable):
                return super().call(x, training=training, mask=mask)
            mean, variance = self._moments(x, mask)
            carried, new = self.momentum, 1 - self.momentum
            self.moving_mean.assign(self.moving_mean * carried + mean * new)
            self.moving_variance.assign(self.moving_variance * carried + variance * (new * self._share(x)))
            how = {"axis": self.axis, "offset": self.beta, "scale": self.gamma, "epsilon": self.epsilon}
            return ops.batch_normalization(x, mean, variance, **how)

        def _share(self, x: Any) -> Any:
            """n / (n - 1): a number where shapes are known, as each operation takes time in PyTorch."""
            sizes = tuple(x.shape)[:-1]
            if None not in sizes:
                return math.prod(sizes) / max(1, math.prod(sizes) - 1)
            count = ops.cast(ops.size(x) // x.shape[-1], self.moving_variance.dtype)
            return count / ops.maximum(count - 1, 1)

        def _moments(self, inputs: Any, mask: Any) -> Any:
            """Return mean and variance; Keras' on PyTorch, by the mean of squares, are too far off for MobileNetV2."""
            if keras.backend.backend() != "torch":
                return super()._moments(inputs, mask)
            mean = ops.mean(inputs, self._reduction_axes)
            # The variance does not depend on small changes of the mean, so nothing is summed up for its gradient.
            centred = inputs - ops.stop_gradient(mean)
            return mean, ops.mean(ops.square(centred), self._reduction_axes)

    return BatchNorm
