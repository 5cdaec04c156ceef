"""What a user's module is called with, and which of its outputs is trained."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import TYPE_CHECKING, Callable, List, Sequence, Tuple

from framework_compare.errors import UsageError
from framework_compare.graph import Field, Task
from framework_compare.importers.common.sources import place_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def in_order(module: Module, task: Task) -> Tuple[Field, ...]:
    """The inputs of a task in the order of forward's parameters: by name where it has all the names, else as they come.

    UsageError where forward asks for more, or takes fewer.
    """
    parameters = list(inspect.signature(module.forward).parameters.values())
    takes = [one.name for one in parameters if one.kind in POSITIONAL]
    needed = [one.name for one in parameters if one.default is one.empty and one.kind not in _ANY_NUMBER]
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


_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _words(names: List[str]) -> str:
    return f"{len(names)} input{'s' * (len(names) != 1)} ({', '.join(names)})"


def examples(torch: ModuleType, fields: Tuple[Field, ...], batch: int) -> Tuple[Tensor, ...]:
    """Zeros; integers have 64 bits, as modules expect."""
    kinds = {"float32": torch.float32, "bool": torch.bool}
    return tuple(torch.zeros((batch, *field.shape), dtype=kinds.get(field.dtype, torch.int64)) for field in fields)


def called(module: Module, given: Sequence[Tensor], task: Task) -> object:
    """What a module returns; UsageError for tokens that it has no row for."""
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
