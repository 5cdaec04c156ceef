"""The layer graph in numpy, forward and backward: what every framework is measured against.

In float64 it is the reference, in float32 the yardstick: what rounding alone does to the same network. Clear rather
than fast; convolutions go through im2col and BLAS. Each op is one function (node, weights, inputs, mode) that returns
its output and a function from the output's gradient to the gradients of its inputs and of its parameters.

Arrays are (N, C, H, W), (N, rows, across, steps, features) of an image's windows, (N, steps, features) or (N, features),
weights as in `torch.nn`. All of it stands in one
file, which needs the graph alone, so that tests can hand it to a worker as a framework.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from framework_compare.graph import Graph, Node, Optimizer, circuit, trainable_names
from framework_compare.graph.attention import relative_index, shift_mask
from framework_compare.graph.image_ops import adaptive_size
from framework_compare.graph.ops import concat_axis
from framework_compare.graph.window import Window

Array = np.ndarray
Weights = Mapping[str, Array]  # of one node, by the last part of their names
Gradients = Tuple[Tuple[Array, ...], Dict[str, Array]]  # of the inputs, of the node's parameters
Backward = Callable[[Array], Gradients]
Result = Tuple[Array, Backward]
Inputs = Union[Array, Tuple[Array, ...]]  # of a batch: the only input, or several in the task's order
Op = Callable[[Node, Weights, Tuple[Array, ...], "Mode"], Result]


@dataclasses.dataclass
class Mode:
    """How a pass is run; `statistics` takes the running statistics that BatchNorm leaves after a training pass.

    plain_sums: add one by one over pictures and places, as channels-last kernels do, where numpy and BLAS add in
    blocks and so round less. operand and operand_gradient: what a precision makes of a recurrent layer's state, and of
    its gradient, before each product.
    """

    training: bool
    plain_sums: bool = False
    statistics: Dict[str, Array] = dataclasses.field(default_factory=dict)
    dropout: Optional[np.random.Generator] = None  # None: dropout is off
    operand: Callable[[Array], Array] = lambda x: x
    operand_gradient: Callable[[Array], Array] = lambda x: x

    def product(self, x: Array, matrix: Array) -> Array:
        """x times the transposed matrix; with plain sums in the other order, which rounds otherwise."""
        return x[..., ::-1] @ matrix[:, ::-1].T if self.plain_sums else x @ matrix.T

    def total(self, x: Array) -> Array:
        """Sum over all axes but channels."""
        if not self.plain_sums:
            return x.sum(axis=(0, 2, 3))
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(-1, x.shape[1]).sum(axis=0)  # row after row


def columns(x: Array, window: Window) -> Array:
    """im2col of one image: (C, H, W) to (C, places of the window, Ho * Wo), zeros outside."""
    if window == ONE_PIXEL:
        return x.reshape(len(x), 1, -1)
    padded = np.pad(x, ((0, 0), *window.all_pads(x.shape[1:])))
    windows = np.lib.stride_tricks.sliding_window_view(padded, window.spans, axis=(1, 2))
    (down, across), (rows, cols) = window.stride, window.dilation
    windows = windows[:, ::down, ::across, ::rows, ::cols].transpose(0, 3, 4, 1, 2)
    return windows.reshape(len(x), windows.shape[1] * windows.shape[2], -1)


ONE_PIXEL = Window((1, 1), (1, 1), ((0, 0), (0, 0)))


def fold(cols: Array, size: Tuple[int, int], window: Window) -> Array:
    """The adjoint of `columns`: each pixel gets the sum of all windows it was in."""
    channels, (height, width) = len(cols), size
    if window == ONE_PIXEL:
        return cols.reshape(channels, height, width)
    taps = cols.reshape(channels, *window.kernel, *window.output(size))
    (top, bottom), (left, right) = window.all_pads(size)
    out = np.zeros((channels, top + height + bottom, left + width + right), cols.dtype)
    for i, j, place in places(window, size):
        out[place] += taps[:, i, j]
    return out[:, top : top + height, left : left + width]


def places(window: Window, size: Sequence[int]) -> Iterator[Tuple[int, int, Any]]:
    """Of each place (i, j) in the window: the padded image's pixels that it meets, one a window."""
    (rows, across), (down, right) = window.output(size), window.stride
    for i in range(window.kernel[0]):
        for j in range(window.kernel[1]):
            first, left = i * window.dilation[0], j * window.dilation[1]
            yield i, j, (..., slice(first, first + down * rows, down), slice(left, left + right * across, right))


