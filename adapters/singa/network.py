"""The graph as calls of SINGA's autograd, and its parameters by their names in the graph.

A handle of SINGA's (convolution, pooling, BatchNorm) belongs to one batch size, which it takes from its first input and
never checks again. So each layer has a handle for each size that it meets, and a short last batch is computed as such.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Hashable

import numpy as np

from framework_compare.adapters.common.network import adaptive_matrix
from framework_compare.adapters.singa.operators import Operators
from framework_compare.adapters.singa.repairs import Singa
from framework_compare.errors import Unsupported
from framework_compare.graph import Graph, Node, Parameter, evaluate
from framework_compare.graph.lowering import graph_ops, lowered
from framework_compare.graph.node import IMAGE

EPS = 1e-5  # of BatchNorm, fixed in SINGA's C++ side


class Network:
    """A graph in SINGA; `parameters` are its tensors by name, running statistics among them."""

    def __init__(self, singa: Singa, operators: Operators, graph: Graph) -> None:
        _refuse_frozen_batchnorm(graph)
        _refuse_other_forms(graph)
        self.singa, self.operators = singa, operators
        self._graph, self._program = graph, lowered(graph, HAS)
        self.parameters = {parameter.name: self._tensor(parameter) for parameter in graph.parameters()}
        self._kept: Dict[Hashable, Any] = {}

    def _tensor(self, parameter: Parameter) -> Any:
        trained = parameter.trainable
        shape = parameter.shape[::-1]  # of a matrix, which SINGA has as (in, out); of a vector the same
        tensor = self.singa.tensor.Tensor(
            parameter.shape if len(shape) > 2 else shape,
            requires_grad=trained,
            stores_grad=trained,
            name=parameter.name,
        )
        return tensor.set_value(0.0)

    def __call__(self, images: Any, *, training: bool) -> Any:
        """Logits (N, classes); `training` keeps what the backward pass needs."""
        self.singa.autograd.training = training
        return evaluate(self._program, self._apply, images)

    def _apply(self, node: Node, *inputs: Any) -> Any:
        autograd = self.singa.autograd
        training = autograd.training
        autograd.training = training and not (node.op in BY_MODE and self._graph.is_frozen(node))
        output = LAYERS[node.op](self, node, *inputs)
        autograd.training = training
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


def _refuse_frozen_batchnorm(graph: Graph) -> None:
    """SINGA differentiates BatchNorm by the batch's statistics only; a frozen one uses the running ones."""
    for node in graph.nodes:
        if node.op == "BatchNorm2d" and graph.is_frozen(node) and node.name in graph.backward_nodes():
            raise Unsupported(f"layer {node.name}: SINGA has no gradient of a frozen BatchNorm2d behind trained layers")


def _refuse_other_forms(graph: Graph) -> None:
    """Refuse forms of an op that the package's own models do not have: SINGA's layers compute no others."""
    shapes = graph.shapes()
    for node in graph.nodes:
        a, read = node.attrs, [shapes[name] for name in node.inputs]
        numbers = (a[name] for name in ("kernel", "stride", "padding", "output") if name in a)
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
    return network.singa.autograd.conv2d(handle, x, weight, bias)


def _batchnorm2d(network: Network, node: Node, x: Any) -> Any:
    a, singa = node.attrs, network.singa
    weight, bias, mean, variance = network.of(node, "weight", "bias", "running_mean", "running_var")
    if singa.autograd.training and x.size() == x.shape[1]:  # SINGA's would leave NaN as the running variance
        raise ValueError(f"layer {node.name}: a batch with one value per channel, {x.shape}, has no variance")
    # its momentum is the share of the new statistics, whatever its default of 0.9 suggests
    handle = network.kept(node, x, lambda: singa.core.BatchNormHandle(a["momentum"], x.data))
    if a["eps"] == EPS:
        return singa.autograd.batchnorm_2d(handle, x, weight, bias, mean, variance)
    scale = math.sqrt(EPS / a["eps"])  # another eps is this one for a scaled input
    scaled = (mean * scale, variance * scale**2)
    y = singa.autograd.batchnorm_2d(handle, network.operators.scale(x, scale), weight, bias, *scaled)
    if singa.autograd.training:
        mean.copy_data(scaled[0] / scale)
        variance.copy_data(scaled[1] / scale**2)
    return y


def _pool2d(network: Network, node: Node, x: Any, kernel: int, stride: int, padding: int, is_max: bool) -> Any:
    pairs = [(number, number) for number in (kernel, stride, padding)]
    handle = network.kept(node, x, lambda: network.singa.core.PoolingHandle(x.data, *pairs, is_max))
    return network.singa.autograd.pooling_2d(handle, x)


def _adaptive_avgpool2d(network: Network, node: Node, x: Any) -> Any:
    """A product with the windows' matrix, as SINGA has no such layer; nothing where the size is right already."""
    images, channels, height, width = x.shape
    output, autograd = node.attrs["output"], network.singa.autograd
    if (height, width) == (output, output):
        return x
    if height == width and output == 1:
        return _pool2d(network, node, x, height, 1, 0, False)
    windows = network.kept(node, x, lambda: _windows(network, height, width, output))
    y = autograd.matmul(autograd.reshape(x, (images * channels, height * width)), windows)
    return autograd.reshape(y, (images, channels, output, output))


def _windows(network: Network, height: int, width: int, output: int) -> Any:
    matrix = np.kron(adaptive_matrix(height, output), adaptive_matrix(width, output)).T
    return network.singa.tensor.Tensor(data=np.ascontiguousarray(matrix), requires_grad=False)


def _linear(network: Network, node: Node, x: Any) -> Any:
    weight, bias = network.of(node, "weight", "bias")
    autograd = network.singa.autograd
    return autograd.add_bias(autograd.matmul(x, weight), bias, axis=0)


LAYERS: Dict[str, Callable[..., Any]] = {
    "Conv2d": _conv2d,
    "BatchNorm2d": _batchnorm2d,
    "ReLU": lambda network, node, x: network.singa.autograd.relu(x),
    "ReLU6": lambda network, node, x: network.singa.autograd.clip(x, 0.0, 6.0),
    "MaxPool2d": lambda network, node, x: _pool2d(
        network, node, x, node.attrs["kernel"], node.attrs["stride"], node.attrs["padding"], True
    ),
    "AdaptiveAvgPool2d": _adaptive_avgpool2d,
    "Reshape": lambda network, node, x: network.singa.autograd.reshape(x, node.attrs["shape"]),
    "Linear": _linear,
    "Dropout": lambda network, node, x: (
        network.singa.autograd.dropout(x, node.attrs["p"]) if network.singa.autograd.training else x
    ),
    "Add": lambda network, node, x, y: network.singa.autograd.add(x, y),
}
BY_MODE = ("BatchNorm2d", "Dropout")  # layers that compute something else in evaluation
HAS = frozenset(LAYERS)
OPS = graph_ops(HAS)
