"""Losses by their names in a task, and optimisers of MXNet by their names in a config."""

import math
from typing import Any, Callable, Dict, Tuple

from framework_compare.adapters.common.trainer import is_native, optimizer_settings
from framework_compare.protocol import TrainConfig


def cross_entropy(mx: Any) -> Callable[[Any, Any], Any]:
    # over the last axis oneDNN's log_softmax computes it, to 3e-6 only; over another, MXNet's own kernel, to 2e-7
    loss = _hybridised(mx.gluon.loss.SoftmaxCrossEntropyLoss(axis=1))
    return lambda logits, labels: loss(logits.expand_dims(2), labels.expand_dims(1))


def smoothed_cross_entropy(mx: Any, smoothing: float) -> Callable[[Any, Any], Any]:
    """Return the loss of a sequence of one token: gluon's loss smooths no labels."""
    loss = token_cross_entropy(mx, smoothing)
    return lambda logits, labels: loss(logits.expand_dims(1), labels.expand_dims(1))


def token_cross_entropy(mx: Any, smoothing: float = 0.0) -> Callable[[Any, Any], Any]:
    """Mean over the tokens whose label is not -1: the losses of samples have it as their mean."""

    class TokenCrossEntropy(mx.gluon.HybridBlock):
        def hybrid_forward(self, F: Any, logits: Any, labels: Any) -> Any:
            counts = F.cast(labels >= 0, "float32")
            # over an axis other than the last, as in `cross_entropy`
            likelihoods = F.log_softmax(F.transpose(logits, (0, 2, 1)), axis=1)
            chosen = F.maximum(labels, 0)
            wanted = F.pick(likelihoods, chosen, axis=1)
            # by logits: log_softmax's gradient adds up what all classes have, which sets it 1e-5 off
            if smoothing:
                wanted = wanted - smoothing * (F.pick(logits, chosen, axis=2) - F.mean(logits, axis=2))
            of_samples, tokens = F.sum(-wanted * counts, axis=1), F.sum(counts, axis=1)
            return F.broadcast_div(of_samples, F.mean(tokens, axis=0, keepdims=True))

    return _hybridised(TokenCrossEntropy())


def _hybridised(loss: Any) -> Any:
    loss.hybridize()
    return loss


# From outputs and target to the loss of each sample.
LOSSES: Dict[str, Callable[..., Callable[[Any, Any], Any]]] = {
    "cross_entropy": cross_entropy,
    "smoothed cross_entropy": smoothed_cross_entropy,
    **dict.fromkeys(("token_cross_entropy", "smoothed token_cross_entropy"), token_cross_entropy),
    "mean_output": lambda mx: lambda outputs, target: outputs.mean(axis=0, exclude=True),
    "mse": lambda mx: _hybridised(mx.gluon.loss.L2Loss(weight=2.0)),  # which is half the square
    "binary_cross_entropy": lambda mx: _hybridised(mx.gluon.loss.SigmoidBinaryCrossEntropyLoss()),  # of logits
}
NAMES = {
    "sgd": "gluon.Trainer('sgd')",
    "adam": "mx.optimizer.Adam, its epsilon after the correction",
    "rmsprop": "mx.optimizer.RMSProp",
    "nadam": "mx.optimizer.Nadam, a product of momenta for each array",
    "adamw": "nd.contrib.adamw_update, its rate and epsilon corrected for the bias of the moments",
}
NATIVE = {"adam": "Adam", "rmsprop": "RMSProp", "nadam": "Nadam"}  # in mx.optimizer


def optimizer_name(config: TrainConfig) -> str:
    own = is_native(config)
    return f"mx.optimizer.{NATIVE[config.optimizer]}, its own defaults" if own else NAMES[config.optimizer]


def make_optimizer(mx: Any, config: TrainConfig) -> Any:
    settings, rate = optimizer_settings(config), config.learning_rate
    if config.optimizer == "sgd":
        return mx.optimizer.SGD(learning_rate=rate, momentum=config.momentum, wd=config.weight_decay)
    if is_native(config):
        return getattr(mx.optimizer, NATIVE[config.optimizer])(learning_rate=rate)
    how = {"learning_rate": rate, "epsilon": settings["eps"]}
    if config.optimizer == "rmsprop":
        return mx.optimizer.RMSProp(**how, gamma1=settings["rho"])
    more = {"weight_decay": "wd", "psi": "schedule_decay"}  # of adamw and of nadam
    how.update({more.get(name, name): value for name, value in settings.items() if name != "eps"})
    return _corrected(mx)[config.optimizer](**how)


def forget(optimizer: Any) -> None:
    """Set the optimizer back to before its first step; only the arrays of its updaters stay."""
    optimizer._index_update_count.clear()
    optimizer.num_update = optimizer.begin_num_update
    optimizer.m_schedule = 1.0  # of Nadam
    getattr(optimizer, "products", {}).clear()


def _corrected(mx: Any) -> Dict[str, Any]:
    class Adam(mx.optimizer.Adam):
        """The kernel adds epsilon before the correction of the second moment: it is given one that makes up for it."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self._asked: float = settings["epsilon"]

        def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
            step = self._index_update_count.get(index, self.begin_num_update) + 1
            self.epsilon = self._asked * math.sqrt(1 - self.beta2**step)
            super().update(index, weight, grad, state)

    class AdamW(mx.optimizer.Optimizer):
        """MXNet has the kernel, without the correction of bias, and no optimizer of it (1.9.1)."""

        def __init__(self, beta1: float, beta2: float, epsilon: float, **settings: Any) -> None:
            super().__init__(**settings)
            self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
            # as the array that the kernel takes; one that is NaN skips an update
            self._rescale: Dict[Tuple[float, str], Any] = {}

        def create_state(self, index: int, weight: Any) -> Any:
            return tuple(mx.nd.zeros(weight.shape, weight.context, dtype=weight.dtype) for _ in range(2))

        def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
            self._update_count(index)
            step, context = self._index_update_count[index], weight.context
            root = math.sqrt(1 - self.beta2**step)
            key = (self.rescale_grad, str(context))
            if key not in self._rescale:
                self._rescale = {key: mx.nd.array([self.rescale_grad], ctx=context)}
            own = {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon * root, "wd": self._get_wd(index)}
            rates = {"lr": root / (1 - self.beta1**step), "eta": self._get_lr(index)}
            mx.nd.contrib.adamw_update(weight, grad, *state, self._rescale[key], out=weight, **own, **rates)

    class Nadam(mx.optimizer.Nadam):
        """MXNet multiplies one product of momenta once for each array in a step (1.9.1)."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.products: Dict[int, float] = {}

        def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
            self.m_schedule = self.products.get(index, 1.0)
            super().update(index, weight, grad, state)
            self.products[index] = self.m_schedule

    return {"adam": Adam, "adamw": AdamW, "nadam": Nadam}


def clip(mx: Any, gradients: Any, most: float) -> None:
    """Scale gradients in place so that their norm is `most` where it was more; nothing waits for it."""
    flat = (gradient.reshape(-1) for gradient in gradients)
    norm = mx.nd.sqrt(mx.nd.add_n(*(mx.nd.dot(one, one) for one in flat)))  # sums of squares take nine times as long
    scale = mx.nd.minimum(most / norm, 1.0)
    for gradient in gradients:
        gradient *= scale
