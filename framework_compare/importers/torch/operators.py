"""Each ATen operator in the graph, where it is a layer. A handler: (place, arguments by name) -> Value.

Operators that only fold and permute axes make no node: see `common.views`.
"""

import math
from typing import Any, Dict, List, NamedTuple, NoReturn, Sequence, Tuple

from framework_compare.graph import window
from framework_compare.graph.node import conv_attrs, linear_attrs, window_attrs
from framework_compare.importers.common.graph_reader import GraphReader
from framework_compare.importers.common.views import BATCH, Atom, NotExpressible, Value, View, moved, whole
from framework_compare.importers.torch.operands import Arguments, At, Handler
from framework_compare.json_types import JSON, Fields

FLOAT32_EPS = 2.0**-23  # of a norm without one of its own


class Mask(NamedTuple):
    """Random ones with a share `keep`, zeros else, perhaps divided by that share."""

    keep: float
    shape: Tuple[int, ...]
    divided: bool = False


def refuse(kind: str, why: str) -> NoReturn:
    raise NotExpressible(f"{kind} {why}")


def pair(value: JSON, default: JSON = None) -> List[int]:
    value = default if value in (None, []) else value
    listed = list(value) if isinstance(value, (list, tuple)) else [value, value]
    return [int(one) for one in (listed * 2 if len(listed) == 1 else listed)]


def conv2d(at: At, a: Arguments) -> Value:
    weight, bias, groups = a["weight"], a["bias"], a["groups"]
    out, into, *kernel = at.own("Conv2d", "weight", weight).shape
    dilation = pair(a["dilation"], 1)
    steps: Fields = {
        "stride": pair(a["stride"], 1),
        "padding": _padding(a["padding"], kernel, dilation),
        "dilation": dilation,
    }
    attrs = conv_attrs(into * groups, out, kernel, groups=groups, bias=bias is not None, **steps)
    source = at.reader.image(a["input"])
    return at.layer("Conv2d", [source], attrs, weight=weight, bias=bias)


