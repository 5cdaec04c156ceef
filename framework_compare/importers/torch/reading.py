"""An exported ATen program as a layer graph: state, constants, names; `operators` says what each operator is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph import Graph, Task
from framework_compare.importers.common.axes import materialised, recut
from framework_compare.importers.common.graph_reader import GraphReader
from framework_compare.importers.common.reading import ProgramReading, filled, left_out
from framework_compare.importers.common.views import BATCH, NotExpressible, Value, moved, shape_of, whole
from framework_compare.importers.torch import attention, core, moves, windows
from framework_compare.importers.torch.calls import chosen_output
from framework_compare.importers.torch.exact import exact, exact_derivatives
from framework_compare.importers.torch.learned import Arrays, Learned, flat, form, owner, taken
from framework_compare.importers.torch.operands import At
from framework_compare.importers.torch.operators import HANDLERS, Mask, operator_name
from framework_compare.json_types import Document, Fields

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram, ExportGraphSignature
    from torch.fx import Node as FxNode

# What they give depends on the shape of their input alone.
SHAPE_ONLY = ("new_zeros", "new_ones", "new_empty", "new_full", "zeros_like", "ones_like", "empty_like", "full_like")
RANDOM = ("rand", "randn", "rand_like", "randn_like", "randint", "randperm", "normal", "uniform", "multinomial")
NO_LIFTS = ""  # beside names of arrays: no vector becomes an image
SAMPLES = " "  # likewise: a constant that repeats itself as often as there are images was made for each of them
STATISTICS = ("batch_norm",)  # operators that take buffers as their own; to others a buffer is a constant


class Reading(Arrays, ProgramReading):
    """The graph of a program, its arrays, and the names that these have in the module."""

    def __init__(
        self, program: ExportedProgram, batch: int, tasks: Sequence[Task], output: str = "", apart: Collection[str] = ()
    ) -> None:
        """tasks: those that its output may be for; output: the name of the one that is trained, "" for the first.

        apart: names of arrays that several kinds of operators read, each a node of its own.
        """
        import torch

        self.torch, self.apart = torch, frozenset(apart)
        self.shared: Set[str] = set()  # arrays that turned out to be so
        signature = program.graph_signature
        fields = tasks[0].named_inputs
        self.reader = GraphReader(batch, {name: field.shape for name, field in fields.items()})
        self.reader.lifts, self.constants_of_samples = NO_LIFTS not in self.apart, SAMPLES in self.apart
        self.whole_numbers = {name for name, field in fields.items() if field.dtype != "float32"}
        # A Value, a Mask, a Learned, Scores, a list of them, or a tensor: what depends on nothing learned or fed
        self.values: Fields = dict(zip(signature.user_inputs, self.reader.inputs.values()))
        self.learned: Dict[str, Learned] = {}  # by placeholder
        self.forms: Dict[str, Callable[[Tensor], Tensor]] = {}  # an array of the module to the graph's, by its name
        self._trained = set(signature.inputs_to_parameters)
        self._take_state(program, signature)
        calls = windows.calls_of(program.graph.nodes)
        for node in program.graph.nodes:
            call = calls.get(node.name)
            if call is not None and node is call.last:
                self.values[node.name] = self._read_call(call)
            elif call is None and node.op == "call_function":
                self.values[node.name] = self._read(node)
        returned = next(n for n in program.graph.nodes if n.op == "output").args[0]
        made = [node for node, spec in zip(returned, signature.output_specs) if spec.kind.name == "USER_OUTPUT"]
        trained = chosen_output(torch.utils._pytree.tree_unflatten(made, program.call_spec.out_spec), output)
        value = self.values.get(getattr(trained, "name", ""))
        if not isinstance(value, Value):
            raise UsageError(f"what it returns does not depend on its {tasks[0].unit}s")
        value = self.reader.vector(value)
        if value != Value(value.node, self.reader.plain(value.node).view[: len(value.view)]):
            value = materialised(self.reader, value)
        try:
            self.graph: Graph = self.reader.finish(value, tasks)
        except UsageError as error:
            more = {NO_LIFTS, *([SAMPLES] if NO_LIFTS in self.apart else [])}
            error.shared = frozenset({*self.shared, *more})  # type: ignore[attr-defined]  # another reading may have them apart
            raise
        self.arrays, self.origin = self.reader.arrays, self.reader.origin
        others = f"it gives {len(made)} outputs; {output or 'the first'} is trained"
        self.notes = (*self._notes(), *([others] if len(made) > 1 else ()))

    def _take_state(self, program: ExportedProgram, signature: ExportGraphSignature) -> None:
        """Parameters and buffers by placeholder; of one under two names both stand for the first."""
        first: Dict[object, str] = {}
        for place, target in {**signature.inputs_to_parameters, **signature.inputs_to_buffers}.items():
            tensor = program.state_dict[target] if target in program.state_dict else program.constants[target]
            tensor = tensor.detach()
            target = first.setdefault((tensor.data_ptr(), tensor.shape), target) if tensor.numel() else target
            self.learned[place] = Learned(target, tensor)
            self.values[place] = self.learned[place] if place in self._trained else exact(tensor)
            if target in self.apart:
                self.values[place] = self._apart(target, tensor)
        for place, target in signature.inputs_to_lifted_tensor_constants.items():
            self.values[place] = exact(program.constants[target])

    def _notes(self) -> List[str]:
        trained = (self.learned[place] for place in self._trained)
        used = set(self.origin.values())
        return left_out({one.target: one.tensor.numel() for one in trained if one.target not in used}, ".")

    def as_graph(self, name: str, array: Tensor) -> np.ndarray:
        """An array of the module, by the graph's name, in the graph's shape."""
        form = self.forms.get(self.origin[name], lambda tensor: tensor)
        array = array.detach().to_dense() if array.is_sparse else array.detach()  # as of nn.Embedding(sparse=True)
        return np.array(form(array).cpu().numpy()).reshape(self.arrays[name].shape)

    # -- one operator -----------------------------------------------------------------------------------------------

    def _read(self, node: FxNode) -> Any:
        if getattr(node.target, "__name__", "") == "getitem":
            return self.values[node.args[0].name][node.args[1]]
        if not hasattr(node.target, "_schema"):
            kind = getattr(node.target, "__name__", str(node.target))
            try:
                return core.read_wrapped(At(self, node), kind)
            except NotExpressible as lack:
                return self._missing(node, str(lack), [])
        name = node.target._schema.name.partition("::")[2]
        kind = name.rstrip("_")
        given = self._arguments(node, kind)
        operands = [value for value in flat(given.values()) if isinstance(value, OPERANDS)]
        try:
            if kind in RANDOM:
                raise NotExpressible(f"random numbers ({kind})")
            if not (operands or kind == "bernoulli") or kind in SHAPE_ONLY:
                result = self._constant(node, kind)
            elif any(isinstance(value, attention.Scores) for value in operands) or kind in attention.HANDLERS:
                result = attention.read(At(self, node), kind, given)
            elif kind not in HANDLERS:
                raise NotExpressible(kind)
            else:
                result = HANDLERS[kind](At(self, node), given)
        except LACKS as first:
            result = self._read_core(node, kind, given, operands, first)
        if name.endswith("_"):  # later readers of what it changed see the result
            self._write(node, node.args[0], result)
        return result

    read_inner = _read

    def _write(self, node: FxNode, target: FxNode, result: Any) -> None:
        """A value that an operator has changed; where it is a slice of another, that one, too."""
        self.values[target.name] = result
        if operator_name(target.target) in ("slice", "select"):
            try:
                made = moves.written(At(self, node), self.values[target.args[0].name], target, result)
            except LACKS as lack:
                made = self._missing(target.args[0], f"{node.target} on a part: {lack}", [])
            self._write(node, target.args[0], made)

    def _read_core(self, node: FxNode, kind: str, given: Any, operands: Any, first: Exception) -> Any:
        """Return what is not a layer as primitives; a place for it where it is neither."""
        try:
            if kind in RANDOM or self.reader.is_behind_missing([one.node for one in attention.values_of(operands)]):
                raise first
            return core.read(At(self, node), kind, given, first)
        except (NotExpressible, AttributeError, LookupError, TypeError, ValueError) as lack:
            # an operator has overloads with other arguments, and a parameter may stand where a handler expects a value
            words = str(lack) if isinstance(lack, NotExpressible) else f"{kind} of other arguments"
            sources = [value.node for value in attention.values_of(operands)]
            known = words != kind or kind in core.PRIMITIVES
            unknown = known and self.reader.is_behind_missing(sources)
            return self._missing(node, "" if unknown else words, sources)

    def _read_call(self, call: windows.Call) -> Value:
        outside = {one.name for node in call.nodes for one in node.all_input_nodes} - {node.name for node in call.nodes}
        inputs = [value for value in map(self.values.get, sorted(outside)) if isinstance(value, Value)]
        try:
            return windows.read(self, call, inputs)
        except (NotExpressible, LookupError, TypeError, ValueError) as lack:
            words = str(lack) if isinstance(lack, NotExpressible) else "attention in windows of another form"
            sources = [value.node for value in inputs]
            unknown = self.reader.is_behind_missing(sources)
            return self._missing(call.last, "" if unknown else words, sources)

    def _missing(self, node: FxNode, kind: str, sources: Sequence[str]) -> Any:
        val, where = node.meta.get("val"), core.place_of(node)
        if isinstance(val, (list, tuple)):
            return [self.reader.missing(kind, self._path(node), sources, one.shape, where) for one in val]
        return self.reader.missing(kind, self._path(node), sources, getattr(val, "shape", ()), where)

    def _arguments(self, node: FxNode, kind: str) -> Fields:
        schema = node.target._schema.arguments
        given = {**dict(zip((argument.name for argument in schema), node.args)), **node.kwargs}
        return {one.name: self._value(given.get(one.name, one.default_value), kind) for one in schema}

    def _value(self, argument: object, kind: str) -> Any:
        if isinstance(argument, (list, tuple)):
            return [self._value(one, kind) for one in argument]
        if not isinstance(argument, self.torch.fx.Node):
            return argument
        if argument.name in self.learned and kind in STATISTICS:
            return self.learned[argument.name]
        return self.values[argument.name]

    def _constant(self, node: FxNode, kind: str) -> Any:
        """Computed now: nothing of it is learned or fed."""
        if kind in SHAPE_ONLY:
            meta = node.meta["val"]
            filled = node.args[-1] if kind in ("new_full", "full_like") else float("ones" in kind)
            return exact(self.torch.full(tuple(meta.shape), filled, dtype=meta.dtype))

        def real(argument: object) -> Any:
            return self.values[argument.name] if isinstance(argument, self.torch.fx.Node) else argument

        args, kwargs = self.torch.fx.node.map_aggregate((node.args, dict(node.kwargs)), real)
        with self.torch.no_grad(), exact_derivatives(self.torch):
            return node.target(*args, **kwargs)

    # -- nodes of the graph -----------------------------------------------------------------------------------------

    def _path(self, node: FxNode) -> str:
        """The path of the module that an operator belongs to, the operator's own name at the top."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        return str(stack[-1][0]) if stack and stack[-1][0] else str(node.name)

    def stem(self, node: FxNode) -> str:
        """A name for a layer without arrays: that of its module, where the module has no others in it."""
        path = self._path(node)
        inner = any(one.target.startswith(f"{path}.") for one in self.learned.values())
        return f"{path}.{node.name}" if inner else path

    def own(self, op: str, part: str, array: Tensor) -> Learned:
        """An array of the module's; NotExpressible for one that is computed."""
        if not isinstance(array, Learned):
            raise NotExpressible(f"{op} with a computed {part}")
        return array

    def node(self, at: FxNode, op: str, sources: Sequence[str], attrs: Document, **arrays: Optional[Learned]) -> str:
        """A node of the graph, named after its arrays where it has any; an array that is None is left out."""
        own = {part: self.own(op, part, array) for part, array in arrays.items() if array is not None}
        first = self._first_with(op, sources, attrs, own)
        if first and op == "Parameter":
            return first
        if first:
            return self.reader.add(first, op, sources, {**attrs, "arrays": first})
        stem = owner(next(iter(own.values())).target) if own else self.stem(at)
        pairs = {part: (array.target, array.tensor.cpu().numpy()) for part, array in own.items()}
        made = self.reader.add(stem, op, sources, attrs, pairs)
        self.forms.update({array.target: array.form for array in own.values()})
        return made

    def _first_with(self, op: str, sources: Sequence[str], attrs: Document, own: Mapping[str, Learned]) -> str:
        """The layer that has these arrays already: a module is called again; "" where none has.

        NotExpressible where it is another layer, or one whose running statistics two calls would move.
        """
        names = {target: name for name, target in self.reader.origin.items()}
        taken = {part: names[array.target] for part, array in own.items() if array.target in names}
        if not taken:
            return ""
        first = self.reader.nodes[next(iter(taken.values())).rpartition(".")[0]]
        alike = (first.op, first.attrs, taken) == (op, dict(attrs), {part: f"{first.name}.{part}" for part in own})
        # the order of an array's numbers says how it was reshaped
        alike = alike and all(self.reader.arrays[taken[part]].tobytes() == form(own[part]) for part in own)
        if not alike or op == "BatchNorm2d":
            self.shared.update(own[part].target for part in taken)
            raise NotExpressible(f"{op} that shares its {' and '.join(taken)} with another layer")
        return first.name

    def layer(
        self, node: FxNode, op: str, sources: Sequence[str], attrs: Document, **arrays: Optional[Learned]
    ) -> Value:
        """A node whose output is the operator's as it stands."""
        value = self.reader.plain(self.node(node, op, sources, attrs, **arrays))
        if value.shape != tuple(node.meta["val"].shape):
            raise NotExpressible(f"{op} of {value.shape}, which is {tuple(node.meta['val'].shape)} in torch")
        return value

    # -- axes -------------------------------------------------------------------------------------------------------

    def reshape(self, value: Any, shape: Sequence[int]) -> Any:
        if isinstance(value, Learned):
            return value.through(lambda tensor: tensor.reshape(tuple(shape)))
        if not isinstance(value, Value):
            return self.torch.as_tensor(value).reshape(tuple(shape))
        try:
            return super().reshape(value, shape)
        except NotExpressible:
            return recut(self.reader, value, shape)

    def permute(self, value: Any, order: Sequence[int]) -> Any:
        order = list(order)
        if isinstance(value, Learned):
            return value.through(lambda tensor: tensor.permute(order))
        if not isinstance(value, Value):
            return self.torch.as_tensor(value).permute(order)
        return super().permute(value, order)

    def expand(self, value: Any, shape: Sequence[int]) -> Any:
        """Broadcasting is left to the op that reads it."""
        if tuple(value.shape) == tuple(shape):
            return value
        return self.reshape(value, (*[1] * (len(shape) - len(value.shape)), *value.shape))

    def select(self, node: FxNode, value: Value, axis: int, index: int) -> Value:
        """One place of an axis, which is gone."""
        axis %= len(value.shape)
        size = value.shape[axis]
        index %= size
        rest = value.view[:axis] + value.view[axis + 1 :]
        if size == 1:
            return Value(value.node, rest)
        shape = self.reader.shapes[value.node]
        if len(shape) == 3:  # tokens of an image
            value = self.reader.tokens(value)
            shape, rest = self.reader.shapes[value.node], value.view[:axis] + value.view[axis + 1 :]
        if len(shape) == 2 and value.view[axis] == whole(0, shape[0]):
            made = self.node(node, "Select", [value.node], {"index": index})
            return Value(made, moved(rest, (None, 0)))
        part = self.part(node, value, axis, [1] * size, index)
        return Value(part.node, part.view[:axis] + part.view[axis + 1 :])

    def part(self, node: FxNode, value: Value, axis: int, sizes: Sequence[int], index: int) -> Value:
        """A part of an axis, which is the outermost of an axis of the graph."""
        axis %= len(value.shape)
        (atom,) = value.view[axis] if len(value.view[axis]) == 1 else [None]
        shape = self.reader.shapes[value.node]
        if atom is None or atom.axis == BATCH or atom.stride * atom.size != shape[atom.axis]:
            raise NotExpressible(f"a part of folded axes {value.shape}")
        attrs = {"axis": atom.axis, "sizes": [size * atom.stride for size in sizes], "index": index}
        made = self.node(node, "Split", [value.node], attrs)
        left = () if sizes[index] == 1 else (atom._replace(size=sizes[index]),)
        return Value(made, (*value.view[:axis], left, *value.view[axis + 1 :]))

    # -- several operands -------------------------------------------------------------------------------------------

    def times(self, node: FxNode, value: Any, factor: Any) -> Any:
        if factor == 1:
            return value
        return value * factor if not isinstance(value, OPERANDS) else self.binary(node, "Mul", value, factor)

    def binary(self, node: FxNode, op: str, first: Any, second: Any) -> Any:
        """Add or Mul of two values, or of one and a parameter or a constant."""
        if not isinstance(first, Value):
            first, second = second, first
        if not isinstance(first, Value):
            raise NotExpressible(f"{op} of parameters alone")
        if not isinstance(second, Value):
            first, name = self.operand(node, first, second)
            return Value(self.node(node, op, [first.node, name], {}), first.view)
        return self.both(node, op, first, second)

    def operand(self, node: FxNode, value: Value, other: Any) -> Tuple[Value, str]:
        """A parameter or a constant as a Parameter that broadcasts beside a value; the value, perhaps as steps."""
        if not isinstance(other, Learned):
            exact = None if isinstance(other, self.torch.Tensor) else self.torch.float64
            other = self._without_batch(Learned("", self.torch.as_tensor(other, dtype=exact)), value)
        shape = filled(other.shape, len(value.view), 1)
        folded = any(size > 1 and len(group) > 1 for size, group in zip(shape, value.view))
        value = self.reader.tokens(value) if folded else value
        return value, self.parameter(node, value, other.through(lambda one: one.reshape(shape)))

    def _without_batch(self, constant: Learned, value: Value) -> Learned:
        """A constant that was made for the whole batch, the same for each of it."""
        groups = filled(value.view, len(constant.shape))
        for axis, group in enumerate(groups[len(groups) - len(constant.shape) :]):
            if group == whole(BATCH, self.reader.batch) and constant.shape[axis] > 1:
                first = constant.tensor.narrow(axis, 0, 1)
                if not bool((constant.tensor == first).all()):
                    raise NotExpressible("a constant that differs among the images of a batch")
                constant = Learned("", first)
        return constant

    def parameter(self, node: FxNode, value: Value, tensor: Learned, free: Optional[int] = None) -> str:
        """A Parameter of the rank of a value, from an array whose axes stand as the value's do.

        free: an axis of the array whose size may be another than the value's.
        """
        rank = len(self.reader.shapes[value.node])
        sizes, kept = [1] * rank, []
        for axis, (size, group) in enumerate(zip(tensor.shape, value.view)):
            if size == 1 and axis != free:
                continue
            if len(group) != 1 or group[0].axis == BATCH or (size != shape_of((group,))[0] and axis != free):
                raise NotExpressible(f"a parameter of {tensor.shape} beside {value.shape}")
            kept.append((group[0].axis, axis))
            sizes[group[0].axis] = size
        order = [axis for _, axis in sorted(kept)]
        squeezed = tensor.through(lambda one: taken(one, order, sizes))
        attrs: Fields = {"shape": sizes, "init": "normal_0.02"}
        if not tensor.target:
            return self.constant_node(node, squeezed.tensor.double().numpy())
        return self.node(node, "Parameter", [], attrs, value=squeezed)

    def concat(self, at: FxNode, operands: Sequence[Any], axis: int) -> Value:
        return super().concat(at, [one for one in operands if isinstance(one, Value) or math.prod(one.shape)], axis)

    def beside(self, at: FxNode, like: Value, array: Any, axis: int) -> str:
        return self.parameter(at, like, array if isinstance(array, Learned) else Learned("", array), free=axis)


LACKS = core.LACKS
OPERANDS = (Value, Mask, Learned, attention.Scores)
