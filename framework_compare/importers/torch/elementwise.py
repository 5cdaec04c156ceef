"""Elementwise ATen operators and reductions, as primitives."""

import math
from typing import Any, Dict, List

from framework_compare.importers.common.views import Value
from framework_compare.importers.torch.operands import Arguments, At, Handler, along
from framework_compare.importers.torch.operators import refuse, unary


def binary(op: str, swapped: bool = False) -> Handler:
    def handler(at: At, a: Arguments) -> Value:
        first, second = a["self"], a["other"]
        if a.get("alpha", 1) != 1:
            known = isinstance(second, (int, float))
            second = second * a["alpha"] if known else at.emit("Mul", second, a["alpha"])
        if a.get("rounding_mode"):
            refuse("division", "that rounds")
        return at.emit(op, *((second, first) if swapped else (first, second)))

    return handler


def power(at: At, a: Arguments) -> Value:
    base, exponent = a["self"], a["exponent"]
    if isinstance(exponent, Value) or hasattr(exponent, "target"):
        base = math.log(base) if isinstance(base, (int, float)) else at.each("Log", base)
        return at.each("Exp", at.emit("Mul", base, exponent))
    exponent = float(exponent)
    x = at.value(base)
    if exponent == 2:
        return at.squared(x)
    return at.each("Sqrt", x) if exponent == 0.5 else at.each("Power", x, exponent=exponent)


def clamp(at: At, a: Arguments) -> Value:
    x = at.value(a["self"])
    for name, op in (("min", "Maximum"), ("min_val", "Maximum"), ("max", "Minimum"), ("max_val", "Minimum")):
        if a.get(name) is not None:
            x = at.emit(op, x, a[name])
    return x


def reduction(op: str, *, turned: bool = False) -> Handler:
    """turned: change signs before and after, so that a maximum gives the minimum."""

    def handler(at: At, a: Arguments) -> Any:
        x = at.emit("Mul", a["self"], -1.0) if turned else a["self"]
        result = at.reduced(op, x, a.get("dim"), a.get("keepdim", False))
        result = at.emit("Mul", result, -1.0) if turned else result
        return [result, None] if isinstance(at.node.meta["val"], (tuple, list)) else result

    return handler


def variance(at: At, a: Arguments) -> Value:
    x = at.value(a["self"])
    correction = a.get("correction", float(a.get("unbiased", True)))
    mean = at.reduced("ReduceMean", x, a.get("dim"), True)
    apart = at.emit("Sub", x, mean)
    squares = at.emit("Mul", apart, apart)
    result = at.reduced("ReduceMean", squares, a.get("dim"), a.get("keepdim", False))
    count = math.prod(x.shape) // max(1, math.prod(mean.shape))
    correction = 1 if correction is None else correction
    return at.emit("Mul", result, count / (count - correction)) if correction else result


