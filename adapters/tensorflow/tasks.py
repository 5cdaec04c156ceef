"""Losses by their names in a task, and the updates of optimisers by their names in a config."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

from framework_compare.adapters.common.trainer import is_native, optimizer_settings, rates
from framework_compare.graph.optimizer import DECAYED
from framework_compare.protocol import TrainConfig


def cross_entropies(tf: Any, logits: Any, labels: Any, smoothing: float) -> Any:
    """Return the loss of each label."""
    if not smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    classes, share = logits.shape[-1], smoothing / logits.shape[-1]
    spread = tf.one_hot(labels, classes, on_value=1 - smoothing + share, off_value=share, dtype=logits.dtype)
    return tf.nn.softmax_cross_entropy_with_logits(labels=spread, logits=logits)


def cross_entropy(tf: Any, logits: Any, labels: Any, smoothing: float = 0.0) -> Any:
    return tf.reduce_mean(cross_entropies(tf, logits, labels, smoothing))


def token_cross_entropy(tf: Any, logits: Any, labels: Any, smoothing: float = 0.0) -> Any:
    """Mean over the tokens whose label is not -1."""
    counts = tf.cast(labels >= 0, logits.dtype)
    losses = cross_entropies(tf, logits, tf.maximum(labels, 0), smoothing)
    return tf.reduce_sum(losses * counts) / tf.reduce_sum(counts)


LOSSES: Dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("cross_entropy", "smoothed cross_entropy"), cross_entropy),
    **dict.fromkeys(("token_cross_entropy", "smoothed token_cross_entropy"), token_cross_entropy),
    "mean_output": lambda tf, outputs, target: tf.reduce_mean(outputs),
    "mse": lambda tf, outputs, target: tf.reduce_mean(tf.math.squared_difference(outputs, target)),
    "binary_cross_entropy": lambda tf, logits, target: tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=logits)
    ),
}
KERAS = {"adam": "Adam", "rmsprop": "RMSprop", "nadam": "Nadam", "adamw": "AdamW"}  # in tf.keras.optimizers
# Arrays of fewer numbers are updated by ops of their own on a CPU, as Keras does: the six calls of the fused kernel in a
# step of 1,377 parameters seemed to take longer (2.21; docs/records/workloads.md). Arrays of up to 1,024 were tried.
SMALL = 4096


class Moments:
    """State that all share: slots of each variable; in float64 the step's number and the product of NAdam's momenta."""

    name, slots = "", 2

    def __init__(self, tf: Any, config: TrainConfig, variables: Sequence[Any]) -> None:
        self._tf = tf
        self.rate: Any = config.learning_rate  # a float64 tensor where it changes
        self._of = optimizer_settings(config)
        self._slots = [[tf.Variable(tf.zeros_like(v), trainable=False) for v in variables] for _ in range(self.slots)]
        self._step, self._product = (tf.Variable(first, dtype=tf.float64, trainable=False) for first in (0.0, 1.0))

    def forget(self) -> None:
        for slot in (slot for slots in self._slots for slot in slots):
            slot.assign(self._tf.zeros_like(slot))
        self._step.assign(0.0)
        self._product.assign(1.0)

    def _power(self, base: float, exponent: Any) -> Any:
        return self._tf.pow(self._tf.constant(base, self._tf.float64), exponent)

    def _single(self, value: Any) -> Any:
        return self._tf.cast(value, "float32")


class Momentum(Moments):
    name, slots = "ResourceApplyMomentum", 1

    def apply(self, variables: Sequence[Any], gradients: List[Any]) -> None:
        update, decay, momentum = self._tf.raw_ops.ResourceApplyMomentum, self._of["weight_decay"], self._of["momentum"]
        for variable, moved, gradient in zip(variables, *self._slots, gradients):
            gradient = gradient + decay * variable if decay else gradient
            handles = {"var": variable.handle, "accum": moved.handle}
            update(lr=self._single(self.rate), grad=gradient, momentum=momentum, **handles)


class Adam(Moments):
    """The fused kernel adds epsilon before the correction of the second moment: it is given one that makes up for it.

    The corrections are in the rate that it gets, as the kernel would take them in float32.
    """

    name = "ResourceApplyAdam, its epsilon after the correction; TensorFlow's ops for small arrays on a CPU"

    def __init__(self, tf: Any, config: TrainConfig, variables: Sequence[Any]) -> None:
        super().__init__(tf, config, variables)
        self._fused_from = SMALL if config.device == "cpu" and config.execution != "eager" else 0

    def apply(self, variables: Sequence[Any], gradients: List[Any]) -> None:
        beta1, beta2, step = self._of["beta1"], self._of["beta2"], self._step.assign_add(1.0)
        root = self._tf.sqrt(1 - self._power(beta2, step))
        rate = self._single(self.rate * root / (1 - self._power(beta1, step)))
        epsilon = self._single(self._of["eps"] * root)
        how = {"lr": rate, "beta1": beta1, "beta2": beta2, "epsilon": epsilon, "beta1_power": 0.0, "beta2_power": 0.0}
        for variable, mean, square, gradient in zip(variables, *self._slots, gradients):
            if variable.shape.num_elements() < self._fused_from:
                m = mean.assign_add((gradient - mean) * (1 - beta1))
                v = square.assign_add((self._tf.square(gradient) - square) * (1 - beta2))
                variable.assign_sub(rate * m / (self._tf.sqrt(v) + epsilon))
            else:
                handles = {"var": variable.handle, "m": mean.handle, "v": square.handle}
                self._tf.raw_ops.ResourceApplyAdam(grad=gradient, **handles, **how)


class AdamW(Adam):
    """The fused kernel has no decay: what it moves has decayed before."""

    name = f"{Adam.name}; our own decay"

    def apply(self, variables: Sequence[Any], gradients: List[Any]) -> None:
        kept = self._single(1 - self._of["weight_decay"] * self.rate)
        for variable in variables:
            if len(variable.shape) >= DECAYED and self._of["weight_decay"]:
                variable.assign(kept * variable)
        super().apply(variables, gradients)


class RMSProp(Moments):
    name = "ResourceApplyRMSProp"

    def apply(self, variables: Sequence[Any], gradients: List[Any]) -> None:
        how = {"rho": self._of["rho"], "epsilon": self._of["eps"], "momentum": 0.0}
        for variable, square, moved, gradient in zip(variables, *self._slots, gradients):
            handles = {"var": variable.handle, "ms": square.handle, "mom": moved.handle}
            self._tf.raw_ops.ResourceApplyRMSProp(lr=self._single(self.rate), grad=gradient, **handles, **how)


class NAdam(Moments):
    """NAdam from tf's own ops: no fused kernel has Dozat's schedule of the momentum."""

    name = "our own, of TensorFlow's ops"

    def apply(self, variables: Sequence[Any], gradients: List[Any]) -> None:
        tf, beta1, beta2 = self._tf, self._of["beta1"], self._of["beta2"]
        step = self._step.assign_add(1.0)
        now, ahead = (beta1 * (1 - 0.5 * self._power(0.96, at * self._of["psi"])) for at in (step, step + 1))
        product = self._product.assign(self._product * now)
        of_mean = self._single(ahead / (1 - product * ahead))
        of_gradient = self._single((1 - now) / (1 - product))
        of_square = self._single(1 / (1 - self._power(beta2, step)))
        for variable, mean, square, gradient in zip(variables, *self._slots, gradients):
            m = mean.assign(beta1 * mean + (1 - beta1) * gradient)
            v = square.assign(beta2 * square + (1 - beta2) * tf.square(gradient))
            moved = (of_mean * m + of_gradient * gradient) / (tf.sqrt(of_square * v) + self._of["eps"])
            variable.assign_sub(self._single(self.rate) * moved)


class Keras:
    """Keras' own optimizer, with its own defaults except the rate."""

    def __init__(self, tf: Any, config: TrainConfig, variables: Sequence[Any]) -> None:
        self._optimizer = getattr(tf.keras.optimizers, KERAS[config.optimizer])(config.learning_rate)
        self._optimizer.build(variables)
        self._first = [variable.numpy() for variable in self._optimizer.variables]

    def apply(self, variables: Sequence[Any], gradients: List[Any]) -> None:
        self._optimizer.apply(gradients, variables)

    def forget(self) -> None:
        for variable, first in zip(self._optimizer.variables, self._first):
            variable.assign(first)


