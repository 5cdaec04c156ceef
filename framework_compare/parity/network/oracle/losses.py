"""Losses of a batch and their gradients by the network's outputs."""

from typing import Callable

import numpy as np

from framework_compare.parity.network.oracle.elementwise import logistic
from framework_compare.parity.network.oracle.op import Array


def cross_entropy(logits: Array, labels: Array, smoothing: float = 0.0) -> tuple[float, Array]:
    """Mean over the batch of -log softmax at the label, and its gradient by the logits."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    sums = powers.sum(axis=1, keepdims=True)
    rows, kept = np.arange(len(labels)), logits.dtype.type(1 - smoothing)
    losses, gradient = np.log(sums[:, 0]) - kept * shifted[rows, labels], powers / sums
    if smoothing:
        losses -= (1 - kept) * shifted.mean(axis=1)
        gradient -= (1 - kept) / logits.dtype.type(logits.shape[1])
    loss = losses.mean()
    gradient[rows, labels] -= kept
    return loss, gradient / logits.dtype.type(len(labels))


def token_cross_entropy(logits: Array, labels: Array, smoothing: float = 0.0) -> tuple[float, Array]:
    """cross_entropy over all tokens of the batch that count, those with a label other than -1; 0 where none does."""
    counts, gradient = labels != -1, np.zeros_like(logits)
    if not counts.any():
        return 0.0, gradient
    loss, gradient[counts] = cross_entropy(logits[counts], labels[counts], smoothing)
    return loss, gradient


def mse(outputs: Array, target: Array) -> tuple[float, Array]:
    """Mean over all elements of the squared difference, not half of it."""
    difference = _same_shape(outputs, target)
    return (difference**2).mean(), 2 * difference / outputs.dtype.type(outputs.size)


def binary_cross_entropy(logits: Array, target: Array) -> tuple[float, Array]:
    """Mean over all elements of -log of the logistic function's share for the target, 0 or 1."""
    _same_shape(logits, target)
    losses = np.maximum(logits, 0) - logits * target + np.log1p(np.exp(-np.abs(logits)))
    return losses.mean(), (logistic(logits) - target) / logits.dtype.type(logits.size)


def mean_output(outputs: Array, target: Array) -> tuple[float, Array]:
    """Mean over all elements of what the network gives: it computes the losses itself."""
    return outputs.mean(), np.full_like(outputs, 1 / outputs.size)


def _same_shape(outputs: Array, target: Array) -> Array:
    """Their difference; (N, 1) and (N,) would silently make (N, N)."""
    if outputs.shape != target.shape:
        raise ValueError(f"output {outputs.shape} and target {target.shape} differ in shape")
    return outputs - target


# From outputs and target to the loss of the batch and its gradient by the outputs.
LOSSES: dict[str, Callable[..., tuple[float, Array]]] = {
    "cross_entropy": cross_entropy,
    "token_cross_entropy": token_cross_entropy,
    "smoothed cross_entropy": cross_entropy,
    "smoothed token_cross_entropy": token_cross_entropy,
    "mean_output": mean_output,
    "mse": mse,
    "binary_cross_entropy": binary_cross_entropy,
}
