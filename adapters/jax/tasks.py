"""Losses by their names in a task, and optimisers of optax by their names in a config."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict

import numpy as np

from framework_compare.adapters.common.trainer import is_native, optimizer_settings, rates
from framework_compare.graph.optimizer import DECAYED
from framework_compare.protocol import TrainConfig


def cross_entropies(optax: Any, logits: Any, labels: Any, smoothing: float) -> Any:
    """Return the loss of each label; with smoothing a share of it is the mean over all classes."""
    losses, share = optax.softmax_cross_entropy_with_integer_labels(logits, labels), 1 / logits.shape[-1]
    return (1 - smoothing) * losses + smoothing * optax.softmax_cross_entropy(logits, share) if smoothing else losses


def cross_entropy(optax: Any, logits: Any, labels: Any, smoothing: float = 0.0) -> Any:
    return cross_entropies(optax, logits, labels, smoothing).mean()


def token_cross_entropy(optax: Any, logits: Any, labels: Any, smoothing: float = 0.0) -> Any:
    """Mean over the tokens whose label is not -1."""
    counts = labels >= 0
    return (cross_entropies(optax, logits, labels * counts, smoothing) * counts).sum() / counts.sum()


LOSSES: Dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("cross_entropy", "smoothed cross_entropy"), cross_entropy),
    **dict.fromkeys(("token_cross_entropy", "smoothed token_cross_entropy"), token_cross_entropy),
    "mean_output": lambda optax, outputs, target: outputs.mean(),
    "mse": lambda optax, outputs, target: optax.squared_error(outputs, target).mean(),
    "binary_cross_entropy": lambda optax, logits, target: optax.sigmoid_binary_cross_entropy(logits, target).mean(),
}
NAMES = {**{name: f"optax.{name}" for name in ("sgd", "adam", "rmsprop", "adamw")}, "nadam": "our own, of optax's kind"}


def make_optimizer(jax: Any, optax: Any, config: TrainConfig) -> Any:
    made = _make(jax, optax, config, _rate(jax, config))
    if config.clip_norm:
        made = optax.chain(optax.clip_by_global_norm(config.clip_norm), made)
    return optax.MultiSteps(made, config.accumulation).gradient_transformation() if config.accumulation > 1 else made


def optimizer_name(config: TrainConfig) -> str:
    return f"optax.{config.optimizer}, its own defaults" if is_native(config) else NAMES[config.optimizer]


def _rate(jax: Any, config: TrainConfig) -> Any:
    """A number, or a function of the updates so far."""
    table = rates(config).astype(np.float32)
    if len(table) == 1:
        return config.learning_rate
    return lambda count: jax.numpy.asarray(table)[jax.numpy.minimum(count, len(table) - 1)]


def _make(jax: Any, optax: Any, config: TrainConfig, rate: Any) -> Any:
    settings = optimizer_settings(config)
    if is_native(config):
        return getattr(optax, config.optimizer)(rate)
    if config.optimizer == "sgd":
        decay = [optax.add_decayed_weights(config.weight_decay)] if config.weight_decay else []
        return optax.chain(*decay, optax.sgd(rate, momentum=config.momentum or None))
    if config.optimizer == "rmsprop":
        return optax.rmsprop(rate, decay=settings["rho"], eps=settings["eps"])  # inside the root
    if config.optimizer == "nadam":
        return _nadam(jax, optax, rate, settings)
    own = {"b1": settings["beta1"], "b2": settings["beta2"], "eps": settings["eps"]}
    if config.optimizer == "adam":
        return optax.adam(rate, **own)
    decays = functools.partial(jax.tree.map, lambda array: array.ndim >= DECAYED)
    return optax.adamw(rate, **own, weight_decay=settings["weight_decay"], mask=decays)


def _nadam(jax: Any, optax: Any, rate: Any, settings: Dict[str, float]) -> Any:
    """Dozat's, as graph/optimizer.py has it: optax.nadam keeps the momentum constant."""
    beta1, beta2, eps, psi = (settings[name] for name in ("beta1", "beta2", "eps", "psi"))
    jnp, tree = jax.numpy, jax.tree

    def init(parameters: Any) -> Any:
        zeros = tree.map(jnp.zeros_like, parameters)
        return jnp.int32(0), jnp.float32(1), zeros, tree.map(jnp.copy, zeros)

    def update(gradients: Any, state: Any, parameters: Any = None) -> Any:
        step, product, mean, square = state
        step = step + 1
        now, ahead = (beta1 * (1 - 0.5 * 0.96 ** (at * psi)) for at in (step, step + 1))
        product = product * now
        mean = tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, mean, gradients)
        square = tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, square, gradients)

        def moved(m: Any, v: Any, g: Any) -> Any:
            corrected = ahead * m / (1 - product * ahead) + (1 - now) * g / (1 - product)
            return -(rate(step - 1) if callable(rate) else rate) * corrected / (jnp.sqrt(v / (1 - beta2**step)) + eps)

        return tree.map(moved, mean, square, gradients), (step, product, mean, square)

    return optax.GradientTransformation(init, update)
