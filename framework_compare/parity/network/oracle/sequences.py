"""Ops on sequences: recurrent layers, attention, its positions, and convolution along the steps."""

import numpy as np

from framework_compare.graph import Node
from framework_compare.graph.attention import relative_index, shift_mask
from framework_compare.parity.network.oracle.elementwise import logistic
from framework_compare.parity.network.oracle.moves import looked_up
from framework_compare.parity.network.oracle.op import Array, Gradients, Mode, Op, Result, Weights, rows, summed_to


def attention(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Vaswani et al. 2017: softmax(s q k' + b) v in each head, of (N, ..., steps, features)."""
    a, heads, bias = node.attrs, node.attrs["heads"], inputs[-1] if node.attrs.get("bias") else None
    operands = inputs[:-1] if bias is not None else inputs
    fused, scale = len(operands) == 1, operands[0].dtype.type(a["scale"])
    q, k, v = np.split(operands[0], 3, axis=-1) if fused else operands
    groups = heads // a.get("kv_heads", heads)
    q = _heads(q, heads)
    k, v = (_heads(x, heads // groups).repeat(groups, axis=-3) for x in (k, v))
    scores = scale * (q @ k.swapaxes(-1, -2))
    if bias is not None:
        scores = scores + bias.reshape(len(bias), *[1] * (scores.ndim - 4), *bias.shape[1:])
    mask = shift_mask(a, *scores.shape[1:3])
    if mask is not None:
        scores = scores + mask.astype(scores.dtype)
    if a.get("causal"):
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = powers / powers.sum(axis=-1, keepdims=True)
    rounded = mode.operand(shares)

    def backward(dy: Array) -> Gradients:
        dout = _heads(dy, heads)
        dshares = dout @ v.swapaxes(-1, -2)
        dscores = shares * (dshares - (dshares * shares).sum(axis=-1, keepdims=True))
        narrow = mode.operand_gradient(dscores)
        of_heads = (scale * (narrow @ k), scale * (narrow.swapaxes(-1, -2) @ q), rounded.swapaxes(-1, -2) @ dout)
        merged = tuple(_merged(_summed(x, of)) for x, of in zip(of_heads, (1, groups, groups)))
        gradients = (np.concatenate(merged, axis=-1),) if fused else merged
        if bias is None:
            return gradients, {}
        windows = tuple(range(1, dscores.ndim - 3))
        return (*gradients, summed_to(dscores.sum(axis=windows) if windows else dscores, bias.shape)), {}

    return _merged(rounded @ v), backward


def _heads(x: Array, heads: int) -> Array:
    """(N, ..., steps, features) to (N, ..., heads, steps, features of a head)."""
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def _summed(x: Array, groups: int) -> Array:
    """The gradient of heads that were repeated so often."""
    return x if groups == 1 else x.reshape(*x.shape[:-3], -1, groups, *x.shape[-2:]).sum(axis=-3)


def _merged(x: Array) -> Array:
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def relative_bias(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Liu et al. 2021: a row of the table for each distance of two places."""
    y, back = looked_up(weights["weight"], relative_index(node.attrs["window"]))
    return y.transpose(2, 0, 1)[None], lambda dy: ((), {"weight": back(dy[0].transpose(1, 2, 0))})


def rotary(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Su et al. 2021, half-split: pairs (i, i + width / 2) of each head turn by step / theta^(2i / width)."""
    (x,), heads, theta = inputs, node.attrs["heads"], node.attrs["theta"]
    half = x.shape[2] // heads // 2
    angles = np.arange(x.shape[1])[:, None, None] * theta ** (-np.arange(half) / half)
    cos, sin = (function(angles).astype(x.dtype) for function in (np.cos, np.sin))

    def turned(value: Array, sin: Array) -> Array:
        lo, hi = np.split(value.reshape(*value.shape[:2], heads, -1), 2, axis=-1)
        return np.concatenate([lo * cos - hi * sin, hi * cos + lo * sin], axis=-1).reshape(value.shape)

    return turned(x, sin), lambda dy: ((turned(dy, -sin),), {})


def lstm(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
    """Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000: rows of the weights i, f, g, o.

    z = x W_ih' + h W_hh' + b; c = s(f) c + s(i) tanh(g); h = s(o) tanh(c); from zero states. b is one bias, or the sum of two.
    """
    (x,), w_ih, w_hh = inputs, weights["weight_ih"], weights["weight_hh"]
    biases = [name for name in weights if name.startswith("bias")]
    count, steps, hidden = x.shape[0], x.shape[1], w_hh.shape[1]
    from_inputs = mode.product(x, w_ih) + sum(weights[name] for name in biases)
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
            "weight_ih": rows(dz).T @ rows(x),
            "weight_hh": rows(dz).T @ rows(earlier),
            **{name: rows(dz).sum(axis=0) for name in biases},
        }

    return np.stack(states[1:], axis=1), backward


def gru(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
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
            "weight_ih": rows(dx).T @ rows(x),
            "weight_hh": rows(dhidden).T @ rows(earlier),
            "bias_ih": rows(dx).sum(axis=0),
            "bias_hh": rows(dhidden).sum(axis=0),
        }

    return np.stack(states[1:], axis=1), backward


def conv1d(node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
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
        gradients = {"weight": (rows(dy).T @ rows(windows)).reshape(weights["weight"].shape)}
        if a["bias"]:
            gradients["bias"] = rows(dy).sum(axis=0)
        return (dx[:, pad : pad + x.shape[1]],), gradients

    return y, backward


OPS: dict[str, Op] = {
    "Attention": attention,
    "RelativeBias": relative_bias,
    "Rotary": rotary,
    "LSTM": lstm,
    "GRU": gru,
    "Conv1d": conv1d,
}
