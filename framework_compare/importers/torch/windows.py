"""Attention within windows, of torchvision's Swin (Liu et al. 2021): each call of the module is read as a whole.

Operator by operator it folds windows into the batch, for which the graph has no view. So a call is found by the module's
class, and what it computes is taken from its arrays and arguments. The level import judges what comes of it, as all else.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Tuple

from framework_compare.graph.node import linear_attrs
from framework_compare.importers.common.views import BATCH, NotExpressible, Value, whole
from framework_compare.importers.torch.operands import At
from framework_compare.importers.torch.operators import operator_name
from framework_compare.json_types import Fields

if TYPE_CHECKING:
    from torch.fx import Node as FxNode

MODULE = "torchvision.models.swin_transformer.ShiftedWindowAttention"
TABLE_INIT = "normal_0.02"


class Call(NamedTuple):
    """The operators of one call of the module, in their order."""

    nodes: Tuple[FxNode, ...]

    @property
    def last(self) -> FxNode:
        """The operator whose output is read behind the call."""
        return [node for node in self.nodes if set(node.users) - set(self.nodes)][-1]

    def of_kind(self, name: str) -> List[FxNode]:
        return [node for node in self.nodes if operator_name(node.target) == name]


def calls_of(nodes: Iterable[FxNode]) -> Dict[str, Call]:
    """The calls of the module in a program, by the name of each of their operators."""
    found: Dict[str, Call] = {}
    for path, members in itertools.groupby((node for node in nodes if node.op == "call_function"), key=_path):
        if path:
            call = Call(tuple(members))
            found.update({node.name: call for node in call.nodes})
    return found


def _path(node: FxNode) -> str:
    """Return where in the model the module stands whose own operator this is; "" for operators of others."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    path, kind = stack[-1][:2]
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return str(path) if name == MODULE else ""


def read(reading: Any, call: Call, inputs: List[Value]) -> Value:
    """The nodes of a call; what they give stands as the input does, (N, H, W, C).

    inputs: the values that the call reads. NotExpressible where the graph cannot say the same.
    """
    (x,), made = inputs, call.last
    reader, name = reading.reader, inputs[0].node
    shape = reader.shapes[name]
    if len(shape) != 3 or x.view != (whole(BATCH, reader.batch), *(whole(axis, shape[axis]) for axis in (1, 2, 0))):
        raise NotExpressible(f"attention in windows of {x.shape}, folded in another way")
    qkv, proj = call.of_kind("linear")
    (table,) = (reading.learned[node.args[0].name] for node in call.of_kind("index"))
    window, heads = _window(table.shape[0]), table.shape[1]
    _check(call, shape, window)
    features = shape[0]
    attention: Fields = {"heads": heads, "scale": (features // heads) ** -0.5, "bias": True}
    rolls = call.of_kind("roll")
    if rolls:
        name = At(reading, rolls[0]).add("Roll", [name], {"shifts": list(rolls[0].args[1])})
        attention.update(window=window, mask_shift=[-shift for shift in rolls[0].args[1]])
    at = At(reading, made)
    name = at.add("Windows", [name], {"window": window})
    name = _linear(reading, qkv, name)
    bias = at.add("RelativeBias", [], {"window": window, "heads": heads, "init": TABLE_INIT}, weight=table)
    name = at.add("Attention", [name, bias], attention)
    name = _linear(reading, proj, name)
    name = at.add("FromWindows", [name], {"window": window})
    if rolls:
        name = At(reading, rolls[-1]).add("Roll", [name], {"shifts": list(rolls[-1].args[1])})
    return Value(name, x.view)


def _window(rows: int) -> List[int]:
    """Height and width of a window, by the rows of its table of distances."""
    side = math.isqrt(rows)
    if side * side != rows or side % 2 == 0:
        raise NotExpressible("attention in windows that are not square")
    return [(side + 1) // 2] * 2


def _check(call: Call, shape: Tuple[int, ...], window: List[int]) -> None:
    if any(size % side for size, side in zip(shape[1:], window)):
        raise NotExpressible(
            f"windows of {window[0]} x {window[1]} in a map of {shape[1]} x {shape[2]}, which is padded"
        )
    if any(node.args[1] and node.args[2] for node in call.of_kind("dropout")):
        raise NotExpressible("attention with dropout")


def _linear(reading: Any, node: FxNode, source: str) -> str:
    weight, bias = (reading.learned[one.name] if one is not None else None for one in (*node.args, None)[1:3])
    out, into = weight.shape
    attrs = linear_attrs(into, out, bias=bias is not None)
    return At(reading, node).add("Linear", [source], attrs, weight=weight, bias=bias)
