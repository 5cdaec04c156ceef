"""Calls of a user's module: the inputs, the output that is trained, and the judge's call, in float64."""

from __future__ import annotations

import inspect
import math
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple, Sequence, Tuple

import numpy as np

from framework_compare.adapters.torch.tasks import LOSSES
from framework_compare.errors import UsageError
from framework_compare.graph import Field, Task
from framework_compare.importers.common.sources import one_line, place_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def in_order(module: Module, task: Task) -> Tuple[Field, ...]:
    """The inputs of a task in the order of forward's parameters: by name where it has all the names, else as they come.

    UsageError where forward asks for more, or takes fewer.
    """
    parameters = list(inspect.signature(module.forward).parameters.values())
    takes = [one.name for one in parameters if one.kind in POSITIONAL]
    needed = [one.name for one in parameters if one.default is one.empty and one.kind not in ANY_NUMBER]
    fields = {field.name: field for field in task.inputs}
    many = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)
    if len(needed) > len(fields) or (len(takes) < len(fields) and not many):
        names = needed if len(needed) > len(fields) else takes
        allowed = f"the data have {_words(list(fields))}" if task.unit != "image" else "allowed: one, a batch of images"
        merged = "features" in fields and len(needed) > len(fields)
        apart = f"; a column is an input of its own if it is named: inputs {needed[0]}={needed[0]}" if merged else ""
        raise UsageError(f"forward takes {_words(names)}; {allowed}{apart}")
    if len(fields) < 2 or not set(fields) <= set(takes):
        return task.inputs
    ordered = [name for name in takes if name in fields]
    if ordered != takes[: len(ordered)]:
        raise UsageError(
            f"forward has {', '.join(takes)}, but the data have no value for a parameter before the last one given"
        )
    return tuple(fields[name] for name in ordered)


def _words(names: List[str]) -> str:
    return f"{len(names)} input{'s' * (len(names) != 1)} ({', '.join(names)})"


def examples(torch: ModuleType, fields: Tuple[Field, ...], batch: int) -> Tuple[Tensor, ...]:
    """Zeros; integers have 64 bits, as modules expect."""
    kinds = {"float32": torch.float32, "bool": torch.bool}
    return tuple(torch.zeros((batch, *field.shape), dtype=kinds.get(field.dtype, torch.int64)) for field in fields)


def called(module: Module, given: Sequence[Tensor], task: Task) -> object:
    """Return what a module returns; UsageError for tokens that it has no row for."""
    try:
        return module(*given)
    except IndexError as error:
        tokens = [f"{field.name} to {field.vocabulary - 1}" for field in task.inputs if field.vocabulary]
        if not tokens:
            raise
        raise UsageError(
            f"an index is out of range{place_of(error)}; the data have {', '.join(tokens)}, and an nn.Embedding needs one row"
            " more than its largest token"
        ) from error


def with_loss(torch: ModuleType, module: Module, loss: Callable[..., Tensor], output: str) -> Module:
    """The module and a user's loss function as one, which takes the target behind the inputs and gives a loss a sample."""

    class WithLoss(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *given: Tensor) -> Tensor:
            outputs = chosen_output(self.module(*given[:-1]), output)
            if outputs.dim() == 1:  # a graph has (N, 1) for (N,), and so has the target: their difference is no (N, N)
                outputs = outputs.unsqueeze(1)
            losses = loss(outputs, given[-1])
            if getattr(losses, "shape", None) not in ((len(given[-1]),), (len(given[-1]), 1)):
                shape = tuple(getattr(losses, "shape", ()))
                raise UsageError(
                    f"the loss function gives {shape} for outputs {tuple(outputs.shape)}; allowed: one loss for each sample,"
                    f" ({len(given[-1])},), as with reduction='none' and a mean over the other axes"
                )
            return losses.reshape(len(given[-1]), 1)

    return WithLoss()


