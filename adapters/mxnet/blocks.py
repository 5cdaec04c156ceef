"""Ops that MXNet lacks, or has with another rule: layers as blocks, and functions of F.

Symbols have no shapes, so attributes hold them: `shapes` of the inputs without the batch, `input` the first of these,
`size` that of the output.
"""

import math
from typing import Any, Callable, Dict, Mapping, Sequence

import numpy as np

from framework_compare.adapters.common import quanv
from framework_compare.graph.window import Window, pair


def block(
    gluon: Any,
    forward: Callable[..., Any],
    arrays: Mapping[str, Sequence[int]] = {},
    params: Any = None,
    **constants: Any,
) -> Any:
    """Return a block that calls forward(F, *inputs) with parameters of these shapes and with constants, by name.

    params: of another block, which has the arrays. One without inputs is called with the network's, as a block is with no less.
    """

    class Block(gluon.HybridBlock):
        hybrid_forward = staticmethod(forward)

        def __init__(self) -> None:
            super().__init__(params=params)
            for name, shape in arrays.items():
                setattr(self, name, self.params.get(name, shape=tuple(shape)))
            for name, array in constants.items():
                setattr(self, name, self.params.get_constant(name, array))

    return Block()


def with_bias(a: Mapping[str, Any], *weight: int) -> Dict[str, Sequence[int]]:
    """Shapes of the arrays of a layer, whose weight has the outputs first."""
    return {"weight": weight, **({"bias": weight[:1]} if a.get("bias", True) else {})}


