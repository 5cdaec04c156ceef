"""The graph as calls of SINGA's autograd, and its parameters by their names in the graph.

A handle of SINGA's (convolution, pooling, BatchNorm) belongs to one batch size, which it takes from its first input and
never checks again. So each layer has a handle for each size that it meets, and a short last batch is computed as such.
"""

import math
from typing import Any, Callable, Dict, Hashable, Iterable

import numpy as np

from framework_compare.adapters.common.network import adaptive_matrix
from framework_compare.adapters.singa.operators import Operators
from framework_compare.adapters.singa.repairs import Singa
from framework_compare.errors import Unsupported
from framework_compare.graph import Graph, Node, Parameter, evaluate
from framework_compare.graph.lowering import graph_ops, lowered
from framework_compare.graph.node import IMAGE

WINDOW = ("kernel", "stride", "padding")
EPS = 1e-5  # of BatchNorm, fixed in SINGA's C++ side


class Network:
    """A graph in SINGA; `parameters` are its tensors by name, running statistics among them."""

    def __init__(self, singa: Singa, operators: Operators, graph: Graph) -> None:
        _refuse_other_forms(graph)
        self.singa, self.autograd, self.operators = singa, singa.autograd, operators
        self._graph, self._program = graph, lowered(graph, HAS)
        self.parameters = {parameter.name: self._tensor(parameter) for parameter in graph.parameters()}
        self._kept: Dict[Hashable, Any] = {}

    def _tensor(self, parameter: Parameter) -> Any:
        trained, shape = parameter.trainable, parameter.shape
        shape = shape[::-1] if len(shape) == 2 else shape  # SINGA has matrices as (in, out)
        how = {"requires_grad": trained, "stores_grad": trained, "name": parameter.name}
        return self.singa.tensor.Tensor(shape, **how).set_value(0.0)

    def __call__(self, images: Any, *, training: bool) -> Any:
        """Logits (N, classes); `training` keeps what the backward pass needs."""
        self.autograd.training = training
        return evaluate(self._program, self._apply, images)

    def _apply(self, node: Node, *inputs: Any) -> Any:
        training = self.autograd.training
        self.autograd.training = training and not (node.op in BY_MODE and self._graph.is_frozen(node))
        output = LAYERS[node.op](self, node, *inputs)
        self.autograd.training = training
        return output

    def of(self, node: Node, *names: str) -> "list[Any]":
        """Tensors of a layer; None for one that it does not have."""
        return [self.parameters.get(f"{node.name}.{name}") for name in names]

    def kept(self, node: Node, x: Any, make: Callable[[], Any]) -> Any:
        """Return what a layer needs for inputs of this shape, made when the first one comes."""
        key = (node.name, x.shape)
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def _refuse_other_forms(graph: Graph) -> None:
    """Refuse forms of an op that the package's own models do not have: SINGA's layers compute no others."""
    shapes = graph.shapes()
    for node in graph.nodes:
        # it differentiates BatchNorm by the batch's statistics only; a frozen one uses the running ones
        if node.op == "BatchNorm2d" and graph.is_frozen(node) and node.name in graph.backward_nodes():
            raise Unsupported(f"layer {node.name}: SINGA has no gradient of a frozen BatchNorm2d behind trained layers")
        a, read = node.attrs, [shapes[name] for name in node.inputs]
        numbers = (a[name] for name in (*WINDOW, "output") if name in a)
        if not all(isinstance(number, int) for number in numbers) or a.get("dilation") or a.get("ceil_mode"):
            raise Unsupported(f"layer {node.name}: SINGA has no {node.op} of that window: {dict(a)}")
        if node.op == "Linear" and (len(read[0]) > 1 or not a.get("bias", True)):
            raise Unsupported(f"layer {node.name}: SINGA has Linear for vectors and with a bias only")
        if node.op == "Add" and read[0] != read[1]:
            raise Unsupported(f"layer {node.name}: SINGA adds values of one shape only, gets {read[0]} and {read[1]}")
        if node.op == "GlobalAvgPool" and (len(read[0]) != IMAGE or read[0][1] != read[0][2]):
            raise Unsupported(f"layer {node.name}: SINGA averages square images only, gets {read[0]}")
        if node.arrays != node.name:
            raise Unsupported(f"layer {node.name}: SINGA has no layer that shares its arrays, here with {node.arrays}")


