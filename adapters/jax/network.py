"""The graph as a pure function of its arrays; the windows of convolutions and pooling as XLA runs them fastest."""

from __future__ import annotations

import functools
import itertools
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

import numpy as np

from framework_compare.adapters.common import network, quanv
from framework_compare.adapters.common.trainer import HALF_TYPES
from framework_compare.graph import Graph, Node, evaluate
from framework_compare.graph.image_ops import adaptive_size
from framework_compare.graph.lowering import UNEVEN, graph_ops, lowered
from framework_compare.graph.window import Window, pair
from framework_compare.protocol import TrainConfig


def has_flash(config: TrainConfig, device: Any) -> bool:
    """Return whether cuDNN has fused attention for this precision on a device of JAX; XLA never chooses it unasked."""
    if config.device == "cpu" or config.precision not in HALF_TYPES:
        return False
    return int(device.compute_capability.partition(".")[0]) >= 8


def fits_flash(shape: Tuple[int, ...]) -> bool:
    """Return whether cuDNN trains with queries of this shape: (N, steps, heads, features)."""
    return shape[3] <= 128 and shape[3] % 8 == 0


class Network:
    """The graph as a function of its arrays by graph name: convolutions HWIO if images are NHWC, linear (in, out).

    With linear weights as (out, in) XLA's update of them takes ten times as long on a CPU, at batch 1.
    """

    def __init__(self, jax: Any, graph: Graph, *, dtype: str, layout: str, shifts: bool, flash: bool = False) -> None:
        self.jax, self.shifts, self.flash, self.channels_last = jax, shifts, flash, layout == "NHWC"
        self.spatial = (1, 2) if self.channels_last else (2, 3)
        self.layouts = (layout, "HWIO" if self.channels_last else "OIHW", layout)
        self.dtype = jax.numpy.dtype(dtype)  # of convolutions and linear layers, and of what lies between
        self.program = lowered(graph, HAS, channels_last=self.channels_last)
        self._places = {node.name: place for place, node in enumerate(graph.nodes)}
        nodes = (node for node in graph.nodes if node.op in network.AS_STORED)
        self._tables = {p.name for node in nodes for p in graph.parameters_of(node)}
        self._statistics = [p.name for p in graph.parameters() if p.kind == "statistic"]
        self._parts = {node.arrays: {p.part: p.name for p in graph.parameters_of(node)} for node in graph.nodes}

    def to_native(self, name: str, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(self._moved(name, array, (2, 3, 1, 0)))

    def from_native(self, name: str, array: np.ndarray) -> np.ndarray:
        return np.array(self._moved(name, array, (3, 2, 0, 1)), order="C")

    def _moved(self, name: str, array: np.ndarray, axes: Tuple[int, ...]) -> np.ndarray:
        if name in self._tables:
            return array
        if array.ndim == 4 and self.channels_last:
            return array.transpose(axes)
        return array.T if array.ndim == 2 else array

    def __call__(self, arrays: Mapping[str, Any], images: Any, key: Any = None) -> Tuple[Any, Dict[str, Any]]:
        """Float32 logits and the running statistics after; a key means training: batch statistics, dropout."""
        statistics = {name: arrays[name] for name in self._statistics}

        def apply(node: Node, *inputs: Any) -> Any:
            if node.op in FUNCTIONS:
                return FUNCTIONS[node.op](self.jax, node.attrs, *inputs)
            own = {part: arrays[name] for part, name in self._parts.get(node.arrays, {}).items()}
            if node.op == "BatchNorm2d":
                value, moved = self.batchnorm(node, own, *inputs, training=key is not None)
                statistics.update({f"{node.name}.{name}": array for name, array in moved.items()})
                return value
            return LAYERS[node.op](self, node, own, *inputs, key=key)

        return evaluate(self.program, apply, images).astype("float32"), statistics

    def conv2d(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        y = self._convolve(x.astype(self.dtype), own["weight"].astype(self.dtype), node.attrs)
        return y + self._by_channel(own["bias"].astype(self.dtype)) if node.attrs["bias"] else y

    def _convolve(self, x: Any, weight: Any, a: Mapping[str, Any]) -> Any:
        window = Window.of(a)
        if self.shifts and window.kernel == (1, 1) and a["groups"] == 1 and not window.is_padded:
            x = x[:, :: window.stride[0], :: window.stride[1]]
            return (x.reshape(-1, a["in_channels"]) @ weight[0, 0]).reshape(*x.shape[:3], -1)
        if self.shifts and a["groups"] == a["in_channels"] == a["out_channels"]:
            # summed in float32, as XLA's own convolution does: the weight's gradient has thousands of terms
            exact, kernel = x.astype("float32"), weight.astype("float32")
            return sum(view * kernel[i, j, 0] for i, j, view in self._shifted(exact, window, 0)).astype(self.dtype)
        how = {"dimension_numbers": self.layouts, "feature_group_count": a["groups"], "rhs_dilation": window.dilation}
        return self.jax.lax.conv_general_dilated(x, weight, window.stride, window.pads, **how)

    def _shifted(self, x: Any, window: Window, fill: float) -> Iterator[Tuple[int, int, Any]]:
        """The images that a window sees at each of its places (i, j)."""
        x = self.jax.numpy.pad(x, [(0, 0), *window.all_pads(x.shape[1:3]), (0, 0)], constant_values=fill)
        height, width = (size - span + 1 for size, span in zip(x.shape[1:3], window.spans))
        for i, j in itertools.product(*map(range, window.kernel)):
            top, left = i * window.dilation[0], j * window.dilation[1]
            yield i, j, x[:, top : top + height : window.stride[0], left : left + width : window.stride[1]]

    def batchnorm(self, node: Node, own: Mapping[str, Any], x: Any, *, training: bool) -> Tuple[Any, Dict[str, Any]]:
        a, exact = node.attrs, x.astype("float32")
        mean, variance, moved = own["running_mean"], own["running_var"], {}
        if training:
            axes = (0, *self.spatial)
            mean, variance, count = exact.mean(axes), exact.var(axes), x.size // a["channels"]
            batch = {"running_mean": mean, "running_var": variance * (count / max(1, count - 1))}
            moved = {name: own[name] + a["momentum"] * (new - own[name]) for name, new in batch.items()}
        scale = self.jax.lax.rsqrt(variance + a["eps"]) * own["weight"]
        y = (exact - self._by_channel(mean)) * self._by_channel(scale) + self._by_channel(own["bias"])
        return y.astype(x.dtype), moved

    def maxpool(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        window = Window.of(node.attrs)
        if self.shifts:
            return functools.reduce(self.jax.numpy.maximum, (view for _, _, view in self._shifted(x, window, -np.inf)))
        return self._reduce(x, -np.inf, self.jax.lax.max, window)

    def adaptive_avgpool(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        outputs = adaptive_size(node.attrs)
        if outputs == (1, 1):
            return x.mean(self.spatial, dtype="float32", keepdims=True).astype(x.dtype)
        # no such op in JAX: the windows of torch's adaptive pooling as one small matrix for rows, one for columns
        sizes = zip((x.shape[axis] for axis in self.spatial), outputs)
        rows, columns = (self.jax.numpy.asarray(network.adaptive_matrix(*pair), x.dtype) for pair in sizes)
        how = "ih,nhwc,jw->nijc" if self.channels_last else "ih,nchw,jw->ncij"
        return self.jax.numpy.einsum(how, rows, x, columns)

    def linear(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        y = x.astype(self.dtype) @ own["weight"].astype(self.dtype)
        return y + own["bias"].astype(self.dtype) if "bias" in own else y

    def dropped(self, node: Node, x: Any, shape: Tuple[int, ...], key: Any) -> Any:
        """A share p of x as zero, by chance drawn for that shape; x itself where there is no key."""
        if key is None:
            return x
        random, kept = self.jax.random, 1 - node.attrs["p"]
        key = random.fold_in(key, self._places[node.name])
        return self.jax.numpy.where(random.bernoulli(key, kept, shape), x / kept, 0).astype(x.dtype)

    def lstm(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        jax, jnp = self.jax, self.jax.numpy
        w_ih, w_hh = (own[name].astype(self.dtype) for name in ("weight_ih", "weight_hh"))
        bias = sum(array for name, array in own.items() if name.startswith("bias")).astype(self.dtype)

        def step(carried: Any, from_input: Any) -> Any:
            h, c = carried
            i, f, g, o = jnp.split(from_input + h @ w_hh, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[0], w_hh.shape[0]), self.dtype)
        return self._scanned(step, (zero, zero), x.astype(self.dtype) @ w_ih + bias)

    def gru(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        jax, jnp = self.jax, self.jax.numpy
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        w_ih, w_hh, b_ih, b_hh = (own[name].astype(self.dtype) for name in names)

        def step(h: Any, from_input: Any) -> Any:
            xr, xz, xn = jnp.split(from_input, 3, axis=1)
            hr, hz, hn = jnp.split(h @ w_hh + b_hh, 3, axis=1)
            r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
            h = (1 - z) * jnp.tanh(xn + r * hn) + z * h
            return h, h

        zero = jnp.zeros((x.shape[0], w_hh.shape[0]), self.dtype)
        return self._scanned(step, zero, x.astype(self.dtype) @ w_ih + b_ih)

    def _scanned(self, step: Callable[[Any, Any], Any], start: Any, x: Any) -> Any:
        """States of all steps, (N, steps, features)."""
        return self.jax.lax.scan(step, start, x.swapaxes(0, 1))[1].swapaxes(0, 1)

    def conv1d(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        how = {"padding": [(node.attrs["padding"],) * 2], "dimension_numbers": ("NWC", "OIW", "NWC")}
        y = self.jax.lax.conv_general_dilated(x.astype(self.dtype), own["weight"].astype(self.dtype), (1,), **how)
        return y + own["bias"].astype(self.dtype) if node.attrs["bias"] else y

    def layernorm(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        return (self._normal(x, -1, node.attrs["eps"]) * own["weight"] + own["bias"]).astype(x.dtype)

    def _normal(self, x: Any, axes: Any, eps: float) -> Any:
        exact = x.astype("float32")
        scale = self.jax.lax.rsqrt(exact.var(axes, keepdims=True) + eps)
        return (exact - exact.mean(axes, keepdims=True)) * scale

    def rmsnorm(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        exact = x.astype("float32")
        scale = self.jax.lax.rsqrt((exact * exact).mean(-1, keepdims=True) + node.attrs["eps"])
        return (exact * scale * own["weight"]).astype(x.dtype)

    def avgpool(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        exact, window = x.astype("float32"), Window.of(node.attrs)
        if self.shifts:
            sums = sum(view for _, _, view in self._shifted(exact, window, 0))
        else:
            sums = self._reduce(exact, 0.0, self.jax.lax.add, window)
        size = [x.shape[axis] for axis in self.spatial]
        areas = window.areas(size, with_pads=node.attrs["count_include_pad"])
        by_place = areas[:, :, None] if self.channels_last else areas
        return (sums / (areas[0, 0] if (areas == areas[0, 0]).all() else by_place)).astype(x.dtype)

    def _reduce(self, x: Any, start: float, function: Callable[..., Any], window: Window) -> Any:
        kernel, strides, pads = [1] * 4, [1] * 4, [(0, 0)] * 4
        all_pads = window.all_pads([x.shape[axis] for axis in self.spatial])
        for axis, size, stride, pad in zip(self.spatial, window.kernel, window.stride, all_pads):
            kernel[axis], strides[axis], pads[axis] = size, stride, pad
        return self.jax.lax.reduce_window(x, start, function, kernel, strides, pads)

    def attention(self, node: Node, own: Mapping[str, Any], *inputs: Any, **_: Any) -> Any:
        a, jnp = node.attrs, self.jax.numpy
        operands = [x.astype(self.dtype) for x in inputs[: a["operands"]]]
        bias = inputs[-1] if a.get("bias") else None
        q, k, v = jnp.split(operands[0], 3, axis=-1) if len(operands) == 1 else operands
        width = q.shape[-1] // a["heads"]
        q, k, v = (x.reshape(*x.shape[:-1], -1, width) for x in (q, k, v))  # (N, ..., steps, heads, features)
        if q.ndim == 4:
            y = self.attend(node, q, k, v, bias)
        else:
            scores = a["scale"] * jnp.einsum("nrcqhf,nrckhf->nrchqk", q, k).astype("float32")
            scores = scores if bias is None else scores + bias[:, None, None]
            shares = self.jax.nn.softmax(scores if a["mask"] is None else scores + a["mask"]).astype(self.dtype)
            y = jnp.einsum("nrchqk,nrckhf->nrcqhf", shares, v)
        return y.reshape(*y.shape[:-2], -1)

    def attend(self, node: Node, q: Any, k: Any, v: Any, bias: Any) -> Any:
        """Attention of sequences: (N, steps, heads, features) each."""
        how = {"scale": node.attrs["scale"], "is_causal": node.attrs.get("causal", False)}
        attention, (queries, keys) = self.jax.nn.dot_product_attention, (q.shape[1], k.shape[1])
        if not self.flash or bias is not None or not fits_flash(q.shape):
            return attention(q, k, v, bias, **how)
        if queries % 2 or keys % 2:  # cuDNN has no gradient for an odd number of steps
            jnp = self.jax.numpy
            q, k, v = (jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0), (0, 0))) for x in (q, k, v))
            how["query_seq_lengths"] = jnp.full(len(q), queries, "int32")
            how["key_value_seq_lengths"] = jnp.full(len(q), keys, "int32")
        return attention(q, k, v, implementation="cudnn", **how)[:, :queries]

    def groupnorm(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        axis = 3 if self.channels_last else 1
        shape = (*x.shape[:axis], node.attrs["groups"], -1, *x.shape[axis + 1 :])
        axes = tuple(place for place in range(1, 5) if place != axis)
        y = self._normal(x.reshape(shape), axes, node.attrs["eps"]).reshape(x.shape)
        return (y * self._by_channel(own["weight"]) + self._by_channel(own["bias"])).astype(x.dtype)

    def convolve(self, node: Node, own: Mapping[str, Any], x: Any, weight: Any, **_: Any) -> Any:
        a, window = node.attrs, Window.of(node.attrs)
        steps: Dict[str, Any] = {"window_strides": window.stride, "padding": window.pads}
        weight = weight[0].astype(self.dtype)
        if node.op == "ConvTranspose":  # its input's numbers stand apart by the stride, and the window is turned round
            sides = zip(window.spans, window.pads, pair(a["output_padding"]))
            pads = [(span - 1 - first, span - 1 - last + more) for span, (first, last), more in sides]
            steps = {"window_strides": (1, 1), "padding": pads, "lhs_dilation": window.stride}
            grouped = weight.reshape(a["groups"], -1, *weight.shape[1:])[..., ::-1, ::-1]
            weight = grouped.swapaxes(1, 2).reshape(a["out_channels"], -1, *weight.shape[2:])
        steps.update(rhs_dilation=window.dilation, feature_group_count=a["groups"])
        layouts = (self.layouts[0], "OIHW", self.layouts[0])
        return self.jax.lax.conv_general_dilated(x.astype(self.dtype), weight, dimension_numbers=layouts, **steps)

    def quanv2d(self, node: Node, own: Mapping[str, Any], patches: Any, **_: Any) -> Any:
        jnp, a = self.jax.numpy, node.attrs
        join, matmul = functools.partial(jnp.concatenate, axis=-1), functools.partial(jnp.matmul, precision="highest")
        functions = quanv.Functions(jnp.cos, jnp.sin, join, matmul)
        angles = own["angles"][None] if a["trained"] else None
        pixels = patches.astype("float32").reshape(-1, quanv.QUBITS)
        y = quanv.expectations(functions, pixels, a["gates"], quanv.constants(a["gates"], a["trained"]), angles)
        return y.reshape(patches.shape).astype(self.dtype)

    def _by_channel(self, vector: Any) -> Any:
        return vector if self.channels_last else vector[:, None, None]


# Of a Network, a node, its arrays, its inputs, and by name the key of dropout.
LAYERS: Dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("Conv2d", UNEVEN), Network.conv2d),
    "MaxPool2d": Network.maxpool,
    "AvgPool2d": Network.avgpool,
    "AdaptiveAvgPool2d": Network.adaptive_avgpool,
    "Linear": Network.linear,
    "LayerNorm": Network.layernorm,
    "Dropout": lambda net, node, own, x, *, key: net.dropped(node, x, x.shape, key),
    "StochasticDepth": lambda net, node, own, x, *, key: net.dropped(node, x, (len(x), *[1] * (x.ndim - 1)), key),
    "Parameter": lambda net, node, own, **_: own["value"].astype(net.dtype)[None],
    # cast after it is read: a token's gradients, of which there may be thousands, are summed in float32
    "Embedding": lambda net, node, own, x, **_: own["weight"][x].astype(net.dtype),
    "Unembedding": lambda net, node, own, x, **_: x.astype(net.dtype) @ own["weight"].astype(net.dtype).T,
    "RMSNorm": Network.rmsnorm,
    "Constant": lambda net, node, own, **_: net.jax.numpy.asarray(node.attrs["value"], net.dtype),
    "LSTM": Network.lstm,
    "GRU": Network.gru,
    "Conv1d": Network.conv1d,
    "Attention": Network.attention,
    "RelativeBias": lambda net, node, own, **_: (
        own["weight"].astype(net.dtype)[node.attrs["index"]].transpose(2, 0, 1)[None]
    ),
    "Quanv2d": Network.quanv2d,
    "GroupNorm": Network.groupnorm,
    **dict.fromkeys(("Convolve", "ConvTranspose"), Network.convolve),
}
# Of jax, attributes, and inputs.
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    **network.FUNCTIONS,
    **network.named(lambda jax: jax.nn, "sigmoid", ReLU="relu", ReLU6="relu6", SiLU="silu"),
    **network.named(lambda jax: jax.nn, HardSigmoid="hard_sigmoid", HardSwish="hard_swish"),
    **network.named(lambda jax: jax.numpy, "tanh", *network.NUMPY),
    **network.named(lambda jax: jax.lax, "erf", Detach="stop_gradient"),
    "GELU": lambda jax, a, x: jax.nn.gelu(x, approximate=a["approximate"] == "tanh"),
    "Permute": lambda jax, a, x: x.transpose(a["order"]),
    "Reverse": lambda jax, a, x: jax.numpy.flip(x, a["axis"]),
    "Concat": lambda jax, a, *inputs: jax.numpy.concatenate(inputs, a["axis"]),
    "Repeat": lambda jax, a, x, like: jax.numpy.broadcast_to(x, (len(like), *a["shape"])),
    "Pad": lambda jax, a, x: jax.numpy.pad(x, a["pads"], constant_values=a["value"]),
    "Roll": lambda jax, a, x: jax.numpy.roll(x, tuple(a["shifts"]), tuple(a["axes"])),
    "Max": lambda jax, a, x: x.max(a["axis"]),
    "Mean": lambda jax, a, x: x.mean(a["axis"], dtype="float32").astype(x.dtype),
    "LeakyReLU": lambda jax, a, x: jax.nn.leaky_relu(x, a["slope"]),
    "Cast": lambda jax, a, x: x.astype("float32"),
    "Equal": lambda jax, a, x, y: (x == y).astype(x.dtype),
    "Less": lambda jax, a, x, y: (x < y).astype(x.dtype),
    "LessEqual": lambda jax, a, x, y: (x <= y).astype(x.dtype),
    "Where": lambda jax, a, condition, x, y: jax.numpy.where(condition != 0, x, y),
    "ReduceSum": lambda jax, a, x: x.sum(a["axes"], keepdims=True),
    "ReduceMean": lambda jax, a, x: x.mean(a["axes"], dtype="float32", keepdims=True).astype(x.dtype),
    "ReduceMax": lambda jax, a, x: x.max(a["axes"], keepdims=True),
    "Softmax": lambda jax, a, x: jax.nn.softmax(x, a["axis"]),
    "LogSoftmax": lambda jax, a, x: jax.nn.log_softmax(x, a["axis"]),
    "CumSum": lambda jax, a, x: x.cumsum(a["axis"]),
    "Expand": lambda jax, a, x: jax.numpy.broadcast_to(x, (len(x), *a["shape"][1:])),
    "Take": lambda jax, a, x: x.take(np.array(a["index"]), axis=a["axis"]),
    "Gather": lambda jax, a, table, index: table[0][index.astype("int32")],
    "PadAxes": lambda jax, a, x: jax.numpy.pad(x, a["pads"], constant_values=a.get("value", 0.0)),
}
HAS = frozenset(LAYERS) | frozenset(FUNCTIONS) | {"BatchNorm2d"}
OPS = graph_ops(HAS)
