"""The graph over variables of TensorFlow, NHWC; `layers` says what each op is."""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np

from framework_compare.adapters.common.network import order_of
from framework_compare.adapters.common.trainer import each
from framework_compare.adapters.tensorflow.layers import FUNCTIONS, LAYERS, is_depthwise
from framework_compare.adapters.tensorflow.recurrent import kernels
from framework_compare.graph import OPS as GRAPH_OPS
from framework_compare.graph import Graph, Node, evaluate
from framework_compare.graph.lowering import graph_ops, lowered
from framework_compare.graph.node import IMAGE
from framework_compare.graph.ops import ACTIVATIONS

SEEDS_A_LAYER = 65536  # of dropout: one for each size of batch
POINTWISE = (*ACTIVATIONS, "Dropout", "StochasticDepth")
_BLOCK_GATES = (0, 2, 1, 3)  # of i, f, g, o; BlockLSTM has i, g, f, o
HAS = frozenset(LAYERS) | frozenset(FUNCTIONS)
OPS = graph_ops(HAS)


class Network:
    """The graph over float32 tf.Variables, by graph name: convolutions HWIO, linear layers (in, out).

    It computes in `dtype`, and BatchNorm's statistics and the logits in float32. compiled: XLA compiles it. replica:
    gives the number of the one that calls, for its masks.
    """

    def __init__(self, tf: Any, graph: Graph, dtype: str, compiled: bool = False, replica: Any = lambda: 0) -> None:
        self.tf, self.dtype, self._replica = tf, dtype, replica
        self.on_gpu = bool(tf.config.get_visible_devices("GPU"))
        self.recurrent = kernels(dtype, gpu=self.on_gpu, compiled=compiled)
        self._nodes = {p.name: node for node in graph.nodes for p in GRAPH_OPS[node.op].parameters(node)}
        self._places = {node.name: place for place, node in enumerate(graph.nodes)}
        shapes, uses = graph.shapes(), Counter(node.arrays for node in graph.nodes)
        # a Linear behind a Flatten reads (C, H, W) order; NHWC flattens to (H, W, C)
        self._flattened: Dict[str, Any] = {}
        as_stored: Set[str] = set()  # every Flatten that no others read: all else is put into the graph's order
        for flatten in graph.nodes:
            if flatten.op == "Flatten" and len(shapes[flatten.inputs[0]]) == IMAGE:
                readers = _readers(graph, flatten.name)
                if readers and all(node.op == "Linear" and uses[node.arrays] == 1 for node in readers):
                    self._flattened.update((node.name, shapes[flatten.inputs[0]]) for node in readers)
                    as_stored.add(flatten.name)
        self.program = lowered(graph, HAS, channels_last=True, as_stored=as_stored)
        self.variables = {}
        for p in graph.parameters():
            order, axes = self._native_order(p.name, len(p.shape)), len(p.shape)
            shape = p.shape[::-1] if axes == 2 and order else [p.shape[i] for i in order or range(axes)]
            self.variables[p.name] = tf.Variable(tf.zeros(shape), trainable=p.trainable, name=p.name)

    def to_native(self, name: str, array: np.ndarray) -> Any:
        """The tensor of a graph array in TensorFlow's layout; transposed by TensorFlow, which does it in parallel."""
        node, order = self._nodes[name], self._native_order(name, array.ndim)
        array = _reordered(array) if node.op == "LSTM" else array
        if not order:
            return self.tf.constant(array)
        flat = len(order) > array.ndim
        whole = array.reshape(-1, *self._flattened[node.name]) if flat else array
        tensor = self.tf.transpose(self.tf.constant(whole), order)
        return self.tf.reshape(tensor, (-1, tensor.shape[-1])) if flat else tensor

    def _native_order(self, name: str, ndim: int) -> Tuple[int, ...]:
        """Axes of a graph array in native order, a flattened image's counted separately; () to leave it as it is."""
        node = self._nodes[name]
        if ndim == 4 and node.op == "Conv2d" and is_depthwise(node.attrs):
            return (2, 3, 0, 1)
        return order_of(node, 4 if ndim == 2 and node.name in self._flattened else ndim)

    def from_native(self, name: str, array: np.ndarray) -> np.ndarray:
        node, order = self._nodes[name], self._native_order(name, array.ndim)
        if order:
            flat, (c, h, w) = len(order) > array.ndim, self._flattened.get(node.name, (0, 0, 0))
            moved = (array.reshape(h, w, c, -1) if flat else array).transpose(np.argsort(order))
            array = moved.reshape(len(moved), -1) if flat else moved
        return np.ascontiguousarray(_reordered(array) if node.op == "LSTM" else array)

    def __call__(self, images: Any, *, training: bool, keep_statistics: bool = False) -> Any:
        """Logits; `training` uses batch statistics and dropout, and updates the running ones unless told to keep them."""

        def apply(node: Node, *inputs: Any) -> Any:
            if node.op in FUNCTIONS:
                return FUNCTIONS[node.op](self.tf, node.attrs, *inputs)
            return LAYERS[node.op](self, node, *inputs, training=training, keep_statistics=keep_statistics)

        images = each(lambda one: self.tf.cast(one, self.dtype) if one.dtype.is_floating else one, images)
        return self.tf.cast(evaluate(self.program, apply, images), "float32")

    def keys_and_values(self, node: Node, keys: Any, values: Any) -> Any:
        """Return what a layer of attention attends to: its own, or those of earlier steps, too."""
        return keys, values

    def of(self, node: Node, parameter: str) -> Any:
        return self.variables[f"{node.arrays}.{parameter}"]

    def cast(self, node: Node, parameter: str) -> Any:
        return self.tf.cast(self.of(node, parameter), self.dtype)

    def dropped(self, node: Node, x: Any, shape: Optional[Sequence[Any]]) -> Any:
        """A share p of x as zero, by chance drawn for that shape, or for each value."""
        # a function that is traced for a batch of another size starts TensorFlow's own seeds anew, and its masks again
        layer = self._places[node.name] + len(self._places) * self._replica()
        seed = SEEDS_A_LAYER * layer + (x.shape[0] or 0)
        return self.tf.nn.dropout(x, rate=node.attrs["p"], noise_shape=shape, seed=seed)


def _reordered(array: np.ndarray) -> np.ndarray:
    """Gates i, f, g, o in BlockLSTM's order, and back."""
    gates = np.split(array, 4, axis=0)
    return np.concatenate([gates[place] for place in _BLOCK_GATES], axis=0)


def _readers(graph: Graph, name: str) -> List[Node]:
    """Return the readers of a value, looking through elementwise ops; none where the output is one of these."""
    readers = [node for node in graph.nodes if name in node.inputs]
    through = [_readers(graph, node.name) if node.op in POINTWISE else [node] for node in readers]
    return [node for nodes in through for node in nodes] if all(through) else []
