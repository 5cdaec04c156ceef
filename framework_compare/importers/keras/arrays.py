"""Layers of rows, series and tokens in the graph. Handlers as in `layers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Sequence

import numpy as np

from framework_compare.importers.common.axes import materialised
from framework_compare.importers.common.views import NotExpressible, Value
from framework_compare.importers.keras import layers
from framework_compare.importers.keras.layers import At, Handler, refuse_unless

if TYPE_CHECKING:
    from keras.layers import Layer


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
