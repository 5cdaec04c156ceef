"""Elementwise ATen operators and reductions, as primitives."""

from __future__ import annotations

import math
from typing import Any, Dict

from framework_compare.importers.common.axes import materialised
from framework_compare.importers.common.views import Value
from framework_compare.importers.torch.operands import along, each, emit, reduced, value_of, where
from framework_compare.importers.torch.operators import Arguments, Handler, refuse, shape_of


def unary(op: str, **attrs: Any) -> Handler:
    return lambda reading, node, a: each(reading, node, op, a.get("self", a.get("input")), **attrs)


def binary(op: str, swapped: bool = False) -> Handler:
    def handler(reading: Any, node: Any, a: Arguments) -> Value:
        first, second = a["self"], a["other"]
        if a.get("alpha", 1) != 1:
            second = (
                second * a["alpha"]
                if isinstance(second, (int, float))
                else emit(reading, node, "Mul", second, a["alpha"])
            )
        if a.get("rounding_mode"):
            refuse("division", "that rounds")
        return emit(reading, node, op, *((second, first) if swapped else (first, second)))

    return handler


def power(reading: Any, node: Any, a: Arguments) -> Value:
    base, exponent = a["self"], a["exponent"]
    if isinstance(exponent, Value) or hasattr(exponent, "target"):
        base = math.log(base) if isinstance(base, (int, float)) else each(reading, node, "Log", base)
        return each(reading, node, "Exp", emit(reading, node, "Mul", base, exponent))
    exponent = float(exponent)
    x = value_of(reading, node, base)
    if exponent == 2:
        return Value(reading.node(node, "Mul", [x.node, x.node], {}), x.view)
    return each(reading, node, "Sqrt", x) if exponent == 0.5 else each(reading, node, "Power", x, exponent=exponent)


def clamp(reading: Any, node: Any, a: Arguments) -> Value:
    x = value_of(reading, node, a["self"])
    for name, op in (("min", "Maximum"), ("min_val", "Maximum"), ("max", "Minimum"), ("max_val", "Minimum")):
        if a.get(name) is not None:
            x = emit(reading, node, op, x, a[name])
    return x


def reduction(op: str) -> Handler:
    def handler(reading: Any, node: Any, a: Arguments) -> Any:
        result = reduced(reading, node, op, a["self"], a.get("dim"), a.get("keepdim", False))
        return [result, None] if isinstance(node.meta["val"], (tuple, list)) else result

    return handler


def lowest(reading: Any, node: Any, a: Arguments) -> Any:
    turned = {**a, "self": emit(reading, node, "Mul", a["self"], -1.0)}
    found = reduction("ReduceMax")(reading, node, turned)
    value = found[0] if isinstance(found, list) else found
    value = emit(reading, node, "Mul", value, -1.0)
    return [value, None] if isinstance(found, list) else value


def variance(reading: Any, node: Any, a: Arguments) -> Value:
    x = value_of(reading, node, a["self"])
    correction = a.get("correction", float(a.get("unbiased", True)))
    mean = reduced(reading, node, "ReduceMean", x, a.get("dim"), True)
    apart = emit(reading, node, "Sub", x, mean)
    squares = emit(reading, node, "Mul", apart, apart)
    result = reduced(reading, node, "ReduceMean", squares, a.get("dim"), a.get("keepdim", False))
    count = math.prod(x.shape) // max(1, math.prod(mean.shape))
    correction = 1 if correction is None else correction
    return emit(reading, node, "Mul", result, count / (count - correction)) if correction else result


def prelu(reading: Any, node: Any, a: Arguments) -> Value:
    x, slope = a["self"], a["weight"]
    shape = (slope.shape[0], *[1] * max(0, len(x.shape) - 2))
    negative = emit(reading, node, "Mul", x, reading.reshape(slope, shape))
    return where(reading, node, emit(reading, node, "Less", 0.0, x), x, negative)


