"""Attention as one node: also where it is written out as products, a softmax and sums.

One node keeps each framework's fused kernel; what stands between the two products is collected in `Scores`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from framework_compare.importers.common.axes import is_batch
from framework_compare.importers.common.views import BATCH, Atom, NotExpressible, Value, whole
from framework_compare.importers.torch.operands import Arguments, At, Handler

if TYPE_CHECKING:
    from torch import Tensor


class Scores(NamedTuple):
    """Products of queries and keys on their way to the values, (batch, heads, steps, steps)."""

    queries: Value
    keys: Value
    scale: float
    shape: Tuple[int, ...]
    normal: bool = False  # behind the softmax
    causal: bool = False


def values_of(operands: Iterable[object]) -> Iterator[Value]:
    """The values among the operands of an operator, those that scores are made of included."""
    for one in operands:
        if isinstance(one, Scores):
            yield from (one.queries, one.keys)
        elif isinstance(one, Value):
            yield one


def heads_of(at: At, value: Value) -> Tuple[Value, int]:
    """A value (N, heads, steps, width) of a sequence whose features are heads times width, and the number of heads.

    NotExpressible for one that stands otherwise.
    """
    value = at.reader.tokens(value)
    shape = at.reader.shapes[value.node]
    steps, features = len(shape) - 2, len(shape) - 1
    width, heads = value.shape[-1], math.prod(value.shape[:-2]) // (at.reader.batch * math.prod(shape[:-2]))
    outer = [*whole(BATCH, at.reader.batch), *(atom for axis in range(steps) for atom in whole(axis, shape[axis]))]
    head = [Atom(features, width, heads)] if heads > 1 else []
    as_heads = (whole(steps, shape[steps]), (Atom(features, 1, width),))
    found = [atom for group in value.view[:-2] for atom in group]
    if len(shape) < 2 or heads * width != shape[features] or found != [*outer, *head] or value.view[-2:] != as_heads:
        raise NotExpressible(f"attention of {value.shape}, folded in another way")
    return value, heads


def attend(at: At, scores: Scores, values: Value) -> Value:
    """The Attention node; its output stands as the values do."""
    parts = [heads_of(at, value) for value in (scores.queries, scores.keys, values)]
    (query, heads), (key, kv_heads), _ = parts
    shapes = {at.reader.shapes[part.node] for part, _ in parts}
    steps = {shape[:-1] for shape in shapes}
    if heads % kv_heads or parts[2][1] != kv_heads or len(steps) > 1 or (heads == kv_heads and len(shapes) > 1):
        raise NotExpressible("attention with queries, keys and values of different shapes")
    attrs = {"heads": heads, "scale": scores.scale, **({"causal": True} if scores.causal else {})}
    if kv_heads != heads:
        attrs["kv_heads"] = kv_heads
    sources = _packed(at, [part.node for part, _ in parts])
    return Value(at.add("Attention", sources, attrs), query.view)


def attend_steps(at: At, given: Iterable[Value], scale: float, causal: bool) -> Value:
    """The Attention node of heads that stand before their steps, which its operands have behind them."""
    moved = []
    for value in given:
        if len(value.shape) != 4 or not is_batch(value.view[0]):
            raise NotExpressible(f"attention of {value.shape}")
        count, heads, steps, width = value.shape
        joined = at.reshape(at.plain(at.permute(value, (0, 2, 1, 3))), (count, steps, heads * width))
        cut = at.reshape(at.plain(joined), (count, steps, heads, width))
        moved.append(at.permute(cut, (0, 2, 1, 3)))
    queries, keys, values = moved
    return attend(at, Scores(queries, keys, scale, (), causal=causal), values)


def hides_nothing(mask: Optional[Tensor]) -> bool:
    return mask is None or (str(getattr(mask, "dtype", "")) == "torch.bool" and bool(mask.all()))


def is_triangle(mask: Any) -> bool:
    """Return whether a constant lets each step see itself and those before it, and no other."""
    if not hasattr(mask, "tril") or str(mask.dtype) != "torch.bool" or mask.ndim < 2:
        return False
    if mask.shape[-1] != mask.shape[-2]:
        return False
    return bool((mask == mask.new_ones(mask.shape[-2:]).tril()).all())


def _packed(at: At, names: List[str]) -> List[str]:
    """The one projection whose thirds queries, keys and values are, else the three."""
    nodes = [at.reader.nodes.get(name) for name in names]
    if all(node is not None and node.op == "Split" for node in nodes):
        first = nodes[0]
        sizes, axis = first.attrs["sizes"], first.attrs["axis"]
        thirds = [node.attrs == {"axis": axis, "sizes": sizes, "index": i} for i, node in enumerate(nodes)]
        last = len(at.reader.shapes[first.inputs[0]]) - 1
        if all(thirds) and len(sizes) == 3 and len({node.inputs for node in nodes}) == 1 and axis == last:
            return [first.inputs[0]]
    return names


def matmul(at: At, a: Arguments) -> Any:
    first, second = a["self"], a.get("other", a.get("mat2"))
    if isinstance(first, Scores) and isinstance(second, Value):
        if not first.normal:
            raise NotExpressible("attention without a softmax")
        return attend(at, first, second)
    if isinstance(first, Value) and isinstance(second, Value):
        keys = Value(second.node, (*second.view[:-2], second.view[-1], second.view[-2]))
        heads_of(at, first)
        heads_of(at, keys)
        return Scores(first, keys, 1.0, at.shape)
    raise NotExpressible("matmul")


def softmax(at: At, a: Arguments) -> Any:
    scores = a["self"]
    if not isinstance(scores, Scores) or a["dim"] % len(scores.shape) != len(scores.shape) - 1 or scores.normal:
        raise NotExpressible("Softmax outside of attention")
    return scores._replace(normal=True)


def scaled(at: At, a: Arguments) -> Any:
    scores, factor = a["self"], a["other"]
    if not isinstance(scores, Scores) or not isinstance(factor, (int, float)) or scores.normal:
        raise NotExpressible("attention scaled in another way")
    divides = at.node.target._schema.name.rstrip("_").endswith("div")
    return scores._replace(scale=scores.scale * (1 / factor if divides else factor))


def dropout(at: At, a: Arguments) -> Any:
    if a["train"] and a["p"]:
        raise NotExpressible("attention with dropout")
    return a["input"]


def same(at: At, a: Arguments) -> Any:
    scores = a.get("self", a.get("input"))
    if not isinstance(scores, Scores):
        raise NotExpressible("attention of a part")
    return scores._replace(shape=at.shape)


# On Scores; products also begin with values.
HANDLERS: Dict[str, Handler] = {
    "matmul": matmul,
    "bmm": matmul,
    "softmax": softmax,
}
ON_SCORES: Dict[str, Handler] = {
    **HANDLERS,
    **dict.fromkeys(("mul", "div"), scaled),
    **dict.fromkeys(("reshape", "view", "contiguous", "clone", "expand", "type_as", "to"), same),
    "dropout": dropout,
}


def read(at: At, kind: str, a: Arguments) -> Any:
    if kind not in ON_SCORES:
        raise NotExpressible(f"attention with {kind}")
    return ON_SCORES[kind](at, a)
