"""The oracle: one network at one precision, forward, backward and trained."""

import dataclasses
import math
from typing import Any, Callable, Mapping

import numpy as np
from numpy.typing import DTypeLike

from framework_compare.graph import Graph, Node, Optimizer, evaluate, trainable_names
from framework_compare.parity.network.oracle import elementwise, features, image_ops, moves, primitives, sequences
from framework_compare.parity.network.oracle.losses import LOSSES
from framework_compare.parity.network.oracle.op import Array, Backward, Inputs, Mode, Op
from framework_compare.parity.network.oracle.optimizers import OPTIMIZERS, Slots, clipped

OPS: dict[str, Op] = {}
for _module in (elementwise, features, image_ops, moves, primitives, sequences):
    OPS.update(_module.OPS)


class Oracle:
    """One network at one precision, with weights of its own that `train_step` changes.

    rounding: a `parity.rounding.Rounding`, for what a precision below float32 does to every layer.
    replicas: into so many parts a batch is split, in order. Each has batch statistics of its own, loss and gradients are
        the means of the parts', and the running statistics those of the first.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, Array],
        dtype: DTypeLike = np.float64,
        *,
        plain_sums: bool = False,
        rounding: Any = None,
        replicas: int = 1,
    ) -> None:
        self.graph = graph
        self.replicas = replicas
        self.plain_sums = plain_sums
        self.rounding = rounding
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.weights = {name: np.array(array, dtype=dtype) for name, array in weights.items()}
        self._by_node = {n.name: [k for k in self.weights if k.rpartition(".")[0] == n.arrays] for n in graph.nodes}
        self.steps = 0  # updates so far
        self._waiting: list[Mapping[str, Array]] = []  # gradients of batches that have made no update yet
        self.slots: dict[str, Slots] = {}  # the optimiser's state, by parameter
        self.biased: dict[
            str, Array
        ] = {}  # running variances, were the batches' own divided by their counts, not by one less

    def forward(
        self,
        images: Inputs,
        *,
        training: bool = False,
        dropout: np.random.Generator | None = None,
        watch: Callable[[str, Array], None] = lambda name, value: None,
        copies: Array | None = None,
    ) -> Array:
        """The network's output (N, ...); `watch` is shown every node's. Nothing is changed.

        images: the batch's only input, or a tuple of several in the task's order. copies: of which samples the batch is
        made, as `Mode` has them, in each replica's part alike; the output is still one of each sample.
        """
        parts = self._parts(images) if training else [images]
        mode = Mode(training, self.plain_sums, dropout=dropout, copies=copies, dtype=self.dtype)
        return np.concatenate([self._pass(part, mode, None, watch) for part in parts])

    def batch_statistics(self, images: Inputs) -> dict[str, Array]:
        """Mean and unbiased variance of every BatchNorm's input, by the names of the running statistics."""
        mode = Mode(training=True, dtype=self.dtype)
        self._pass(images, mode, None, lambda name, value: None)
        momenta = {node.name: node.attrs["momentum"] for node in self.graph.nodes if node.op == "BatchNorm2d"}
        return {
            name: self.weights[name] + (new - self.weights[name]) / self.dtype.type(momenta[name.rpartition(".")[0]])
            for name, new in mode.statistics.items()
        }

    def gradients(
        self,
        images: Inputs,
        labels: Array,
        *,
        dropout: np.random.Generator | None = None,
        copies: Array | None = None,
    ) -> tuple[float, Array, dict[str, Array], dict[str, Array]]:
        """Loss of the task, output, gradient of the loss by every trainable parameter, new running statistics.

        copies: as `forward` takes them.
        """
        if self.replicas == 1:
            return self._part_gradients(images, labels, dropout, copies)
        parts = zip(self._parts(images), np.split(labels, self.replicas))
        losses, outputs, gradients, statistics = zip(*(self._part_gradients(*part, dropout, copies) for part in parts))
        means = {name: sum(each[name] for each in gradients) / self.dtype.type(self.replicas) for name in gradients[0]}
        return sum(losses) / self.replicas, np.concatenate(outputs), means, statistics[0]

    def _parts(self, images: Inputs) -> list[Inputs]:
        """Return what each replica gets of a batch."""
        if isinstance(images, tuple):
            return list(zip(*(np.split(array, self.replicas) for array in images)))
        return list(np.split(images, self.replicas))

    def _part_gradients(
        self, images: Inputs, labels: Array, dropout: np.random.Generator | None, copies: Array | None
    ) -> tuple[float, Array, dict[str, Array], dict[str, Array]]:
        tape: list[tuple[Node, Backward]] = []
        mode = Mode(True, self.plain_sums, dropout=dropout, copies=copies, dtype=self.dtype)
        logits = self._pass(images, mode, tape, lambda name, value: None)
        samples = np.arange(len(logits)) if copies is None else copies
        task = self.graph.task
        loss, by_copy = LOSSES[task.named_loss](logits[samples], self._target(labels)[samples], **task.loss_options)
        gradient = np.zeros_like(logits)
        np.add.at(gradient, samples, by_copy)
        gradients = _backward(tape, {self.graph.nodes[-1].name: gradient}, self.rounding)
        return float(loss), logits, {name: gradients[name] for name in trainable_names(self.graph)}, mode.statistics

    def train_step(
        self,
        images: Inputs,
        labels: Array,
        *,
        optimizer: Optimizer | None = None,
        learning_rate: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        dropout: np.random.Generator | None = None,
        copies: Array | None = None,
    ) -> tuple[float, Array, dict[str, Array]]:
        """One step of an optimiser, by default SGD of the rates given; returns loss, output and gradients before it."""
        if optimizer is None:
            optimizer = Optimizer("sgd", learning_rate, {"momentum": momentum, "weight_decay": weight_decay})
        loss, logits, gradients, statistics = self.gradients(images, labels, dropout=dropout, copies=copies)
        self.apply(gradients, optimizer)
        self._move_biased(statistics, len(labels) // self.replicas)
        self.weights.update(statistics)
        return loss, logits, gradients

    def _move_biased(self, statistics: Mapping[str, Array], samples: int) -> None:
        shapes = self.graph.shapes() if statistics else {}
        for node in self.graph.nodes:
            name = f"{node.name}.running_var"
            if name in statistics:
                kept, count = 1 - node.attrs["momentum"], samples * math.prod(shapes[node.name][1:])
                batch = (statistics[name] - kept * self.weights[name]) * ((count - 1) / count)
                self.biased[name] = kept * self.biased.get(name, self.weights[name]) + batch

    def apply(self, gradients: Mapping[str, Array], optimizer: Optimizer) -> None:
        """Change the weights by one step of the optimiser along these gradients, once its batches are complete."""
        if optimizer.accumulation > 1:
            self._waiting.append(gradients)
            if len(self._waiting) < optimizer.accumulation:
                return
            count = self.dtype.type(len(self._waiting))
            gradients = {name: sum(one[name] for one in self._waiting) / count for name in gradients}
            self._waiting.clear()
        if optimizer.clip_norm:
            gradients = clipped(gradients, optimizer.clip_norm)
        rate = optimizer.learning_rate * optimizer.schedule.share(self.steps)
        self.steps += 1
        settings = {"rate": rate, **optimizer.settings}
        for name, gradient in gradients.items():
            slots = self.slots.setdefault(name, {})
            OPTIMIZERS[optimizer.name](self.weights[name], gradient, slots, self.steps, settings)

    def _target(self, labels: Array) -> Array:
        """Labels stay whole numbers; a float target takes the precision of the pass."""
        return np.asarray(labels, self.dtype) if self.graph.task.target.dtype == "float32" else np.asarray(labels)

    def _pass(
        self,
        images: Inputs,
        mode: Mode,
        tape: list[tuple[Node, Backward]] | None,
        watch: Callable[[str, Array], None],
    ) -> Array:
        backward_nodes, frozen_mode = self.graph.backward_nodes(), dataclasses.replace(mode, training=False)

        def apply(node: Node, *inputs: Array) -> Array:
            weights = {name.rpartition(".")[2]: self.weights[name] for name in self._by_node[node.name]}
            arguments = (node, weights, inputs, frozen_mode if self.graph.is_frozen(node) else mode)
            op = OPS[node.op]
            value, backward = self.rounding(op, *arguments) if self.rounding else op(*arguments)
            watch(node.name, value)
            if tape is not None and node.name in backward_nodes:
                tape.append((node, backward))
            return value

        arrays = images if isinstance(images, tuple) else (images,)
        kinds = (self.dtype if field.dtype == "float32" else None for field in self.graph.inputs.values())  # or tokens
        return evaluate(self.graph, apply, tuple(map(np.asarray, arrays, kinds)))


def _backward(tape: list[tuple[Node, Backward]], waiting: dict[str, Array], rounding: Any) -> dict[str, Array]:
    """Gradients by parameter name, from those of the outputs in `waiting`; the tape is used up."""

    def add(first: Array, second: Array) -> Array:
        return rounding.gradient(first + second) if rounding else first + second

    gradients: dict[str, Array] = {}
    names = {node.name for node, _ in tape}
    while tape:
        node, backward = tape.pop()
        inputs, parameters = backward(waiting.pop(node.name))
        for name, gradient in parameters.items():
            shared = gradients.get(f"{node.arrays}.{name}")
            gradients[f"{node.arrays}.{name}"] = gradient if shared is None else add(shared, gradient)
        for name, gradient in zip(node.inputs, inputs):
            if name in names:
                waiting[name] = add(waiting[name], gradient) if name in waiting else gradient
    return gradients