def softplus(reading: Any, node: Any, a: Arguments) -> Value:
    """max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    x, beta = value_of(reading, node, a["self"]), a.get("beta", 1)
    x = x if beta == 1 else emit(reading, node, "Mul", x, beta)
    fall = each(reading, node, "Exp", emit(reading, node, "Mul", each(reading, node, "Abs", x), -1.0))
    tail = each(reading, node, "Log", emit(reading, node, "Add", fall, 1.0))
    y = emit(reading, node, "Add", Value(reading.node(node, "ReLU", [x.node], {}), x.view), tail)
    return y if beta == 1 else emit(reading, node, "Mul", y, 1 / beta)


def vector_norm(reading: Any, node: Any, a: Arguments) -> Value:
    order, dims, keep = a.get("ord", a.get("p", 2)), a.get("dim"), a.get("keepdim", False)
    x = value_of(reading, node, a.get("self", a.get("x")))
    size = each(reading, node, "Abs", x)
    if order is None or order == 2:
        squares = Value(reading.node(node, "Mul", [x.node, x.node], {}), x.view)
        return each(reading, node, "Sqrt", reduced(reading, node, "ReduceSum", squares, dims, keep))
    if order == math.inf:
        return reduced(reading, node, "ReduceMax", size, dims, keep)
    if order == 1:
        return reduced(reading, node, "ReduceSum", size, dims, keep)
    total = reduced(reading, node, "ReduceSum", each(reading, node, "Power", size, exponent=float(order)), dims, keep)
    return each(reading, node, "Power", total, exponent=1 / order)


def log_sum_exp(reading: Any, node: Any, a: Arguments) -> Value:
    most = reduced(reading, node, "ReduceMax", a["self"], a["dim"], True)
    powers = each(reading, node, "Exp", emit(reading, node, "Sub", a["self"], most))
    sums = each(reading, node, "Log", reduced(reading, node, "ReduceSum", powers, a["dim"], True))
    total = emit(reading, node, "Add", sums, most)
    return reading.reshape(materialised(reading.reader, total), shape_of(node))


def elu(reading: Any, node: Any, a: Arguments) -> Value:
    x, scale, alpha = value_of(reading, node, a["self"]), a.get("scale", 1), a.get("alpha", 1) * a.get("scale", 1)
    below = emit(reading, node, "Sub", each(reading, node, "Exp", emit(reading, node, "Minimum", x, 0.0)), 1.0)
    above = Value(reading.node(node, "ReLU", [x.node], {}), x.view)
    return emit(
        reading,
        node,
        "Add",
        emit(reading, node, "Mul", above, float(scale)),
        emit(reading, node, "Mul", below, float(alpha)),
    )


def negated(reading: Any, node: Any, x: Any) -> Value:
    return emit(reading, node, "Equal", x, 0.0)


def to_dtype(reading: Any, node: Any, a: Arguments) -> Any:
    """Of numbers to numbers nothing changes: the graph has one precision."""
    x, dtype = a.get("self", a.get("input")), node.meta["val"].dtype
    return value_of(reading, node, x) if dtype.is_floating_point or not isinstance(x, Value) else x


UNARY = ("Abs", "Cos", "Detach", "Erf", "Exp", "Log", "ReLU", "Sigmoid", "Sign", "SiLU", "Sin", "Sqrt", "Tanh")
HANDLERS: Dict[str, Handler] = {
    **{op.lower(): unary(op) for op in UNARY},
    **{op.lower(): binary(op) for op in ("Add", "Sub", "Mul", "Div", "Maximum", "Minimum")},
    "rsqrt": unary("Power", exponent=-0.5),
    "reciprocal": unary("Power", exponent=-1.0),
    "neg": lambda r, n, a: emit(r, n, "Mul", a.get("self", a.get("input")), -1.0),
    "square": lambda r, n, a: power(r, n, {"self": a["self"], "exponent": 2}),
    "pow": power,
    "leaky_relu": lambda r, n, a: each(r, n, "LeakyReLU", a["self"], slope=float(a["negative_slope"])),
    "elu": elu,
    "softplus": softplus,
    "prelu": prelu,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh"), clamp),
    "rsub": binary("Sub", swapped=True),
    "eq": binary("Equal"),
    "ne": lambda r, n, a: negated(r, n, binary("Equal")(r, n, a)),
    "lt": binary("Less"),
    "gt": binary("Less", swapped=True),
    "le": binary("LessEqual"),
    "ge": binary("LessEqual", swapped=True),
    **dict.fromkeys(("logical_not", "bitwise_not"), lambda r, n, a: negated(r, n, a["self"])),
    **dict.fromkeys(("logical_and", "bitwise_and", "__and__"), binary("Mul")),
    **dict.fromkeys(("logical_or", "bitwise_or", "__or__"), binary("Maximum")),
    "where": lambda r, n, a: where(r, n, a["condition"], a["self"], a["other"]),
    "masked_fill": lambda r, n, a: where(r, n, a["mask"], a["value"], a["self"]),
    "sum": reduction("ReduceSum"),
    "mean": reduction("ReduceMean"),
    **dict.fromkeys(("amax", "max"), reduction("ReduceMax")),
    **dict.fromkeys(("amin", "min"), lowest),
    "var": variance,
    "std": lambda r, n, a: each(r, n, "Sqrt", variance(r, n, a)),
    **dict.fromkeys(("linalg_vector_norm", "norm"), vector_norm),
    "logsumexp": log_sum_exp,
    "log1p": lambda r, n, a: each(r, n, "Log", emit(r, n, "Add", a["self"], 1.0)),
    "expm1": lambda r, n, a: emit(r, n, "Sub", each(r, n, "Exp", a["self"]), 1.0),
    "any": lambda r, n, a: reduced(r, n, "ReduceMax", value_of(r, n, a["self"]), a.get("dim"), a.get("keepdim", False)),
    **dict.fromkeys(("softmax", "_softmax"), along("Softmax")),
    **dict.fromkeys(("log_softmax", "_log_softmax"), along("LogSoftmax")),
    "cumsum": along("CumSum"),
    **dict.fromkeys(("to", "_to_copy", "type_as", "float"), to_dtype),
    "lift_fresh_copy": lambda r, n, a: a["self"],
}