OPTIMIZERS: Dict[str, Any] = {"sgd": Momentum, "adam": Adam, "rmsprop": RMSProp, "nadam": NAdam, "adamw": AdamW}


def make_optimizer(tf: Any, config: TrainConfig, variables: Sequence[Any]) -> Any:
    made = (Keras if is_native(config) else OPTIMIZERS[config.optimizer])(tf, config, variables)
    plain = not config.clip_norm and config.accumulation == 1 and len(rates(config)) == 1
    return made if plain else Updates(tf, config, variables, made)


class Updates:
    """Preparation of an optimizer's step: gather batches, set the rate of the update, clip."""

    def __init__(self, tf: Any, config: TrainConfig, variables: Sequence[Any], optimizer: Any) -> None:
        self._tf, self._config, self._optimizer = tf, config, optimizer
        self._rates = rates(config)
        self._counts = [tf.Variable(0, trainable=False, dtype=tf.int64) for _ in range(2)]  # batches, updates
        gathers = config.accumulation > 1
        self._sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables] if gathers else []

    def forget(self) -> None:
        self._optimizer.forget()
        for variable in (*self._counts, *self._sums):
            variable.assign(self._tf.zeros_like(variable))

    def apply(self, variables: Sequence[Any], gradients: List[Any]) -> None:
        tf, count = self._tf, self._config.accumulation
        if count == 1:
            self._update(variables, gradients)
            return
        for held, gradient in zip(self._sums, gradients):
            held.assign_add(gradient / count)

        def update() -> Any:
            self._update(variables, [held.read_value() for held in self._sums])
            for held in self._sums:
                held.assign(tf.zeros_like(held))
            return tf.constant(0, tf.int64)

        tf.cond(self._counts[0].assign_add(1) % count == 0, update, lambda: tf.constant(0, tf.int64))

    def _update(self, variables: Sequence[Any], gradients: List[Any]) -> None:
        tf = self._tf
        if self._config.clip_norm:
            scale = tf.minimum(1.0, self._config.clip_norm / tf.linalg.global_norm(gradients))
            gradients = [gradient * scale for gradient in gradients]
        update = self._counts[1].assign_add(1) - 1
        if len(self._rates) > 1:
            self._optimizer.rate = tf.gather(self._rates, tf.minimum(update, len(self._rates) - 1))
        self._optimizer.apply(variables, gradients)


def optimizer_name(config: TrainConfig) -> str:
    if is_native(config):
        return f"tf.keras.optimizers.{KERAS[config.optimizer]}, its own defaults"
    return str(OPTIMIZERS[config.optimizer].name)
