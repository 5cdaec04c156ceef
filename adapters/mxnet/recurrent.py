"""Recurrent layers of gluon, with the steps in front of the samples, and their arrays by their names in the graph."""

from typing import Any, Dict, Mapping

from framework_compare.adapters.common.recurrent import PAIR, Direction

_ARRAYS = {"i2h_weight": "weight_ih", "h2h_weight": "weight_hh", "i2h_bias": "bias_ih", "h2h_bias": "bias_hh"}


def _layer(gluon: Any, a: Mapping[str, Any], op: str, **how: Any) -> Any:
    layer = getattr(gluon.rnn, op)(a["hidden_size"], layout="TNC", input_size=a["input_size"], **how)
    layer.biases = a.get("biases", 1)
    return layer


def arrays_of(one: Direction) -> Dict[str, Any]:
    """Return the layer's arrays. Of two biases the graph may have one; the other stays zero, or both would move."""
    side = "r0" if one.is_backward else "l0"
    arrays = {name: one.layer._reg_params[f"{side}_{own}"] for own, name in _ARRAYS.items()}
    if type(one.layer).__name__ == "LSTM" and one.layer.biases == 1:
        arrays.pop("bias_hh").grad_req = "null"
        arrays["bias"] = arrays.pop("bias_ih")
    return arrays


LAYERS = {
    "LSTM": lambda gluon, a: _layer(gluon, a, "LSTM"),
    "GRU": lambda gluon, a: _layer(gluon, a, "GRU"),
    PAIR: lambda gluon, a: _layer(gluon, a, a["op"], bidirectional=True),
}
