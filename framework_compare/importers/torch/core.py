"""Operators that are no layers: as primitives, or decomposed into core ATen operators, which are read in turn."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence

from framework_compare.importers.common.axes import is_batch
from framework_compare.importers.common.views import BATCH, NotExpressible, Value
from framework_compare.importers.torch import attention, calls, elementwise, moves, products
from framework_compare.importers.torch.operands import Arguments, At
from framework_compare.importers.torch.operators import HANDLERS as LAYERS
from framework_compare.importers.torch.operators import operator_name
from framework_compare.json_types import Document

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Graph as FxGraph
    from torch.fx import Node as FxNode

PRIMITIVES = {**elementwise.HANDLERS, **moves.HANDLERS, **products.HANDLERS}
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
LACKS = (NotExpressible, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def read(at: At, kind: str, given: Arguments, lack: Exception) -> Any:
    """The operator in the first of these ways that is expressible; NotExpressible, as said first, where none is."""
    given = {name: _without_scores(at, value) for name, value in given.items()}
    ways: List[Callable[[], Any]] = []
    if kind in LAYERS:
        ways.append(lambda: LAYERS[kind](at, {name: _settled(at, value) for name, value in given.items()}))
    if kind in PRIMITIVES:
        ways.append(lambda: PRIMITIVES[kind](at, given))
    ways.append(lambda: _decomposed(at.reading, at.node, kind))
    for way in ways:
        try:
            return way()
        except LACKS as other:
            vague = not isinstance(lack, NotExpressible) or str(lack) == kind
            lack = other if vague and isinstance(other, NotExpressible) else lack
    raise lack


def _settled(at: At, value: Any) -> Any:
    if isinstance(value, list):
        return [_settled(at, one) for one in value]
    return at.plain(value) if isinstance(value, Value) else value


def _without_scores(at: At, value: Any) -> Any:
    """Products of queries and keys that come to no attention, as primitives."""
    if isinstance(value, list):
        return [_without_scores(at, one) for one in value]
    if not isinstance(value, attention.Scores):
        return value
    order = [*range(len(value.keys.shape) - 2), len(value.keys.shape) - 1, len(value.keys.shape) - 2]
    made = products.matmul(at, value.queries, at.permute(value.keys, order))
    if value.scale != 1:
        made = PRIMITIVES["mul"](at, {"self": made, "other": value.scale})
    if value.normal:
        made = PRIMITIVES["softmax"](at, {"self": made, "dim": -1})
    return at.reshape(made, value.shape) if value.shape else made


def _decomposed(reading: Any, node: FxNode, kind: str) -> Any:
    """Decompose an operator into core ATen operators, by torch's own definition."""
    torch = reading.torch
    from torch._decomp import core_aten_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx

    table = {
        op: how
        for op, how in core_aten_decompositions().items()
        if operator_name(op) not in PRIMITIVES or op is node.target
    }
    inner = [one for one in node.all_input_nodes if hasattr(one.meta.get("val"), "shape")]

    def run(*tensors: Tensor) -> Tensor:
        by_node = dict(zip(inner, tensors))
        arguments = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda one: by_node[one])
        return node.target(*arguments[0], **arguments[1])

    try:
        metas = [torch.empty(tuple(one.meta["val"].shape), dtype=one.meta["val"].dtype, device="meta") for one in inner]
        graph = make_fx(run, decomposition_table=table)(*metas).graph
    except Exception as error:
        raise NotExpressible(kind) from error
    calls = [one for one in graph.nodes if one.op == "call_function"]
    if not calls or any(operator_name(one.target) == kind for one in calls):
        raise NotExpressible(kind)
    given = {one: reading.values[one.name] for one in inner}
    given.update(_batched_states(At(reading, node)) if kind in RECURRENT else {})
    return _read_graph(reading, node, graph, list(given.values()))


def _batched_states(at: At) -> Dict[FxNode, Value]:
    """Initial states that are constants or learned, one for each sample, since steps are taken from them."""
    source, states = at.node.args[0], at.node.args[1]
    found: Dict[FxNode, Value] = {}
    for state in states if isinstance(states, (list, tuple)) else [states]:
        value = at.reading.values[state.name]
        if isinstance(value, Value) and any(atom.axis == BATCH for group in value.view for atom in group):
            continue
        x = at.value(at.reading.values[source.name])
        others = [dim for dim, group in enumerate(x.view) if not is_batch(group)]
        zero = at.emit("Mul", at.reduced("ReduceMean", x, others), 0.0)
        if isinstance(value, Value) and value.shape[-2] == zero.shape[0]:  # one state that was expanded
            value = moves.taken(at, value, len(value.shape) - 2, [0])
        found[state] = at.emit("Add", at.reshape(zero, (zero.shape[0], 1)), value)
    return found


def _read_graph(reading: Any, node: FxNode, graph: FxGraph, given: Sequence[Any]) -> Any:
    outer = reading.values
    places = [one for one in graph.nodes if one.op == "placeholder"]
    inputs = {place.name: value for place, value in zip(places, given)}
    try:
        reading.values = inputs
        for one in graph.nodes:
            if one.op != "call_function":
                continue
            one.meta = {**node.meta, **{key: one.meta[key] for key in ("val", "tensor_meta") if key in one.meta}}
            if "device" in one.kwargs:  # it was asked without numbers
                one.kwargs = {**one.kwargs, "device": reading.torch.device("cpu")}
            one.name = f"{node.name}_{one.name}"
            reading.values[one.name] = reading.read(one)
        (returned,) = (one.args[0] for one in graph.nodes if one.op == "output")
        return _mapped(returned, reading.values)
    finally:
        reading.values = outer


AUTOCAST, GRADIENT = "wrap_with_autocast", "wrap_with_set_grad_enabled"


def read_wrapped(at: At, kind: str) -> List[object]:
    """Read a part of the program that runs in torch.no_grad(), which passes no gradient, or without autocast."""
    place = next((n for n, one in enumerate(at.node.args) if getattr(one, "op", "") == "get_attr"), None)
    if kind not in (AUTOCAST, GRADIENT) or place is None:
        raise NotExpressible(kind)
    if kind == AUTOCAST and at.node.args[2]:
        raise NotExpressible("torch.autocast, in place of which a study has the setting precision")
    graph = getattr(at.node.graph.owning_module, at.node.args[place].target).graph
    made = _read_graph(at.reading, at.node, graph, [at.reading.values[one.name] for one in at.node.args[place + 1 :]])
    passes = kind == AUTOCAST or at.node.args[0]
    return [at.each("Detach", one) if isinstance(one, Value) and not passes else one for one in made]


def _mapped(returned: Any, values: Document) -> Any:
    if isinstance(returned, (list, tuple)):
        return [_mapped(one, values) for one in returned]
    return None if returned is None else values[returned.name]


def place_of(node: FxNode) -> str:
    """Return where in the user's own source an operator stands: "net.py:31"; "" where torch does not say."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not re.search(r"[/\\](torch|site-packages[/\\]torch)[/\\]", frame[0])]
    path, line = (own or frames or [("", "")])[-1]
    if path == calls.__file__:  # torch keeps frames of forward alone
        return "in the loss function"
    return f"{os.path.basename(path)}:{line}" if path else ""
