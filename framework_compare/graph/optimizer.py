"""The optimisers by name, with one definition and one set of defaults for all frameworks.

g is the gradient of the mean loss, t the number of the step, from 1; all states start at zero.

sgd: v = momentum v + g + weight_decay w; w -= rate v.
adam (Kingma and Ba 2015): m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
  w -= rate mh / (sqrt(vh) + eps) with mh = m / (1 - beta1^t), vh = v / (1 - beta2^t): eps comes after the correction.
rmsprop (Hinton 2012): v = rho v + (1 - rho) g^2; w -= rate g / sqrt(v + eps): eps is inside the root.
nadam (Dozat 2016): m and v as in adam; u_t = beta1 (1 - 0.96^(t psi) / 2), P_t = u_1 ... u_t;
  w -= rate mh / (sqrt(vh) + eps) with mh = u_{t+1} m / (1 - P_{t+1}) + (1 - u_t) g / (1 - P_t), vh as in adam.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Mapping

from framework_compare.errors import UsageError

# Options of each with their defaults, those of Keras 3 (psi is fixed there); momentum and decay as in torch.
OPTIMIZERS: Dict[str, Dict[str, float]] = {
    "sgd": {"momentum": 0.0, "weight_decay": 0.0},
    "adam": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-7},
    "rmsprop": {"rho": 0.9, "eps": 1e-7},
    "nadam": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-7, "psi": 1.0},
}


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An optimiser with its learning rate; `options` names what differs from the defaults of OPTIMIZERS."""

    name: str = "sgd"
    learning_rate: float = 0.001
    options: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise UsageError(f"optimizer is {self.name!r}; allowed: {', '.join(OPTIMIZERS)}")
        unknown = [name for name in self.options if name not in OPTIMIZERS[self.name]]
        if unknown:
            raise UsageError(f"{self.name} has no option {unknown[0]!r}; allowed: {', '.join(OPTIMIZERS[self.name])}")

    @property
    def settings(self) -> Dict[str, float]:
        """Every option of the optimiser, defaults included, without the learning rate."""
        return {**OPTIMIZERS[self.name], **self.options}

    def to_dict(self) -> Dict[str, Any]:
        return {"name": self.name, "learning_rate": self.learning_rate, "options": dict(self.options)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Optimizer":
        return cls(document["name"], document["learning_rate"], document["options"])
