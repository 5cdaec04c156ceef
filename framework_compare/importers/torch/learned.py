"""Arrays of a module as a program reads them, and the names of their layers."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Callable, Dict, Iterable, Iterator, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from framework_compare.graph.primitives import constant_attrs
from framework_compare.importers.common.graph_reader import GraphReader
from framework_compare.importers.common.views import Value
from framework_compare.json_types import Fields

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node as FxNode


class Learned(NamedTuple):
    """A parameter or a buffer of the module, or another shape of it: `form` makes that of the whole array."""

    target: str
    tensor: Tensor
    form: Callable[[Tensor], Tensor] = lambda tensor: tensor

    @property
    def shape(self) -> Tuple[int, ...]:
        return tuple(self.tensor.shape)

    def through(self, function: Callable[[Tensor], Tensor]) -> "Learned":
        form = self.form
        return Learned(self.target, function(self.tensor), lambda tensor: function(form(tensor)))


def form(array: Learned) -> bytes:
    return bytes(array.tensor.cpu().numpy().tobytes())


def taken(tensor: Tensor, order: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Axes in another order, those of size 1 left out, then as `sizes`."""
    others = [axis for axis in range(tensor.ndim) if axis not in order]
    return tensor.permute([*others, *order]).reshape(tuple(sizes))


def owner(target: str) -> str:
    """A layer's name from that of its array: "fc" of "fc.weight", "attn.in_proj" of "attn.in_proj_weight"."""
    module, _, part = target.rpartition(".")
    if part in ("weight", "bias"):
        return module or "layer"
    own = part[: -len("_weight")] if part.endswith("_weight") else part
    return f"{module}.{own}" if module else own


def flat(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, list):
            yield from flat(value)
        else:
            yield value


class Arrays(abc.ABC):
    """Arrays of a reading that are nodes of their own, or constants."""

    reader: GraphReader
    forms: Dict[str, Callable[[Tensor], Tensor]]  # from an array of the module to the graph's, by its name
    whole_numbers: Set[str]  # values that are no numbers to compute with

    @abc.abstractmethod
    def stem(self, node: FxNode) -> str:
        """The name that nodes made of a program's node begin with."""

    def _apart(self, target: str, tensor: Tensor) -> Value:
        attrs = {"shape": list(tensor.shape), "init": "normal_0.02"}
        made = self.reader.once(f"{target}.array", "Parameter", [], attrs)
        self.reader.arrays[f"{made}.value"], self.reader.origin[f"{made}.value"] = tensor.cpu().numpy(), target
        self.forms[target] = lambda one: one
        return Value(made, self.reader.plain(made).view[1:])

    def constant_node(self, node: FxNode, array: np.ndarray) -> str:
        return self.reader.once(f"{self.stem(node)}.constant", "Constant", [], constant_attrs(array))

    def embedding_with(self, weight: Tensor) -> Optional[Fields]:
        """Attributes of a head that has the array of an embedding; None where there is none with it."""
        for node in self.reader.nodes.values():
            if node.op == "Embedding" and self.reader.origin.get(f"{node.arrays}.weight") == getattr(
                weight, "target", ""
            ):
                same = self.reader.arrays[f"{node.arrays}.weight"].tobytes() == form(weight)
                return {**node.attrs, "arrays": node.arrays} if same else None
        return None

    def keep_whole(self, source: str, made: str) -> None:
        """Note that an operator that only moves values gives whole numbers if its source does."""
        if source in self.whole_numbers:
            self.whole_numbers.add(made)
