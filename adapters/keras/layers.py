"""Layers that Keras has not, or has with another rule: each of its own ops, for any back end."""

from __future__ import annotations

import math
import types
from typing import Any, Mapping

import numpy as np

from framework_compare.adapters.common import quanv


def own_layers(keras: Any) -> Any:
    """The classes below, made once Keras is imported: `BatchNorm`, `Attention` and so on."""
    return types.SimpleNamespace(
        BatchNorm=_batchnorm(keras),
        Attention=_attention(keras),
        Repeat=_repeat(keras),
        Quanv2d=_quanv2d(keras),
        **_values(keras),
    )


def _batchnorm(keras: Any) -> Any:
    ops = keras.ops

    class BatchNorm(keras.layers.BatchNormalization):  # type: ignore[misc]
        """Keras keeps the biased running variance; the graph the unbiased one, n / (n - 1) times the batch's."""

        def call(self, x: Any, training: Any = None, mask: Any = None) -> Any:
            if not (training and self.trainable):
                return super().call(x, training=training, mask=mask)
            share = self._share(x)
            less = ops.multiply(self.moving_variance, self.momentum * (share - 1))  # of what is carried over
            y = super().call(x, training=training, mask=mask)
            self.moving_variance.assign(self.moving_variance * share - less)
            return y

        def _share(self, x: Any) -> Any:
            """n / (n - 1): a number where shapes are known, as each operation takes time in PyTorch."""
            sizes = tuple(x.shape)[:-1]
            if None not in sizes:
                return math.prod(sizes) / max(1, math.prod(sizes) - 1)
            count = ops.cast(ops.size(x) // x.shape[-1], self.moving_variance.dtype)
            return count / ops.maximum(count - 1, 1)

        def _moments(self, inputs: Any, mask: Any) -> Any:
            """On PyTorch Keras takes the mean of squares less the square of the mean, too far off for MobileNetV2."""
            if keras.backend.backend() != "torch":
                return super()._moments(inputs, mask)
            mean = ops.mean(inputs, self._reduction_axes)
            return mean, ops.mean(ops.square(inputs - mean), self._reduction_axes)

    return BatchNorm


def _values(keras: Any) -> Mapping[str, Any]:
    """Layers that give an array of their own, (1, ...), whatever they are called with."""
    ops = keras.ops

    class Parameter(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, shape: Any, **how: Any) -> None:
            super().__init__(**how)
            self.value = self.add_weight(shape=tuple(shape), initializer="zeros", name="value")

        def call(self, x: Any) -> Any:
            return ops.expand_dims(self.value, 0)

    class Constant(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, value: np.ndarray, **how: Any) -> None:
            super().__init__(**how)
            self.value = value.astype("float32")

        def call(self, x: Any) -> Any:
            return ops.convert_to_tensor(self.value)

    class RelativeBias(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, index: np.ndarray, heads: int, **how: Any) -> None:
            super().__init__(**how)
            self.index = index.astype("int32")
            shape = (int(index.max()) + 1, heads)
            self.value = self.add_weight(shape=shape, initializer="zeros", name="value")

        def call(self, x: Any) -> Any:
            return ops.expand_dims(ops.transpose(ops.take(self.value, self.index, axis=0), (2, 0, 1)), 0)

    return {"Parameter": Parameter, "Constant": Constant, "RelativeBias": RelativeBias}


def _repeat(keras: Any) -> Any:
    class Repeat(keras.layers.Layer):  # type: ignore[misc]
        """A value of length 1 along the batch, for each sample of another."""

        def call(self, x: Any, like: Any) -> Any:
            return keras.ops.broadcast_to(x, (keras.ops.shape(like)[0], *x.shape[1:]))

    return Repeat


def _attention(keras: Any) -> Any:
    ops = keras.ops

    class Attention(keras.layers.Layer):  # type: ignore[misc]
        """ops.dot_product_attention; MultiHeadAttention has projections of its own, which are Dense layers here.

        Arrays are (N, ..., steps, heads, features of a head); keys that several queries share are repeated.
        """

        def __init__(self, attrs: Mapping[str, Any], **how: Any) -> None:
            super().__init__(**how)
            self.attrs = types.SimpleNamespace(**{"bias": False, "causal": False, **attrs})

        def call(self, *inputs: Any) -> Any:
            a = self.attrs
            q, k, v = ops.split(inputs[0], 3, axis=-1) if a.operands == 1 else inputs[:3]
            width = q.shape[-1] // a.heads
            q, k, v = (ops.reshape(x, (-1, *x.shape[1:-1], x.shape[-1] // width, width)) for x in (q, k, v))
            k, v = (x if x.shape[-2] == a.heads else ops.repeat(x, a.heads // x.shape[-2], axis=-2) for x in (k, v))
            bias = inputs[-1] if a.bias else None
            if len(q.shape) == 4:
                y = ops.dot_product_attention(q, k, v, bias=bias, scale=a.scale, is_causal=a.causal)
            else:
                scores = a.scale * ops.einsum("nrcqhf,nrckhf->nrchqk", q, k)
                if bias is not None:
                    scores = scores + ops.expand_dims(bias, (1, 2))
                if a.mask is not None:
                    scores = scores + ops.convert_to_tensor(a.mask, scores.dtype)
                y = ops.einsum("nrchqk,nrckhf->nrcqhf", ops.softmax(scores, axis=-1), v)
            return ops.reshape(y, (-1, *y.shape[1:-2], y.shape[-2] * y.shape[-1]))

    return Attention


def _quanv2d(keras: Any) -> Any:
    ops = keras.ops
    functions = quanv.Functions(ops.cos, ops.sin, lambda arrays: ops.concatenate(arrays, axis=-1), ops.matmul)

    class Quanv2d(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, gates: Any, trained: bool, **how: Any) -> None:
            super().__init__(**how)
            self.gates, self.known = gates, quanv.constants(gates, trained)
            shape = (quanv.rotations(gates),)
            self.value = self.add_weight(shape=shape, initializer="zeros", name="value") if trained else None

        def call(self, patches: Any) -> Any:
            angles = None if self.value is None else ops.expand_dims(self.value, 0)
            known = [ops.convert_to_tensor(array) for array in self.known]
            pixels = ops.reshape(patches, (-1, quanv.QUBITS))
            y = quanv.expectations(functions, pixels, self.gates, known, angles)
            return ops.reshape(y, (-1, *patches.shape[1:]))

    return Quanv2d
