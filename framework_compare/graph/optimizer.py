"""The optimisers by name, with one definition and one set of defaults for all frameworks.

g is the gradient of the mean loss, t the number of the step, from 1; all states start at zero.

sgd: v = momentum v + g + weight_decay w; w -= rate v.
adam (Kingma and Ba 2015): m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
  w -= rate mh / (sqrt(vh) + eps) with mh = m / (1 - beta1^t), vh = v / (1 - beta2^t): eps comes after the correction.
rmsprop (Hinton 2012): v = rho v + (1 - rho) g^2; w -= rate g / sqrt(v + eps): eps is inside the root.
nadam (Dozat 2016): m and v as in adam; u_t = beta1 (1 - 0.96^(t psi) / 2), P_t = u_1 ... u_t;
  w -= rate mh / (sqrt(vh) + eps) with mh = u_{t+1} m / (1 - P_{t+1}) + (1 - u_t) g / (1 - P_t), vh as in adam.
adamw (Loshchilov and Hutter 2019): as adam, and arrays of two axes or more also lose rate weight_decay w, of the w before
  the step; gains and biases, which have one, do not.

What any of them may have in front: g is the mean of the gradients of `accumulation` batches; then it is multiplied by
min(1, clip_norm / its norm over all arrays). The rate of an update is the learning rate times `Schedule.share`.
"""

import dataclasses
import math
from typing import Any, Dict, List, Mapping

from framework_compare.errors import UsageError
from framework_compare.json_types import Document, Fields

# Options of each with their defaults, those of Keras 3 (psi is fixed there); momentum and decay as in torch.
OPTIMIZERS: Dict[str, Dict[str, float]] = {
    "sgd": {"momentum": 0.0, "weight_decay": 0.0},
    "adam": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-7},
    "rmsprop": {"rho": 0.9, "eps": 1e-7},
    "nadam": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-7, "psi": 1.0},
    "adamw": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-7, "weight_decay": 0.01},
}
DECAYED = 2  # axes of an array from which on adamw lets it decay


def options_of(config: Any) -> Dict[str, float]:
    """Options of a TrainConfig's optimiser, by their names in OPTIMIZERS."""
    given = {"momentum": config.momentum, "weight_decay": config.weight_decay, "eps": config.epsilon}
    given["beta2"] = config.beta2
    return {name: given[name] for name in OPTIMIZERS[config.optimizer] if name in given}


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Course of the learning rate from update to update: up along a line, then down along half a cosine.

    ramp: updates up to the full rate. decay: the update from which it is `final` of the full rate; 0: it never falls.
    """

    ramp: int = 0
    decay: int = 0
    final: float = 0.1

    @classmethod
    def of(cls, config: Any) -> "Schedule":
        return cls(config.ramp_updates, config.decay_updates, config.final_rate)

    @property
    def is_constant(self) -> bool:
        return not self.ramp and not self.decay

    def share(self, update: int) -> float:
        """Return the share of the learning rate at an update, counted from 0."""
        if update < self.ramp:
            return (update + 1) / self.ramp
        if not self.decay:
            return 1.0
        done = min(1.0, (update - self.ramp) / max(1, self.decay - self.ramp))
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * done)) / 2

    def table(self) -> List[float]:
        """The shares of all updates up to one from which on they stay the same."""
        return [self.share(update) for update in range(max(self.ramp, self.decay) + 1)]


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An optimiser with its learning rate; `options` names what differs from the defaults of OPTIMIZERS.

    clip_norm: 0 where gradients are not clipped.
    """

    name: str = "sgd"
    learning_rate: float = 0.001
    options: Mapping[str, float] = dataclasses.field(default_factory=dict)
    schedule: Schedule = Schedule()
    clip_norm: float = 0.0
    accumulation: int = 1

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise UsageError(f"optimizer is {self.name!r}; allowed: {', '.join(OPTIMIZERS)}")
        unknown = [name for name in self.options if name not in OPTIMIZERS[self.name]]
        if unknown:
            raise UsageError(f"{self.name} has no option {unknown[0]!r}; allowed: {', '.join(OPTIMIZERS[self.name])}")

    @classmethod
    def of(cls, config: Any) -> "Optimizer":
        """Return the optimizer of a TrainConfig."""
        own = (Schedule.of(config), config.clip_norm, config.accumulation)
        return cls(config.optimizer, config.learning_rate, options_of(config), *own)

    @property
    def settings(self) -> Dict[str, float]:
        """Every option of the optimiser, defaults included, without the learning rate."""
        return {**OPTIMIZERS[self.name], **self.options}

    def to_dict(self) -> Fields:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, document: Document) -> "Optimizer":
        return cls(**{**document, "schedule": Schedule(**document["schedule"])})
