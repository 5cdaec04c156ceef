"""Losses by their names in a task, and optimisers of Paddle by their names in a config."""

import math
from typing import Any, Callable, Dict, Sequence

import numpy as np

from framework_compare.adapters.common.trainer import is_native, optimizer_settings
from framework_compare.graph.optimizer import DECAYED
from framework_compare.protocol import TrainConfig


def cross_entropy(paddle: Any, smoothing: float = 0.0) -> Callable[[Any, Any], Any]:
    return paddle.nn.CrossEntropyLoss(label_smoothing=smoothing)


def token_cross_entropy(paddle: Any, smoothing: float = 0.0) -> Callable[[Any, Any], Any]:
    """Mean over the tokens whose label is not -1; with ignore_index -1 Paddle divides by all of them (3.3.1)."""
    each = paddle.nn.CrossEntropyLoss(reduction="none", label_smoothing=smoothing)

    def mean(logits: Any, labels: Any) -> Any:
        labels = labels.flatten()
        counts = (labels >= 0).astype(labels.dtype)
        weights = counts.astype("float32")
        losses = each(logits.flatten(0, 1).astype("float32"), labels * counts).flatten()
        return (losses * weights).sum() / weights.sum()

    return mean


CORRECTED_STEPS = 100
LOSSES: Dict[str, Callable[..., Callable[[Any, Any], Any]]] = {
    **dict.fromkeys(("cross_entropy", "smoothed cross_entropy"), cross_entropy),
    **dict.fromkeys(("token_cross_entropy", "smoothed token_cross_entropy"), token_cross_entropy),
    "mean_output": lambda paddle: lambda outputs, target: outputs.astype("float32").mean(),
    "mse": lambda paddle: paddle.nn.MSELoss(),
    "binary_cross_entropy": lambda paddle: paddle.nn.BCEWithLogitsLoss(),
}
# In paddle.optimizer.
NAMES = {"sgd": "Momentum", "adam": "Adam", "rmsprop": "RMSProp", "nadam": "NAdam", "adamw": "AdamW"}


def optimizer_name(config: TrainConfig) -> str:
    return f"paddle.optimizer.{NAMES[config.optimizer]}" + (", its own defaults" if is_native(config) else "")


def make_optimizer(paddle: Any, config: TrainConfig, parameters: Sequence[Any]) -> Any:
    kind, settings = getattr(paddle.optimizer, NAMES[config.optimizer]), optimizer_settings(config)
    common = {"learning_rate": config.learning_rate, "parameters": parameters}
    if config.clip_norm:
        common["grad_clip"] = paddle.nn.ClipGradByGlobalNorm(config.clip_norm)
    if config.optimizer == "sgd":
        return kind(**common, momentum=config.momentum, weight_decay=config.weight_decay or None)
    if is_native(config):
        return kind(**common)
    common["epsilon"] = settings["eps"]
    if config.optimizer == "rmsprop":
        return kind(**common, rho=settings["rho"])
    own: Dict[str, Any] = {"momentum_decay": settings["psi"]} if config.optimizer == "nadam" else {}
    if config.optimizer == "adamw":
        decayed = {parameter.name for parameter in parameters if len(parameter.shape) >= DECAYED}  # Paddle's own names
        own = {"weight_decay": settings["weight_decay"], "apply_decay_param_fun": lambda name: name in decayed}
    return _corrected(kind, settings)(**common, **own, beta1=settings["beta1"], beta2=settings["beta2"])


def _corrected(kind: Any, settings: Dict[str, float]) -> Any:
    """Adam or NAdam of Paddle, whose powers of the decays are float32: in the first steps 1 - beta2^t is 1e-5 off (3.3.1).

    The rate and epsilon make up for it, as long as it shows. NAdam has products of momenta for the powers of beta1,
    which are far enough from 1.
    """
    decays = 0.0 if "psi" in settings else settings["beta1"], settings["beta2"]

    class Corrected(kind):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.taken, self.rate, self._asked = 0, given["learning_rate"], given["epsilon"]
            self._powers = [np.float32(1)] * 2

        def step(self) -> None:
            if self.taken <= CORRECTED_STEPS or self.get_lr() != self.rate:
                self._correct()
            super().step()

        def _correct(self) -> None:
            if not self.taken:
                self._powers = [np.float32(1)] * 2
            self.taken += 1
            self._powers = [power * np.float32(decay) for power, decay in zip(self._powers, decays)]
            first, second = (
                (1 - decay**self.taken) / float(1 - power) if self.taken <= CORRECTED_STEPS else 1.0
                for decay, power in zip(decays, self._powers)
            )
            self.set_lr(self.rate * math.sqrt(second) / first)
            self._epsilon = self._asked * math.sqrt(second)

    return Corrected


def forget(optimizer: Any, config: TrainConfig) -> None:
    """All state as before the first step: powers and products at their first value, all else zero."""
    settings = optimizer_settings(config)
    if hasattr(optimizer, "taken"):
        optimizer.taken = 0
    powers = {"beta1_pow_acc": settings.get("beta1"), "beta2_pow_acc": settings.get("beta2")}
    values: Dict[str, Dict[str, Any]] = {
        **dict.fromkeys(("adam", "adamw"), powers),
        "nadam": {"momentum_decay_pow": 1.0, "beta2_pow": 1.0, "mu_product": 1.0},
    }
    first = values.get(config.optimizer, {})
    for name, accumulators in optimizer._accumulators.items():
        value = next((value for ending, value in first.items() if name.endswith(ending)), 0.0)
        for accumulator in accumulators.values():
            accumulator.zero_() if value == 0.0 else accumulator.fill_(value)