def softplus(at: At, a: Arguments) -> Value:
    """max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    x, beta = at.value(a["self"]), a.get("beta", 1)
    x = x if beta == 1 else at.emit("Mul", x, beta)
    fall = at.each("Exp", at.emit("Mul", at.each("Abs", x), -1.0))
    tail = at.each("Log", at.emit("Add", fall, 1.0))
    y = at.emit("Add", at.each("ReLU", x), tail)
    return y if beta == 1 else at.emit("Mul", y, 1 / beta)


def vector_norm(at: At, a: Arguments) -> Value:
    order, dims, keep = a.get("ord", a.get("p", 2)), a.get("dim"), a.get("keepdim", False)
    x = at.value(a.get("self", a.get("x")))
    size = at.each("Abs", x)
    if order is None or order == 2:
        return at.each("Sqrt", at.reduced("ReduceSum", at.squared(x), dims, keep))
    if order == math.inf:
        return at.reduced("ReduceMax", size, dims, keep)
    if order == 1:
        return at.reduced("ReduceSum", size, dims, keep)
    total = at.reduced("ReduceSum", at.each("Power", size, exponent=float(order)), dims, keep)
    return at.each("Power", total, exponent=1 / order)


def log_sum_exp(at: At, a: Arguments) -> Value:
    most = at.reduced("ReduceMax", a["self"], a["dim"], True)
    powers = at.each("Exp", at.emit("Sub", a["self"], most))
    sums = at.each("Log", at.reduced("ReduceSum", powers, a["dim"], True))
    total = at.emit("Add", sums, most)
    return at.reshape(at.plain(total), at.shape)


def elu(at: At, a: Arguments) -> Value:
    x, scale, alpha = at.value(a["self"]), a.get("scale", 1), a.get("alpha", 1) * a.get("scale", 1)
    below = at.emit("Sub", at.each("Exp", at.emit("Minimum", x, 0.0)), 1.0)
    above = at.each("ReLU", x)
    return at.emit("Add", at.emit("Mul", above, float(scale)), at.emit("Mul", below, float(alpha)))


def broadcast(at: At, a: Arguments) -> List[Value]:
    """Several arrays in one shape, as losses of torch bring outputs and target; the op that reads them repeats them."""
    return [at.expand(one, meta.shape) for one, meta in zip(a["tensors"], at.node.meta["val"])]


def cosh(at: At, a: Arguments) -> Value:
    x = at.value(a["self"])
    both = at.emit("Add", at.each("Exp", x), at.each("Exp", at.emit("Mul", x, -1.0)))
    return at.emit("Mul", both, 0.5)


def where(at: At, a: Arguments) -> Value:
    condition, other = a["condition"], a["other"]
    if hasattr(condition, "any") and isinstance(other, Value) and not bool(condition.any()):
        # some frameworks multiply, and the array that is not taken may be NaN
        return at.expand(other, at.shape)
    return at.emit("Where", condition, a["self"], other)


def negated(at: At, x: Any) -> Value:
    return at.emit("Equal", x, 0.0)


def to_dtype(at: At, a: Arguments) -> Any:
    """Read a cast; between floating-point types nothing changes, since the graph has one precision."""
    x, dtype = a.get("self", a.get("input")), at.node.meta["val"].dtype
    return at.value(x) if dtype.is_floating_point or not isinstance(x, Value) else x


UNARY = ("Abs", "Cos", "Detach", "Erf", "Exp", "Log", "ReLU", "Sigmoid", "Sign", "SiLU", "Sin", "Sqrt", "Tanh")
HANDLERS: Dict[str, Handler] = {
    **{op.lower(): unary(op) for op in UNARY},
    **{op.lower(): binary(op) for op in ("Add", "Sub", "Mul", "Div", "Maximum", "Minimum")},
    "rsqrt": unary("Power", exponent=-0.5),
    "reciprocal": unary("Power", exponent=-1.0),
    "neg": lambda at, a: at.emit("Mul", a.get("self", a.get("input")), -1.0),
    "pow": power,
    "leaky_relu": lambda at, a: at.each("LeakyReLU", a["self"], slope=float(a["negative_slope"])),
    "elu": elu,
    "softplus": softplus,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh"), clamp),
    "rsub": binary("Sub", swapped=True),
    "eq": binary("Equal"),
    "ne": lambda at, a: negated(at, binary("Equal")(at, a)),
    "lt": binary("Less"),
    "gt": binary("Less", swapped=True),
    "le": binary("LessEqual"),
    "ge": binary("LessEqual", swapped=True),
    **dict.fromkeys(("logical_not", "bitwise_not"), lambda at, a: negated(at, a["self"])),
    **dict.fromkeys(("logical_and", "bitwise_and", "__and__"), binary("Mul")),
    **dict.fromkeys(("logical_or", "bitwise_or", "__or__"), binary("Maximum")),
    "where": where,
    "masked_fill": lambda at, a: at.emit("Where", a["mask"], a["value"], a["self"]),
    "isnan": lambda at, a: at.torch.zeros(at.shape, dtype=at.torch.bool),  # what trains has none
    "cosh": cosh,
    "broadcast_tensors": broadcast,
    "sum": reduction("ReduceSum"),
    "mean": reduction("ReduceMean"),
    **dict.fromkeys(("amax", "max", "any"), reduction("ReduceMax")),
    **dict.fromkeys(("amin", "min"), reduction("ReduceMax", turned=True)),
    "var": variance,
    **dict.fromkeys(("linalg_vector_norm", "norm"), vector_norm),
    "logsumexp": log_sum_exp,
    "log1p": lambda at, a: at.each("Log", at.emit("Add", a["self"], 1.0)),
    "expm1": lambda at, a: at.emit("Sub", at.each("Exp", a["self"]), 1.0),
    **dict.fromkeys(("softmax", "_softmax"), along("Softmax")),
    **dict.fromkeys(("log_softmax", "_log_softmax"), along("LogSoftmax")),
    "cumsum": along("CumSum"),
    **dict.fromkeys(("to", "_to_copy", "type_as", "float"), to_dtype),
    "lift_fresh_copy": lambda at, a: a["self"],
}
