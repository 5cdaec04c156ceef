"""Losses by their names in a task, and optimisers of Paddle by their names in a config."""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence

from framework_compare.adapters.common.trainer import optimizer_settings
from framework_compare.protocol import TrainConfig


def token_cross_entropy(paddle: Any) -> Callable[[Any, Any], Any]:
    """Mean over the tokens whose label is not -1."""
    mean = paddle.nn.CrossEntropyLoss(ignore_index=-1)
    return lambda logits, labels: mean(logits.flatten(0, 1), labels.flatten())


LOSSES: Dict[str, Callable[[Any], Callable[[Any, Any], Any]]] = {
    "cross_entropy": lambda paddle: paddle.nn.CrossEntropyLoss(),
    "token_cross_entropy": token_cross_entropy,
    "mse": lambda paddle: paddle.nn.MSELoss(),
    "binary_cross_entropy": lambda paddle: paddle.nn.BCEWithLogitsLoss(),
}
NAMES = {"sgd": "Momentum", "adam": "Adam", "rmsprop": "RMSProp", "nadam": "NAdam"}  # in paddle.optimizer


def make_optimizer(paddle: Any, config: TrainConfig, parameters: Sequence[Any]) -> Any:
    kind, settings = getattr(paddle.optimizer, NAMES[config.optimizer]), optimizer_settings(config)
    common = {"learning_rate": config.learning_rate, "parameters": parameters}
    if config.optimizer == "sgd":
        return kind(**common, momentum=config.momentum, weight_decay=config.weight_decay or None)
    common["epsilon"] = settings["eps"]
    if config.optimizer == "rmsprop":
        return kind(**common, rho=settings["rho"])
    own = {"momentum_decay": settings["psi"]} if config.optimizer == "nadam" else {}
    return kind(**common, **own, beta1=settings["beta1"], beta2=settings["beta2"])


def forget(optimizer: Any, config: TrainConfig) -> None:
    """All state as before the first step: powers and products at their first value, all else zero."""
    settings = optimizer_settings(config)
    first = {
        "adam": {"beta1_pow_acc": settings.get("beta1"), "beta2_pow_acc": settings.get("beta2")},
        "nadam": {"momentum_decay_pow": 1.0, "beta2_pow": 1.0, "mu_product": 1.0},
    }.get(config.optimizer, {})
    for name, accumulators in optimizer._accumulators.items():
        value = next((value for ending, value in first.items() if name.endswith(ending)), 0.0)
        for accumulator in accumulators.values():
            accumulator.zero_() if value == 0.0 else accumulator.fill_(value)
