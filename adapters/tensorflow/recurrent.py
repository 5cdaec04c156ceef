"""Recurrent layers: in kernels of their own where these may be, else as loops over the steps."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple

from framework_compare.graph import Node

# What computes recurrent layers, as settings report it.
CUDNN = "cuDNN's LSTM and GRU"
BLOCK = "BlockLSTM; GRU step by step"
LOOPS = "step by step"
CUDNN_GATES = (0, 2, 1, 3)  # i, f, g, o of the variables' i, g, f, o


def kernels(dtype: str, *, gpu: bool, compiled: bool) -> str:
    """Return what computes recurrent layers: on a GPU cuDNN, as Keras' layers choose it.

    XLA has a counterpart of none. Halves take loops: cuDNN has kernels for them, whose parity no GPU has proved yet.
    """
    if compiled or dtype != "float32":
        return LOOPS
    return CUDNN if gpu else BLOCK


def lstm(net: Any, node: Node, x: Any, *, training: bool, **_: Any) -> Any:
    tf = net.tf
    hidden, two = node.attrs["hidden_size"], node.attrs.get("biases", 1) == 2
    if net.recurrent == CUDNN:
        last = net.cast(node, "bias_hh" if two else "bias")
        biases = [net.cast(node, "bias_ih") if two else tf.zeros_like(last), last]
        return _by_cudnn(net, node, x, "lstm", biases, CUDNN_GATES, training)
    weight = tf.concat([net.cast(node, "weight_ih"), net.cast(node, "weight_hh")], axis=0)
    bias = net.cast(node, "bias_ih") + net.cast(node, "bias_hh") if two else net.cast(node, "bias")
    steps, zero = tf.transpose(x, (1, 0, 2)), tf.zeros((tf.shape(x)[0], hidden), net.dtype)
    if net.recurrent == BLOCK:
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


def gru(net: Any, node: Node, x: Any, *, training: bool, **_: Any) -> Any:
    tf, hidden = net.tf, node.attrs["hidden_size"]
    if net.recurrent == CUDNN:
        biases = [net.cast(node, name) for name in ("bias_ih", "bias_hh")]
        return _by_cudnn(net, node, x, "gru", biases, (0, 1, 2), training)
    weight, from_bias, bias = (net.cast(node, name) for name in ("weight_hh", "bias_ih", "bias_hh"))
    from_inputs = tf.linalg.matmul(tf.transpose(x, (1, 0, 2)), net.cast(node, "weight_ih")) + from_bias

    def step(state: Any, at: Any) -> Any:
        (h,) = state
        xr, xz, xn = tf.split(at, 3, axis=1)
        hr, hz, hn = tf.split(tf.matmul(h, weight) + bias, 3, axis=1)
        z = tf.sigmoid(xz + hz)
        return ((1 - z) * tf.tanh(xn + tf.sigmoid(xr + hr) * hn) + z * h,)

    return _looped(net, step, (tf.zeros((tf.shape(x)[0], hidden), net.dtype),), from_inputs)


def _by_cudnn(
    net: Any, node: Node, x: Any, mode: str, biases: Sequence[Any], gates: Sequence[int], training: bool
) -> Any:
    """The state of each step, (N, steps, hidden).

    cuDNN wants one row: of the inputs' and the states' weights one gate's (out, in) after the other, then the biases.
    """
    tf, count = net.tf, net.tf.shape(x)
    parts: List[Any] = []
    weights = [tf.reshape(tf.transpose(net.cast(node, name)), [-1]) for name in ("weight_ih", "weight_hh")]
    for row in (*weights, *biases):
        of_gate = tf.split(row, len(gates))
        parts += [of_gate[gate] for gate in gates]
    zero = tf.zeros((count[0], 1, node.attrs["hidden_size"]), net.dtype)
    found = tf.raw_ops.CudnnRNNV3(
        input=x,
        input_h=zero,
        input_c=zero if mode == "lstm" else 0,
        params=tf.concat(parts, axis=0),
        sequence_lengths=tf.fill([count[0]], count[1]),
        time_major=False,
        rnn_mode=mode,
        is_training=training,
    )
    return found.output


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
