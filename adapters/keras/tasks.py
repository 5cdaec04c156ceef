"""Losses and optimisers of Keras by their names in a task and a config."""

from typing import Any, Callable, Dict, List

import numpy as np

from framework_compare.adapters.common.trainer import is_native, optimizer_settings, rates
from framework_compare.protocol import TrainConfig


def smoothed(keras: Any, smoothing: float) -> Callable[[Any, Any], Any]:
    """Over the labels other than -1; Keras smooths only labels that are spread over all classes."""
    ops, plain = keras.ops, LOSSES["token_cross_entropy"](keras)

    def loss(labels: Any, logits: Any) -> Any:
        counts = ops.cast(labels >= 0, logits.dtype)
        even = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
        return (1 - smoothing) * plain(labels, logits) + smoothing * ops.sum(even * counts) / ops.sum(counts)

    return loss


LOSSES: Dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("smoothed cross_entropy", "smoothed token_cross_entropy"), smoothed),
    "cross_entropy": lambda keras: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "token_cross_entropy": lambda keras: keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1),
    "mse": lambda keras: keras.losses.MeanSquaredError(),
    "binary_cross_entropy": lambda keras: keras.losses.BinaryCrossentropy(from_logits=True),
}
# In keras.optimizers.
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "rmsprop": "RMSprop", "nadam": "Nadam", "adamw": "AdamW"}


def make_optimizer(keras: Any, config: TrainConfig) -> Any:
    kind, of = getattr(keras.optimizers, OPTIMIZERS[config.optimizer]), optimizer_settings(config)
    rate, clip = _rate(keras, config), {"global_clipnorm": config.clip_norm or None}
    if is_native(config):
        return kind(rate, **clip)
    if config.optimizer == "sgd":
        kind = _decaying(keras, kind, config.weight_decay) if config.weight_decay else kind
        return kind(rate, config.momentum, **clip)
    how = {**clip, "epsilon": of["eps"]}
    if config.optimizer == "rmsprop":
        return kind(rate, rho=of["rho"], **how)
    how.update(beta_1=of["beta1"], beta_2=of["beta2"])
    if config.optimizer == "nadam":
        return kind(rate, **how)
    decay = {"weight_decay": of["weight_decay"]} if config.optimizer == "adamw" else {}
    return _adam(keras, kind, of)(rate, **how, **decay)


def _rate(keras: Any, config: TrainConfig) -> Any:
    """A number, or a schedule of Keras' that looks it up."""
    table, ops = rates(config).astype(np.float32), keras.ops
    if len(table) == 1:
        return config.learning_rate

    class Table(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return ops.take(ops.convert_to_tensor(table), ops.minimum(ops.cast(step, "int32"), len(table) - 1))

    return Table()


def optimizer_name(config: TrainConfig) -> str:
    name = f"keras.optimizers.{OPTIMIZERS[config.optimizer]}"
    if is_native(config):
        return f"{name}, its own defaults"
    if config.optimizer in ("adam", "adamw"):
        return f"{name}, its epsilon after the correction"
    return f"{name}, decay added to the gradient" if config.weight_decay else name


def _decaying(keras: Any, kind: Any, decay: float) -> Any:
    trained: List[Any] = []  # as an attribute they would count as the optimiser's own variables

    class SGD(type(kind())):  # type: ignore[misc]  # with PyTorch Keras makes one that updates all arrays at once
        """Keras' own weight_decay is taken from the weights; here it is added to the gradient, once that is clipped."""

        def build(self, variables: List[Any]) -> None:
            super().build(variables)
            trained[:] = variables

        def _clip_gradients(self, grads: List[Any]) -> List[Any]:
            values = [keras.ops.convert_to_tensor(variable) for variable in trained]
            return [gradient + decay * value for gradient, value in zip(super()._clip_gradients(grads), values)]

    return SGD


def _adam(keras: Any, kind: Any, of: Dict[str, float]) -> Any:
    ops = keras.ops

    class Adam(type(kind())):  # type: ignore[misc]  # likewise
        """Keras adds epsilon before the correction of the second moment: here it is given one that makes up for it."""

        def apply(self, grads: List[Any], trainable_variables: Any = None) -> Any:
            step = ops.cast(self.iterations + 1, "float32")
            self.epsilon = of["eps"] * ops.sqrt(1 - ops.power(ops.cast(of["beta2"], "float32"), step))
            return super().apply(grads, trainable_variables)

    return Adam
