"""Arrays of a module as a program reads them, and the names of their layers."""

from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple, Sequence, Tuple


class Learned(NamedTuple):
    """A parameter or a buffer of the module, or another shape of it: `form` makes that of the whole array."""

    target: str
    tensor: Any
    form: Callable[[Any], Any] = lambda tensor: tensor

    @property
    def shape(self) -> Tuple[int, ...]:
        return tuple(self.tensor.shape)

    def through(self, function: Callable[[Any], Any]) -> "Learned":
        form = self.form
        return Learned(self.target, function(self.tensor), lambda tensor: function(form(tensor)))


def form(array: Learned) -> bytes:
    return bytes(array.tensor.cpu().numpy().tobytes())


def taken(tensor: Any, order: Sequence[int], sizes: Sequence[int]) -> Any:
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


def flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from flat(value)
        else:
            yield value
