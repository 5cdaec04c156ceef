"""The graph by tf.nn ops on NHWC variables; what oneDNN's kernels do not take is stated otherwise."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import numpy as np

from framework_compare.adapters.common.network import adaptive_matrix
from framework_compare.graph import OPS as GRAPH_OPS
from framework_compare.graph import Graph, Node, evaluate

SEEDS_A_LAYER = 65536  # of dropout: one for each size of batch


class Network:
    """The graph over float32 tf.Variables, by graph name: convolutions HWIO, linear layers (in, out).

    It computes in `dtype`, and BatchNorm's statistics and the logits in float32.
    """

    def __init__(self, tf: Any, graph: Graph, dtype: str = "float32") -> None:
        self.tf = tf
        self.graph = graph
        self.dtype = dtype
        self._nodes = {p.name: node for node in graph.nodes for p in GRAPH_OPS[node.op].parameters(node)}
        shapes = graph.shapes()
        # a Linear behind a Flatten reads (C, H, W) order; NHWC flattens to (H, W, C)
        self._flattened = {
            node.name: shapes[flatten.inputs[0]]
            for flatten in graph.nodes
            for node in graph.nodes
            if flatten.op == "Flatten" and _source_through_dropout(graph, node) == flatten.name
        }
        self.variables = {
            p.name: tf.Variable(tf.zeros(self._native_shape(p.name, p.shape)), trainable=p.trainable, name=p.name)
            for p in graph.parameters()
        }

    def _native_shape(self, name: str, shape: Tuple[int, ...]) -> Tuple[int, ...]:
        order = self._native_order(name, len(shape))
        return tuple(shape[::-1]) if len(shape) == 2 else tuple(shape[i] for i in order or range(len(shape)))

    def to_native(self, name: str, array: np.ndarray) -> Any:
        """The tensor of a graph array in TensorFlow's layout; transposed by TensorFlow, which does it in parallel."""
        order = self._native_order(name, array.ndim)
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
        if ndim == 4:
            return (2, 3, 0, 1) if _is_depthwise(node.attrs) else (2, 3, 1, 0)
        if ndim == 2:
            return (2, 3, 1, 0) if node.name in self._flattened else (1, 0)
        return None

    def from_native(self, name: str, array: np.ndarray) -> np.ndarray:
        node = self._nodes[name]
        if array.ndim == 4:
            array = array.transpose(2, 3, 0, 1) if _is_depthwise(node.attrs) else array.transpose(3, 2, 0, 1)
        elif array.ndim == 2:
            array = array.T
            if node.name in self._flattened:
                c, h, w = self._flattened[node.name]
                array = array.reshape(-1, h, w, c).transpose(0, 3, 1, 2).reshape(len(array), -1)
        return np.ascontiguousarray(array)

    def __call__(self, images: Any, *, training: bool, keep_statistics: bool = False) -> Any:
        """Logits; `training` uses batch statistics and dropout, and updates the running ones unless told to keep them."""

        def apply(node: Node, *inputs: Any) -> Any:
            return LOWERINGS[node.op](self, node, *inputs, training=training, keep_statistics=keep_statistics)

        return self.tf.cast(evaluate(self.graph, apply, self.tf.cast(images, self.dtype)), "float32")

    def _of(self, node: Node, parameter: str) -> Any:
        return self.variables[f"{node.name}.{parameter}"]

    def _cast(self, node: Node, parameter: str) -> Any:
        return self.tf.cast(self._of(node, parameter), self.dtype)

    def conv2d(self, node: Node, x: Any, **_: Any) -> Any:
        a = node.attrs
        x, pads = _pad(self.tf, x, a)
        weight = self._cast(node, "weight")
        if _is_depthwise(a):
            y = self.tf.nn.depthwise_conv2d(x, weight, [1, a["stride"], a["stride"], 1], pads)
        elif a["groups"] == 1:
            y = self.tf.nn.conv2d(x, weight, a["stride"], pads)
        else:  # tf.nn.conv2d has no grouped kernels on a CPU
            parts = zip(*(self.tf.split(array, a["groups"], axis=3) for array in (x, weight)))
            y = self.tf.concat([self.tf.nn.conv2d(part, kernel, a["stride"], pads) for part, kernel in parts], axis=3)
        return self.tf.nn.bias_add(y, self._cast(node, "bias")) if a["bias"] else y

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
        a = node.attrs
        if a["padding"]:
            pads = [[0, 0], [a["padding"]] * 2, [a["padding"]] * 2, [0, 0]]
            x = self.tf.pad(x, pads, constant_values=-math.inf)
        return self.tf.nn.max_pool2d(x, a["kernel"], a["stride"], "VALID")

    def adaptive_avgpool(self, node: Node, x: Any, **_: Any) -> Any:
        size, output = int(x.shape[1]), node.attrs["output"]
        if size % output == 0:
            return self.tf.nn.avg_pool2d(x, size // output, size // output, "VALID")
        # no such op in TensorFlow: the windows of torch's adaptive pooling as one small matrix for rows and columns
        matrix = self.tf.cast(adaptive_matrix(size, output), x.dtype)
        return self.tf.einsum("ih,nhwc,jw->nijc", matrix, x, matrix)

    def linear(self, node: Node, x: Any, **_: Any) -> Any:
        return self.tf.nn.bias_add(self.tf.linalg.matmul(x, self._cast(node, "weight")), self._cast(node, "bias"))

    def dropout(self, node: Node, x: Any, *, training: bool, **_: Any) -> Any:
        if not training:
            return x
        # a function that is traced for a batch of another size starts TensorFlow's own seeds anew, and its masks again
        seed = SEEDS_A_LAYER * self.graph.nodes.index(node) + (x.shape[0] or 0)
        return self.tf.nn.dropout(x, rate=node.attrs["p"], seed=seed)


LOWERINGS: Dict[str, Callable[..., Any]] = {
    "Conv2d": Network.conv2d,
    "BatchNorm2d": Network.batchnorm,
    "ReLU": lambda net, node, x, **_: net.tf.nn.relu(x),
    "ReLU6": lambda net, node, x, **_: net.tf.nn.relu6(x),
    "MaxPool2d": Network.maxpool,
    "AdaptiveAvgPool2d": Network.adaptive_avgpool,
    "GlobalAvgPool": lambda net, node, x, **_: net.tf.reduce_mean(x, axis=[1, 2]),
    "Flatten": lambda net, node, x, **_: net.tf.reshape(x, [-1, math.prod(x.shape[1:])]),
    "Linear": Network.linear,
    "Dropout": Network.dropout,
    "Add": lambda net, node, x, y, **_: x + y,
}
OPS = frozenset(LOWERINGS)


def _is_depthwise(a: Mapping[str, Any]) -> bool:
    return 1 < a["groups"] == a["in_channels"] == a["out_channels"]


def _pad(tf: Any, x: Any, a: Mapping[str, Any]) -> Tuple[Any, str]:
    """The input and the named padding that come to a layer's symmetric one.

    tf.nn also takes explicit pads, but oneDNN's kernels do not: VGG-16 was 1.24 times slower with them (2.21).
    """
    if a["padding"] == 0:
        return x, "VALID"
    if a["stride"] == 1 and 2 * a["padding"] == a["kernel"] - 1:
        return x, "SAME"
    return tf.pad(x, [[0, 0], [a["padding"]] * 2, [a["padding"]] * 2, [0, 0]]), "VALID"


def _source_through_dropout(graph: Graph, node: Node) -> Optional[str]:
    """What a Linear reads, looking through Dropout, which keeps the order; None for other ops."""
    if node.op != "Linear":
        return None
    nodes = {n.name: n for n in graph.nodes}
    source = node.inputs[0]
    while source in nodes and nodes[source].op == "Dropout":
        source = nodes[source].inputs[0]
    return source
