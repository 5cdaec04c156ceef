"""The graph by tf.nn ops on NHWC variables; what oneDNN's kernels do not take is stated otherwise."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from framework_compare.adapters.common import quanv
from framework_compare.adapters.common.network import adaptive_matrix
from framework_compare.adapters.tensorflow import attention
from framework_compare.graph import OPS as GRAPH_OPS
from framework_compare.graph import Graph, Node, evaluate
from framework_compare.graph.image_ops import adaptive_size
from framework_compare.graph.node import IMAGE
from framework_compare.graph.window import Window

SEEDS_A_LAYER = 65536  # of dropout: one for each size of batch


# Arrays that stay as the graph has them.
AS_STORED = ("Embedding", "Parameter", "RelativeBias")
POINTWISE = (
    "Dropout",
    "ReLU",
    "ReLU6",
    "Tanh",
    "Sigmoid",
    "SiLU",
    "HardSigmoid",
    "HardSwish",
    "GELU",
    "StochasticDepth",
)
# BlockLSTM has the gates in the order i, g, f, o.
_BLOCK_GATES = (0, 2, 1, 3)


class Network:
    """The graph over float32 tf.Variables, by graph name: convolutions HWIO, linear layers (in, out).

    It computes in `dtype`, and BatchNorm's statistics and the logits in float32. fused: recurrent layers may run in
    kernels of their own, for which XLA has no counterpart. replica: the number of the one that calls, for its masks.
    """

    def __init__(
        self,
        tf: Any,
        graph: Graph,
        dtype: str = "float32",
        *,
        fused: bool = True,
        replica: Callable[[], int] = lambda: 0,
    ) -> None:
        self.tf = tf
        self._replica = replica
        self.graph = graph
        self.dtype = dtype
        self._on_gpu = bool(tf.config.get_visible_devices("GPU"))
        self._of_numbers = graph.task.inputs[0].dtype == "float32"
        self.fused = fused and dtype == "float32"
        self._nodes = {p.name: node for node in graph.nodes for p in GRAPH_OPS[node.op].parameters(node)}
        shapes, uses = graph.shapes(), Counter(node.arrays for node in graph.nodes)
        self.shared = graph.shared_values()
        # a Linear behind a Flatten reads (C, H, W) order; NHWC flattens to (H, W, C)
        self._flattened: Dict[str, Any] = {}
        self._turned: Set[str] = set()  # every Flatten that others read, too: it is put into the graph's order
        for flatten in graph.nodes:
            if flatten.op == "Flatten" and len(shapes[flatten.inputs[0]]) == IMAGE:
                readers = _readers(graph, flatten.name)
                if readers and all(node.op == "Linear" and uses[node.arrays] == 1 for node in readers):
                    self._flattened.update((node.name, shapes[flatten.inputs[0]]) for node in readers)
                else:
                    self._turned.add(flatten.name)
        self.variables = {
            p.name: tf.Variable(tf.zeros(self._native_shape(p.name, p.shape)), trainable=p.trainable, name=p.name)
            for p in graph.parameters()
        }

    def _native_shape(self, name: str, shape: Tuple[int, ...]) -> Tuple[int, ...]:
        order = self._native_order(name, len(shape))
        if order is None:
            return shape
        return tuple(shape[::-1]) if len(shape) == 2 else tuple(shape[i] for i in order or range(len(shape)))

    def to_native(self, name: str, array: np.ndarray) -> Any:
        """The tensor of a graph array in TensorFlow's layout; transposed by TensorFlow, which does it in parallel."""
        order = self._native_order(name, array.ndim)
        if self._nodes[name].op == "LSTM":
            array = _reordered(array)
        if order is None:
            return self.tf.constant(array)
        if len(order) == 4 and array.ndim == 2:
            array = array.reshape(-1, *self._flattened[self._nodes[name].name])
            tensor = self.tf.transpose(self.tf.constant(array), order)
            return self.tf.reshape(tensor, (-1, tensor.shape[-1]))
        return self.tf.transpose(self.tf.constant(array), order)

    def _native_order(self, name: str, ndim: int) -> Optional[Tuple[int, ...]]:
        """Axes of a graph array in native order, a flattened picture's counted apart; None to leave it as it is."""
        node = self._nodes[name]
        if node.op in AS_STORED:
            return None
        if ndim == 3:
            return (2, 1, 0)
        if ndim == 4:
            return (2, 3, 0, 1) if _is_depthwise(node.attrs) else (2, 3, 1, 0)
        if ndim == 2:
            return (2, 3, 1, 0) if node.name in self._flattened else (1, 0)
        return None

    def from_native(self, name: str, array: np.ndarray) -> np.ndarray:
        node = self._nodes[name]
        if node.op in AS_STORED:
            return np.ascontiguousarray(array)
        if array.ndim == 4:
            array = array.transpose(2, 3, 0, 1) if _is_depthwise(node.attrs) else array.transpose(3, 2, 0, 1)
        elif array.ndim == 3:
            array = array.transpose(2, 1, 0)
        elif array.ndim == 2:
            array = array.T
            if node.name in self._flattened:
                c, h, w = self._flattened[node.name]
                array = array.reshape(-1, h, w, c).transpose(0, 3, 1, 2).reshape(len(array), -1)
        if node.op == "LSTM":
            array = _reordered(array)
        return np.ascontiguousarray(array)

    def __call__(self, images: Any, *, training: bool, keep_statistics: bool = False) -> Any:
        """Logits; `training` uses batch statistics and dropout, and updates the running ones unless told to keep them."""

        def apply(node: Node, *inputs: Any) -> Any:
            return LOWERINGS[node.op](self, node, *inputs, training=training, keep_statistics=keep_statistics)

        images = self.tf.cast(images, self.dtype) if self._of_numbers else images
        return self.tf.cast(evaluate(self.graph, apply, images), "float32")

    def _of(self, node: Node, parameter: str) -> Any:
        return self.variables[f"{node.arrays}.{parameter}"]

    def cast(self, node: Node, parameter: str) -> Any:
        return self.tf.cast(self._of(node, parameter), self.dtype)

    def conv2d(self, node: Node, x: Any, **_: Any) -> Any:
        tf, a, window = self.tf, node.attrs, Window.of(node.attrs)
        x, pads = _pad(tf, x, window)
        weight = self.cast(node, "weight")
        if _is_depthwise(a):
            strides = [1, *window.stride, 1]
            y = tf.nn.depthwise_conv2d(x, weight, strides, pads, dilations=list(window.dilation))
        elif a["groups"] == 1:
            y = self._convolve(x, weight, window, pads)
        else:  # tf.nn.conv2d has no grouped kernels on a CPU
            parts = zip(*(tf.split(array, a["groups"], axis=3) for array in (x, weight)))
            y = tf.concat([self._convolve(part, kernel, window, pads) for part, kernel in parts], axis=3)
        return tf.nn.bias_add(y, self.cast(node, "bias")) if a["bias"] else y

    def _convolve(self, x: Any, weight: Any, window: Window, pads: str) -> Any:
        nn, dilation = self.tf.nn, list(window.dilation)
        if window.dilation == (1, 1) or self._on_gpu:
            return nn.conv2d(x, weight, list(window.stride), pads, dilations=dilation)
        # on a CPU a dilated convolution has no gradient (2.21): one of every second pixel is not dilated
        y = self.tf.compat.v1.nn.with_space_to_batch(
            x, dilation, pads, lambda part, _, pads: nn.conv2d(part, weight, 1, pads), filter_shape=weight.shape
        )
        return y[:, :: window.stride[0], :: window.stride[1]]

    def batchnorm(self, node: Node, x: Any, *, training: bool, keep_statistics: bool) -> Any:
        tf, a = self.tf, node.attrs
        mean, variance = self._of(node, "running_mean"), self._of(node, "running_var")
        y, new_mean, new_variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=self._of(node, "weight"),
            offset=self._of(node, "bias"),
            mean=mean,
            variance=variance,
            epsilon=a["eps"],
            exponential_avg_factor=a["momentum"],
            is_training=training,
        )
        if training and not keep_statistics:
            mean.assign(new_mean)
            variance.assign(new_variance)
        return y

    def maxpool(self, node: Node, x: Any, **_: Any) -> Any:
        window = Window.of(node.attrs)
        pads = window.all_pads(x.shape[1:3])
        if any(map(any, pads)):
            x = self.tf.pad(x, [(0, 0), *pads, (0, 0)], constant_values=-math.inf)
        return self.tf.nn.max_pool2d(x, window.kernel, window.stride, "VALID")

    def adaptive_avgpool(self, node: Node, x: Any, **_: Any) -> Any:
        sizes = list(zip(x.shape[1:3], adaptive_size(node.attrs)))
        if all(output == 1 for _, output in sizes):
            return self.tf.reduce_mean(x, axis=[1, 2], keepdims=True)
        if all(size % output == 0 for size, output in sizes):
            kernel = [size // output for size, output in sizes]
            return self.tf.nn.avg_pool2d(x, kernel, kernel, "VALID")
        # no such op in TensorFlow: the windows of torch's adaptive pooling as one small matrix for rows, one for columns
        rows, columns = (self.tf.cast(adaptive_matrix(*pair), x.dtype) for pair in sizes)
        return self.tf.einsum("ih,nhwc,jw->nijc", rows, x, columns)

    def flatten(self, node: Node, x: Any, **_: Any) -> Any:
        if node.name in self._turned:
            x = self.tf.transpose(x, (0, 3, 1, 2))
        return self.tf.reshape(x, [-1, math.prod(x.shape[1:])])

    def lstm(self, node: Node, x: Any, **_: Any) -> Any:
        tf = self.tf
        weight = tf.concat([self.cast(node, "weight_ih"), self.cast(node, "weight_hh")], axis=0)
        bias, hidden = self.cast(node, "bias"), node.attrs["hidden_size"]
        steps, zero = tf.transpose(x, (1, 0, 2)), tf.zeros((tf.shape(x)[0], hidden), self.dtype)
        if self.fused:
            # V1: the gradient that TensorFlow has registered for BlockLSTMV2 is V1's, and wrong for it (2.21)
            nothing = tf.zeros((hidden,), self.dtype)
            found = tf.raw_ops.BlockLSTM(
                seq_len_max=tf.constant(x.shape[1], tf.int64),
                x=steps,
                cs_prev=zero,
                h_prev=zero,
                w=weight,
                wci=nothing,
                wcf=nothing,
                wco=nothing,
                b=bias,
                forget_bias=0.0,
                cell_clip=-1.0,
            )
            return tf.transpose(found.h, (1, 0, 2))

        def step(state: Any, at: Any) -> Any:
            h, c = state
            i, g, f, o = tf.split(tf.matmul(tf.concat([at, h], 1), weight) + bias, 4, axis=1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            return tf.sigmoid(o) * tf.tanh(c), c

        return self._looped(step, (zero, zero), steps)

    def gru(self, node: Node, x: Any, **_: Any) -> Any:
        tf, hidden = self.tf, node.attrs["hidden_size"]
        weight, from_bias, bias = (self.cast(node, name) for name in ("weight_hh", "bias_ih", "bias_hh"))
        from_inputs = tf.linalg.matmul(tf.transpose(x, (1, 0, 2)), self.cast(node, "weight_ih")) + from_bias

        def step(state: Any, at: Any) -> Any:
            (h,) = state
            xr, xz, xn = tf.split(at, 3, axis=1)
            hr, hz, hn = tf.split(tf.matmul(h, weight) + bias, 3, axis=1)
            z = tf.sigmoid(xz + hz)
            return ((1 - z) * tf.tanh(xn + tf.sigmoid(xr + hr) * hn) + z * h,)

        return self._looped(step, (tf.zeros((tf.shape(x)[0], hidden), self.dtype),), from_inputs)

    def _looped(self, step: Callable[[Any, Any], Any], start: Tuple[Any, ...], inputs: Any) -> Any:
        """First state of each step, (N, steps, features), from inputs (steps, N, features)."""
        tf, steps = self.tf, inputs.shape[0]
        inputs = tf.TensorArray(inputs.dtype, steps, element_shape=inputs.shape[1:]).unstack(inputs)
        shape = (inputs.element_shape[0], start[0].shape[-1])

        def body(t: Any, states: Any, state: Any) -> Any:
            state = step(state, inputs.read(t))
            return t + 1, states.write(t, state[0]), state

        states = tf.TensorArray(self.dtype, steps, element_shape=shape)
        start = tuple(tf.ensure_shape(state, shape) for state in start)
        _, states, _ = tf.while_loop(
            lambda t, *_: t < steps, body, (tf.constant(0), states, start), maximum_iterations=steps
        )
        return tf.transpose(states.stack(), (1, 0, 2))

    def embedding(self, node: Node, x: Any, **_: Any) -> Any:
        return self.tf.gather(self.cast(node, "weight"), x)

    def conv1d(self, node: Node, x: Any, **_: Any) -> Any:
        a = node.attrs
        x = self.tf.pad(x, [[0, 0], [a["padding"]] * 2, [0, 0]]) if a["padding"] else x
        y = self.tf.nn.conv1d(x, self.cast(node, "weight"), 1, "VALID")
        return y + self.cast(node, "bias") if a["bias"] else y

    def layernorm(self, node: Node, x: Any, **_: Any) -> Any:
        tf, exact = self.tf, self.tf.cast(x, "float32")
        mean, variance = tf.nn.moments(exact, [-1], keepdims=True)
        weight, bias = self._of(node, "weight"), self._of(node, "bias")
        return tf.cast(tf.nn.batch_normalization(exact, mean, variance, bias, weight, node.attrs["eps"]), x.dtype)

    def maxout(self, node: Node, x: Any, **_: Any) -> Any:
        pieces = node.attrs["pieces"]
        shape = [-1, *x.shape[1:-1], x.shape[-1] // pieces, pieces]
        return self.tf.reduce_max(self.tf.reshape(x, shape), axis=-1)

    def avgpool(self, node: Node, x: Any, **_: Any) -> Any:
        tf, window, size = self.tf, Window.of(node.attrs), x.shape[1:3]
        pads = window.all_pads(size)
        if any(map(any, pads)):  # of explicit pads TensorFlow's own kernel has none
            x = tf.pad(x, [(0, 0), *pads, (0, 0)])
        means = tf.nn.avg_pool2d(x, window.kernel, window.stride, "VALID")
        shares = math.prod(window.kernel) / window.areas(size, with_pads=node.attrs["count_include_pad"])
        return means if (shares == 1).all() else means * tf.cast(shares[:, :, None], means.dtype)

    def quanv2d(self, node: Node, x: Any, **_: Any) -> Any:
        tf, a = self.tf, node.attrs
        rows, across = x.shape[1] // 2, x.shape[2] // 2
        pixels = tf.reshape(tf.cast(x, "float32")[:, : 2 * rows, : 2 * across, 0], (-1, rows, 2, across, 2))
        pixels = tf.reshape(tf.transpose(pixels, (0, 1, 3, 2, 4)), (-1, quanv.QUBITS))
        functions = quanv.Functions(
            tf.cos,
            tf.sin,
            tf.multiply,
            lambda array, i: array[:, i : i + 1],
            lambda arrays: tf.concat(arrays, axis=-1),
            tf.matmul,
        )
        angles = self._of(node, "angles")[None] if a["trained"] else None
        known = quanv.constants(a["gates"], a["trained"])
        y = quanv.expectations(functions, pixels, a["gates"], known, angles)
        return tf.cast(tf.reshape(y, (-1, rows, across, quanv.QUBITS)), self.dtype)

    def linear(self, node: Node, x: Any, **_: Any) -> Any:
        tf, weight, outer = self.tf, self.cast(node, "weight"), x.shape[1:-1]
        x = tf.reshape(x, (-1, x.shape[-1])) if outer else x  # a product of matrices; of more axes it is one a sample
        y = tf.linalg.matmul(x, weight)
        y = tf.nn.bias_add(y, self.cast(node, "bias")) if node.attrs.get("bias", True) else y
        return tf.reshape(y, (-1, *outer, weight.shape[1])) if outer else y

    def dropout(self, node: Node, x: Any, *, training: bool, **_: Any) -> Any:
        return self.dropped(node, x, None) if training else x

    def dropped(self, node: Node, x: Any, shape: Optional[Sequence[Any]]) -> Any:
        """A share p of x as zero, by chance drawn for that shape, or for each value."""
        # a function that is traced for a batch of another size starts TensorFlow's own seeds anew, and its masks again
        layer = self.graph.nodes.index(node) + len(self.graph.nodes) * self._replica()
        seed = SEEDS_A_LAYER * layer + (x.shape[0] or 0)
        return self.tf.nn.dropout(x, rate=node.attrs["p"], noise_shape=shape, seed=seed)

    def batch(self, x: Any) -> Any:
        """Number of samples, a tensor where it is not known before."""
        return self.tf.shape(x)[0] if x.shape[0] is None else x.shape[0]


LOWERINGS: Dict[str, Callable[..., Any]] = {
    "Conv2d": Network.conv2d,
    "BatchNorm2d": Network.batchnorm,
    "ReLU": lambda net, node, x, **_: net.tf.nn.relu(x),
    "ReLU6": lambda net, node, x, **_: net.tf.nn.relu6(x),
    "MaxPool2d": Network.maxpool,
    "AdaptiveAvgPool2d": Network.adaptive_avgpool,
    "GlobalAvgPool": lambda net, node, x, **_: net.tf.reduce_mean(x, axis=[1, 2] if len(x.shape) == 4 else 1),
    "Flatten": Network.flatten,
    "Linear": Network.linear,
    "Dropout": Network.dropout,
    "Add": lambda net, node, x, y, **_: x + y,
    "Tanh": lambda net, node, x, **_: net.tf.tanh(x),
    "Sigmoid": lambda net, node, x, **_: net.tf.sigmoid(x),
    "Embedding": Network.embedding,
    "LSTM": Network.lstm,
    "GRU": Network.gru,
    "Last": lambda net, node, x, **_: x[:, -1],
    "Reverse": lambda net, node, x, **_: net.tf.reverse(x, [1]),
    "Conv1d": Network.conv1d,
    "LayerNorm": Network.layernorm,
    "Maxout": Network.maxout,
    "AvgPool2d": Network.avgpool,
    "Quanv2d": Network.quanv2d,
    **attention.LOWERINGS,
}
OPS = frozenset(LOWERINGS)


def _reordered(array: np.ndarray) -> np.ndarray:
    """Gates i, f, g, o in BlockLSTM's order, and back."""
    gates = np.split(array, 4, axis=0)
    return np.concatenate([gates[place] for place in _BLOCK_GATES], axis=0)


def _is_depthwise(a: Mapping[str, Any]) -> bool:
    """TensorFlow's depthwise kernel takes one stride for both axes, and of dilated ones the stride 1 only."""
    (down, across), dilation = Window.of(a).stride, Window.of(a).dilation
    takes = down == across and (down == 1 or dilation == (1, 1))
    return 1 < a["groups"] == a["in_channels"] == a["out_channels"] and takes


def _pad(tf: Any, x: Any, window: Window) -> Tuple[Any, str]:
    """The input and the named padding that come to a layer's own.

    tf.nn also takes explicit pads, but oneDNN's kernels do not: VGG-16 was 1.24 times slower with them (2.21).
    """
    if not any(map(any, window.pads)):
        return x, "VALID"
    whole = all(2 * first == span - 1 for (first, _), span in zip(window.pads, window.spans))
    if window.stride == (1, 1) and window.is_symmetric and whole:
        return x, "SAME"
    return tf.pad(x, [(0, 0), *window.pads, (0, 0)]), "VALID"


def _readers(graph: Graph, name: str) -> List[Node]:
    """What reads a value, looking through ops that change number by number; empty where the output is one of them."""
    readers = [node for node in graph.nodes if name in node.inputs]
    through = [_readers(graph, node.name) if node.op in POINTWISE else [node] for node in readers]
    return [node for nodes in through for node in nodes] if all(through) else []
