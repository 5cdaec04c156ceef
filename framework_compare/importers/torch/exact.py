"""How a module is computed where it is the judge, and the constants of its program."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, Sequence

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

AMPLIFIED = 1e-9  # relative change of outputs by the last place of what is given: beyond it, evaluation verifies little


def exact_derivatives(torch: ModuleType, drops: bool = False) -> Any:
    """A mode in which nothing is dropped unless it `drops`, and what is kept in float32 is in float64."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map

    aten = torch.ops.aten
    own_eps = {torch.finfo(torch.float64).eps: torch.finfo(torch.float32).eps}  # of norms without one, by the type

    def wide(one: Any) -> Any:
        return one.double() if isinstance(one, torch.Tensor) and one.dtype is torch.float32 else one

    class Exact(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is aten.bernoulli_.float and not drops:
                # a mask that keeps all, before it is divided by the share kept
                return args[0].fill_(args[1] if len(args) > 1 else 0.5)
            if function is aten.hardsigmoid_backward.default:  # torch 2.13 has 1/6 in float32 there
                gradient, x = args
                return torch.where((x > -3) & (x < 3), gradient / 6, torch.zeros_like(gradient))
            args = tuple(own_eps.get(one, one) if isinstance(one, float) else one for one in args)
            kwargs = dict(kwargs or {})
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
            if function._schema.is_mutable:
                return function(*args, **kwargs)
            # constants that forward makes are float32
            return tree_map(wide, function(*tree_map(wide, args), **tree_map(wide, kwargs)))

    return Exact()


def exact(tensor: Tensor) -> Tensor:
    """A copy, in float64 where it has numbers of float32."""
    return tensor.double() if str(tensor.dtype) == "torch.float32" else tensor.clone()


def take_statistics(torch: ModuleType, module: Module, given: Sequence[Tensor]) -> None:
    """Give BatchNorms the statistics of a batch.

    Where each of many scales by a statistic that its inputs do not have, they amplify rounding without limit.
    """
    norms = [one for one in module.modules() if getattr(one, "running_var", None) is not None]
    rates = [one.momentum for one in norms]
    module.train()
    for one in norms:
        one.momentum = 1.0
    with torch.no_grad(), exact_derivatives(torch):
        module(*(one.clone() for one in given))
    for one, rate in zip(norms, rates):
        one.momentum = rate
