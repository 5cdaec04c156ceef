"""Recurrent layers: in kernels of their own where these may be, else as loops over the steps."""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple

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
    tf, hidden, two = net.tf, node.attrs["hidden_size"], node.attrs.get("biases", 1) == 2
    if net.recurrent == CUDNN:
        last = net.cast(node, "bias_hh" if two else "bias")
        biases = [net.cast(node, "bias_ih") if two else tf.zeros_like(last), last]
        return _by_cudnn(net, node, x, biases, CUDNN_GATES, training)
    weight = tf.concat([net.cast(node, "weight_ih"), net.cast(node, "weight_hh")], axis=0)
    bias = net.cast(node, "bias_ih") + net.cast(node, "bias_hh") if two else net.cast(node, "bias")
    steps, zero = tf.transpose(x, (1, 0, 2)), tf.zeros((tf.shape(x)[0], hidden), net.dtype)
    if net.recurrent == BLOCK:
        # V1: the gradient that TensorFlow has registered for BlockLSTMV2 is V1's, and wrong for it (2.21)
        peepholes = dict.fromkeys(("wci", "wcf", "wco"), tf.zeros((hidden,), net.dtype))
        states = {"cs_prev": zero, "h_prev": zero, "forget_bias": 0.0, "cell_clip": -1.0, **peepholes}
        length = tf.constant(x.shape[1], tf.int64)
        found = tf.raw_ops.BlockLSTM(seq_len_max=length, x=steps, w=weight, b=bias, **states)
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
        return _by_cudnn(net, node, x, biases, (0, 1, 2), training)
    weight, from_bias, bias = (net.cast(node, name) for name in ("weight_hh", "bias_ih", "bias_hh"))
    from_inputs = tf.linalg.matmul(tf.transpose(x, (1, 0, 2)), net.cast(node, "weight_ih")) + from_bias

    def step(state: Any, at: Any) -> Any:
        (h,) = state
        xr, xz, xn = tf.split(at, 3, axis=1)
        hr, hz, hn = tf.split(tf.matmul(h, weight) + bias, 3, axis=1)
        z = tf.sigmoid(xz + hz)
        return ((1 - z) * tf.tanh(xn + tf.sigmoid(xr + hr) * hn) + z * h,)

    return _looped(net, step, (tf.zeros((tf.shape(x)[0], hidden), net.dtype),), from_inputs)


def _by_cudnn(net: Any, node: Node, x: Any, biases: Sequence[Any], gates: Sequence[int], training: bool) -> Any:
    """The state of each step, (N, steps, hidden).

    cuDNN wants one row: of the inputs' and the states' weights one gate's (out, in) after the other, then the biases.
    """
    tf, count = net.tf, net.tf.shape(x)
    weights = [tf.reshape(tf.transpose(net.cast(node, name)), [-1]) for name in ("weight_ih", "weight_hh")]
    rows = (tf.split(row, len(gates)) for row in (*weights, *biases))
    parameters = tf.concat([row[gate] for row in rows for gate in gates], axis=0)
    zero = tf.zeros((count[0], 1, node.attrs["hidden_size"]), net.dtype)
    states = {"input_h": zero, "input_c": zero if node.op == "LSTM" else 0}
    how = {"rnn_mode": node.op.lower(), "is_training": training, "time_major": False}
    lengths = tf.fill([count[0]], count[1])
    return tf.raw_ops.CudnnRNNV3(input=x, params=parameters, sequence_lengths=lengths, **states, **how).output


def _looped(net: Any, step: Callable[[Any, Any], Any], start: Tuple[Any, ...], inputs: Any) -> Any:
    """First state of each step, (N, steps, features), from inputs (steps, N, features)."""
    tf, steps = net.tf, inputs.shape[0]
    inputs = tf.TensorArray(inputs.dtype, steps, element_shape=inputs.shape[1:]).unstack(inputs)
    shape = (inputs.element_shape[0], start[0].shape[-1])

    def body(t: Any, states: Any, state: Any) -> Any:
        state = step(state, inputs.read(t))
        return t + 1, states.write(t, state[0]), state

    states = tf.TensorArray(net.dtype, steps, element_shape=shape)
    first = (tf.constant(0), states, tuple(tf.ensure_shape(state, shape) for state in start))
    _, states, _ = tf.while_loop(lambda t, *_: t < steps, body, first, maximum_iterations=steps)
    return tf.transpose(states.stack(), (1, 0, 2))