def as_stored(array: np.ndarray) -> np.ndarray:
    """An array between the graph's order and SINGA's, which has matrices as (in, out)."""
    return np.ascontiguousarray(array.T if array.ndim == 2 else array)


def _conv2d(network: Network, node: Node, x: Any) -> Any:
    a = node.attrs
    weight, bias = network.of(node, "weight", "bias")
    handle = network.kept(node, x, lambda: network.operators.conv_handle(a, x))
    if a["groups"] > 1:
        return network.operators.grouped_conv2d(handle, a["groups"], x, weight, bias)
    return network.autograd.conv2d(handle, x, weight, bias)


def _batchnorm2d(network: Network, node: Node, x: Any) -> Any:
    a, autograd = node.attrs, network.autograd
    weight, bias, mean, variance = network.of(node, "weight", "bias", "running_mean", "running_var")
    if autograd.training and x.size() == x.shape[1]:  # SINGA's would leave NaN as the running variance
        raise ValueError(f"layer {node.name}: a batch with one value per channel, {x.shape}, has no variance")
    # its momentum is the share of the new statistics, whatever its default of 0.9 suggests
    handle = network.kept(node, x, lambda: network.singa.core.BatchNormHandle(a["momentum"], x.data))
    if a["eps"] == EPS:
        return autograd.batchnorm_2d(handle, x, weight, bias, mean, variance)
    scale = math.sqrt(EPS / a["eps"])  # another eps is this one for a scaled input
    scaled = (mean * scale, variance * scale**2)
    y = autograd.batchnorm_2d(handle, network.operators.scale(x, scale), weight, bias, *scaled)
    if autograd.training:
        mean.copy_data(scaled[0] / scale)
        variance.copy_data(scaled[1] / scale**2)
    return y


def _pool2d(network: Network, node: Node, x: Any, window: Iterable[Any], is_max: bool) -> Any:
    pairs = [(number, number) for number in window]
    handle = network.kept(node, x, lambda: network.singa.core.PoolingHandle(x.data, *pairs, is_max))
    return network.autograd.pooling_2d(handle, x)


def _adaptive_avgpool2d(network: Network, node: Node, x: Any) -> Any:
    """A product with the windows' matrix, as SINGA has no such layer; nothing where the size is right already."""
    images, channels, height, width = x.shape
    output, autograd = node.attrs["output"], network.autograd
    if (height, width) == (output, output):
        return x
    if height == width and output == 1:
        return _pool2d(network, node, x, (height, 1, 0), False)

    def make_windows() -> Any:
        matrix = np.kron(adaptive_matrix(height, output), adaptive_matrix(width, output)).T
        return network.singa.tensor.Tensor(data=np.ascontiguousarray(matrix), requires_grad=False)

    windows = network.kept(node, x, make_windows)
    y = autograd.matmul(autograd.reshape(x, (images * channels, height * width)), windows)
    return autograd.reshape(y, (images, channels, output, output))


def _linear(network: Network, node: Node, x: Any) -> Any:
    weight, bias = network.of(node, "weight", "bias")
    return network.autograd.add_bias(network.autograd.matmul(x, weight), bias, axis=0)


LAYERS: Dict[str, Callable[..., Any]] = {
    "Conv2d": _conv2d,
    "BatchNorm2d": _batchnorm2d,
    "ReLU": lambda network, node, x: network.autograd.relu(x),
    "ReLU6": lambda network, node, x: network.autograd.clip(x, 0.0, 6.0),
    "MaxPool2d": lambda network, node, x: _pool2d(network, node, x, map(node.attrs.get, WINDOW), True),
    "AdaptiveAvgPool2d": _adaptive_avgpool2d,
    "Reshape": lambda network, node, x: network.autograd.reshape(x, node.attrs["shape"]),
    "Linear": _linear,
    "Dropout": lambda net, node, x: net.autograd.dropout(x, node.attrs["p"]) if net.autograd.training else x,
    "Add": lambda network, node, x, y: network.autograd.add(x, y),
}
BY_MODE = ("BatchNorm2d", "Dropout")  # layers that compute something else in evaluation
HAS = frozenset(LAYERS)
OPS = graph_ops(HAS)
