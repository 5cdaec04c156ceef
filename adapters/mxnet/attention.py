"""Attention, free arrays and the ops that move what a network has: blocks, and functions of (F, attributes).

`input` among the attributes is the shape of the first input without the batch: symbols have none.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Mapping

from framework_compare.graph.attention import relative_index, shift_mask


def attention(gluon: Any, a: Mapping[str, Any]) -> Any:
    *outer, steps, features = a["input"]
    heads, fused, count = a["heads"], a["operands"] == 1, math.prod(outer)
    features = features // 3 if fused else features
    mask = shift_mask(a, *outer) if outer else None

    class Attention(gluon.HybridBlock):  # type: ignore[misc]
        """Products in batches of heads: MXNet's own kernels of attention take another order of features (1.9.1)."""

        def __init__(self) -> None:
            super().__init__()
            if mask is not None:
                with self.name_scope():
                    array = mask.reshape(1, count, 1, steps, steps)
                    self.mask = self.params.get_constant("mask", array)

        def hybrid_forward(self, F: Any, *inputs: Any, mask: Any = None) -> Any:
            operands, bias = (inputs[:-1], inputs[-1]) if a.get("bias") else (inputs, None)
            parts = F.split(operands[0], 3, axis=-1) if fused else operands
            q, k, v = (self.heads_first(F, x) for x in parts)
            scores = F.batch_dot(q * a["scale"], k, transpose_b=True)
            if bias is not None:
                scores = F.reshape(scores, (-1, heads, steps, steps))
                scores = F.reshape(F.broadcast_add(scores, bias), (-1, steps, steps))
            if mask is not None:
                scores = F.reshape(scores, (-1, count, heads, steps, steps))
                scores = F.reshape(F.broadcast_add(scores, mask), (-1, steps, steps))
            y = F.reshape(F.batch_dot(F.softmax(scores, axis=-1), v), (-1, heads, steps, features // heads))
            return F.reshape(F.transpose(y, (0, 2, 1, 3)), (-1, *outer, steps, features))

        def heads_first(self, F: Any, x: Any) -> Any:
            """(N, ..., steps, features) to (samples, windows and heads, steps, features of a head)."""
            x = F.transpose(F.reshape(x, (-1, steps, heads, features // heads)), (0, 2, 1, 3))
            return F.reshape(x, (-1, steps, features // heads))

    return Attention()


def relative_bias(gluon: Any, a: Mapping[str, Any]) -> Any:
    index = relative_index(a["window"])

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


def part(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    """A Slice, or one part of a Split."""
    if "sizes" in a:
        start = sum(a["sizes"][: a["index"]])
        return F.slice_axis(x, axis=1 + a["axis"], begin=start, end=start + a["sizes"][a["index"]])
    everything = (None,) * (1 + a["axis"])
    along = ((*everything, a[name]) for name in ("start", "end"))
    return F.slice(x, *along, step=(*everything, a.get("step", 1)))


def select(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    index = a["index"] % a["input"][0]
    return F.squeeze(F.slice_axis(x, axis=1, begin=index, end=index + 1), axis=1)


def channel_shuffle(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    (channels, height, width), groups = a["input"], a["groups"]
    cut = F.reshape(x, (-1, groups, channels // groups, height, width))
    return F.reshape(F.swapaxes(cut, 1, 2), (-1, channels, height, width))


def pad(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    how = {"mode": "constant", "constant_value": a.get("value", 0.0)}
    return F.pad(x, pad_width=(0, 0, 0, 0, *a["padding"]), **how)


def roll(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    for axis, (shift, size) in enumerate(zip(a["shifts"], a["input"][1:]), start=2):
        if shift % size:
            cut = size - shift % size
            behind, before = (F.slice_axis(x, axis=axis, begin=b, end=e) for b, e in ((cut, size), (0, cut)))
            x = F.concat(behind, before, dim=axis)
    return x


def windows(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    (channels, height, width), (down, across) = a["input"], a["window"]
    rows, columns = height // down, width // across
    cut = F.transpose(F.reshape(x, (-1, channels, rows, down, columns, across)), (0, 2, 4, 3, 5, 1))
    return F.reshape(cut, (-1, rows, columns, down * across, channels))


def from_windows(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    (rows, columns, _, channels), (down, across) = a["input"], a["window"]
    whole = F.transpose(F.reshape(x, (-1, rows, columns, down, across, channels)), (0, 5, 1, 3, 2, 4))
    return F.reshape(whole, (-1, channels, rows * down, columns * across))


def gelu(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    if a["approximate"] == "none":
        return F.LeakyReLU(x, act_type="gelu")
    return 0.5 * x * (1 + F.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


LAYERS: Dict[str, Callable[..., Any]] = {
    "Attention": attention,
    "RelativeBias": relative_bias,
    "Parameter": parameter,
    "StochasticDepth": lambda gluon, a: gluon.nn.Dropout(a["p"], axes=tuple(range(1, 1 + len(a["input"])))),
}
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "Slice": part,
    "Split": part,
    "Select": select,
    "ChannelShuffle": channel_shuffle,
    "Tokens": lambda F, a, x: F.transpose(F.reshape(x, (0, 0, -1)), (0, 2, 1)),
    "Pad": pad,
    "Roll": roll,
    "Windows": windows,
    "FromWindows": from_windows,
    "Mul": lambda F, a, x, y: F.broadcast_mul(x, y),
    "SiLU": lambda F, a, x: x * F.sigmoid(x),
    # its own slope is 0.2
    "HardSigmoid": lambda F, a, x: F.hard_sigmoid(x, alpha=1 / 6, beta=0.5),
    "HardSwish": lambda F, a, x: x * F.hard_sigmoid(x, alpha=1 / 6, beta=0.5),
    "GELU": gelu,
}
