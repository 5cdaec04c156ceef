"""An exported ATen program as a layer graph: state, constants, names; `operators` says what each operator is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Sequence, Set

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph import Graph, Task
from framework_compare.importers.common.axes import materialised
from framework_compare.importers.common.graph_reader import GraphReader
from framework_compare.importers.common.reading import left_out
from framework_compare.importers.common.views import NotExpressible, Value
from framework_compare.importers.torch import attention, core, moves, windows
from framework_compare.importers.torch.calls import chosen_output, exact, exact_derivatives
from framework_compare.importers.torch.operands import At, Learned
from framework_compare.importers.torch.operators import HANDLERS, Mask, operator_name
from framework_compare.json_types import Fields

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram, ExportGraphSignature
    from torch.fx import Node as FxNode

# What they give depends on the shape of their input alone.
SHAPE_ONLY = ("new_zeros", "new_ones", "new_empty", "new_full", "zeros_like", "ones_like", "empty_like", "full_like")
RANDOM = ("rand", "randn", "rand_like", "randn_like", "randint", "randperm", "normal", "uniform", "multinomial")
OPERANDS = (Value, Mask, Learned, attention.Scores)
STATISTICS = ("batch_norm",)  # operators that take buffers as their own; to others a buffer is a constant


class Way(NamedTuple):
    """Way to read a program: where something can be taken in two ways, the second is used if the first fails.

    apart: names of arrays that several kinds of operators read, each a node of its own. lifts: a vector may become an
    image. of_samples: a constant that repeats as often as there are images was made for each of them.
    """

    apart: FrozenSet[str] = frozenset()
    lifts: bool = True
    of_samples: bool = False


class Reading:
    """The graph of a program, its arrays, and the names that these have in the module.

    tasks: those that its output may be for. shared: arrays that turned out to be read by several kinds of operators.
    """

    graph: Graph
    arrays: Dict[str, np.ndarray]
    origin: Dict[str, str]
    notes: Sequence[str]

    def __init__(self, batch: int, tasks: Sequence[Task], way: Way = Way()) -> None:
        import torch

        self.torch, self.tasks, self.way = torch, tasks, way
        self.shared: Set[str] = set()
        fields = tasks[0].named_inputs
        self.reader = GraphReader(batch, {name: field.shape for name, field in fields.items()})
        self.reader.lifts = way.lifts
        self.whole_numbers = {name for name, field in fields.items() if field.dtype != "float32"}
        # A Value, a Mask, a Learned, Scores, a list of them, or a tensor: what depends on nothing learned or fed
        self.values: Fields = {}
        self.learned: Dict[str, Learned] = {}  # by placeholder
        self.forms: Dict[str, Callable[[Tensor], Tensor]] = {}  # an array of the module to the graph's, by its name
        self._trained: Set[str] = set()

    @property
    def next_way(self) -> Way:
        """The way to try where this one failed; the same where none is left."""
        return Way(self.way.apart | self.shared, lifts=False, of_samples=not self.way.lifts)

    def read_all(self, program: ExportedProgram, output: str) -> None:
        """Read a program; UsageError where that fails. output: the name of the one that is trained, "" for the first."""
        signature, tasks = program.graph_signature, self.tasks
        self.values.update(zip(signature.user_inputs, self.reader.inputs.values()))
        self._trained.update(signature.inputs_to_parameters)
        self._take_state(program, signature)
        calls = windows.calls_of(program.graph.nodes)
        for node in program.graph.nodes:
            call = calls.get(node.name)
            if call is not None and node is call.last:
                self.values[node.name] = self._read_call(call)
            elif call is None and node.op == "call_function":
                self.values[node.name] = self.read(node)
        returned = next(n for n in program.graph.nodes if n.op == "output").args[0]
        made = [node for node, spec in zip(returned, signature.output_specs) if spec.kind.name == "USER_OUTPUT"]
        trained = chosen_output(self.torch.utils._pytree.tree_unflatten(made, program.call_spec.out_spec), output)
        value = self.values.get(getattr(trained, "name", ""))
        if not isinstance(value, Value):
            raise UsageError(f"what it returns does not depend on its {tasks[0].unit}s")
        value = self.reader.vector(value)
        if value != Value(value.node, self.reader.plain(value.node).view[: len(value.view)]):
            value = materialised(self.reader, value)
        self.graph = self.reader.finish(value, tasks)
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
            if target in self.way.apart:
                self.values[place] = self._apart(target, tensor)
        for place, target in signature.inputs_to_lifted_tensor_constants.items():
            self.values[place] = exact(program.constants[target])

    def _apart(self, target: str, tensor: Tensor) -> Value:
        attrs = {"shape": list(tensor.shape), "init": "normal_0.02"}
        made = self.reader.once(f"{target}.array", "Parameter", [], attrs)
        self.reader.arrays[f"{made}.value"], self.reader.origin[f"{made}.value"] = tensor.cpu().numpy(), target
        self.forms[target] = lambda one: one
        return Value(made, self.reader.plain(made).view[1:])

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

    def read(self, node: FxNode) -> Any:
        """Return what an operator of the program, or of one that is decomposed, gives."""
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
        operands = list(operands_of(given.values()))
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
        except core.LACKS as first:
            result = self._read_core(node, kind, given, [one.node for one in attention.values_of(operands)], first)
        if name.endswith("_"):  # later readers of what it changed see the result
            self._write(node, node.args[0], result)
        return result

    def _write(self, node: FxNode, target: FxNode, result: Any) -> None:
        """A value that an operator has changed; where it is a slice of another, that one, too."""
        self.values[target.name] = result
        if operator_name(target.target) in ("slice", "select"):
            try:
                made = moves.written(At(self, node), self.values[target.args[0].name], target, result)
            except core.LACKS as lack:
                made = self._missing(target.args[0], f"{node.target} on a part: {lack}", [])
            self._write(node, target.args[0], made)

    def _read_core(self, node: FxNode, kind: str, given: Fields, sources: Sequence[str], first: Exception) -> Any:
        """Return what is not a layer as primitives; a place for it where it is neither."""
        try:
            if kind in RANDOM or self.reader.is_behind_missing(sources):
                raise first
            return core.read(At(self, node), kind, given, first)
        except core.LACKS as lack:
            # an operator has overloads with other arguments, and a parameter may stand where a handler expects a value
            return self._lacking(node, lack, sources, f"{kind} of other arguments", kind)

    def _read_call(self, call: windows.Call) -> Value:
        outside = {one.name for node in call.nodes for one in node.all_input_nodes} - {node.name for node in call.nodes}
        inputs = [value for value in map(self.values.get, sorted(outside)) if isinstance(value, Value)]
        try:
            return windows.read(self, call, inputs)
        except core.LACKS as lack:
            words = "attention in windows of another form"
            return self._lacking(call.last, lack, [value.node for value in inputs], words)

    def _lacking(self, node: FxNode, lack: Exception, sources: Sequence[str], words: str, kind: str = "") -> Any:
        """A place for an operator; nothing is said of one that might be known, were it not for others in front of it."""
        words = str(lack) if isinstance(lack, NotExpressible) else words
        known = words != kind or kind in core.PRIMITIVES
        return self._missing(node, "" if known and self.reader.is_behind_missing(sources) else words, sources)

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


def operands_of(given: Iterable[object]) -> Iterator[Any]:
    """Yield those of an operator's arguments that are computed or learned, also within lists."""
    for one in given:
        if isinstance(one, list):
            yield from operands_of(one)
        elif isinstance(one, OPERANDS):
            yield one
