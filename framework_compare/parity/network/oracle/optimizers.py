"""Optimisers: one step of one parameter, in place. The formulas are those of `graph.optimizer`."""

from typing import Callable, Mapping

import numpy as np

from framework_compare.graph.optimizer import DECAYED
from framework_compare.parity.network.oracle.op import Array

Slots = dict[str, Array]  # an optimiser's state of one parameter
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


def adamw(weight: Array, gradient: Array, slots: Slots, step: int, settings: Settings) -> None:
    if weight.ndim >= DECAYED:  # by a factor, which float32 rounds by more than the other form; some kernels have it
        weight *= weight.dtype.type(1 - settings["rate"] * settings["weight_decay"])
    adam(weight, gradient, slots, step, settings)


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


def clipped(gradients: Mapping[str, Array], most: float) -> dict[str, Array]:
    """All of them, scaled so that their norm is `most` where it was more."""
    norm = float(np.sqrt(sum(float(np.linalg.norm(gradient)) ** 2 for gradient in gradients.values())))
    return {name: gradient * gradient.dtype.type(min(1.0, most / norm)) for name, gradient in gradients.items()}


def _moments(gradient: Array, slots: Slots, settings: Settings) -> tuple[Array, Array]:
    """Moving averages of the gradient and of its square, taken a step on."""
    mean, square = (slots.setdefault(name, np.zeros_like(gradient)) for name in ("m", "v"))
    mean += (1 - settings["beta1"]) * (gradient - mean)
    square += (1 - settings["beta2"]) * (gradient * gradient - square)
    return mean, square


# One step of one parameter, in place; the formulas are those of `graph.optimizer`, steps count from 1.
OPTIMIZERS: dict[str, Callable[[Array, Array, Slots, int, Settings], None]] = {
    "sgd": sgd,
    "adam": adam,
    "rmsprop": rmsprop,
    "nadam": nadam,
    "adamw": adamw,
}
