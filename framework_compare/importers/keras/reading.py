"""A Keras model as a layer graph: what its inputs are given, its layers in order, names, arrays.

`layers` and `arrays` say what each layer is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph import Field, Graph, Task
from framework_compare.importers.common.axes import materialised
from framework_compare.importers.common.graph_reader import GraphReader
from framework_compare.importers.common.reading import Place
from framework_compare.importers.common.tracing import in_order
from framework_compare.importers.common.views import NotExpressible, Value
from framework_compare.importers.keras import arrays, layers
from framework_compare.importers.keras.layers import FIRST, LAST, swapped
from framework_compare.json_types import Document

if TYPE_CHECKING:
    from keras import Model
    from keras.src.ops.node import Node as KerasNode

HANDLERS = {**layers.HANDLERS, **arrays.HANDLERS}
# The activation that a model may end in where the loss takes logits.
ENDS = {"cross_entropy": "softmax", "token_cross_entropy": "softmax", "binary_cross_entropy": "sigmoid"}
OPERATIONS = ("Add", "Multiply")  # that are also spelled + and *
Form = Optional[Callable[[np.ndarray], np.ndarray]]  # from an array of Keras's to the graph's


def matched(model: Model, fields: Sequence[Field]) -> Tuple[Field, ...]:
    """Return what each input is given: the array of its name, or, where not all have one, those in their order."""
    found = in_order([tensor.name for tensor in model.inputs], fields)
    for tensor, field in zip(model.inputs, found):
        if not _fits(tensor, field.shape) and not _channels_first(tensor, field):
            own = (None, *field.shape)
            raise UsageError(f"its input {tensor.name!r} has shape {tuple(tensor.shape)}, and {field.name} has {own}")
    return found


def _fits(tensor: Any, shape: Sequence[int]) -> bool:
    wanted = tuple(tensor.shape)[1:]
    return len(wanted) == len(shape) and all(one in (None, size) for one, size in zip(wanted, shape))


def _channels_first(tensor: Any, field: Field) -> bool:
    """Return whether a field is images, of which the model takes the channels last."""
    shape = field.shape
    return len(shape) == 3 and not _fits(tensor, shape) and _fits(tensor, (*shape[1:], shape[0]))


class Reading:
    """The graph of a model for one of the tasks, and the paths that its arrays have in the model.

    cut: the name of the layer without whose softmax or sigmoid the graph ends, "" where it has all.
    """

    def __init__(self, model: Model, tasks: Sequence[Task], batch: int, output: int = 0) -> None:
        self.last = model.outputs[output]._keras_history.operation
        self.ends = {ENDS[task.loss] for task in tasks if task.loss in ENDS}
        self.cut = ""
        self.notes: List[str] = []
        fields = tasks[0].named_inputs
        self.reader = GraphReader(batch, {name: field.shape for name, field in fields.items()})
        self.forms: Dict[str, Form] = {}  # by the paths of Keras's variables
        # of each input whether its channels come first in the data
        self.turned = [_channels_first(one, field) for one, field in zip(model.inputs, fields.values())]
        self.tokens = {name for name, field in fields.items() if field.dtype != "float32"}
        inputs = [
            Value(name, swapped(self.reader.inputs[name].view, LAST)) if turned else _as_fed(self.reader, name)
            for name, turned in zip(fields, self.turned)
        ]
        values = self._run(model, inputs, "")
        value = values.get(id(model.outputs[output]))
        if value is None:
            raise UsageError(f"its output does not depend on its {tasks[0].unit}s")
        self.graph: Graph = self.reader.finish(value, tasks)
        self.arrays, self.origin = self.reader.arrays, self.reader.origin

    def _run(self, model: Model, inputs: Sequence[Value], prefix: str) -> Dict[int, Value]:
        """The values of a functional model's tensors, by their identity."""
        import keras

        values = dict(zip(map(id, model.inputs), inputs))
        for node in _nodes(model):
            sources = [values[id(tensor)] for tensor in node.input_tensors]
            if isinstance(node.operation, keras.Model):
                inner = node.operation
                made = self._run(inner, sources, f"{prefix}{inner.name}.")
                results = [made[id(tensor)] for tensor in inner.outputs]
            else:
                results = [self._layer(node, sources)]
            values.update(zip(map(id, node.outputs), results))
        return values

    def _layer(self, node: KerasNode, sources: Sequence[Value]) -> Value:
        layer, kind = node.operation, type(node.operation).__name__
        try:
            operation = not hasattr(layer, "weights")  # of keras.ops: x + y
            if kind != "Embedding":
                sources = [self._numbers(value) for value in sources]
            if kind not in HANDLERS or (operation and (kind not in OPERATIONS or len(sources) != 2)):
                raise NotExpressible(kind)
            return HANDLERS[kind](At(self, layer.name), layer, sources)
        except NotExpressible as lack:
            shape = [self.reader.batch if size is None else size for size in node.outputs[0].shape]
            image = len(shape) == len(FIRST)
            shape = [shape[axis] for axis in FIRST] if image else shape
            made = self.reader.missing(str(lack), layer.name, [value.node for value in sources], shape)
            return Value(made.node, swapped(made.view, LAST)) if image else made

    def _numbers(self, value: Value) -> Value:
        """Whole numbers that are fed become those that the network computes with."""
        if value.node not in self.tokens:
            return value
        return Value(self.reader.once(f"{value.node}.numbers", "Cast", [value.node], {}), value.view)

    def as_graph(self, name: str, array: np.ndarray) -> np.ndarray:
        """An array of Keras's, by the graph's name, in the graph's shape."""
        return _formed(np.asarray(array), self.forms[self.origin[name]]).reshape(self.arrays[name].shape)


