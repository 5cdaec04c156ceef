"""Primitives on values of any rank; axes in attributes leave the batch out."""

import numpy as np

from framework_compare.graph import Node
from framework_compare.graph.primitives import constant_array, transposed_size
from framework_compare.graph.window import Window
from framework_compare.parity.network.oracle import image_ops
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Op, Result, Weights, summed_to

Inputs = tuple[Array, ...]


def constant(node: Node, weights: Weights, inputs: Inputs, mode: Mode) -> Result:
    return constant_array(node.attrs).astype(mode.dtype)[None], lambda dy: ((), {})


def parameter(node: Node, weights: Weights, inputs: Inputs, mode: Mode) -> Result:
    """An array without a batch: of length 1 along it, so that it meets any."""
    return weights["value"][None], lambda dy: ((), {"value": dy[0]})


def cast(node: Node, weights: Weights, inputs: Inputs, mode: Mode) -> Result:
    """Whole numbers as those of the network's precision."""
    (x,) = inputs
    return x.astype(mode.dtype), lambda dy: ((np.zeros(x.shape, dy.dtype),), {})


def where(node: Node, weights: Weights, inputs: Inputs, mode: Mode) -> Result:
    condition, x, y = inputs
    taken = condition != 0

    def backward(dz: Array) -> Gradients:
        by_x, by_y = np.where(taken, dz, 0), np.where(taken, 0, dz)
        return (np.zeros(condition.shape, dz.dtype), summed_to(by_x, x.shape), summed_to(by_y, y.shape)), {}

    return np.where(taken, x, y), backward


def reduction(node: Node, weights: Weights, inputs: Inputs, mode: Mode) -> Result:
    (x,), axes = inputs, tuple(1 + axis for axis in node.attrs["axes"])
    if node.op == "ReduceMax":
        y = x.max(axis=axes, keepdims=True)
        winners = (x == y).astype(x.dtype)
        share = winners / winners.sum(axis=axes, keepdims=True)
    else:
        count = np.prod([x.shape[axis] for axis in axes], dtype=int) if node.op == "ReduceMean" else 1
        y = x.sum(axis=axes, keepdims=True) / x.dtype.type(count)
        share = np.broadcast_to(x.dtype.type(1) / x.dtype.type(count), x.shape)
    return y, lambda dy: ((dy * share,), {})


def softmax(node: Node, weights: Weights, inputs: Inputs, mode: Mode) -> Result:
    (x,), axis = inputs, 1 + node.attrs["axis"]
    shifted = x - x.max(axis=axis, keepdims=True)
    powers = np.exp(shifted)
    sums = powers.sum(axis=axis, keepdims=True)
    shares = powers / sums
    if node.op == "LogSoftmax":
        return shifted - np.log(sums), lambda dy: ((dy - shares * dy.sum(axis=axis, keepdims=True),), {})
    return shares, lambda dy: ((shares * (dy - (dy * shares).sum(axis=axis, keepdims=True)),), {})


def cumsum(node: Node, weights: Weights, inputs: Inputs, mode: Mode) -> Result:
    (x,), axis = inputs, 1 + node.attrs["axis"]
    return x.cumsum(axis=axis), lambda dy: ((np.flip(np.flip(dy, axis).cumsum(axis=axis), axis),), {})


def matmul(node: Node, weights: Weights, inputs: Inputs, mode: Mode) -> Result:
    x, y = map(mode.operand, inputs)

    def backward(dz: Array) -> Gradients:
        dz = mode.operand_gradient(dz)
        return (summed_to(dz @ y.swapaxes(-1, -2), x.shape), summed_to(x.swapaxes(-1, -2) @ dz, y.shape)), {}

    return x @ y, backward


def convolve(node: Node, weights: Weights, inputs: Inputs, mode: Mode) -> Result:
    x, weight = inputs
    plain = Node(node.name, "Conv2d", node.inputs, {**node.attrs, "bias": False})
    y, back = image_ops.conv2d(plain, {"weight": weight[0]}, (x,), mode)

    def backward(dy: Array) -> Gradients:
        (dx,), found = back(dy)
        return (dx, found["weight"][None]), {}

    return y, backward


def conv_transpose(node: Node, weights: Weights, inputs: Inputs, mode: Mode) -> Result:
    """Each number of the input, times the window of weights, is added to the places that the window covers."""
    x, weight, a, window = inputs[0], inputs[1][0], node.attrs, Window.of(node.attrs)
    groups, (height, width) = a["groups"], x.shape[2:]
    out = transposed_size(a, x.shape[2:])
    (top, bottom), (left, right) = window.pads
    grouped = x.reshape(len(x), groups, -1, height, width)
    kernels = weight.reshape(groups, -1, *weight.shape[1:])  # groups, in, out, rows, columns
    whole = np.zeros((len(x), groups, kernels.shape[2], out[0] + top + bottom, out[1] + left + right), x.dtype)
    taps = list(image_ops.places(window, out))
    for i, j, place in taps:
        whole[place] += np.einsum("ngihw,gio->ngohw", grouped, kernels[..., i, j])

    def backward(dy: Array) -> Gradients:
        dwhole = np.zeros_like(whole)
        dwhole[..., top : top + out[0], left : left + out[1]] = dy.reshape(len(x), groups, -1, *out)
        dx, dkernels = np.zeros_like(grouped), np.zeros_like(kernels)
        for i, j, place in taps:
            dx += np.einsum("ngohw,gio->ngihw", dwhole[place], kernels[..., i, j])
            dkernels[..., i, j] = np.einsum("ngihw,ngohw->gio", grouped, dwhole[place])
        return (dx.reshape(x.shape), dkernels.reshape(weight.shape)[None]), {}

    return whole[..., top : top + out[0], left : left + out[1]].reshape(len(x), -1, *out), backward


OPS: dict[str, Op] = {
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax"), reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax"), softmax),
    "Cast": cast,
    "Constant": constant,
    "Parameter": parameter,
    "Where": where,
    "CumSum": cumsum,
    "MatMul": matmul,
    "Convolve": convolve,
    "ConvTranspose": conv_transpose,
}