def _padding(given: Any, kernel: Sequence[int], dilation: Sequence[int]) -> List[int]:
    """Return pads of height and width, or of all four sides where torch's "same" needs unequal ones."""
    if not isinstance(given, str):
        return pair(given, 0)
    if given == "valid":
        return [0, 0]
    totals = [d * (k - 1) for k, d in zip(kernel, dilation)]
    if any(total % 2 for total in totals):
        return [part for total in totals for part in (total // 2, total - total // 2)]
    return [total // 2 for total in totals]


def linear(at: At, a: Arguments) -> Value:
    out, into = at.own("Linear", "weight", a["weight"]).shape
    attrs = linear_attrs(into, out, bias=a["bias"] is not None)
    return at.on_features("Linear", a["input"], attrs, weight=a["weight"], bias=a["bias"])


def batch_norm(at: At, a: Arguments) -> Value:
    arrays = {part: a[part] for part in ("weight", "bias", "running_mean", "running_var")}
    absent = [name for name, array in arrays.items() if array is None]
    if absent:
        refuse("BatchNorm", f"without {' and '.join(absent)}")
    if len(a["input"].shape) != 4:
        refuse("BatchNorm", f"of {len(a['input'].shape)} axes")
    if not a["training"]:
        refuse("BatchNorm", "that stays in evaluation mode in training")
    attrs = {"channels": a["input"].shape[1], "momentum": a["momentum"], "eps": a["eps"]}
    return at.layer("BatchNorm2d", [at.reader.image(a["input"])], attrs, **arrays)


def layer_norm(at: At, a: Arguments) -> Value:
    if a["weight"] is None or a["bias"] is None:
        refuse("LayerNorm", "without scale or shift")
    if len(a["normalized_shape"]) != 1:
        refuse("LayerNorm", f"over {len(a['normalized_shape'])} axes")
    attrs = {"features": a["normalized_shape"][0], "eps": a["eps"]}
    return at.on_features("LayerNorm", a["input"], attrs, weight=a["weight"], bias=a["bias"])


def rms_norm(at: At, a: Arguments) -> Value:
    if a["weight"] is None or len(a["normalized_shape"]) != 1:
        refuse("RMSNorm", "without a scale, or over several axes")
    eps = FLOAT32_EPS if a["eps"] is None else a["eps"]
    attrs = {"features": a["normalized_shape"][0], "eps": eps}
    return at.on_features("RMSNorm", a["input"], attrs, weight=a["weight"])


def unary(op: str, **attrs: JSON) -> Handler:
    return lambda at, a: at.each(op, a.get("self", a.get("input")), **attrs)


def hardtanh(at: At, a: Arguments) -> Value:
    if (a["min_val"], a["max_val"]) != (0, 6):
        refuse("Hardtanh", f"from {a['min_val']} to {a['max_val']}")
    return at.elementwise("ReLU6", a["self"], {})


def dropout(at: At, a: Arguments) -> Any:
    x = a.get("input", a.get("self"))  # torch calls it so in place
    return at.elementwise("Dropout", x, {"p": a["p"]}) if a["train"] and a["p"] else x


def max_pool2d(at: At, a: Arguments) -> Value:
    if pair(a["dilation"], 1) != [1, 1]:
        refuse("MaxPool2d", "with dilation")
    return at.layer("MaxPool2d", [at.reader.image(a["self"])], _pooling(a))


def max_pool2d_with_indices(at: At, a: Arguments) -> Any:
    return [max_pool2d(at.sized(at.node.meta["val"][0].shape), a), None]


def avg_pool2d(at: At, a: Arguments) -> Value:
    if a["divisor_override"]:
        refuse("AvgPool2d", "with a divisor of its own")
    attrs = {**_pooling(a), "count_include_pad": bool(a["count_include_pad"])}
    return at.layer("AvgPool2d", [at.reader.image(a["self"])], attrs)


def _pooling(a: Arguments) -> Fields:
    """ceil_mode is left out where it makes no other size."""
    kernel = pair(a["kernel_size"])
    stride, padding = pair(a["stride"], kernel), pair(a["padding"], 0)
    rest = [(n + 2 * p - k) % s for n, p, k, s in zip(a["self"].shape[2:], padding, kernel, stride)]
    ceil = {"ceil_mode": True} if a["ceil_mode"] and any(rest) else {}
    return {**window_attrs(kernel, stride, padding), **ceil}


def adaptive_avg_pool2d(at: At, a: Arguments) -> Value:
    output = list(at.shape[2:])
    if tuple(a["self"].shape) == at.shape:
        return a["self"]
    return at.layer("AdaptiveAvgPool2d", [at.reader.image(a["self"])], {"output": window.plain(output)})


def mean(at: At, a: Arguments) -> Value:
    """Over the pixels of an image, or the steps of a sequence."""
    x, reader = a["self"], at.reader
    axes = {axis % len(x.shape) for axis in a.get("dim") or []}
    shape = reader.shapes[x.node]
    gone = [1, 2] if len(shape) == 3 else [0]
    reduced = sorted(atom for axis in axes for atom in x.view[axis])
    if reduced != sorted(atom for axis in gone for atom in whole(axis, shape[axis])) or len(shape) not in (2, 3):
        refuse("mean", f"over axes {sorted(axes)} of {x.shape}")
    left: View = tuple(() if axis in axes else group for axis, group in enumerate(x.view))
    if not a["keepdim"]:
        left = tuple(group for axis, group in enumerate(left) if axis not in axes)
    if len(shape) == 3:
        if shape[1:] == (1, 1):
            return Value(x.node, left)
        return Value(at.add("AdaptiveAvgPool2d", [x.node], {"output": 1}), left)
    return Value(at.add("GlobalAvgPool", [x.node], {}), moved(left, (None, 0)))


def transpose(at: At, a: Arguments) -> Any:
    order = list(range(len(a["self"].shape)))
    first, second = (a[name] for name in a if name != "self")
    order[first], order[second] = order[second], order[first]
    return at.permute(a["self"], order)


def sum_of(at: At, a: Arguments, times: Any) -> Any:
    other = a["other"]
    if times != 1:
        known = isinstance(other, (int, float, at.torch.Tensor))
        other = other * times if known else at.binary("Mul", other, times)
    return at.binary("Add", a["self"], other)


def mul(at: At, a: Arguments) -> Any:
    first, second = a["self"], a["other"]
    if isinstance(first, Mask):
        first, second = second, first
    if isinstance(second, Mask):
        return stochastic_depth(at, first, second)
    return at.binary("Mul", first, second)


def stochastic_depth(at: At, x: Value, mask: Mask) -> Value:
    if mask.divided and tuple(mask.shape) == tuple(x.shape) and 0 < mask.keep < 1:
        return at.elementwise("Dropout", x, {"p": round(1 - mask.keep, 9)})
    rows = mask.shape[0] == at.reader.batch and all(size == 1 for size in mask.shape[1:])
    if not rows or not mask.divided:
        refuse("StochasticDepth", "of a whole batch" if not rows else "that does not scale what is left")
    return at.elementwise("StochasticDepth", x, {"p": round(1 - mask.keep, 9)}) if mask.keep < 1 else x


def div(at: At, a: Arguments) -> Any:
    x, by = a["self"], a["other"]
    if isinstance(x, Mask):
        return x._replace(divided=True) if by == x.keep else refuse("a random mask", f"divided by {by}")
    if isinstance(by, Value) or hasattr(by, "target"):
        refuse("division", "by what is computed")
    return at.binary("Mul", x, 1 / by)


def bernoulli(at: At, a: Arguments) -> Mask:
    keep = a.get("p")
    if keep is None or isinstance(a["self"], Value):
        refuse("bernoulli", "of computed shares")
    return Mask(keep, at.shape, divided=keep == 1)


def chunk(at: At, a: Arguments) -> List[Value]:
    sizes = [one.shape[a["dim"]] for one in at.node.meta["val"]]
    return [at.part(a["self"], a["dim"], sizes, index) for index in range(len(sizes))]


def slice_(at: At, a: Arguments) -> Any:
    x, axis = a["self"], a["dim"] % len(a["self"].shape)
    start, end, step = slice(a["start"], a["end"], a["step"]).indices(x.shape[axis])
    if (start, step) == (0, 1) and end >= x.shape[axis]:
        return x
    axis, size = _whole_axis(at.reader, "Slice", x, axis)
    attrs = {"axis": axis, "start": start, "end": end, **({} if step == 1 else {"step": step})}
    made = at.add("Slice", [x.node], attrs)
    return at.resized(x, made)


def _whole_axis(reader: GraphReader, kind: str, value: Value, axis: int) -> Tuple[int, int]:
    """The axis of the graph that one of the program's is, and its size."""
    group = value.view[axis]
    if len(group) == 1 and group[0].axis != BATCH:
        atom: Atom = group[0]
        if group == whole(atom.axis, reader.shapes[value.node][atom.axis]):
            return atom.axis, atom.size
    raise NotExpressible(f"{kind} along axis {axis} of {value.shape}")


def pad(at: At, a: Arguments) -> Value:
    x, amounts = a["self"], list(a["pad"])
    if a.get("mode", "constant") != "constant":
        refuse("Pad", f"of mode {a['mode']!r}")
    sides = {}
    for place in range(len(amounts) // 2):
        if any(amounts[2 * place : 2 * place + 2]):
            sides[_whole_axis(at.reader, "Pad", x, len(x.shape) - 1 - place)[0]] = amounts[2 * place : 2 * place + 2]
    if not sides:
        return x
    if any(amount < 0 for side in sides.values() for amount in side):
        refuse("Pad", "by less than 0")
    if len(at.reader.shapes[x.node]) != 3 or 0 in sides:
        refuse("Pad", f"of {x.shape}")
    value = a.get("value") or 0
    if math.isinf(value):
        refuse("MaxPool2d", "with unequal padding of values that may be negative")
    padding = [*sides.get(1, [0, 0]), *sides.get(2, [0, 0])]
    attrs = {"padding": padding, **({"value": value} if value else {})}
    return at.resized(x, at.add("Pad", [x.node], attrs))


def roll(at: At, a: Arguments) -> Value:
    x, shifts = a["self"], {}
    for shift, axis in zip(a["shifts"], a["dims"]):
        shifts[_whole_axis(at.reader, "Roll", x, axis)[0]] = shift
    if len(at.reader.shapes[x.node]) != 3 or 0 in shifts:
        refuse("Roll", f"of {x.shape}")
    return Value(at.add("Roll", [x.node], {"shifts": [shifts.get(1, 0), shifts.get(2, 0)]}), x.view)


def expand(at: At, a: Arguments) -> Any:
    """Nothing where what reads it broadcasts anyway, or where it is repeated for the batch alone."""
    x, shape = a["self"], at.shape
    own = (*[1] * (len(shape) - len(x.shape)), *x.shape)
    users = {operator_name(user.target) for user in at.node.users}
    learned = isinstance(x, Value) or hasattr(x, "target")
    if (own[1:] != shape[1:] and users - {*BROADCASTS}) or (own != shape and learned and users - {*BROADCASTS, *JOINS}):
        refuse("expand", f"of {tuple(x.shape)} to {shape}")
    return at.expand(x, shape)


JOINS = ("cat", "concat")
BROADCASTS = (
    *("add", "sub", "mul", "div", "where", "masked_fill", "maximum", "minimum"),
    *("eq", "ne", "lt", "gt", "le", "ge"),
)


def operator_name(target: object) -> str:
    """The name of what a node calls, "add" of aten::add_.Tensor."""
    schema = getattr(target, "_schema", None)
    return schema.name.partition("::")[2].rstrip("_") if schema is not None else str(getattr(target, "__name__", ""))


def detach(at: At, a: Arguments) -> Any:
    """Nothing, where no gradient is needed: of a mask, and of the images in whatever form."""
    x = a["self"]
    if not isinstance(x, Mask) and getattr(x, "node", None) not in at.reader.inputs:
        refuse("detach", "of what is trained")
    return x


UNARY = ("HardSigmoid", "HardSwish", "ReLU", "ReLU6", "Sigmoid", "SiLU", "Tanh")
THROUGH = ("alias", "clone", "contiguous")
VIEWS = ("flatten", "reshape", "reshape_as", "squeeze", "unflatten", "unsqueeze", "view", "view_as")
HANDLERS: Dict[str, Handler] = {
    **{op.lower(): unary(op) for op in UNARY},
    **dict.fromkeys(THROUGH, lambda at, a: a.get("self", a.get("input"))),
    # the same numbers in another shape
    **dict.fromkeys(VIEWS, lambda at, a: at.reshape(a.get("self", a.get("input")), at.shape)),
    # of a parameter to the batch, or of nothing: what is computed with broadcasts by itself
    **dict.fromkeys(("expand", "expand_as"), expand),
    **dict.fromkeys(JOINS, lambda at, a: at.concat(a["tensors"], a["dim"])),
    **dict.fromkeys(("chunk", "split", "split_with_sizes"), chunk),
    **dict.fromkeys(("constant_pad_nd", "pad"), pad),
    **dict.fromkeys(("swapaxes", "transpose"), transpose),
    **dict.fromkeys(("adaptive_avg_pool2d", "_adaptive_avg_pool2d"), adaptive_avg_pool2d),
    "add": lambda at, a: sum_of(at, a, a.get("alpha", 1)),
    "avg_pool2d": avg_pool2d,
    "batch_norm": batch_norm,
    "bernoulli": bernoulli,
    "channel_shuffle": lambda at, a: at.layer("ChannelShuffle", [at.reader.image(a["self"])], {"groups": a["groups"]}),
    "conv2d": conv2d,
    "detach": detach,
    "div": div,
    "dropout": dropout,
    "gelu": lambda at, a: at.elementwise("GELU", a["self"], {"approximate": a["approximate"]}),
    "hardtanh": hardtanh,
    "layer_norm": layer_norm,
    "linear": linear,
    "max_pool2d": max_pool2d,
    "max_pool2d_with_indices": max_pool2d_with_indices,
    "mean": mean,
    "mul": mul,
    "permute": lambda at, a: at.permute(a["self"], a["dims"]),
    "rms_norm": rms_norm,
    "roll": roll,
    "select": lambda at, a: at.select(a["self"], a["dim"], a["index"]),
    "slice": slice_,
    "sub": lambda at, a: sum_of(at, a, -a.get("alpha", 1)),
    "t": lambda at, a: at.permute(a["self"], range(len(a["self"].shape))[::-1]),
    "unbind": lambda at, a: [at.select(a["self"], a["dim"], index) for index in range(a["self"].shape[a["dim"]])],
}
