"""Primitives on arrays of any rank; `shapes` among the attributes are those of the inputs, `size` that of the output."""

import math
from typing import Any, Callable, Dict, Mapping

from framework_compare.adapters.common import network
from framework_compare.graph.window import Window

Attrs = Mapping[str, Any]


def matmul(F: Any, a: Attrs, x: Any, y: Any) -> Any:
    """batch_dot takes three axes and the same number of products on both sides."""
    (*_, m, k), n = a["shapes"][0], a["shapes"][1][-1]
    if a["shared"]:
        return F.reshape(F.dot(F.reshape(x, (-1, k)), F.reshape(y, (k, n))), (-1, *a["size"]))
    x, y = (F.broadcast_to(one, (0, *a["size"][:-2], *shape[-2:])) for one, shape in zip((x, y), a["shapes"]))
    if a["shared_inputs"] == [True, False]:
        x = F.broadcast_like(x, y, lhs_axes=(0,), rhs_axes=(0,))
    if a["shared_inputs"] == [False, True]:
        y = F.broadcast_like(y, x, lhs_axes=(0,), rhs_axes=(0,))
    product = F.batch_dot(F.reshape(x, (-1, m, k)), F.reshape(y, (-1, k, n)))
    return F.reshape(product, (-1, *a["size"]))


def where(F: Any, a: Attrs, condition: Any, x: Any, y: Any) -> Any:
    """Its own takes no broadcasts."""
    taken = F.broadcast_not_equal(condition, F.zeros((1,)))
    return F.broadcast_add(F.broadcast_mul(x, taken), F.broadcast_mul(y, 1 - taken))


def cumsum(F: Any, a: Attrs, x: Any) -> Any:
    """A product with a triangle of ones: it has no such op for symbols (1.9.1)."""
    axis, last, places = a["axis"], len(a["size"]), F.arange(a["size"][a["axis"] - 1])
    triangle = F.broadcast_lesser_equal(F.reshape(places, (-1, 1)), F.reshape(places, (1, -1)))
    if axis == last:
        return F.dot(x, triangle)
    return F.swapaxes(F.dot(F.swapaxes(x, axis, last), triangle), axis, last)


def pad_axes(F: Any, a: Attrs, x: Any) -> Any:
    """Its own pads the last two of four axes."""
    shape = list(a["shapes"][0])
    for axis, sides in enumerate(a["pads"][1:]):
        if any(sides):
            inner = math.prod(shape[axis + 1 :])
            x = F.reshape(x, (-1, math.prod(shape[:axis]), shape[axis], inner))
            width = (0, 0, 0, 0, *sides, 0, 0)
            x = F.pad(x, mode="constant", constant_value=a.get("value", 0.0), pad_width=width)
            shape[axis] += sum(sides)
    return F.reshape(x, (-1, *shape))


def convolution(a: Attrs) -> Dict[str, Any]:
    window = Window.of(a)
    how = {"kernel": window.kernel, "stride": window.stride, "dilate": window.dilation, "num_group": a["groups"]}
    return {**how, "pad": tuple(first for first, _ in window.pads), "num_filter": a["out_channels"], "no_bias": True}


FUNCTIONS: Dict[str, Callable[..., Any]] = {
    **network.named(lambda F: F, "exp", "log", "sqrt", "abs", "sign", "sin", "cos", "erf", Detach="BlockGrad"),
    **network.named(lambda F: F, "sub", "div", "maximum", "minimum", "equal", prefix="broadcast_"),
    **network.named(lambda F: F, Less="broadcast_lesser", LessEqual="broadcast_lesser_equal"),
    "ReduceSum": lambda F, a, x: F.sum(x, axis=a["axes"], keepdims=True),
    "ReduceMean": lambda F, a, x: F.mean(x, axis=a["axes"], keepdims=True),
    "ReduceMax": lambda F, a, x: F.max(x, axis=a["axes"], keepdims=True),
    "Power": lambda F, a, x: x ** a["exponent"],
    "LeakyReLU": lambda F, a, x: F.LeakyReLU(x, act_type="leaky", slope=a["slope"]),
    "Cast": lambda F, a, x: F.cast(x, "float32"),
    "Where": where,
    "Softmax": lambda F, a, x: F.softmax(x, axis=a["axis"]),
    # over the last axis oneDNN computes it, to 3e-6 only
    "LogSoftmax": lambda F, a, x: F.squeeze(F.log_softmax(F.expand_dims(x, axis=-1), axis=a["axis"]), axis=-1),
    "CumSum": cumsum,
    "Expand": lambda F, a, x: F.broadcast_to(x, (0, *a["shape"][1:])),
    "Gather": lambda F, a, table, index: F.take(F.squeeze(table, axis=0), index),
    "PadAxes": pad_axes,
    "MatMul": matmul,
    "Convolve": lambda F, a, x, weight: F.Convolution(x, F.squeeze(weight, axis=0), **convolution(a)),
}
