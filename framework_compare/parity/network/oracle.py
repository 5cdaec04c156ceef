"""The layer graph in numpy, forward and backward: what every framework is measured against.

In float64 it is the reference, in float32 the yardstick: what rounding alone does to the same network. Clear rather
than fast; convolutions go through im2col and BLAS. Each op is one function (node, weights, inputs, mode) that returns
its output and a function from the output's gradient to the gradients of its inputs and of its parameters.

Arrays are (N, C, H, W) or (N, features), weights as in `torch.nn`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np

from framework_compare.graph import INPUT, Graph, Node, trainable_names

Array = np.ndarray
Weights = Mapping[str, Array]  # of one node, by the last part of their names
Gradients = Tuple[Tuple[Array, ...], Dict[str, Array]]  # of the inputs, of the node's parameters
Backward = Callable[[Array], Gradients]
Result = Tuple[Array, Backward]
Op = Callable[[Node, Weights, Tuple[Array, ...], "Mode"], Result]


@dataclasses.dataclass
class Mode:
    """How a pass is run; `statistics` takes the running statistics that BatchNorm leaves after a training pass.

    plain_sums: add one by one over pictures and places, as channels-last kernels do, where numpy and BLAS add in
    blocks and so round less.
    """

    training: bool
    plain_sums: bool = False
    statistics: Dict[str, Array] = dataclasses.field(default_factory=dict)
    dropout: Optional[np.random.Generator] = None  # None: dropout is off


    def total(self, x: Array) -> Array:
        """Sum over all axes but channels."""
        if not self.plain_sums:
            return x.sum(axis=(0, 2, 3))
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(-1, x.shape[1]).sum(axis=0)  # row after row


def columns(x: Array, kernel: int, stride: int, padding: int) -> Array:
    """im2col of one picture: (C, H, W) to (C, kernel * kernel, Ho * Wo), zeros outside."""
    if kernel == 1 and stride == 1 and padding == 0:
        return x.reshape(len(x), 1, -1)
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(1, 2))
    windows = windows[:, ::stride, ::stride].transpose(0, 3, 4, 1, 2)
    return windows.reshape(len(x), kernel * kernel, -1)


def fold(cols: Array, size: Tuple[int, int], kernel: int, stride: int, padding: int) -> Array:
    """The adjoint of `columns`: each pixel gets the sum of all windows it was in."""
    channels, (height, width) = len(cols), size
    if kernel == 1 and stride == 1 and padding == 0:
        return cols.reshape(channels, height, width)
    rows = (height + 2 * padding - kernel) // stride + 1
    across = (width + 2 * padding - kernel) // stride + 1
    taps = cols.reshape(channels, kernel, kernel, rows, across)
    out = np.zeros((channels, height + 2 * padding, width + 2 * padding), cols.dtype)
    for i in range(kernel):
        for j in range(kernel):
            out[:, i : i + stride * rows : stride, j : j + stride * across : stride] += taps[:, i, j]
    return out[:, padding : padding + height, padding : padding + width]


def conv2d(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Cross-correlation with groups, one picture at a time, so that the columns of one fit in memory."""
    (x,), a, groups = inputs, node.attrs, node.attrs["groups"]
    window = (a["kernel"], a["stride"], a["padding"])
    kernel = weights["weight"].reshape(groups, a["out_channels"] // groups, -1)
    side = [(s + 2 * a["padding"] - a["kernel"]) // a["stride"] + 1 for s in x.shape[2:]]

    def grouped(picture: Array) -> Array:
        return columns(picture, *window).reshape(groups, kernel.shape[2], -1)

    y = np.stack([(kernel @ grouped(picture)).reshape(a["out_channels"], *side) for picture in x])
    if a["bias"]:
        y += weights["bias"][:, None, None]

    def backward(dy: Array) -> Gradients:
        dkernel = np.zeros_like(kernel)
        dx = np.empty_like(x)
        for n, picture in enumerate(x):
            dout = dy[n].reshape(groups, kernel.shape[1], -1)
            if mode.plain_sums and groups == a["in_channels"]:
                dkernel += _plain_products(dout, grouped(picture))
            else:
                dkernel += dout @ grouped(picture).transpose(0, 2, 1)
            dcols = (kernel.transpose(0, 2, 1) @ dout).reshape(len(picture), a["kernel"] ** 2, -1)
            dx[n] = fold(dcols, x.shape[2:], *window)
        found = {"weight": dkernel.reshape(weights["weight"].shape)}
        return (dx,), {**found, "bias": mode.total(dy)} if a["bias"] else found

    return y, backward


def _plain_products(dout: Array, cols: Array) -> Array:
    """(G, Og, P) times (G, K, P) summed over P one by one: (G, Og, K)."""
    places = np.ascontiguousarray(cols.transpose(2, 0, 1))
    sums = [(places * dout[:, o].T[:, :, None]).sum(axis=0) for o in range(dout.shape[1])]
    return np.stack(sums, axis=1)


def batchnorm2d(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Ioffe and Szegedy 2015: biased variance normalises, the unbiased one is kept, as in torch."""
    (x,), a = inputs, node.attrs
    count = x.size // x.shape[1]
    if mode.training:
        mean = mode.total(x) / x.dtype.type(count)
        variance = mode.total((x - _by_channel(mean)) ** 2) / x.dtype.type(count)
        new = {"running_mean": mean, "running_var": variance * (count / (count - 1))}
        for name, value in new.items():
            old = weights[name]
            mode.statistics[f"{node.name}.{name}"] = old + x.dtype.type(a["momentum"]) * (value - old)
    else:
        mean, variance = weights["running_mean"], weights["running_var"]
    scale = 1 / np.sqrt(variance + x.dtype.type(a["eps"]))
    normal = (x - _by_channel(mean)) * _by_channel(scale)
    y = normal * _by_channel(weights["weight"]) + _by_channel(weights["bias"])

    def backward(dy: Array) -> Gradients:
        dbias, dweight = mode.total(dy), mode.total(dy * normal)
        dx = dy
        if mode.training:
            dx = dy - _by_channel(dbias / count) - normal * _by_channel(dweight / count)
        return (dx * _by_channel(weights["weight"] * scale),), {"weight": dweight, "bias": dbias}

    return y, backward


def _by_channel(vector: Array) -> Array:
    return vector[:, None, None]


def relu(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    return np.maximum(x, 0), lambda dy: ((dy * (x > 0),), {})


def relu6(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    return np.clip(x, 0, 6), lambda dy: ((dy * ((x > 0) & (x < 6)),), {})


def maxpool2d(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """The gradient goes to the first largest of a window; ties of zeros behind a ReLU do not matter."""
    (x,), a = inputs, node.attrs
    kernel, stride, pad = a["kernel"], a["stride"], a["padding"]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    rows, across = ((s - kernel) // stride + 1 for s in padded.shape[2:])
    taps = [
        (..., slice(i, i + stride * rows, stride), slice(j, j + stride * across, stride))
        for i in range(kernel)
        for j in range(kernel)
    ]
    y, winner = padded[taps[0]].copy(), np.zeros((*x.shape[:2], rows, across), np.int16)
    for number, tap in enumerate(taps[1:], start=1):
        larger = padded[tap] > y
        winner[larger] = number
        np.maximum(y, padded[tap], out=y)

    def backward(dy: Array) -> Gradients:
        dx = np.zeros_like(padded)
        for number, tap in enumerate(taps):
            dx[tap] += dy * (winner == number)
        return (dx[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]],), {}

    return y, backward


def adaptive_avgpool2d(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Cell i averages rows floor(i S / out) to ceil((i + 1) S / out), as torch defines it."""
    (x,), output = inputs, node.attrs["output"]
    rows, across = (averaging_matrix(size, output).astype(x.dtype) for size in x.shape[2:])
    return rows @ x @ across.T, lambda dy: ((rows.T @ dy @ across,), {})


def averaging_matrix(size: int, output: int) -> Array:
    """(output, size) weights of adaptive average pooling along one axis."""
    matrix = np.zeros((output, size))
    for i in range(output):
        start, end = i * size // output, -(-(i + 1) * size // output)
        matrix[i, start:end] = 1 / (end - start)
    return matrix


def global_avgpool(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    count = x.shape[2] * x.shape[3]
    return x.mean(axis=(2, 3)), lambda dy: ((np.broadcast_to(dy[:, :, None, None] / count, x.shape),), {})


def flatten(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    return x.reshape(len(x), -1), lambda dy: ((dy.reshape(x.shape),), {})


def linear(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,), matrix = inputs, weights["weight"]
    return x @ matrix.T + weights["bias"], lambda dy: (
        (dy @ matrix,),
        {"weight": dy.T @ x, "bias": dy.sum(axis=0)},
    )


def dropout(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,), keep = inputs, 1 - node.attrs["p"]
    if not mode.training or mode.dropout is None:
        return x, lambda dy: ((dy,), {})
    mask = (mode.dropout.random(x.shape) < keep).astype(x.dtype) / x.dtype.type(keep)
    return x * mask, lambda dy: ((dy * mask,), {})


def add(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    first, second = inputs
    return first + second, lambda dy: ((dy, dy), {})


OPS: Dict[str, Op] = {
    "Conv2d": conv2d,
    "BatchNorm2d": batchnorm2d,
    "ReLU": relu,
    "ReLU6": relu6,
    "MaxPool2d": maxpool2d,
    "AdaptiveAvgPool2d": adaptive_avgpool2d,
    "GlobalAvgPool": global_avgpool,
    "Flatten": flatten,
    "Linear": linear,
    "Dropout": dropout,
    "Add": add,
}


def cross_entropy(logits: Array, labels: Array) -> Tuple[float, Array]:
    """Mean over the batch of -log softmax at the label, and its gradient by the logits."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    sums = powers.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = (np.log(sums[:, 0]) - shifted[rows, labels]).mean()
    gradient = powers / sums
    gradient[rows, labels] -= 1
    return loss, gradient / logits.dtype.type(len(labels))


class Oracle:
    """One network at one precision, with weights of its own that `train_step` changes.

    rounding: a `parity.rounding.Rounding`, for what a precision below float32 does to every layer.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, Array],
        dtype: Any = np.float64,
        *,
        plain_sums: bool = False,
        rounding: Any = None,
    ) -> None:
        self.graph = graph
        self.plain_sums = plain_sums
        self.rounding = rounding
        self.dtype = np.dtype(dtype)
        self.weights = {name: np.array(array, dtype=dtype) for name, array in weights.items()}
        self._by_node = {n.name: [k for k in self.weights if k.rpartition(".")[0] == n.name] for n in graph.nodes}
        self._momentum: Dict[str, Array] = {}

    def forward(
        self,
        images: Array,
        *,
        training: bool = False,
        dropout: Optional[np.random.Generator] = None,
        watch: Callable[[str, Array], None] = lambda name, value: None,
    ) -> Array:
        """Logits (N, num_classes); `watch` is shown every node's output. Nothing is changed."""
        return self._pass(images, Mode(training, self.plain_sums, dropout=dropout), None, watch)

    def batch_statistics(self, images: Array) -> Dict[str, Array]:
        """Mean and unbiased variance of every BatchNorm's input, by the names of the running statistics."""
        mode = Mode(training=True)
        self._pass(images, mode, None, lambda name, value: None)
        momenta = {node.name: node.attrs["momentum"] for node in self.graph.nodes if node.op == "BatchNorm2d"}
        return {
            name: self.weights[name] + (new - self.weights[name]) / self.dtype.type(momenta[name.rpartition(".")[0]])
            for name, new in mode.statistics.items()
        }

    def gradients(
        self, images: Array, labels: Array, *, dropout: Optional[np.random.Generator] = None
    ) -> Tuple[float, Array, Dict[str, Array], Dict[str, Array]]:
        """Loss, logits, gradient of the mean loss by every trainable parameter, new running statistics."""
        tape: List[Tuple[Node, Backward]] = []
        mode = Mode(True, self.plain_sums, dropout=dropout)
        logits = self._pass(images, mode, tape, lambda name, value: None)
        loss, gradient = cross_entropy(logits, labels)
        found = _backward(tape, {self.graph.nodes[-1].name: gradient}, self.rounding)
        return float(loss), logits, {name: found[name] for name in trainable_names(self.graph)}, mode.statistics

    def train_step(
        self,
        images: Array,
        labels: Array,
        *,
        learning_rate: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        dropout: Optional[np.random.Generator] = None,
    ) -> Tuple[float, Array, Dict[str, Array]]:
        """One step of SGD (v = momentum v + g + decay w; w -= rate v); returns loss, logits and gradients before it."""
        loss, logits, gradients, statistics = self.gradients(images, labels, dropout=dropout)
        rate, keep, decay = (self.dtype.type(value) for value in (learning_rate, momentum, weight_decay))
        for name, gradient in gradients.items():
            velocity = self._momentum.setdefault(name, np.zeros_like(gradient))
            velocity *= keep
            velocity += gradient
            velocity += decay * self.weights[name]
            self.weights[name] -= rate * velocity
        self.weights.update(statistics)
        return loss, logits, gradients

    def _pass(
        self,
        images: Array,
        mode: Mode,
        tape: Optional[List[Tuple[Node, Backward]]],
        watch: Callable[[str, Array], None],
    ) -> Array:
        last_reader = {name: node.name for node in self.graph.nodes for name in node.inputs}
        values = {INPUT: np.asarray(images, self.dtype)}
        for node in self.graph.nodes:
            weights = {name.rpartition(".")[2]: self.weights[name] for name in self._by_node[node.name]}
            inputs = tuple(values[name] for name in node.inputs)
            arguments = (node, weights, inputs, mode)
            op = OPS[node.op]
            values[node.name], backward = self.rounding(op, *arguments) if self.rounding else op(*arguments)
            watch(node.name, values[node.name])
            if tape is not None:
                tape.append((node, backward))
            for name in set(node.inputs):
                if last_reader[name] == node.name:
                    del values[name]
        return values[self.graph.nodes[-1].name]


def _backward(tape: List[Tuple[Node, Backward]], waiting: Dict[str, Array], rounding: Any) -> Dict[str, Array]:
    """Gradients by parameter name, from those of the outputs in `waiting`; the tape is used up."""

    def add(first: Array, second: Array) -> Array:
        return rounding.gradient(first + second) if rounding else first + second

    found = {}
    while tape:
        node, backward = tape.pop()
        inputs, parameters = backward(waiting.pop(node.name))
        found.update({f"{node.name}.{name}": gradient for name, gradient in parameters.items()})
        for name, gradient in zip(node.inputs, inputs):
            if name != INPUT:
                waiting[name] = add(waiting[name], gradient) if name in waiting else gradient
    return found
