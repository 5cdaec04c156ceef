"""Attention, free arrays, and Linear of an image's channels, as blocks.

`input` among the attributes is the shape of the first input without the batch: symbols have none.
"""

from __future__ import annotations

import math
from typing import Any, Mapping

import numpy as np


def attention(gluon: Any, a: Mapping[str, Any]) -> Any:
    *outer, steps, features = a["input"]
    heads, fused, count, causal = a["heads"], a["operands"] == 1, math.prod(outer), a.get("causal", False)
    groups = heads // a.get("kv_heads", heads)
    features, mask = features // 3 if fused else features, a["mask"]

    class Attention(gluon.HybridBlock):  # type: ignore[misc]
        """Products in batches of heads: MXNet's own kernels of attention take another order of features (1.9.1)."""

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                if mask is not None:
                    array = mask.reshape(1, count, 1, steps, steps)
                    self.mask = self.params.get_constant("mask", array)
                if causal:
                    self.seen = self.params.get_constant("seen", np.arange(1, steps + 1, dtype=np.float32)[None])

        def hybrid_forward(self, F: Any, *inputs: Any, mask: Any = None, seen: Any = None) -> Any:
            bias = inputs[-1] if a.get("bias") else None
            parts = F.split(inputs[0], 3, axis=-1) if fused else inputs[:3]
            q, *rest = (self.heads_first(F, x, number) for x, number in zip(parts, (1, groups, groups)))
            k, v = rest
            scores = F.batch_dot(q * a["scale"], k, transpose_b=True)
            if bias is not None:
                scores = F.reshape(scores, (-1, heads, steps, steps))
                scores = F.reshape(F.broadcast_add(scores, bias), (-1, steps, steps))
            if mask is not None:
                scores = F.reshape(scores, (-1, count, heads, steps, steps))
                scores = F.reshape(F.broadcast_add(scores, mask), (-1, steps, steps))
            y = F.reshape(F.batch_dot(self.shares(F, scores, seen), v), (-1, heads, steps, features // heads))
            return F.reshape(F.transpose(y, (0, 2, 1, 3)), (-1, *outer, steps, features))

        def shares(self, F: Any, scores: Any, seen: Any) -> Any:
            """Row i of a causal softmax ends behind i: it takes lengths, and no mask."""
            if seen is None:
                return F.softmax(scores, axis=-1)
            lengths = F.broadcast_like(seen, scores, lhs_axes=(0,), rhs_axes=(0,))
            return F.softmax(scores, F.cast(lengths, "int32"), axis=-1, use_length=True)

        def heads_first(self, F: Any, x: Any, groups: int) -> Any:
            """(N, ..., steps, features) to (samples, windows and heads, steps, features of a head)."""
            x = F.transpose(F.reshape(x, (-1, steps, heads // groups, features // heads)), (0, 2, 1, 3))
            x = F.repeat(x, repeats=groups, axis=1) if groups > 1 else x
            return F.reshape(x, (-1, steps, features // heads))

    return Attention()


def relative_bias(gluon: Any, a: Mapping[str, Any]) -> Any:
    index = a["index"]

    class RelativeBias(gluon.HybridBlock):  # type: ignore[misc]
        """Called with the network's input, as a block is with no less."""

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(int(index.max()) + 1, a["heads"]))
                self.index = self.params.get_constant("index", index.astype("float32"))

        def hybrid_forward(self, F: Any, x: Any, weight: Any, index: Any) -> Any:
            return F.expand_dims(F.transpose(F.take(weight, index), (2, 0, 1)), 0)

    return RelativeBias()


def parameter(gluon: Any, a: Mapping[str, Any]) -> Any:
    class Parameter(gluon.HybridBlock):  # type: ignore[misc]
        """Called with the network's input, as a block is with no less."""

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.value = self.params.get("value", shape=tuple(a["shape"]))

        def hybrid_forward(self, F: Any, x: Any, value: Any) -> Any:
            return F.expand_dims(value, 0)

    return Parameter()


def constant(gluon: Any, a: Mapping[str, Any]) -> Any:
    class Constant(gluon.HybridBlock):  # type: ignore[misc]
        """Called with the network's input, as a block is with no less."""

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.value = self.params.get_constant("value", a["value"])

        def hybrid_forward(self, F: Any, x: Any, value: Any) -> Any:
            return F.identity(value)

    return Constant()


def rmsnorm(gluon: Any, a: Mapping[str, Any]) -> Any:
    class RMSNorm(gluon.HybridBlock):  # type: ignore[misc]
        """Written out: MXNet has none (1.9.1)."""

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(a["features"],))

        def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
            scale = F.rsqrt(F.mean(x * x, axis=-1, keepdims=True) + a["eps"])
            return F.broadcast_mul(F.broadcast_mul(x, scale), weight)

    return RMSNorm()


def linear_of_channels(gluon: Any, a: Mapping[str, Any]) -> Any:
    class LinearOfChannels(gluon.HybridBlock):  # type: ignore[misc]
        """A convolution of one pixel; its weight stays a matrix."""

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(a["out_features"], a["in_features"]))
                self.bias = self.params.get("bias", shape=(a["out_features"],)) if a.get("bias", True) else None

        def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
            kernel = F.reshape(weight, (a["out_features"], a["in_features"], 1, 1))
            how = {"kernel": (1, 1), "num_filter": a["out_features"]}
            if bias is None:
                return F.Convolution(x, kernel, no_bias=True, **how)
            return F.Convolution(x, kernel, bias, **how)

    return LinearOfChannels()