def chosen_output(returned: object, name: str = "") -> Tensor:
    """The output of a module under a name (a key, or a number of a tuple), or the first one."""
    if name:
        listed = returned if isinstance(returned, (list, tuple)) else ()
        named = returned.items() if isinstance(returned, dict) else enumerate(listed)
        found = {str(key): value for key, value in named}
        if name not in found:
            raise UsageError(
                f"it has no output {name!r}; allowed: {', '.join(found) or 'none, as it returns a tensor'}"
            )
        returned = found[name]
    while isinstance(returned, (list, tuple, dict)):
        values = returned.values() if isinstance(returned, dict) else returned
        returned = next((value for value in values if value is not None), None)
    if returned is None:
        raise UsageError("it returns nothing")
    return returned


# -- as the judge -------------------------------------------------------------------------------------------------------


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


class Call(NamedTuple):
    """A module in float64 with what it is given, for a task, of which one output is trained."""

    torch: ModuleType
    module: Module
    given: Tuple[Tensor, ...]
    task: Task
    output: str

    def _outputs(self, given: Sequence[Tensor]) -> Tensor:
        """Return outputs in the graph's shape, which has (N, 1) for (N,)."""
        found = chosen_output(called(self.module, given, self.task), self.output)
        return found.reshape(len(given[0]), *self.task.output_shape)

    def evaluated(self) -> np.ndarray:
        """Outputs in evaluation, which must be the same at a second call."""
        self.module.eval()
        with self.torch.no_grad(), exact_derivatives(self.torch, drops=True):
            first, again = (self._outputs([one.clone() for one in self.given]).numpy().copy() for _ in range(2))
        if not np.allclose(first, again, rtol=1e-9, atol=1e-9 * float(np.abs(first).max()), equal_nan=True):
            raise UsageError(
                f"in evaluation its {self.name} for the same {self.task.unit}s differ between two calls: it remembers"
                " the first, or draws random numbers, as a functional dropout without training=self.training does"
            )
        return first

    def amplification(self, outputs: np.ndarray) -> float:
        """Return the relative change of these outputs in evaluation with the last place of the inputs."""
        up = self.torch.tensor(math.inf, dtype=self.torch.float64)
        nearby = [self.torch.nextafter(one, up) if one.is_floating_point() else one for one in self.given]
        with self.torch.no_grad(), exact_derivatives(self.torch, drops=True):
            moved_by = self._outputs(nearby).numpy() - outputs
        size = float(np.linalg.norm(outputs))
        return float(np.linalg.norm(moved_by)) / size if size else 0.0

    def take_statistics(self) -> None:
        """Give BatchNorms the statistics of what is given.

        Where each of many scales by a statistic that its inputs do not have, they amplify rounding without limit.
        """
        norms = [one for one in self.module.modules() if getattr(one, "running_var", None) is not None]
        rates = [one.momentum for one in norms]
        self.module.train()
        for one in norms:
            one.momentum = 1.0
        with self.torch.no_grad(), exact_derivatives(self.torch):
            self.module(*(one.clone() for one in self.given))
        for one, rate in zip(norms, rates):
            one.momentum = rate

    def trained(self, target: Tensor) -> np.ndarray:
        """Outputs in training; gradients are with the parameters then."""
        torch, unit = self.torch, self.task.unit
        with exact_derivatives(torch):
            given = [one.clone() for one in self.given]
            self.module.train()
            outputs = self._outputs(given)
            if not all(map(torch.equal, given, self.given)):
                raise UsageError(
                    f"forward changes its {unit}s in place, which the next epoch would see; let it copy them first"
                )
            if not outputs.requires_grad:
                which = "its first output" if not self.output else f"its output {self.output!r}"
                raise UsageError(f"no gradient reaches a parameter from {which}, so nothing can be trained")
            try:
                LOSSES[self.task.loss](torch)(outputs, target).backward()
            except RuntimeError as error:
                raise UsageError(f"its backward pass also fails in torch: {one_line(error)}") from error
        return outputs.detach().numpy()

    @property
    def name(self) -> str:
        """Return what its outputs are called."""
        return "logits" if self.task.loss.endswith("cross_entropy") else "outputs"
