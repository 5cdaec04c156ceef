"""The graph as a pure function of its arrays; the windows of convolutions and pooling as XLA runs them fastest."""

from __future__ import annotations

import functools
import itertools
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

import numpy as np

from framework_compare.adapters.common import quanv
from framework_compare.adapters.common.network import adaptive_matrix
from framework_compare.adapters.jax import attention
from framework_compare.graph import OPS as GRAPH_OPS
from framework_compare.graph import Graph, Node, evaluate
from framework_compare.graph.image_ops import adaptive_size
from framework_compare.graph.window import Window


class Network:
    """The graph as a function of its arrays by graph name: convolutions HWIO if images are NHWC, linear (in, out).

    With linear weights as (out, in) XLA's update of them takes ten times as long on a CPU, at batch 1.
    """

    def __init__(self, jax: Any, graph: Graph, *, dtype: str, layout: str, shifts: bool) -> None:
        self.jax = jax
        self.graph = graph
        self.dtype = jax.numpy.dtype(dtype)  # of convolutions and linear layers, and of what lies between
        self.channels_last = layout == "NHWC"
        self.layouts = (layout, "HWIO" if self.channels_last else "OIHW", layout)
        self.shifts = shifts
        nodes = (node for node in graph.nodes if node.op in ("Embedding", "Parameter", "RelativeBias"))
        self._tables = {p.name for node in nodes for p in GRAPH_OPS[node.op].parameters(node)}
        self._statistics = [p.name for p in graph.parameters() if p.kind == "statistic"]
        self._names = {node.name: [p.name for p in GRAPH_OPS[node.op].parameters(node)] for node in graph.nodes}

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
            own = {name.rpartition(".")[2]: arrays[name] for name in self._names[node.name]}
            if node.op == "BatchNorm2d":
                value, moved = self.batchnorm(node, own, *inputs, training=key is not None)
                statistics.update({f"{node.name}.{name}": array for name, array in moved.items()})
                return value
            return LOWERINGS[node.op](self, node, own, *inputs, key=key)

        return evaluate(self.graph, apply, images).astype("float32"), statistics

    def conv2d(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        a = node.attrs
        y = self._convolve(x.astype(self.dtype), own["weight"].astype(self.dtype), a)
        return y + self._by_channel(own["bias"].astype(self.dtype)) if a["bias"] else y

    def _convolve(self, x: Any, weight: Any, a: Mapping[str, Any]) -> Any:
        window = Window.of(a)
        if self.shifts and window.kernel == (1, 1) and a["groups"] == 1 and not any(map(any, window.pads)):
            x = x[:, :: window.stride[0], :: window.stride[1]]
            return (x.reshape(-1, a["in_channels"]) @ weight[0, 0]).reshape(*x.shape[:3], -1)
        if self.shifts and a["groups"] == a["in_channels"] == a["out_channels"]:
            # summed in float32, as XLA's own convolution does: the weight's gradient has thousands of terms
            exact, kernel = x.astype("float32"), weight.astype("float32")
            return sum(view * kernel[i, j, 0] for i, j, view in self._shifted(exact, window, 0)).astype(self.dtype)
        return self.jax.lax.conv_general_dilated(
            x,
            weight,
            window.stride,
            window.pads,
            rhs_dilation=window.dilation,
            dimension_numbers=self.layouts,
            feature_group_count=a["groups"],
        )

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
        rows, columns = (self.jax.numpy.asarray(adaptive_matrix(*pair), x.dtype) for pair in sizes)
        how = "ih,nhwc,jw->nijc" if self.channels_last else "ih,nchw,jw->ncij"
        return self.jax.numpy.einsum(how, rows, x, columns)

    def global_avgpool(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        return x.mean(self.spatial if x.ndim == 4 else 1, dtype="float32").astype(x.dtype)

    def flatten(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        """In (C, H, W) order whatever the layout."""
        return (x.transpose(0, 3, 1, 2) if self.channels_last and x.ndim == 4 else x).reshape(x.shape[0], -1)

    def linear(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        y = self.features_last(x).astype(self.dtype) @ own["weight"].astype(self.dtype)
        return self.features_first(y + own["bias"].astype(self.dtype) if "bias" in own else y)

    def dropout(self, node: Node, own: Mapping[str, Any], x: Any, *, key: Any) -> Any:
        return self.dropped(node, x, x.shape, key)

    def dropped(self, node: Node, x: Any, shape: Tuple[int, ...], key: Any) -> Any:
        """A share p of x as zero, by chance drawn for that shape; x itself where there is no key."""
        if key is None:
            return x
        random, kept = self.jax.random, 1 - node.attrs["p"]
        key = random.fold_in(key, self.graph.nodes.index(node))
        return self.jax.numpy.where(random.bernoulli(key, kept, shape), x / kept, 0).astype(x.dtype)

    def lstm(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        jax, jnp = self.jax, self.jax.numpy
        w_ih, w_hh, bias = (own[name].astype(self.dtype) for name in ("weight_ih", "weight_hh", "bias"))

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
        pads = [(node.attrs["padding"],) * 2]
        layouts = ("NWC", "OIW", "NWC")
        weight = own["weight"].astype(self.dtype)
        y = self.jax.lax.conv_general_dilated(x.astype(self.dtype), weight, (1,), pads, dimension_numbers=layouts)
        return y + own["bias"].astype(self.dtype) if node.attrs["bias"] else y

    def layernorm(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        exact = self.features_last(x).astype("float32")
        scale = self.jax.lax.rsqrt(exact.var(-1, keepdims=True) + node.attrs["eps"])
        y = (exact - exact.mean(-1, keepdims=True)) * scale * own["weight"] + own["bias"]
        return self.features_first(y.astype(x.dtype))

    def avgpool(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        exact, window = x.astype("float32"), Window.of(node.attrs)
        if self.shifts:
            sums = sum(view for _, _, view in self._shifted(exact, window, 0))
        else:
            sums = self._reduce(exact, 0.0, self.jax.lax.add, window)
        size = [x.shape[axis] for axis in self.spatial]
        areas = window.areas(size, with_pads=node.attrs["count_include_pad"])
        if (areas == areas[0, 0]).all():
            return (sums / areas[0, 0]).astype(x.dtype)
        return (sums / (areas[:, :, None] if self.channels_last else areas)).astype(x.dtype)

    def _reduce(self, x: Any, start: float, function: Callable[..., Any], window: Window) -> Any:
        kernel, strides, pads = ([at] * 4 for at in (1, 1, (0, 0)))
        all_pads = window.all_pads([x.shape[axis] for axis in self.spatial])
        for axis, *along in zip(self.spatial, window.kernel, window.stride, all_pads):
            kernel[axis], strides[axis], pads[axis] = along
        return self.jax.lax.reduce_window(x, start, function, kernel, strides, pads)

    def quanv2d(self, node: Node, own: Mapping[str, Any], x: Any, **_: Any) -> Any:
        jnp, a = self.jax.numpy, node.attrs
        x = x.astype("float32") if self.channels_last else x.astype("float32").transpose(0, 2, 3, 1)
        rows, across = x.shape[1] // 2, x.shape[2] // 2
        pixels = x[:, : 2 * rows, : 2 * across, 0].reshape(-1, rows, 2, across, 2)
        pixels = pixels.transpose(0, 1, 3, 2, 4).reshape(-1, quanv.QUBITS)
        functions = quanv.Functions(
            jnp.cos,
            jnp.sin,
            jnp.multiply,
            lambda array, i: array[:, i : i + 1],
            functools.partial(jnp.concatenate, axis=-1),
            functools.partial(jnp.matmul, precision="highest"),
        )
        angles = own["angles"][None] if a["trained"] else None
        known = quanv.constants(a["gates"], a["trained"])
        y = quanv.expectations(functions, pixels, a["gates"], known, angles).reshape(-1, rows, across, quanv.QUBITS)
        return (y if self.channels_last else y.transpose(0, 3, 1, 2)).astype(self.dtype)

    @property
    def spatial(self) -> Tuple[int, int]:
        return (1, 2) if self.channels_last else (2, 3)

    def axis(self, rank: int, axis: int) -> int:
        """Axis of an array, for one of the graph's shape, which has no batch and channels before rows."""
        return 1 + ((axis - 1) % 3 if rank == 3 and self.channels_last else axis)

    def features_last(self, x: Any) -> Any:
        """An image with its channels at the end, where all else has its features."""
        return x.transpose(0, 2, 3, 1) if x.ndim == 4 and not self.channels_last else x

    def features_first(self, x: Any) -> Any:
        """Back from `features_last`."""
        return x.transpose(0, 3, 1, 2) if x.ndim == 4 and not self.channels_last else x

    def _by_channel(self, vector: Any) -> Any:
        return vector if self.channels_last else vector[:, None, None]


LOWERINGS: Dict[str, Callable[..., Any]] = {
    "Conv2d": Network.conv2d,
    "ReLU": lambda net, node, own, x, **_: net.jax.nn.relu(x),
    "ReLU6": lambda net, node, own, x, **_: net.jax.nn.relu6(x),
    "MaxPool2d": Network.maxpool,
    "AdaptiveAvgPool2d": Network.adaptive_avgpool,
    "GlobalAvgPool": Network.global_avgpool,
    "Flatten": Network.flatten,
    "Linear": Network.linear,
    "Dropout": Network.dropout,
    "Add": lambda net, node, own, x, y, **_: x + y,
    "Tanh": lambda net, node, own, x, **_: net.jax.numpy.tanh(x),
    "Sigmoid": lambda net, node, own, x, **_: net.jax.nn.sigmoid(x),
    "Embedding": lambda net, node, own, x, **_: own["weight"].astype(net.dtype)[x],
    "LSTM": Network.lstm,
    "GRU": Network.gru,
    "Last": lambda net, node, own, x, **_: x[:, -1],
    "Reverse": lambda net, node, own, x, **_: x[:, ::-1],
    "Conv1d": Network.conv1d,
    "LayerNorm": Network.layernorm,
    "AvgPool2d": Network.avgpool,
    "Quanv2d": Network.quanv2d,
    "Maxout": lambda net, node, own, x, **_: x.reshape(*x.shape[:-1], -1, node.attrs["pieces"]).max(-1),
    **attention.LOWERINGS,
}
OPS = frozenset(LOWERINGS) | {"BatchNorm2d"}
