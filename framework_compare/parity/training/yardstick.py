"""How far float32's rounding may set the losses of two trainings apart, step by step."""

import itertools
from typing import Callable, Dict, List, Sequence

import numpy as np

from framework_compare.graph import Task, image_classification
from framework_compare.parity.network.oracle.losses import LOSSES
from framework_compare.protocol import Document

Array = np.ndarray


def yardstick(
    exact: Document, runs: Sequence[Document], labels: Sequence[Array], task: Task = image_classification(2, 1)
) -> List[float]:
    """Return the yardstick of each step, from curves of `oracle_curve`; rounding of weights adds up over steps.

    Any two of the runs count, the exact one included, as any two frameworks are compared.
    """
    pairs = itertools.combinations([exact, *runs], 2)
    moves = [
        [
            _MOVED[task.loss](np.array(a), np.array(b), found)
            for a, b, found in zip(one["logits"], other["logits"], labels)
        ]
        for one, other in pairs
    ]
    own = [
        abs(value - float(LOSSES[task.named_loss](np.array(logits), found, **task.loss_options)[0]))
        for run in runs
        for value, logits, found in zip(run["losses"], run["logits"], labels)
    ]
    spacing = np.spacing(np.array(exact["losses"], np.float32)).astype(np.float64)
    return (np.maximum.accumulate(np.max(moves, axis=0)) + max(own) + spacing).tolist()


def _of_logits(one: Array, other: Array, labels: Array) -> float:
    """Return twice the largest difference of each sample's logits, averaged."""
    return 2 * float(np.abs(one - other).max(axis=-1).mean())


def _of_tokens(one: Array, other: Array, labels: Array) -> float:
    counts = labels != -1
    return _of_logits(one[counts], other[counts], labels) if counts.any() else 0.0


def _of_numbers(one: Array, other: Array, target: Array) -> float:
    """a^2 - b^2 is (a - b)(a + b)."""
    return float((np.abs(one - other) * (np.abs(one - target) + np.abs(other - target))).mean())


# The most that a batch's loss can differ by between two outputs of the network.
_MOVED: Dict[str, Callable[[Array, Array, Array], float]] = {
    "cross_entropy": _of_logits,
    "binary_cross_entropy": _of_logits,
    "token_cross_entropy": _of_tokens,
    "mse": _of_numbers,
}