def attention(gluon: Any, a: Mapping[str, Any]) -> Any:
    """Products in batches of heads: MXNet's own kernels of attention take another order of features (1.9.1)."""
    *outer, steps, features = a["input"]
    heads, fused, count = a["heads"], a["operands"] == 1, math.prod(outer)
    groups = heads // a.get("kv_heads", heads)
    features = features // 3 if fused else features
    constants = {} if a["mask"] is None else {"mask": a["mask"].reshape(1, count, 1, steps, steps)}
    if a.get("causal", False):
        constants["seen"] = np.arange(1, steps + 1, dtype=np.float32)[None]

    def forward(F: Any, *inputs: Any, mask: Any = None, seen: Any = None) -> Any:
        parts = F.split(inputs[0], 3, axis=-1) if fused else inputs[:3]
        q, k, v = (heads_first(F, x, number) for x, number in zip(parts, (1, groups, groups)))
        scores = F.batch_dot(q * a["scale"], k, transpose_b=True)
        if a.get("bias"):
            scores = F.reshape(scores, (-1, heads, steps, steps))
            scores = F.reshape(F.broadcast_add(scores, inputs[-1]), (-1, steps, steps))
        if mask is not None:
            scores = F.reshape(scores, (-1, count, heads, steps, steps))
            scores = F.reshape(F.broadcast_add(scores, mask), (-1, steps, steps))
        if seen is None:
            shares = F.softmax(scores, axis=-1)
        else:  # row i ends behind i: it takes lengths, and no mask
            lengths = F.broadcast_like(seen, scores, lhs_axes=(0,), rhs_axes=(0,))
            shares = F.softmax(scores, F.cast(lengths, "int32"), axis=-1, use_length=True)
        y = F.reshape(F.batch_dot(shares, v), (-1, heads, steps, features // heads))
        return F.reshape(F.transpose(y, (0, 2, 1, 3)), (-1, *outer, steps, features))

    def heads_first(F: Any, x: Any, groups: int) -> Any:
        """(N, ..., steps, features) to (samples, windows and heads, steps, features of a head)."""
        x = F.transpose(F.reshape(x, (-1, steps, heads // groups, features // heads)), (0, 2, 1, 3))
        x = F.repeat(x, repeats=groups, axis=1) if groups > 1 else x
        return F.reshape(x, (-1, steps, features // heads))

    return block(gluon, forward, **constants)


def relative_bias(gluon: Any, a: Mapping[str, Any]) -> Any:
    def forward(F: Any, x: Any, weight: Any, index: Any) -> Any:
        return F.expand_dims(F.transpose(F.take(weight, index), (2, 0, 1)), 0)

    shape = (int(a["index"].max()) + 1, a["heads"])
    return block(gluon, forward, {"weight": shape}, index=a["index"].astype("float32"))


def convolution(a: Mapping[str, Any]) -> Dict[str, Any]:
    """Return what F.Convolution and F.Deconvolution are given beside arrays."""
    window = Window.of(a)
    how = {"kernel": window.kernel, "stride": window.stride, "dilate": window.dilation, "num_group": a["groups"]}
    return {**how, "pad": tuple(first for first, _ in window.pads), "num_filter": a["out_channels"], "no_bias": True}


def conv_transpose(gluon: Any, a: Mapping[str, Any], params: Any) -> Any:
    """Convolve with an array that is a parameter's: with a computed one the process ends (1.9.1)."""

    def forward(F: Any, x: Any, weight: Any, value: Any) -> Any:
        return F.Deconvolution(x, value, adj=pair(a["output_padding"]), **convolution(a))

    return block(gluon, forward, {"value": a["shapes"][1]}, params)


def take(gluon: Any, a: Mapping[str, Any]) -> Any:
    index = np.array(a["index"], np.float32)
    return block(gluon, lambda F, x, index: F.take(x, index, axis=a["axis"]), index=index)


def rmsnorm(gluon: Any, a: Mapping[str, Any]) -> Any:
    """Written out: MXNet has none (1.9.1)."""

    def forward(F: Any, x: Any, weight: Any) -> Any:
        scale = F.rsqrt(F.mean(x * x, axis=-1, keepdims=True) + a["eps"])
        return F.broadcast_mul(F.broadcast_mul(x, F.broadcast_like(scale, x)), weight)

    return block(gluon, forward, {"weight": (a["features"],)})


def groupnorm(gluon: Any, a: Mapping[str, Any]) -> Any:
    """MXNet's own wants a scale for each group (1.9.1)."""

    def forward(F: Any, x: Any, weight: Any, bias: Any) -> Any:
        groups = F.reshape(x, (-1, a["groups"], math.prod(a["size"]) // a["groups"]))
        apart = F.broadcast_sub(groups, F.mean(groups, axis=2, keepdims=True))
        spread = F.sqrt(F.mean(F.square(apart), axis=2, keepdims=True) + a["eps"])
        normal = F.reshape(F.broadcast_div(apart, spread), (-1, *a["size"]))
        weight, bias = (F.reshape(array, (1, -1, 1, 1)) for array in (weight, bias))
        return F.broadcast_add(F.broadcast_mul(normal, weight), bias)

    return block(gluon, forward, dict.fromkeys(("weight", "bias"), (a["channels"],)))


def linear_of_channels(gluon: Any, a: Mapping[str, Any]) -> Any:
    """A convolution of one pixel; its weight stays a matrix."""
    out, into = a["out_features"], a["in_features"]

    def forward(F: Any, x: Any, weight: Any, **bias: Any) -> Any:
        weight = F.reshape(weight, (out, into, 1, 1))
        return F.Convolution(x, weight, **bias, kernel=(1, 1), num_filter=out, no_bias=not bias)

    return block(gluon, forward, with_bias(a, out, into))


def conv1d(gluon: Any, a: Mapping[str, Any]) -> Any:
    """One product of all windows: into what oneDNN makes of gluon's weights no others can be loaded (1.9.1)."""
    kernel, padding, out, steps = a["kernel"], a["padding"], a["out_channels"], a["size"][0]

    def forward(F: Any, x: Any, weight: Any, **bias: Any) -> Any:
        if padding:
            zeros = F.zeros_like(F.slice_axis(x, axis=1, begin=0, end=padding))
            x = F.concat(zeros, x, zeros, dim=1)
        windows = F.concat(*(F.slice_axis(x, axis=1, begin=i, end=i + steps) for i in range(kernel)), dim=2)
        weight = F.reshape(F.transpose(weight, (0, 2, 1)), (0, -1))
        return F.FullyConnected(windows, weight, **bias, no_bias=not bias, num_hidden=out, flatten=False)

    return block(gluon, forward, with_bias(a, out, a["in_channels"], kernel))


def quanv2d(gluon: Any, a: Mapping[str, Any]) -> Any:
    known = {f"constant{i}": array for i, array in enumerate(quanv.constants(a["gates"], a["trained"]))}

    def forward(F: Any, x: Any, angles: Any = None, **constants: Any) -> Any:
        functions = quanv.Functions(
            F.cos,
            F.sin,
            lambda arrays: F.concat(*arrays, dim=-1),
            F.dot,
            F.broadcast_mul,
            lambda array, i: F.slice_axis(array, axis=1, begin=i, end=i + 1),
        )
        angles = None if angles is None else F.expand_dims(angles, 0)
        pixels, matrices = F.reshape(x, (-1, quanv.QUBITS)), [constants[name] for name in known]
        return F.reshape(quanv.expectations(functions, pixels, a["gates"], matrices, angles), (-1, *a["input"]))

    return block(gluon, forward, {"angles": (quanv.rotations(a["gates"]),)} if a["trained"] else {}, **known)


# -- functions ----------------------------------------------------------------------------------------------------------


def matmul(F: Any, a: Mapping[str, Any], x: Any, y: Any) -> Any:
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


def shared_max(F: Any, x: Any, axis: Any) -> Any:
    """Return the maximum over an axis or axes, which stay, its gradient shared among equals as all others do.

    MXNet gives the whole of it to each (1.9.1).
    """
    most = F.max(F.BlockGrad(x), axis=axis, keepdims=True)
    winners = F.broadcast_equal(F.BlockGrad(x), most)
    finite = F.clip(x, -3e38, 3e38)
    nought = finite - F.BlockGrad(finite)  # with the gradient of x
    return most + F.sum(nought * winners, axis=axis, keepdims=True) / F.sum(winners, axis=axis, keepdims=True)


def where(F: Any, a: Mapping[str, Any], condition: Any, x: Any, y: Any) -> Any:
    """Its own takes no broadcasts."""
    taken = F.broadcast_not_equal(condition, F.zeros((1,)))
    return F.broadcast_add(F.broadcast_mul(x, taken), F.broadcast_mul(y, 1 - taken))


def cumsum(F: Any, a: Mapping[str, Any], x: Any) -> Any:
    """A product with a triangle of ones: it has no such op for symbols (1.9.1)."""
    axis, last, places = a["axis"], len(a["size"]), F.arange(a["size"][a["axis"] - 1])
    triangle = F.broadcast_lesser_equal(F.reshape(places, (-1, 1)), F.reshape(places, (1, -1)))
    if axis == last:
        return F.dot(x, triangle)
    return F.swapaxes(F.dot(F.swapaxes(x, axis, last), triangle), axis, last)


def pad_axes(F: Any, a: Mapping[str, Any], x: Any) -> Any:
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
