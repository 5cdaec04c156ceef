"""Writes a network down layer by layer; each layer's shape is checked as it is added."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List

from framework_compare.errors import UsageError
from framework_compare.graph.network import INPUT, Graph
from framework_compare.graph.ops import OPS, Node, Shape


class GraphBuilder:
    """Adds layers one after the other; each call returns the new node's name, for branches to read."""

    def __init__(self, name: str, *, num_classes: int, image_size: int) -> None:
        for what, value in (("num_classes", num_classes), ("image_size", image_size)):
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"{name}: {what} is {value!r}; allowed: a whole number of at least 1")
        self._graph = Graph(name, num_classes, image_size, ())
        self._nodes: List[Node] = []
        self._shapes: Dict[str, Shape] = {INPUT: self._graph.input_shape}
        self.last = INPUT

    def _add(self, name: str, op: str, source: str = "", other: str = "", **attrs: Any) -> str:
        inputs = (source or self.last,) + ((other,) if other else ())
        node = Node(name, op, inputs, attrs)
        try:
            self._shapes[name] = OPS[op].shape(node, *(self._shapes[i] for i in inputs))
        except UsageError as error:
            size = self._graph.image_size
            raise UsageError(f"{self._graph.name} does not allow image_size {size}: {error}; use a larger one") from None
        self._nodes.append(node)
        self.last = name
        return name

    def shape(self, name: str = "") -> Shape:
        return self._shapes[name or self.last]

    def conv(
        self,
        name: str,
        out: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = False,
        init: str = "kaiming_normal_fan_out",
        source: str = "",
    ) -> str:
        """Conv2d, cross-correlation, square kernel, symmetric zero padding."""
        return self._add(
            name,
            "Conv2d",
            source,
            in_channels=self.shape(source)[0],
            out_channels=out,
            kernel=kernel,
            stride=stride,
            padding=padding,
            groups=groups,
            bias=bias,
            init=init,
        )

    def batchnorm(self, name: str, *, eps: float = 1e-5, momentum: float = 0.1) -> str:
        """BatchNorm2d; `momentum` is the weight of the new batch in the running statistics, as in torch."""
        return self._add(name, "BatchNorm2d", channels=self.shape()[0], eps=eps, momentum=momentum)

    def relu(self, name: str) -> str:
        return self._add(name, "ReLU")

    def relu6(self, name: str) -> str:
        return self._add(name, "ReLU6")

    def maxpool(self, name: str, kernel: int, *, stride: int, padding: int = 0) -> str:
        """Max pooling; padding never wins, output size rounded down."""
        return self._add(name, "MaxPool2d", kernel=kernel, stride=stride, padding=padding)

    def adaptive_avgpool(self, name: str, output: int) -> str:
        """Average pooling to output x output; left out where it would change nothing."""
        if self.shape()[1:] == (output, output):
            return self.last
        return self._add(name, "AdaptiveAvgPool2d", output=output)

    def global_avgpool(self, name: str) -> str:
        return self._add(name, "GlobalAvgPool")

    def flatten(self, name: str) -> str:
        """To a vector in (C, H, W) order, whatever layout the framework computes in."""
        return self._add(name, "Flatten")

    def linear(self, name: str, out: int, *, init: str = "normal_0.01") -> str:
        return self._add(name, "Linear", in_features=self.shape()[0], out_features=out, init=init)

    def dropout(self, name: str, p: float) -> str:
        """Inverted dropout: zeroes a share p, scales the rest by 1 / (1 - p), in training only."""
        return self._add(name, "Dropout", p=p)

    def add(self, name: str, first: str, second: str) -> str:
        return self._add(name, "Add", first, second)

    def build(self) -> Graph:
        return dataclasses.replace(self._graph, nodes=tuple(self._nodes))
