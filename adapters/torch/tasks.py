"""Losses and optimisers by their names in a task and a config."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List

from framework_compare.adapters.common import trainer as common
from framework_compare.graph.optimizer import DECAYED, Schedule
from framework_compare.protocol import TrainConfig


def cross_entropy(torch: Any, smoothing: float = 0.0, ignored: int = -100) -> Callable[[Any, Any], Any]:
    """On a GPU autocast leaves log_softmax in half precision here, which rounds 1 / count, and so scales all gradients."""
    mean = torch.nn.CrossEntropyLoss(ignore_index=ignored, label_smoothing=smoothing)
    return lambda logits, labels: mean(logits.float(), labels)


def token_cross_entropy(torch: Any, smoothing: float = 0.0) -> Callable[[Any, Any], Any]:
    """Mean over the tokens whose label is not -1."""
    mean = cross_entropy(torch, smoothing, ignored=-1)
    return lambda logits, labels: mean(logits.flatten(0, 1), labels.flatten())


LOSSES: Dict[str, Callable[..., Callable[[Any, Any], Any]]] = {
    **dict.fromkeys(("cross_entropy", "smoothed cross_entropy"), cross_entropy),
    **dict.fromkeys(("token_cross_entropy", "smoothed token_cross_entropy"), token_cross_entropy),
    "mean_output": lambda torch: lambda outputs, target: outputs.float().mean(),
    "mse": lambda torch: torch.nn.MSELoss(),
    "binary_cross_entropy": lambda torch: torch.nn.BCEWithLogitsLoss(),
}
NATIVE = {"adam": "Adam", "rmsprop": "RMSprop", "nadam": "NAdam", "adamw": "AdamW"}  # in torch.optim


def optimizer_name(config: TrainConfig, fused: bool) -> str:
    if common.is_native(config):
        return f"torch.optim.{NATIVE[config.optimizer]}, its own defaults"
    names = {
        "sgd": "torch.optim.SGD" + (" (fused)" if fused else ""),
        "nadam": "torch.optim.NAdam (foreach)",
        "rmsprop": "our own with epsilon inside the root, of torch._foreach functions",
    }
    return names.get(config.optimizer) or f"torch.optim.{NATIVE[config.optimizer]} (fused)"


def make_optimizer(torch: Any, config: TrainConfig, parameters: List[Any], *, fused: bool, captured: bool) -> Any:
    """The optimiser of a config. All but SGD have their state from the start, so that a step never makes any."""
    settings, rate = common.optimizer_settings(config), config.learning_rate
    if captured and not Schedule.of(config).is_constant:  # a captured step reads it where it is
        rate = torch.tensor(rate, device=parameters[0].device)
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=rate, **settings, **({"fused": True} if fused else {}))
    if common.is_native(config):
        optimizer = getattr(torch.optim, NATIVE[config.optimizer])(parameters, lr=rate, capturable=captured)
    elif config.optimizer == "rmsprop":
        optimizer = _rmsprop(torch)(parameters, rate, settings)
    else:
        if config.optimizer == "adamw":
            parameters = _decay_groups(parameters, settings["weight_decay"])
        own: Dict[str, Any] = {"betas": (settings["beta1"], settings["beta2"]), "eps": settings["eps"]}
        own.update({"foreach": True, "momentum_decay": settings["psi"]} if "psi" in settings else {"fused": True})
        optimizer = getattr(torch.optim, NATIVE[config.optimizer])(parameters, lr=rate, capturable=captured, **own)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    forget(optimizer)
    return optimizer


def _decay_groups(parameters: List[Any], decay: float) -> List[Dict[str, Any]]:
    """Return parameters that decay, and gains and biases; all in one group where nothing decays."""
    decayed = [parameter for parameter in parameters if decay and parameter.dim() >= DECAYED]
    others = [parameter for parameter in parameters if not decay or parameter.dim() < DECAYED]
    return [{"params": group, "weight_decay": wd} for group, wd in ((decayed, decay), (others, 0.0)) if group]


class Updates(common.Updates):
    """Preparation of an optimizer's step: gather batches, set the rate of the update, clip."""

    def __init__(self, torch: Any, config: TrainConfig, optimizer: Any) -> None:
        super().__init__(config)
        self._torch, self._optimizer = torch, optimizer

    def gathered(self) -> bool:
        """Count a batch; whether its update is due, for which the rate is set then."""
        due = super().gathered()
        rate = self.rate() if due else None
        if rate is not None:
            for group in self._optimizer.param_groups:
                group["lr"].fill_(rate) if self._torch.is_tensor(group["lr"]) else group.update(lr=rate)
        return due

    def clip(self) -> None:
        """Clip gradients as clip_grad_norm_ does, which adds 1e-6 to the norm."""
        torch, most = self._torch, self._config.clip_norm
        gradients = [p.grad for group in self._optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        torch._foreach_mul_(gradients, torch.clamp(most / norm, max=1.0))


def forget(optimizer: Any) -> None:
    """All state as before the first step; of NAdam the product of momenta is 1 then."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if value is not None:
                value.fill_(1.0 if name == "mu_product" else 0.0)


def _rmsprop(torch: Any) -> Any:
    class RMSProp(torch.optim.Optimizer):
        """Epsilon inside the root, which torch.optim.RMSprop adds outside."""

        def __init__(self, parameters: Iterable[Any], rate: float, settings: Dict[str, float]) -> None:
            super().__init__(parameters, {"lr": rate, **settings})

        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            """Take a step as torch.optim does; a closure, such as Lightning's loop passes, computes the gradients."""
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                weights = [p for p in group["params"] if p.grad is not None]
                gradients = [p.grad for p in weights]
                for p in weights:
                    if not self.state[p]:
                        self.state[p]["square"] = torch.zeros_like(p)
                squares = [self.state[p]["square"] for p in weights]
                torch._foreach_mul_(squares, group["rho"])
                torch._foreach_addcmul_(squares, gradients, gradients, 1 - group["rho"])
                roots = torch._foreach_add(squares, group["eps"])
                torch._foreach_sqrt_(roots)
                torch._foreach_addcdiv_(weights, gradients, roots, -group["lr"])
            return loss

    return RMSProp