def conv2d(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Cross-correlation with groups, one picture at a time, so that the columns of one fit in memory."""
    (x,), a, groups = inputs, node.attrs, node.attrs["groups"]
    window = Window.of(a)
    kernel = weights["weight"].reshape(groups, a["out_channels"] // groups, -1)
    side = window.output(x.shape[2:])

    def grouped(picture: Array) -> Array:
        return columns(picture, window).reshape(groups, kernel.shape[2], -1)

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
            dcols = (kernel.transpose(0, 2, 1) @ dout).reshape(len(picture), math.prod(window.kernel), -1)
            dx[n] = fold(dcols, x.shape[2:], window)
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
    (x,), window = inputs, Window.of(node.attrs)
    (top, bottom), (left, right) = window.all_pads(x.shape[2:])
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=-np.inf)
    taps = [place for _, _, place in places(window, x.shape[2:])]
    y, winner = padded[taps[0]].copy(), np.zeros((*x.shape[:2], *window.output(x.shape[2:])), np.int16)
    for number, tap in enumerate(taps[1:], start=1):
        larger = padded[tap] > y
        winner[larger] = number
        np.maximum(y, padded[tap], out=y)

    def backward(dy: Array) -> Gradients:
        dx = np.zeros_like(padded)
        for number, tap in enumerate(taps):
            dx[tap] += dy * (winner == number)
        return (dx[:, :, top : top + x.shape[2], left : left + x.shape[3]],), {}

    return y, backward


def adaptive_avgpool2d(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Cell i averages rows floor(i S / out) to ceil((i + 1) S / out), as torch defines it."""
    (x,), output = inputs, adaptive_size(node.attrs)
    rows, across = (averaging_matrix(*sizes).astype(x.dtype) for sizes in zip(x.shape[2:], output))
    return rows @ x @ across.T, lambda dy: ((rows.T @ dy @ across,), {})


def averaging_matrix(size: int, output: int) -> Array:
    """(output, size) weights of adaptive average pooling along one axis."""
    matrix = np.zeros((output, size))
    for i in range(output):
        start, end = i * size // output, -(-(i + 1) * size // output)
        matrix[i, start:end] = 1 / (end - start)
    return matrix


def global_avgpool(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Over the places of an image, the steps of a sequence."""
    (x,) = inputs
    axes = (2, 3) if x.ndim == 4 else (1,)
    count = math.prod(x.shape[axis] for axis in axes)
    return x.mean(axis=axes), lambda dy: ((np.broadcast_to(np.expand_dims(dy / count, axes), x.shape),), {})


def flatten(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    return x.reshape(len(x), -1), lambda dy: ((dy.reshape(x.shape),), {})


def linear(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Of the features."""
    x, matrix = _features_last(inputs[0]), weights["weight"]
    y = x @ matrix.T
    if "bias" in weights:
        y = y + weights["bias"]

    def backward(dy: Array) -> Gradients:
        dy = _features_last(dy)
        found = {"weight": _rows(dy).T @ _rows(x)}
        if "bias" in weights:
            found["bias"] = _rows(dy).sum(axis=0)
        return (_features_first(dy @ matrix),), found

    return _features_first(y), backward


def _features_last(x: Array) -> Array:
    """An image with its channels at the end, where all else has its features."""
    return x.transpose(0, 2, 3, 1) if x.ndim == 4 else x


def _features_first(x: Array) -> Array:
    """Back from `_features_last`."""
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x


def _rows(x: Array) -> Array:
    """(..., features) as (rows, features)."""
    return x.reshape(-1, x.shape[-1])


def dropout(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,), keep = inputs, 1 - node.attrs["p"]
    if not mode.training or mode.dropout is None:
        return x, lambda dy: ((dy,), {})
    mask = (mode.dropout.random(x.shape) < keep).astype(x.dtype) / x.dtype.type(keep)
    return x * mask, lambda dy: ((dy * mask,), {})


def add(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    first, second = inputs
    return first + second, lambda dy: ((_summed_to(dy, first.shape), _summed_to(dy, second.shape)), {})


def concat(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Of the features, or along the axis that it names; an array without a batch is repeated."""
    axis, count = 1 + concat_axis(node, inputs[0].shape[1:]), max(map(len, inputs))
    ends = np.cumsum([x.shape[axis] for x in inputs])[:-1]
    y = np.concatenate([np.broadcast_to(x, (count, *x.shape[1:])) for x in inputs], axis=axis)

    def backward(dy: Array) -> Gradients:
        parts = np.split(dy, ends, axis=axis)
        return tuple(_summed_to(one, x.shape) for one, x in zip(parts, inputs)), {}

    return y, backward


def avgpool2d(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Each window's sum over its area, or where padding does not count over the pixels of the image in it."""
    (x,), window, pads = inputs, Window.of(node.attrs), node.attrs["count_include_pad"]
    size = window.output(x.shape[2:])
    down, across = (_window_lengths(window, axis, x.shape[2 + axis], size[axis], pads) for axis in (0, 1))
    count = (down[:, None] * across).astype(x.dtype)
    y = np.stack([columns(picture, window).sum(axis=1).reshape(-1, *size) for picture in x]) / count

    def backward(dy: Array) -> Gradients:
        shares = (dy / count).reshape(*x.shape[:2], 1, -1)
        spread = np.broadcast_to(shares, (*x.shape[:2], math.prod(window.kernel), math.prod(size)))
        return (np.stack([fold(one, x.shape[2:], window) for one in spread]),), {}

    return y, backward


def _window_lengths(window: Window, axis: int, pixels: int, count: int, with_pads: bool) -> Array:
    """Pixels of each window along one axis that count; behind the padding none does."""
    before, behind = window.pads[axis] if with_pads else (0, 0)
    starts = np.arange(count) * window.stride[axis] - window.pads[axis][0]
    ends = np.minimum(starts + window.kernel[axis], pixels + behind)
    return ends - np.maximum(starts, -before)


def tanh(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    y = np.tanh(inputs[0])
    return y, lambda dy: ((dy * (1 - y * y),), {})


def sigmoid(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    y = logistic(inputs[0])
    return y, lambda dy: ((dy * y * (1 - y),), {})


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), which does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def embedding(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Rows of the weight by token; a row's gradient is the sum over its occurrences, zero where there is none."""
    (tokens,), matrix = inputs, weights["weight"]

    def backward(dy: Array) -> Gradients:
        gradient = np.zeros_like(matrix)
        np.add.at(gradient, tokens, dy)
        return (np.zeros(tokens.shape, matrix.dtype),), {"weight": gradient}  # nothing is moved by moving a token

    return matrix[tokens], backward


def lstm(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000: rows of the weights i, f, g, o.

    z = x W_ih' + h W_hh' + b; c = s(f) c + s(i) tanh(g); h = s(o) tanh(c); from zero states, one bias.
    """
    (x,), w_ih, w_hh = inputs, weights["weight_ih"], weights["weight_hh"]
    count, steps, hidden = x.shape[0], x.shape[1], w_hh.shape[1]
    from_inputs = mode.product(x, w_ih) + weights["bias"]
    h = c = np.zeros((count, hidden), x.dtype)
    states, tape = [h], []
    for t in range(steps):
        i, f, g, o = np.split(from_inputs[:, t] + mode.product(mode.operand(h), w_hh), 4, axis=1)
        i, f, g, o = logistic(i), logistic(f), np.tanh(g), logistic(o)
        before, c = c, f * c + i * g
        h = o * np.tanh(c)
        states.append(h)
        tape.append((i, f, g, o, before, np.tanh(c)))

    def backward(dy: Array) -> Gradients:
        dz = np.empty_like(from_inputs)
        dh = dc = np.zeros((count, hidden), x.dtype)
        for t in reversed(range(steps)):
            i, f, g, o, before, squashed = tape[t]
            dh = dh + dy[:, t]
            dc = dc + dh * o * (1 - squashed**2)
            gates = (dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g**2), dh * squashed * o * (1 - o))
            dz[:, t] = np.concatenate(gates, axis=1)
            dh, dc = mode.operand_gradient(dz[:, t]) @ w_hh, dc * f
        earlier = np.stack(states[:-1], axis=1)
        return (dz @ w_ih,), {
            "weight_ih": _rows(dz).T @ _rows(x),
            "weight_hh": _rows(dz).T @ _rows(earlier),
            "bias": _rows(dz).sum(axis=0),
        }

    return np.stack(states[1:], axis=1), backward


def gru(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Cho et al. 2014 as cuDNN computes it, the reset gate after the product: rows of the weights r, z, n.

    r, z = s(x W_i' + b_i + h W_h' + b_h); n = tanh(x W_in' + b_in + r (h W_hn' + b_hn)); h = (1 - z) n + z h.
    """
    (x,), w_ih, w_hh = inputs, weights["weight_ih"], weights["weight_hh"]
    count, steps, hidden = x.shape[0], x.shape[1], w_hh.shape[1]
    from_inputs = mode.product(x, w_ih) + weights["bias_ih"]
    h = np.zeros((count, hidden), x.dtype)
    states, tape = [h], []
    for t in range(steps):
        xr, xz, xn = np.split(from_inputs[:, t], 3, axis=1)
        hr, hz, hn = np.split(mode.product(mode.operand(h), w_hh) + weights["bias_hh"], 3, axis=1)
        r, z = logistic(xr + hr), logistic(xz + hz)
        n = np.tanh(xn + r * hn)
        h = (1 - z) * n + z * h
        tape.append((r, z, n, hn))
        states.append(h)

    def backward(dy: Array) -> Gradients:
        dx, dhidden = np.empty_like(from_inputs), np.empty_like(from_inputs)
        dh = np.zeros((count, hidden), x.dtype)
        for t in reversed(range(steps)):
            r, z, n, hn = tape[t]
            dh = dh + dy[:, t]
            dn = dh * (1 - z) * (1 - n**2)
            dr, dz = dn * hn * r * (1 - r), dh * (states[t] - n) * z * (1 - z)
            dx[:, t] = np.concatenate([dr, dz, dn], axis=1)
            dhidden[:, t] = np.concatenate([dr, dz, dn * r], axis=1)
            dh = dh * z + mode.operand_gradient(dhidden[:, t]) @ w_hh
        earlier = np.stack(states[:-1], axis=1)
        return (dx @ w_ih,), {
            "weight_ih": _rows(dx).T @ _rows(x),
            "weight_hh": _rows(dhidden).T @ _rows(earlier),
            "bias_ih": _rows(dx).sum(axis=0),
            "bias_hh": _rows(dhidden).sum(axis=0),
        }

    return np.stack(states[1:], axis=1), backward


def reverse(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    return inputs[0][:, ::-1], lambda dy: ((dy[:, ::-1],), {})


def conv1d(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Cross-correlation along the steps; the weight is (out, in, kernel)."""
    (x,), a = inputs, node.attrs
    kernel, pad = a["kernel"], a["padding"]
    padded = np.pad(x, ((0, 0), (pad, pad), (0, 0)))
    steps = padded.shape[1] - kernel + 1
    matrix = weights["weight"].reshape(a["out_channels"], -1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=1)  # (N, steps, in, kernel)
    windows = windows.reshape(len(x), steps, matrix.shape[1])
    y = mode.product(windows, matrix)
    if a["bias"]:
        y = y + weights["bias"]

    def backward(dy: Array) -> Gradients:
        taps = (dy @ matrix).reshape(len(x), steps, x.shape[2], kernel)
        dx = np.zeros_like(padded)
        for tap in range(kernel):
            dx[:, tap : tap + steps] += taps[..., tap]
        gradients = {"weight": (_rows(dy).T @ _rows(windows)).reshape(weights["weight"].shape)}
        if a["bias"]:
            gradients["bias"] = _rows(dy).sum(axis=0)
        return (dx[:, pad : pad + x.shape[1]],), gradients

    return y, backward


def layernorm(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Of the features."""
    x = _features_last(inputs[0])
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + x.dtype.type(node.attrs["eps"]))
    normal = centred * scale

    def backward(dy: Array) -> Gradients:
        dy = _features_last(dy)
        dnormal = dy * weights["weight"]
        means = dnormal.mean(axis=-1, keepdims=True), (dnormal * normal).mean(axis=-1, keepdims=True)
        gradients = {"weight": _rows(dy * normal).sum(axis=0), "bias": _rows(dy).sum(axis=0)}
        return (_features_first(scale * (dnormal - means[0] - normal * means[1])),), gradients

    return _features_first(normal * weights["weight"] + weights["bias"]), backward


def maxout(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """The gradient goes to the first largest of a group of neighbours."""
    (x,) = inputs
    groups = x.reshape(*x.shape[:-1], -1, node.attrs["pieces"])
    winner = groups.argmax(axis=-1)[..., None]

    def backward(dy: Array) -> Gradients:
        dgroups = np.zeros_like(groups)
        np.put_along_axis(dgroups, winner, dy[..., None], axis=-1)
        return (dgroups.reshape(x.shape),), {}

    return groups.max(axis=-1), backward


def mul(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    first, second = inputs

    def backward(dy: Array) -> Gradients:
        return (_summed_to(dy * second, first.shape), _summed_to(dy * first, second.shape)), {}

    return first * second, backward


def _summed_to(gradient: Array, shape: Tuple[int, ...]) -> Array:
    """The sum over the axes along which an array of that shape was repeated."""
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 != gradient.shape[axis])
    return gradient.sum(axis=axes, keepdims=True) if axes else gradient


def silu(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,), share = inputs, logistic(inputs[0])
    return x * share, lambda dy: ((dy * share * (1 + x * (1 - share)),), {})


def hardsigmoid(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    return np.clip(x + 3, 0, 6) / 6, lambda dy: ((dy * ((x > -3) & (x < 3)) / 6,), {})


def hardswish(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Howard et al. 2019."""
    (x,) = inputs

    def backward(dy: Array) -> Gradients:
        slope = np.where(x < -3, 0, np.where(x > 3, 1, (2 * x + 3) / 6)).astype(x.dtype)
        return (dy * slope,), {}

    return x * np.clip(x + 3, 0, 6) / 6, backward


ERF = np.frompyfunc(math.erf, 1, 1)


def gelu(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Hendrycks and Gimpel 2016: x P(x), P the normal distribution function, or its approximation by a tanh."""
    (x,), root = inputs, math.sqrt(2 / math.pi)
    if node.attrs["approximate"] == "tanh":
        squashed = np.tanh(root * (x + 0.044715 * x**3))
        share = (1 + squashed) / 2
        density = root / 2 * (1 + 3 * 0.044715 * x**2) * (1 - squashed**2)
    else:
        share = ((1 + np.asarray(ERF(x / math.sqrt(2)), np.float64)) / 2).astype(x.dtype)
        density = np.exp(-(x**2) / 2) * (root / 2)
    return x * share, lambda dy: ((dy * (share + x * density),), {})


def stochastic_depth(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """A mask of one number a sample."""
    (x,), keep = inputs, 1 - node.attrs["p"]
    if not mode.training or mode.dropout is None:
        return x, lambda dy: ((dy,), {})
    drawn = mode.dropout.random((len(x), *[1] * (x.ndim - 1)))
    mask = (drawn < keep).astype(x.dtype) / x.dtype.type(keep)
    return x * mask, lambda dy: ((dy * mask,), {})


def part(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """A Slice, or one part of a Split."""
    (x,), a = inputs, node.attrs
    if node.op == "Split":
        start = sum(a["sizes"][: a["index"]])
        along = slice(start, start + a["sizes"][a["index"]])
    else:
        along = slice(a["start"], a["end"], a.get("step", 1))
    place = (slice(None),) * (a["axis"] + 1) + (along,)

    def backward(dy: Array) -> Gradients:
        dx = np.zeros_like(x)
        dx[place] = dy
        return (dx,), {}

    return x[place], backward


def select(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """One step of a sequence; that of a Last is the last one."""
    (x,), index = inputs, node.attrs.get("index", -1)

    def backward(dy: Array) -> Gradients:
        dx = np.zeros_like(x)
        dx[:, index] = dy
        return (dx,), {}

    return x[:, index], backward


def parameter(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """An array without a batch: of length 1 along it, so that it meets any."""
    return weights["value"][None], lambda dy: ((), {"value": dy[0]})


def tokens(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,) = inputs
    return x.reshape(*x.shape[:2], -1).swapaxes(1, 2), lambda dy: ((dy.swapaxes(1, 2).reshape(x.shape),), {})


def channel_shuffle(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,), groups = inputs, node.attrs["groups"]

    def turned(array: Array, rows: int) -> Array:
        return array.reshape(len(array), rows, -1, *array.shape[2:]).swapaxes(1, 2).reshape(array.shape)

    return turned(x, groups), lambda dy: ((turned(dy, x.shape[1] // groups),), {})


def attention(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Vaswani et al. 2017: softmax(s q k' + b) v in each head, of (N, ..., steps, features)."""
    a, heads, bias = node.attrs, node.attrs["heads"], inputs[-1] if node.attrs.get("bias") else None
    operands = inputs[:-1] if bias is not None else inputs
    fused, scale = len(operands) == 1, operands[0].dtype.type(a["scale"])
    q, k, v = (_heads(x, heads) for x in (np.split(operands[0], 3, axis=-1) if fused else operands))
    scores = scale * (q @ k.swapaxes(-1, -2))
    if bias is not None:
        scores = scores + bias.reshape(len(bias), *[1] * (scores.ndim - 4), *bias.shape[1:])
    mask = shift_mask(a, *scores.shape[1:3])
    if mask is not None:
        scores = scores + mask.astype(scores.dtype)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = powers / powers.sum(axis=-1, keepdims=True)
    rounded = mode.operand(shares)

    def backward(dy: Array) -> Gradients:
        dout = _heads(dy, heads)
        dshares = dout @ v.swapaxes(-1, -2)
        dscores = shares * (dshares - (dshares * shares).sum(axis=-1, keepdims=True))
        narrow = mode.operand_gradient(dscores)
        found = (scale * (narrow @ k), scale * (narrow.swapaxes(-1, -2) @ q), rounded.swapaxes(-1, -2) @ dout)
        merged = tuple(map(_merged, found))
        gradients = (np.concatenate(merged, axis=-1),) if fused else merged
        if bias is None:
            return gradients, {}
        windows = tuple(range(1, dscores.ndim - 3))
        return (*gradients, _summed_to(dscores.sum(axis=windows) if windows else dscores, bias.shape)), {}

    return _merged(rounded @ v), backward


def _heads(x: Array, heads: int) -> Array:
    """(N, ..., steps, features) to (N, ..., heads, steps, features of a head)."""
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def _merged(x: Array) -> Array:
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def pad(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    (x,), (top, bottom, left, right) = inputs, node.attrs["padding"]
    pads = ((0, 0), (0, 0), (top, bottom), (left, right))
    inner = (..., slice(top, top + x.shape[2]), slice(left, left + x.shape[3]))
    return np.pad(x, pads, constant_values=node.attrs.get("value", 0)), lambda dy: ((dy[inner],), {})


def roll(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    down, right = node.attrs["shifts"]
    return np.roll(inputs[0], (down, right), (2, 3)), lambda dy: ((np.roll(dy, (-down, -right), (2, 3)),), {})


def windows(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    size = node.attrs["window"]
    return _windows(inputs[0], size), lambda dy: ((_from_windows(dy, size),), {})


def from_windows(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    size = node.attrs["window"]
    return _from_windows(inputs[0], size), lambda dy: ((_windows(dy, size),), {})


def _windows(x: Array, size: Sequence[int]) -> Array:
    """(N, C, H, W) to (N, rows, across, places, C)."""
    (count, channels, height, width), (down, across) = x.shape, size
    cut = x.reshape(count, channels, height // down, down, width // across, across).transpose(0, 2, 4, 3, 5, 1)
    return cut.reshape(*cut.shape[:3], down * across, channels)


def _from_windows(x: Array, size: Sequence[int]) -> Array:
    (count, rows, columns, _, channels), (down, across) = x.shape, size
    cut = x.reshape(count, rows, columns, down, across, channels).transpose(0, 5, 1, 3, 2, 4)
    return cut.reshape(count, channels, rows * down, columns * across)


def relative_bias(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """Liu et al. 2021: a row of the table for each distance of two places."""
    table, index = weights["weight"], relative_index(node.attrs["window"])

    def backward(dy: Array) -> Gradients:
        gradient = np.zeros_like(table)
        np.add.at(gradient, index, dy[0].transpose(1, 2, 0))
        return (), {"weight": gradient}

    return table[index].transpose(2, 0, 1)[None], backward


def quanv2d(node: Node, weights: Weights, inputs: Tuple[Array, ...], mode: Mode) -> Result:
    """The circuit's expectations of Z on each patch p: z = S (y y), y = U kron_q [cos(pi p_q / 2), sin(pi p_q / 2)].

    The gradient of an angle follows from its gate, cos(t / 2) I + sin(t / 2) K, whose derivative is as simple.
    """
    (x,), gates = inputs, node.attrs["gates"]
    rows, across = x.shape[2] // 2, x.shape[3] // 2
    pixels = x[:, 0, : 2 * rows, : 2 * across].reshape(-1, rows, 2, across, 2).transpose(0, 1, 3, 2, 4)
    half = pixels.reshape(-1, circuit.QUBITS) * x.dtype.type(np.pi / 2)
    factors = np.stack([np.cos(half), np.sin(half)], axis=-1)  # (patches, qubits, 2)
    angles = weights.get("angles")
    matrix, signs = circuit.circuit_matrix(gates, angles).astype(x.dtype), circuit.signs().astype(x.dtype)
    amplitudes = _kron(factors)
    state = amplitudes @ matrix.T
    y = (state * state) @ signs.T

    def backward(dy: Array) -> Gradients:
        dstate = 2 * state * (dy.transpose(0, 2, 3, 1).reshape(-1, circuit.QUBITS) @ signs)
        damplitudes = dstate @ matrix
        dhalf = np.empty_like(half)
        for qubit in range(circuit.QUBITS):
            turned = factors.copy()
            turned[:, qubit] = np.stack([-factors[:, qubit, 1], factors[:, qubit, 0]], axis=-1)
            dhalf[:, qubit] = (damplitudes * _kron(turned)).sum(axis=1)
        dpixels = (dhalf * x.dtype.type(np.pi / 2)).reshape(len(x), rows, across, 2, 2).transpose(0, 1, 3, 2, 4)
        dx = np.zeros_like(x)
        dx[:, 0, : 2 * rows, : 2 * across] = dpixels.reshape(len(x), 2 * rows, 2 * across)
        if angles is None:
            return (dx,), {}
        return (dx,), {"angles": _angle_gradients(gates, angles, dstate.T @ amplitudes)}

    return y.reshape(len(x), rows, across, circuit.QUBITS).transpose(0, 3, 1, 2), backward


def _kron(factors: Array) -> Array:
    """(patches, qubits, 2) to the (patches, 16) products, the first qubit the most significant."""
    product = factors[:, 0]
    for qubit in range(1, factors.shape[1]):
        product = (product[:, :, None] * factors[:, qubit, None, :]).reshape(len(product), -1)
    return product


def _angle_gradients(gates: List[Any], angles: Array, dmatrix: Array) -> Array:
    """Gradient by each rotation's angle, from that by the circuit's (32, 16) matrix."""
    steps, constants, gradients = circuit.matrices(gates, angles), circuit.gate_constants(gates), []
    for place, (turns, constant) in enumerate(constants):
        if turns:
            half = float(angles[len(gradients)]) / 2
            product = np.eye(len(constant))[:, : dmatrix.shape[1]]
            for number, step in enumerate(steps):
                derivative = (np.cos(half) * constant - np.sin(half) * np.eye(len(constant))) / 2
                product = (derivative if number == place else step) @ product
            gradients.append((dmatrix * product).sum())
    return np.array(gradients, dmatrix.dtype)


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
    "Mul": mul,
    "Concat": concat,
    "Split": part,
    "Slice": part,
    "AvgPool2d": avgpool2d,
    "Tanh": tanh,
    "Sigmoid": sigmoid,
    "SiLU": silu,
    "HardSigmoid": hardsigmoid,
    "HardSwish": hardswish,
    "GELU": gelu,
    "StochasticDepth": stochastic_depth,
    "Embedding": embedding,
    "LSTM": lstm,
    "GRU": gru,
    "Reverse": reverse,
    "Last": select,
    "Select": select,
    "Conv1d": conv1d,
    "LayerNorm": layernorm,
    "Maxout": maxout,
    "Quanv2d": quanv2d,
    "Parameter": parameter,
    "Tokens": tokens,
    "ChannelShuffle": channel_shuffle,
    "Attention": attention,
    "Pad": pad,
    "Roll": roll,
    "Windows": windows,
    "FromWindows": from_windows,
    "RelativeBias": relative_bias,
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


def token_cross_entropy(logits: Array, labels: Array) -> Tuple[float, Array]:
    """cross_entropy over all tokens of the batch that count, those with a label other than -1; 0 where none does."""
    counts, gradient = labels != -1, np.zeros_like(logits)
    if not counts.any():
        return 0.0, gradient
    loss, gradient[counts] = cross_entropy(logits[counts], labels[counts])
    return loss, gradient


def mse(outputs: Array, target: Array) -> Tuple[float, Array]:
    """Mean over all elements of the squared difference, not half of it."""
    difference = _same_shape(outputs, target)
    return (difference**2).mean(), 2 * difference / outputs.dtype.type(outputs.size)


def binary_cross_entropy(logits: Array, target: Array) -> Tuple[float, Array]:
    """Mean over all elements of -log of the logistic function's share for the target, 0 or 1."""
    _same_shape(logits, target)
    losses = np.maximum(logits, 0) - logits * target + np.log1p(np.exp(-np.abs(logits)))
    return losses.mean(), (logistic(logits) - target) / logits.dtype.type(logits.size)


def _same_shape(outputs: Array, target: Array) -> Array:
    """Their difference; (N, 1) and (N,) would silently make (N, N)."""
    if outputs.shape != target.shape:
        raise ValueError(f"output {outputs.shape} and target {target.shape} differ in shape")
    return outputs - target


# From outputs and target to the loss of the batch and its gradient by the outputs.
LOSSES: Dict[str, Callable[[Array, Array], Tuple[float, Array]]] = {
    "cross_entropy": cross_entropy,
    "token_cross_entropy": token_cross_entropy,
    "mse": mse,
    "binary_cross_entropy": binary_cross_entropy,
}
Slots = Dict[str, Array]  # an optimiser's state of one parameter
Settings = Mapping[str, float]  # an optimiser's options and its "rate"; arrays keep their precision beside them


def sgd(weight: Array, gradient: Array, slots: Slots, step: int, settings: Settings) -> None:
    velocity = slots.setdefault("momentum", np.zeros_like(weight))
    velocity *= settings["momentum"]
    velocity += gradient
    velocity += settings["weight_decay"] * weight
    weight -= settings["rate"] * velocity


def adam(weight: Array, gradient: Array, slots: Slots, step: int, settings: Settings) -> None:
    mean, square = _moments(gradient, slots, settings)
    root = np.sqrt(square / (1 - settings["beta2"] ** step))
    weight -= settings["rate"] * (mean / (1 - settings["beta1"] ** step)) / (root + settings["eps"])


def rmsprop(weight: Array, gradient: Array, slots: Slots, step: int, settings: Settings) -> None:
    square = slots.setdefault("v", np.zeros_like(weight))
    square += (1 - settings["rho"]) * (gradient * gradient - square)
    weight -= settings["rate"] * gradient / np.sqrt(square + settings["eps"])


def nadam(weight: Array, gradient: Array, slots: Slots, step: int, settings: Settings) -> None:
    mean, square = _moments(gradient, slots, settings)
    now, ahead = (nadam_momentum(t, settings) for t in (step, step + 1))
    slots["product"] = slots.get("product", np.ones(())) * now
    product = float(slots["product"])
    mean = ahead * mean / (1 - product * ahead) + (1 - now) * gradient / (1 - product)
    root = np.sqrt(square / (1 - settings["beta2"] ** step))
    weight -= settings["rate"] * mean / (root + settings["eps"])


def nadam_momentum(step: int, settings: Settings) -> float:
    """u_t of Dozat 2016, the momentum of one step."""
    return settings["beta1"] * (1 - 0.5 * 0.96 ** (step * settings["psi"]))


def _moments(gradient: Array, slots: Slots, settings: Settings) -> Tuple[Array, Array]:
    """Moving averages of the gradient and of its square, taken a step on."""
    mean, square = (slots.setdefault(name, np.zeros_like(gradient)) for name in ("m", "v"))
    mean += (1 - settings["beta1"]) * (gradient - mean)
    square += (1 - settings["beta2"]) * (gradient * gradient - square)
    return mean, square


# One step of one parameter, in place; the formulas are those of `graph.optimizer`, steps count from 1.
OPTIMIZERS: Dict[str, Callable[[Array, Array, Slots, int, Settings], None]] = {
    "sgd": sgd,
    "adam": adam,
    "rmsprop": rmsprop,
    "nadam": nadam,
}


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
        dtype: Any = np.float64,
        *,
        plain_sums: bool = False,
        rounding: Any = None,
        replicas: int = 1,
    ) -> None:
        self.graph = graph
        self.replicas = replicas
        self.plain_sums = plain_sums
        self.rounding = rounding
        self.dtype = np.dtype(dtype)
        self.weights = {name: np.array(array, dtype=dtype) for name, array in weights.items()}
        self._by_node = {n.name: [k for k in self.weights if k.rpartition(".")[0] == n.arrays] for n in graph.nodes}
        self.steps = 0  # taken so far
        self.slots: Dict[str, Slots] = {}  # the optimiser's state, by parameter

    def forward(
        self,
        images: Inputs,
        *,
        training: bool = False,
        dropout: Optional[np.random.Generator] = None,
        watch: Callable[[str, Array], None] = lambda name, value: None,
    ) -> Array:
        """The network's output (N, ...); `watch` is shown every node's. Nothing is changed.

        images: the batch's only input, or a tuple of several in the task's order.
        """
        parts = self._parts(images) if training else [images]
        mode = Mode(training, self.plain_sums, dropout=dropout)
        return np.concatenate([self._pass(part, mode, None, watch) for part in parts])

    def batch_statistics(self, images: Inputs) -> Dict[str, Array]:
        """Mean and unbiased variance of every BatchNorm's input, by the names of the running statistics."""
        mode = Mode(training=True)
        self._pass(images, mode, None, lambda name, value: None)
        momenta = {node.name: node.attrs["momentum"] for node in self.graph.nodes if node.op == "BatchNorm2d"}
        return {
            name: self.weights[name] + (new - self.weights[name]) / self.dtype.type(momenta[name.rpartition(".")[0]])
            for name, new in mode.statistics.items()
        }

    def gradients(
        self, images: Inputs, labels: Array, *, dropout: Optional[np.random.Generator] = None
    ) -> Tuple[float, Array, Dict[str, Array], Dict[str, Array]]:
        """Loss of the task, output, gradient of the loss by every trainable parameter, new running statistics."""
        if self.replicas == 1:
            return self._part_gradients(images, labels, dropout=dropout)
        parts = zip(self._parts(images), np.split(labels, self.replicas))
        losses, outputs, gradients, statistics = zip(*(self._part_gradients(*part, dropout=dropout) for part in parts))
        means = {name: sum(each[name] for each in gradients) / self.dtype.type(self.replicas) for name in gradients[0]}
        return sum(losses) / self.replicas, np.concatenate(outputs), means, statistics[0]

    def _parts(self, images: Inputs) -> List[Inputs]:
        """What each replica gets of a batch."""
        if isinstance(images, tuple):
            return list(zip(*(np.split(array, self.replicas) for array in images)))
        return list(np.split(images, self.replicas))

    def _part_gradients(
        self, images: Inputs, labels: Array, *, dropout: Optional[np.random.Generator]
    ) -> Tuple[float, Array, Dict[str, Array], Dict[str, Array]]:
        tape: List[Tuple[Node, Backward]] = []
        mode = Mode(True, self.plain_sums, dropout=dropout)
        logits = self._pass(images, mode, tape, lambda name, value: None)
        loss, gradient = LOSSES[self.graph.task.loss](logits, self._target(labels))
        found = _backward(tape, {self.graph.nodes[-1].name: gradient}, self.rounding)
        return float(loss), logits, {name: found[name] for name in trainable_names(self.graph)}, mode.statistics

    def train_step(
        self,
        images: Inputs,
        labels: Array,
        *,
        optimizer: Optional[Optimizer] = None,
        learning_rate: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        dropout: Optional[np.random.Generator] = None,
    ) -> Tuple[float, Array, Dict[str, Array]]:
        """One step of an optimiser, by default SGD of the rates given; returns loss, output and gradients before it."""
        if optimizer is None:
            optimizer = Optimizer("sgd", learning_rate, {"momentum": momentum, "weight_decay": weight_decay})
        loss, logits, gradients, statistics = self.gradients(images, labels, dropout=dropout)
        self.apply(gradients, optimizer)
        self.weights.update(statistics)
        return loss, logits, gradients

    def apply(self, gradients: Mapping[str, Array], optimizer: Optimizer) -> None:
        """Change the weights by one step of the optimiser along these gradients."""
        self.steps += 1
        settings = {"rate": optimizer.learning_rate, **optimizer.settings}
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
        tape: Optional[List[Tuple[Node, Backward]]],
        watch: Callable[[str, Array], None],
    ) -> Array:
        last_reader = {name: node.name for node in self.graph.nodes for name in node.inputs}
        values, backward_nodes = self._inputs(images), self.graph.backward_nodes()
        frozen_mode = dataclasses.replace(mode, training=False)
        for node in self.graph.nodes:
            weights = {name.rpartition(".")[2]: self.weights[name] for name in self._by_node[node.name]}
            inputs = tuple(values[name] for name in node.inputs)
            arguments = (node, weights, inputs, frozen_mode if self.graph.is_frozen(node) else mode)
            op = OPS[node.op]
            values[node.name], backward = self.rounding(op, *arguments) if self.rounding else op(*arguments)
            watch(node.name, values[node.name])
            if tape is not None and node.name in backward_nodes:
                tape.append((node, backward))
            for name in set(node.inputs):
                if last_reader[name] == node.name:
                    del values[name]
        return values[self.graph.nodes[-1].name]

    def _inputs(self, images: Inputs) -> Dict[str, Array]:
        """A batch by the names under which nodes read it; tokens stay whole numbers."""
        arrays = images if isinstance(images, tuple) else (images,)
        kinds = {name: self.dtype if field.dtype == "float32" else None for name, field in self.graph.inputs.items()}
        return {name: np.asarray(array, kinds[name]) for name, array in zip(kinds, arrays)}


def _backward(tape: List[Tuple[Node, Backward]], waiting: Dict[str, Array], rounding: Any) -> Dict[str, Array]:
    """Gradients by parameter name, from those of the outputs in `waiting`; the tape is used up."""

    def add(first: Array, second: Array) -> Array:
        return rounding.gradient(first + second) if rounding else first + second

    found: Dict[str, Array] = {}
    names = {node.name for node, _ in tape}
    while tape:
        node, backward = tape.pop()
        inputs, parameters = backward(waiting.pop(node.name))
        for name, gradient in parameters.items():
            shared = found.get(f"{node.arrays}.{name}")
            found[f"{node.arrays}.{name}"] = gradient if shared is None else add(shared, gradient)
        for name, gradient in zip(node.inputs, inputs):
            if name in names:
                waiting[name] = add(waiting[name], gradient) if name in waiting else gradient
    return found
