"""Attention, free arrays and the ops that move what a network has: layers, and functions of (paddle, attributes)."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Mapping

from framework_compare.graph.attention import relative_index, shift_mask


def attention(nn: Any, a: Mapping[str, Any]) -> Any:
    import paddle

    class Attention(nn.Layer):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            operands, bias = (inputs[:-1], inputs[-1]) if a.get("bias") else (inputs, None)
            parts = paddle.split(operands[0], 3, axis=-1) if len(operands) == 1 else operands
            q, k, v = (x.reshape([*x.shape[:-1], a["heads"], x.shape[-1] // a["heads"]]) for x in parts)
            if bias is None and len(q.shape) == 4:
                # it scales by the root of a head's features, whatever is asked
                q = q * (a["scale"] * math.sqrt(q.shape[-1]))
                y = nn.functional.scaled_dot_product_attention(q, k, v, training=self.training)
            else:
                y = self.products(q, k, v, bias)
            return y.reshape([*y.shape[:-2], y.shape[-2] * y.shape[-1]])

        def products(self, q: Any, k: Any, v: Any, bias: Any) -> Any:
            """Of (N, ..., steps, heads, features): Paddle's own kernels have no gradient of a bias."""
            q, k, v = (_heads_first(x) for x in (q * a["scale"], k, v))
            scores = paddle.matmul(q, k, transpose_y=True)
            if bias is not None:
                scores = scores + (bias if len(q.shape) == 4 else bias.unsqueeze([1, 2]))
            mask = shift_mask(a, *q.shape[1:3])
            if mask is not None:
                scores = scores + paddle.to_tensor(mask)
            return _heads_first(paddle.matmul(nn.functional.softmax(scores), v))

    return Attention()


def _heads_first(x: Any) -> Any:
    """(N, ..., steps, heads, features) to (N, ..., heads, steps, features), and back."""
    *outer, first, second, last = range(len(x.shape))
    return x.transpose([*outer, second, first, last])


def relative_bias(nn: Any, a: Mapping[str, Any]) -> Any:
    import paddle

    index = relative_index(a["window"])

    class RelativeBias(nn.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = self.create_parameter([int(index.max()) + 1, a["heads"]])
            self.index = paddle.to_tensor(index.ravel())

        def forward(self) -> Any:
            rows = paddle.gather(self.weight, self.index).reshape([*index.shape, a["heads"]])
            return rows.transpose([2, 0, 1]).unsqueeze(0)

    return RelativeBias()


def parameter(nn: Any, a: Mapping[str, Any]) -> Any:
    class Parameter(nn.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.value = self.create_parameter(a["shape"])

        def forward(self) -> Any:
            return self.value.unsqueeze(0)

    return Parameter()


def by_place(nn: Any, layer: Any) -> Any:
    """A layer of the last axis on the channels of an image; its arrays keep their names."""
    forward = layer.forward
    layer.forward = lambda x: forward(x.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2])
    return layer


def part(paddle: Any, a: Mapping[str, Any], x: Any) -> Any:
    """A Slice, or one part of a Split."""
    if "sizes" in a:
        start = sum(a["sizes"][: a["index"]])
        along = slice(start, start + a["sizes"][a["index"]])
    else:
        along = slice(a["start"], a["end"], a.get("step", 1))
    return x[(slice(None),) * (1 + a["axis"]) + (along,)]


def pad(paddle: Any, a: Mapping[str, Any], x: Any) -> Any:
    top, bottom, left, right = a["padding"]
    return paddle.nn.functional.pad(x, [left, right, top, bottom], value=a.get("value", 0.0))


def windows(paddle: Any, a: Mapping[str, Any], x: Any) -> Any:
    (count, channels, height, width), (down, across) = x.shape, a["window"]
    cut = x.reshape([count, channels, height // down, down, width // across, across]).transpose([0, 2, 4, 3, 5, 1])
    return cut.reshape([*cut.shape[:3], down * across, channels])


def from_windows(paddle: Any, a: Mapping[str, Any], x: Any) -> Any:
    (count, rows, columns, _, channels), (down, across) = x.shape, a["window"]
    whole = x.reshape([count, rows, columns, down, across, channels]).transpose([0, 5, 1, 3, 2, 4])
    return whole.reshape([count, channels, rows * down, columns * across])


LAYERS: Dict[str, Callable[..., Any]] = {
    "Attention": attention,
    "RelativeBias": relative_bias,
    "Parameter": parameter,
}
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "Slice": part,
    "Split": part,
    "Select": lambda paddle, a, x: x[:, a["index"]],
    "ChannelShuffle": lambda paddle, a, x: paddle.nn.functional.channel_shuffle(x, a["groups"]),
    "Tokens": lambda paddle, a, x: x.flatten(2).transpose([0, 2, 1]),
    "Pad": pad,
    "Roll": lambda paddle, a, x: paddle.roll(x, a["shifts"], [2, 3]),
    "Windows": windows,
    "FromWindows": from_windows,
    "Mul": lambda paddle, a, x, y: x * y,
    # its own slope is 0.1666667
    "HardSigmoid": lambda paddle, a, x: paddle.nn.functional.hardsigmoid(x, slope=1 / 6, offset=0.5),
}
