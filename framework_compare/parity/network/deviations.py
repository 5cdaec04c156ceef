"""Deviations of answers to the ladder's questions from the exact ones: relative errors, level by level."""

import dataclasses
from typing import Mapping, Sequence

import numpy as np

from framework_compare.parity.network.rounding import unit

Array = np.ndarray
Errors = dict[int, dict[str, float]]  # level -> where -> relative error
EVALUATION, TRAINING = "logits, BatchNorm in evaluation mode", "logits, BatchNorm in training mode"
GENERATED = "logits of generated tokens"
# Rounding scatters the numbers of an array and leaves little in such a sum of all; a wrong momentum or decay does not.
ALONG = {"way": " along its way", "start": " along its start"}
TINY = 1e-300
# Of an array's size: a step of less is none in float64. Adam divides a gradient that is nothing but rounding by its own
# size, so what moves such an array (a bias that softmax takes out) may be less than that, or more, by the processor.
STILL = 1e-16
SMALL, ZERO = 1e-6, 1e-12  # of the largest gradient: no more than rounding in float32, and in float64


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers of a network, the oracle's or a framework's, to the questions."""

    evaluation: Array
    training: Array
    gradients: Mapping[str, Array]
    losses: Sequence[float]
    weights: Mapping[str, Array]
    step_logits: Sequence[Array] = ()  # those behind the losses; of the oracle only
    biased: Mapping[str, Array] = dataclasses.field(default_factory=dict)  # as `Oracle` has them


def errors(found: Answers, exact: Answers, initial: Mapping[str, Array], precision: str = "fp32") -> Errors:
    """Relative errors of levels 1 to 3, norm over norm; of weights, relative to how far the steps moved them."""
    return {
        1: {
            EVALUATION: relative(found.evaluation, exact.evaluation),
            TRAINING: relative(found.training, exact.training),
        },
        2: gradient_errors(found.gradients, exact.gradients, precision),
        3: step_errors(found, exact, initial),
    }


def step_errors(found: Answers, exact: Answers, initial: Mapping[str, Array]) -> dict[str, float]:
    """Relative errors of each step's loss, of how far the steps moved each array, and of parts of that (`ALONG`)."""
    steps = enumerate(zip(found.losses, exact.losses), start=1)
    off = {f"loss of step {step}": relative(np.array(a), np.array(b)) for step, (a, b) in steps}
    for name, array in exact.weights.items():
        off[name], way, start = moved_relative(found.weights[name], array, initial[name])
        if name in exact.gradients:
            off.update({name + ALONG["way"]: way, name + ALONG["start"]: start})
    return off


def scatter(off: Mapping[str, float], exact: Answers) -> dict[str, float]:
    """Return the part of an array's error that a sum of its numbers may keep by chance: four deviations."""
    return {
        name + along: off[name] * min(1.0, 4 / float(np.sqrt(exact.weights[name].size)))
        for name in exact.gradients
        for along in ALONG.values()
    }


def loss_roundings(found: Answers, exact: Answers, loss: str = "cross_entropy", least: float = 0.0) -> dict[str, float]:
    """Return how far rounding of the logits may move each step's loss, relative; a loss, one number, may be right by luck.

    It is a float32 in all precisions, so never known to less than half a unit.
    least: the smallest error of a logit, relative to it.
    """
    bounds = {}
    for step, (ours, theirs) in enumerate(zip(found.step_logits, exact.step_logits), start=1):
        difference, size = np.abs(np.subtract(ours, theirs, dtype=np.float64)), exact.losses[step - 1]
        difference = np.maximum(difference, least * np.abs(theirs))
        off = difference.max(axis=-1).mean()
        if loss == "mse":  # by Cauchy and Schwarz
            off = np.sqrt(size * (difference**2).mean())
        bounds[f"loss of step {step}"] = max(_ratio(2 * off, size), unit("fp32") / 2)  # by twice that at most
    return bounds


def least_errors(exact: Answers, loss: str, least: float) -> Errors:
    """Return the errors of answers whose logits, gradients and weights are each off by `least`, relative to them."""
    arrays = dict.fromkeys(exact.gradients, least)
    steps = {**arrays, **scatter(arrays, exact), **loss_roundings(exact, exact, loss, least)}
    return {1: {EVALUATION: least, TRAINING: least}, 2: arrays, 3: steps}


def relative(found: Array, exact: Array) -> float:
    """Norm of the difference over the norm of the exact value; infinite where either is not finite."""
    return _ratio(_norm(np.subtract(found, exact, dtype=np.float64)), _norm(exact))


def gradient_errors(
    found: Mapping[str, Array], exact: Mapping[str, Array], precision: str = "fp32"
) -> dict[str, float]:
    """Relative error of each gradient; if only rounding keeps one from zero, relative to the largest of all.

    A bias whose effect the next BatchNorm takes out has such a gradient: what is left of it is rounding of others.
    """
    norms = {name: _norm(array) for name, array in exact.items()}
    largest = max(norms.values())
    sizes = {name: max(norm, SMALL * largest) for name, norm in norms.items()}
    for name, norm in norms.items():
        if norm < ZERO * largest:
            sizes[name] = SMALL * largest * unit(precision) / unit("fp32")
    differences = {n: _norm(np.subtract(found[n], a, dtype=np.float64)) for n, a in exact.items()}
    return {name: _ratio(difference, sizes[name]) for name, difference in differences.items()}


def moved_relative(found: Array, exact: Array, initial: Array) -> tuple[float, float, float]:
    """Return how far off an array is, relative to how far it moved: in all, along its way, and along its initial value."""
    difference = np.subtract(found, exact, dtype=np.float64).ravel()
    way = np.subtract(exact, initial, dtype=np.float64).ravel()
    start = initial.ravel().astype(np.float64)
    moved = max(float(np.linalg.norm(way)), STILL * float(np.linalg.norm(start)))
    along = [abs(float(difference @ d)) / max(float(np.linalg.norm(d)), TINY) for d in (way, start)]
    return _ratio(float(np.linalg.norm(difference)), moved), _ratio(along[0], moved), _ratio(along[1], moved)


def _norm(array: Array) -> float:
    return float(np.linalg.norm(array))


def _ratio(difference: float, size: float) -> float:
    if not np.isfinite(difference) or not np.isfinite(size):
        return float("inf")
    return float(difference / size) if size else (0.0 if difference == 0 else float("inf"))


def larger(first: Errors, second: Errors) -> Errors:
    return {
        level: {where: max(error, first.get(level, {}).get(where, 0.0)) for where, error in found.items()}
        for level, found in second.items()
    }
