"""Recurrent layers: in kernels of their own where these may be, else as loops over the steps."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from framework_compare.graph import Node


def lstm(net: Any, node: Node, x: Any, **_: Any) -> Any:
    tf = net.tf
    weight = tf.concat([net.cast(node, "weight_ih"), net.cast(node, "weight_hh")], axis=0)
    hidden, two = node.attrs["hidden_size"], node.attrs.get("biases", 1) == 2
    bias = net.cast(node, "bias_ih") + net.cast(node, "bias_hh") if two else net.cast(node, "bias")
    steps, zero = tf.transpose(x, (1, 0, 2)), tf.zeros((tf.shape(x)[0], hidden), net.dtype)
    if net.fused:
        # V1: the gradient that TensorFlow has registered for BlockLSTMV2 is V1's, and wrong for it (2.21)
        nothing = tf.zeros((hidden,), net.dtype)
        found = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.constant(x.shape[1], tf.int64),
            x=steps,
            cs_prev=zero,
            h_prev=zero,
            w=weight,
            wci=nothing,
            wcf=nothing,
            wco=nothing,
            b=bias,
            forget_bias=0.0,
            cell_clip=-1.0,
        )
        return tf.transpose(found.h, (1, 0, 2))

    def step(state: Any, at: Any) -> Any:
        h, c = state
        i, g, f, o = tf.split(tf.matmul(tf.concat([at, h], 1), weight) + bias, 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c

    return _looped(net, step, (zero, zero), steps)


def gru(net: Any, node: Node, x: Any, **_: Any) -> Any:
    tf, hidden = net.tf, node.attrs["hidden_size"]
    weight, from_bias, bias = (net.cast(node, name) for name in ("weight_hh", "bias_ih", "bias_hh"))
    from_inputs = tf.linalg.matmul(tf.transpose(x, (1, 0, 2)), net.cast(node, "weight_ih")) + from_bias

    def step(state: Any, at: Any) -> Any:
        (h,) = state
        xr, xz, xn = tf.split(at, 3, axis=1)
        hr, hz, hn = tf.split(tf.matmul(h, weight) + bias, 3, axis=1)
        z = tf.sigmoid(xz + hz)
        return ((1 - z) * tf.tanh(xn + tf.sigmoid(xr + hr) * hn) + z * h,)

    return _looped(net, step, (tf.zeros((tf.shape(x)[0], hidden), net.dtype),), from_inputs)


def _looped(net: Any, step: Callable[[Any, Any], Any], start: Tuple[Any, ...], inputs: Any) -> Any:
    """First state of each step, (N, steps, features), from inputs (steps, N, features)."""
    tf, steps = net.tf, inputs.shape[0]
    inputs = tf.TensorArray(inputs.dtype, steps, element_shape=inputs.shape[1:]).unstack(inputs)
    shape = (inputs.element_shape[0], start[0].shape[-1])

    def body(t: Any, states: Any, state: Any) -> Any:
        state = step(state, inputs.read(t))
        return t + 1, states.write(t, state[0]), state

    states = tf.TensorArray(net.dtype, steps, element_shape=shape)
    start = tuple(tf.ensure_shape(state, shape) for state in start)
    _, states, _ = tf.while_loop(
        lambda t, *_: t < steps, body, (tf.constant(0), states, start), maximum_iterations=steps
    )
    return tf.transpose(states.stack(), (1, 0, 2))