class At(Place):
    """The place of a layer: the Reading, and the name that a node gets."""

    def __init__(self, reading: Reading, name: str) -> None:
        super().__init__(reading.reader)
        self.reading, self.name = reading, name

    def called(self, name: str) -> "At":
        """The same place under another name."""
        return At(self.reading, name)

    def inner(self, part: str) -> "At":
        """The place of a part of the layer."""
        return self.called(f"{self.name}.{part}")

    def add(self, op: str, sources: Sequence[str], attrs: Document, **arrays: Tuple[Any, Form]) -> str:
        """A node of the graph; arrays are Keras's variables, each with what makes the graph's array of it."""
        for part, (variable, _) in arrays.items():
            if variable.path in self.reader.origin.values():
                raise NotExpressible(f"{op} that shares its {part} with another layer")
        pairs = {part: (one.path, _formed(np.asarray(one), form)) for part, (one, form) in arrays.items()}
        made = self.reader.add(self.name, op, sources, attrs, pairs)
        self.reading.forms.update({variable.path: form for variable, form in arrays.values()})
        return made

    def with_constant(self, op: str, value: Value, number: np.ndarray) -> Value:
        """A value times, or plus, what is not trained: one number, or one for each channel."""
        reader = self.reader
        shape = [1] * len(reader.shapes[value.node])
        if number.size > 1:
            shape[reader.feature_axis(value.node)] = number.size
        attrs = {"shape": shape, "init": "zeros", "trained": False}
        constant = reader.add(f"{self.name}.constant", "Parameter", [], attrs)
        reader.arrays[f"{constant}.value"] = number.reshape(shape)
        return Value(self.add(op, [value.node, constant], {}), value.view)


def _as_fed(reader: GraphReader, name: str) -> Value:
    """An input as Keras has it; one of three axes is an image to a convolution, whose channels come first in the graph."""
    value = reader.inputs[name]
    if len(value.view) != len(FIRST):
        return value
    node = materialised(reader, Value(value.node, swapped(value.view, FIRST))).node
    return layers.as_keras(reader, node)


def _formed(array: np.ndarray, form: Form) -> np.ndarray:
    return np.ascontiguousarray(array if form is None else form(array))


def _nodes(model: Model) -> List[KerasNode]:
    """Calls of layers, each behind those whose results it reads."""
    inner = model._functional if hasattr(model, "_functional") else model  # of a Sequential
    by_depth = inner._nodes_by_depth
    return [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth] if not node.is_input]
