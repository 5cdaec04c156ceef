"""Writes a network down layer by layer; each layer's shape is checked as it is added."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional, Sequence

from framework_compare.errors import UsageError
from framework_compare.graph.circuit import Gate
from framework_compare.graph.network import Graph
from framework_compare.graph.ops import OPS, Node, Shape
from framework_compare.graph.task import Task, image_classification


class GraphBuilder:
    """Adds layers one after the other; each call returns the new node's name, for branches to read.

    For a task, or for RGB images of image_size x image_size in num_classes classes.
    """

    def __init__(
        self,
        name: str,
        task: Optional[Task] = None,
        *,
        num_classes: Optional[int] = None,
        image_size: Optional[int] = None,
    ) -> None:
        self._of_images = task is None
        if task is None:
            task = image_classification(
                _at_least_one(name, "num_classes", num_classes), _at_least_one(name, "image_size", image_size)
            )
        self._graph = Graph(name, task, ())
        self._nodes: List[Node] = []
        self._shapes: Dict[str, Shape] = {source: field.shape for source, field in self._graph.inputs.items()}
        self.last = next(iter(self._shapes))

    def _add(self, name: str, op: str, *sources: str, **attrs: Any) -> str:
        inputs = tuple(filter(None, sources)) or (self.last,)
        node = Node(name, op, inputs, attrs)
        if name in self._shapes:
            raise UsageError(f"{self._graph.name}: two nodes are called {name!r}")
        try:
            self._shapes[name] = OPS[op].shape(node, *(self._shapes[i] for i in inputs))
        except UsageError as error:
            raise UsageError(self._refusal(str(error))) from None
        self._nodes.append(node)
        self.last = name
        return name

    def _refusal(self, error: str) -> str:
        if not self._of_images:
            return f"{self._graph.name}: {error}"
        return f"{self._graph.name} does not allow image_size {self._graph.image_size}: {error}; use a larger one"

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

    def avgpool(self, name: str, kernel: int, *, stride: int, padding: int = 0, count_include_pad: bool = False) -> str:
        """Average pooling, output size rounded down; a mean at the edge divides by its padding too, or does not."""
        return self._add(
            name, "AvgPool2d", kernel=kernel, stride=stride, padding=padding, count_include_pad=count_include_pad
        )

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
        """On the last axis: (features,) or, at every step, (steps, features)."""
        return self._add(name, "Linear", in_features=self.shape()[-1], out_features=out, init=init)

    def dropout(self, name: str, p: float) -> str:
        """Inverted dropout: zeroes a share p, scales the rest by 1 / (1 - p), in training only."""
        return self._add(name, "Dropout", p=p)

    def add(self, name: str, first: str, second: str) -> str:
        return self._add(name, "Add", first, second)

    def tanh(self, name: str) -> str:
        return self._add(name, "Tanh")

    def sigmoid(self, name: str) -> str:
        return self._add(name, "Sigmoid")

    def embedding(self, name: str, width: int, *, source: str = "") -> str:
        """A row of `width` numbers for each token of an input; every row is trained, that of a pad included."""
        source = source or self.last
        field = self._graph.inputs.get(source)
        if field is None or not field.vocabulary:
            raise UsageError(self._refusal(f"layer {name}: expects an input of tokens, gets {source!r}"))
        return self._add(
            name, "Embedding", source, num_embeddings=field.vocabulary, embedding_dim=width, init="uniform_0.05"
        )

    def lstm(self, name: str, hidden: int, *, source: str = "") -> str:
        """One layer, one direction, zero state, one bias; gates in the order i, f, g, o."""
        return self._add(name, "LSTM", source, input_size=self.shape(source)[-1], hidden_size=hidden)

    def gru(self, name: str, hidden: int, *, source: str = "") -> str:
        """One layer, one direction, zero state, two biases; gates in the order r, z, n."""
        return self._add(name, "GRU", source, input_size=self.shape(source)[-1], hidden_size=hidden)

    def reverse(self, name: str, *, source: str = "") -> str:
        """The steps of a sequence in the other order; pads are steps like any other."""
        return self._add(name, "Reverse", source)

    def last_step(self, name: str) -> str:
        return self._add(name, "Last")

    def concat(self, name: str, *sources: str) -> str:
        """The features of several vectors, or of several sequences step by step, one after the other."""
        return self._add(name, "Concat", *sources)

    def conv1d(self, name: str, out: int, kernel: int, *, padding: int = 0, bias: bool = True) -> str:
        """Cross-correlation along the steps of a sequence, (steps, in) to (steps, out), zero padding on both ends."""
        return self._add(
            name,
            "Conv1d",
            in_channels=self.shape()[-1],
            out_channels=out,
            kernel=kernel,
            padding=padding,
            bias=bias,
            init="glorot_uniform",
        )

    def layernorm(self, name: str, *, eps: float = 1e-5) -> str:
        """Over the last axis, with the biased variance (Ba et al. 2016)."""
        return self._add(name, "LayerNorm", features=self.shape()[-1], eps=eps)

    def maxout(self, name: str, pieces: int) -> str:
        """Output j is the largest of the `pieces` features from j * pieces on (Goodfellow et al. 2013)."""
        return self._add(name, "Maxout", pieces=pieces)

    def quanv(self, name: str, gates: Sequence[Gate], *, trained: bool = False) -> str:
        """A simulated circuit of four qubits on each 2x2 patch of a grey image in [0, 1], stride 2.

        trained: the angles of the rotations are a parameter, else they are those of `gates` (see `circuit`).
        """
        listed = [[kind, list(qubits), angle] for kind, qubits, angle in gates]
        return self._add(name, "Quanv2d", gates=listed, trained=trained)

    def build(self) -> Graph:
        graph = dataclasses.replace(self._graph, nodes=tuple(self._nodes))
        if not self._of_images:
            _check_output(graph, self.shape())
        return graph


def _at_least_one(name: str, what: str, value: Optional[int]) -> int:
    if not isinstance(value, int) or value < 1:
        raise UsageError(f"{name}: {what} is {value!r}; allowed: a whole number of at least 1")
    return value


def _check_output(graph: Graph, shape: Shape) -> None:
    """UsageError where the last layer's output is not what the task's loss compares with the target."""
    task = graph.task
    expected = {
        "cross_entropy": (task.outputs,),
        "token_cross_entropy": (*task.target.shape, task.outputs),
    }.get(task.loss, task.target.shape)
    if shape != expected:
        raise UsageError(f"{graph.name}: the last layer gives {shape}; {task.loss} of this task takes {expected}")
