"""Ops on images: convolution, BatchNorm, pooling, and a quantum circuit on each patch."""

import math
from typing import Any, Iterator, Sequence

import numpy as np

from framework_compare.graph import Node, circuit
from framework_compare.graph.image_ops import adaptive_size
from framework_compare.graph.window import Window
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Op, Result, Weights

ONE_PIXEL = Window((1, 1), (1, 1), ((0, 0), (0, 0)))


def columns(x: Array, window: Window) -> Array:
    """im2col of one image: (C, H, W) to (C, places of the window, Ho * Wo), zeros outside."""
    if window == ONE_PIXEL:
        return x.reshape(len(x), 1, -1)
    padded = np.pad(x, ((0, 0), *window.all_pads(x.shape[1:])))
    windows = np.lib.stride_tricks.sliding_window_view(padded, window.spans, axis=(1, 2))
    (down, across), (rows, cols) = window.stride, window.dilation
    windows = windows[:, ::down, ::across, ::rows, ::cols].transpose(0, 3, 4, 1, 2)
    return windows.reshape(len(x), windows.shape[1] * windows.shape[2], -1)


def fold(cols: Array, size: tuple[int, int], window: Window) -> Array:
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


def places(window: Window, size: Sequence[int]) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    """Yield each place (i, j) of the window with the padded image's pixels that it meets, one per window."""
    (rows, across), (down, right) = window.output(size), window.stride
    for i in range(window.kernel[0]):
        for j in range(window.kernel[1]):
            first, left = i * window.dilation[0], j * window.dilation[1]
            yield i, j, (..., slice(first, first + down * rows, down), slice(left, left + right * across, right))


def conv2d(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Cross-correlation with groups, one image at a time, so that the columns of one fit in memory."""
    (x,), a, groups = inputs, node.attrs, node.attrs["groups"]
    window = Window.of(a)
    kernel = weights["weight"].reshape(groups, a["out_channels"] // groups, -1)
    side = window.output(x.shape[2:])

    def grouped(image: Array) -> Array:
        return columns(image, window).reshape(groups, kernel.shape[2], -1)

    y = np.stack([(kernel @ grouped(image)).reshape(a["out_channels"], *side) for image in x])
    if a["bias"]:
        y += weights["bias"][:, None, None]

    def backward(dy: Array) -> Gradients:
        dkernel = np.zeros_like(kernel)
        dx = np.empty_like(x)
        for n, image in enumerate(x):
            dout = dy[n].reshape(groups, kernel.shape[1], -1)
            if mode.plain_sums and groups == a["in_channels"]:
                dkernel += _plain_products(dout, grouped(image))
            else:
                dkernel += dout @ grouped(image).transpose(0, 2, 1)
            dcols = (kernel.transpose(0, 2, 1) @ dout).reshape(len(image), math.prod(window.kernel), -1)
            dx[n] = fold(dcols, x.shape[2:], window)
        gradients = {"weight": dkernel.reshape(weights["weight"].shape)}
        return (dx,), {**gradients, "bias": mode.total(dy)} if a["bias"] else gradients

    return y, backward


def _plain_products(dout: Array, cols: Array) -> Array:
    """(G, Og, P) times (G, K, P) summed over P one by one: (G, Og, K)."""
    places = np.ascontiguousarray(cols.transpose(2, 0, 1))
    sums = [(places * dout[:, o].T[:, :, None]).sum(axis=0) for o in range(dout.shape[1])]
    return np.stack(sums, axis=1)


def batchnorm2d(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Ioffe and Szegedy 2015: biased variance normalises, the unbiased one is kept, as in torch."""
    (x,), a = inputs, node.attrs
    count = mode.count(x)
    if mode.training:
        mean = mode.mean(x)
        variance = mode.mean((x - _by_channel(mean)) ** 2)
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
            dx = dy - mode.shares(x) * (_by_channel(dbias) + normal * _by_channel(dweight))
        return (dx * _by_channel(weights["weight"] * scale),), {"weight": dweight, "bias": dbias}

    return y, backward


def _by_channel(vector: Array) -> Array:
    return vector[:, None, None]


def maxpool2d(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
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


def avgpool2d(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Each window's sum over its area, or where padding does not count over the pixels of the image in it."""
    (x,), window, pads = inputs, Window.of(node.attrs), node.attrs["count_include_pad"]
    size = window.output(x.shape[2:])
    down, across = (_window_lengths(window, axis, x.shape[2 + axis], size[axis], pads) for axis in (0, 1))
    count = (down[:, None] * across).astype(x.dtype)
    y = np.stack([columns(image, window).sum(axis=1).reshape(-1, *size) for image in x]) / count

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


def adaptive_avgpool2d(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
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


def global_avgpool(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Over the places of an image, the steps of a sequence."""
    (x,) = inputs
    axes = (2, 3) if x.ndim == 4 else (1,)
    count = math.prod(x.shape[axis] for axis in axes)
    return x.mean(axis=axes), lambda dy: ((np.broadcast_to(np.expand_dims(dy / count, axes), x.shape),), {})


def quanv2d(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
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


def _angle_gradients(gates: Sequence[circuit.Gate], angles: Array, dmatrix: Array) -> Array:
    """Gradient by each rotation's angle, from that by the circuit's (32, 16) matrix."""
    steps, constants = circuit.matrices(gates, angles), circuit.gate_constants(gates)
    gradients: list[float] = []
    for place, (turns, constant) in enumerate(constants):
        if turns:
            half = float(angles[len(gradients)]) / 2
            product = np.eye(len(constant))[:, : dmatrix.shape[1]]
            for number, step in enumerate(steps):
                derivative = (np.cos(half) * constant - np.sin(half) * np.eye(len(constant))) / 2
                product = (derivative if number == place else step) @ product
            gradients.append((dmatrix * product).sum())
    return np.array(gradients, dmatrix.dtype)


OPS: dict[str, Op] = {
    "Conv2d": conv2d,
    "BatchNorm2d": batchnorm2d,
    "MaxPool2d": maxpool2d,
    "AvgPool2d": avgpool2d,
    "AdaptiveAvgPool2d": adaptive_avgpool2d,
    "GlobalAvgPool": global_avgpool,
    "Quanv2d": quanv2d,
}
