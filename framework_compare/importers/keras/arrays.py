"""What layers of rows, series and tokens are in the graph, and what a model's inputs are given. Handlers as in `layers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Sequence, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph import Field
from framework_compare.importers.common.axes import materialised
from framework_compare.importers.common.ends import in_order
from framework_compare.importers.common.graph_reader import GraphReader
from framework_compare.importers.common.views import NotExpressible, Value
from framework_compare.importers.keras import layers
from framework_compare.importers.keras.layers import FIRST, At, Handler, refuse_unless, swapped

if TYPE_CHECKING:
    from keras import Model
    from keras.layers import Layer


def matched(model: Model, fields: Sequence[Field]) -> Tuple[Field, ...]:
    """Return what each input is given: the array of its name, or, where not all have one, those in their order."""
    found = in_order([tensor.name for tensor in model.inputs], fields)
    for tensor, field in zip(model.inputs, found):
        if not _fits(tensor, field.shape) and not channels_first(tensor, field):
            own = (None, *field.shape)
            raise UsageError(f"its input {tensor.name!r} has shape {tuple(tensor.shape)}, and {field.name} has {own}")
    return found


def _fits(tensor: Any, shape: Sequence[int]) -> bool:
    wanted = tuple(tensor.shape)[1:]
    return len(wanted) == len(shape) and all(one in (None, size) for one, size in zip(wanted, shape))


def channels_first(tensor: Any, field: Field) -> bool:
    """Return whether a field is images, of which the model takes the channels last."""
    shape = field.shape
    return len(shape) == 3 and not _fits(tensor, shape) and _fits(tensor, (*shape[1:], shape[0]))


def as_fed(reader: GraphReader, name: str) -> Value:
    """An input as Keras has it; one of three axes is an image to a convolution, whose channels come first in the graph."""
    value = reader.inputs[name]
    if len(value.view) != len(FIRST):
        return value
    node = materialised(reader, Value(value.node, swapped(value.view, FIRST))).node
    return layers.as_keras(reader, node)


def _steps(at: At, x: Value) -> str:
    """The node of a value that stands as (N, steps, features)."""
    plain = materialised(at.reader, x)
    if len(plain.view) != 3 or plain != at.reader.plain(plain.node):
        raise NotExpressible(f"a sequence of shape {x.shape}")
    return plain.node


def embedding(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    refuse_unless("Embedding", mask_zero=(layer.mask_zero, False))
    if not at.reader.is_fed(inputs[0]):
        raise NotExpressible("Embedding of what is computed")
    attrs = {"num_embeddings": layer.input_dim, "embedding_dim": layer.output_dim, "init": "uniform_0.05"}
    made = at.add("Embedding", [inputs[0].node], attrs, weight=(layer.embeddings, None))
    return at.reader.plain(made)


def lstm(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    source = _steps(at, inputs[0])
    if layer.go_backwards:
        source = at.inner("reversed").add("Reverse", [source], {})
    return at.reader.plain(_states(at, layer, source))


def _states(at: At, layer: Layer, source: str) -> str:
    """The node of all states, or of the last."""
    activations = [getattr(one, "__name__", "") for one in (layer.activation, layer.recurrent_activation)]
    refuse_unless(
        type(layer).__name__,
        activations=(activations, ["tanh", "sigmoid"]),
        dropout=(max(layer.dropout, layer.recurrent_dropout), 0),
        stateful=(layer.stateful, False),
        return_state=(layer.return_state, False),
        use_bias=(layer.use_bias, True),
    )
    cell = layer.cell
    attrs = {"input_size": cell.kernel.shape[0], "hidden_size": layer.units}
    weights = {"weight_ih": (cell.kernel, np.transpose), "weight_hh": (cell.recurrent_kernel, np.transpose)}
    made = at.add("LSTM", [source], attrs, **weights, bias=(cell.bias, None))
    return made if layer.return_sequences else at.inner("last").add("Last", [made], {})


def bidirectional(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    ahead, back = layer.forward_layer, layer.backward_layer
    kinds = [type(one).__name__ for one in (ahead, back)]
    refuse_unless("Bidirectional", merge_mode=(layer.merge_mode, "concat"), layers=(kinds, ["LSTM", "LSTM"]))
    source = _steps(at, inputs[0])
    turned = at.inner("reversed").add("Reverse", [source], {})
    ends = [_states(at.called(one.name), one, steps) for one, steps in ((ahead, source), (back, turned))]
    if back.return_sequences:
        ends[1] = at.called(back.name).inner("ahead").add("Reverse", [ends[1]], {})
    return at.reader.plain(at.add("Concat", ends, {}))


def reduced(op: str) -> Handler:
    """Over the steps of a sequence."""

    def handler(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
        refuse_unless(type(layer).__name__, keepdims=(layer.keepdims, False))
        source = _steps(at, inputs[0])
        made = at.add(op, [source], {"axes": [0]})
        size = at.reader.shapes[made][-1]
        return at.reader.plain(at.inner("vector").add("Reshape", [made], {"shape": [size]}))

    return handler


def concat(at: At, layer: Layer, inputs: Sequence[Value]) -> Value:
    try:
        return at.concat(inputs, layer.axis)
    except NotExpressible:  # folded differently, as what is flattened beside a vector
        plain = [materialised(at.reader, value) for value in inputs]
        return at.concat(plain, layer.axis)


HANDLERS: Dict[str, Handler] = {
    "Bidirectional": bidirectional,
    "Concatenate": concat,
    "Embedding": embedding,
    "GlobalAveragePooling1D": reduced("ReduceMean"),
    "GlobalMaxPooling1D": reduced("ReduceMax"),
    "LSTM": lstm,
    "Subtract": layers.merged("Sub"),
}
