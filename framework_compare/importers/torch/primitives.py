"""ATen operators that are no layer, as primitives; what is not here is decomposed into core operators, which are.

A handler: (reading, the program's node, arguments by name) -> Value, or a list of them.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from framework_compare.graph import window
from framework_compare.importers.common.axes import (
    Operand,
    as_group,
    common_patterns,
    is_batch,
    materialised,
    pattern,
    program_axes,
    reshaped_node,
    sizes_in,
    without_repeats,
)
from framework_compare.importers.common.reading import conv_attrs, filled
from framework_compare.importers.common.views import BATCH, NotExpressible, Value, whole
from framework_compare.importers.torch.operators import HANDLERS as LAYERS
from framework_compare.importers.torch.operators import Arguments, Handler, pair, refuse, shape_of

LARGE = 1e30  # in place of infinity, which no gradient passes


# -- operands --------------------------------------------------------------------------------------------------------------


def value_of(reading: Any, node: Any, x: Any) -> Value:
    """An operand as a value: a parameter becomes a node of its own, a constant one that is not trained."""
    if isinstance(x, Value):
        return numbers(reading, x)
    (name,), (view, _) = joined(reading, node, [x])
    return Value(name, view)


def numbers(reading: Any, value: Value) -> Value:
    """Whole numbers become those that the network computes with."""
    if value.node not in reading.whole_numbers:
        return value
    return Value(reading.reader.once(f"{value.node}.numbers", "Cast", [value.node], {}), value.view)


def operand(reading: Any, x: Any) -> Operand:
    if isinstance(x, Value):
        return Operand(materialised(reading.reader, numbers(reading, x)))
    if hasattr(x, "target"):
        return Operand(None, x)
    array = np.asarray(x.detach().cpu().numpy() if hasattr(x, "detach") else x)
    return Operand(None, np.asarray(np.clip(array.astype(np.float64), -LARGE, LARGE)))


def joined(reading: Any, node: Any, given: Sequence[Any]) -> Any:
    """Nodes of one rank, whose axes stand alike; the view of what they give together, by the shape of its node."""
    reader, operands = reading.reader, [operand(reading, x) for x in given]
    rank = max(len(one.shape) for one in operands)
    patterns = common_patterns(reader, operands, rank)
    names = []
    for one in operands:
        sizes, repeats = sizes_in(one, patterns, reader.batch)
        names.append(_node_of(reading, node, one, sizes, repeats, patterns))
    sizes = [max(column) for column in zip(*(reader.shapes[name] for name in names))]
    return names, (program_axes(reader, patterns, sizes), patterns)


def _node_of(reading: Any, node: Any, one: Operand, sizes: Any, repeats: Any, patterns: Any) -> str:
    reader = reading.reader
    if one.value is not None:
        return reshaped_node(reader, one.value.node, sizes)
    if isinstance(one.array, np.ndarray):
        array = without_repeats(one.array, repeats, patterns, reader.batch)
        return reading.constant_node(node, array.reshape(tuple(sizes)))
    if math.prod(one.array.shape) != math.prod(sizes):
        raise NotExpressible("a parameter that differs among the samples of a batch")
    attrs = {"shape": list(sizes), "init": "normal_0.02"}
    return reading.node(node, "Parameter", [], attrs, value=one.array.through(lambda t: t.reshape(tuple(sizes))))


def emit(reading: Any, node: Any, op: str, *given: Any, **attrs: Any) -> Value:
    """A primitive of values that broadcast."""
    names, (view, _) = joined(reading, node, given)
    return Value(reading.node(node, op, names, attrs), view)


def unary(op: str, **attrs: Any) -> Handler:
    return lambda reading, node, a: each(reading, node, op, a.get("self", a.get("input")), **attrs)


def each(reading: Any, node: Any, op: str, x: Any, **attrs: Any) -> Value:
    """An op to which it does not matter how axes are folded."""
    x = value_of(reading, node, x)
    return Value(reading.node(node, op, [x.node], attrs), x.view)


def binary(op: str, swapped: bool = False) -> Handler:
    def handler(reading: Any, node: Any, a: Arguments) -> Value:
        first, second = a["self"], a["other"]
        if a.get("alpha", 1) != 1:
            second = second * a["alpha"] if isinstance(second, (int, float)) else emit(reading, node, "Mul", second, a["alpha"])
        if a.get("rounding_mode"):
            refuse("division", "that rounds")
        return emit(reading, node, op, *((second, first) if swapped else (first, second)))

    return handler


def where(reading: Any, node: Any, condition: Any, first: Any, second: Any) -> Value:
    return emit(reading, node, "Where", condition, first, second)


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


# -- reductions, and what goes along one axis --------------------------------------------------------------------------------


def reduced(reading: Any, node: Any, op: str, x: Any, dims: Any = None, keepdim: bool = False) -> Value:
    """Over axes of the program, none of which has the batch."""
    x = materialised(reading.reader, value_of(reading, node, x))
    rank = len(x.shape)
    dims = [dims] if isinstance(dims, int) else list(dims or range(rank))
    dims = {dim % rank for dim in dims} if rank else set()
    axes = [axis_of(x, dim) for dim in sorted(dims)]
    made = reading.node(node, op, [x.node], {"axes": axes}) if axes else x.node
    view = tuple(() if dim in dims else group for dim, group in enumerate(x.view))
    return Value(made, view if keepdim else tuple(group for dim, group in enumerate(view) if dim not in dims))


def axis_of(value: Value, dim: int) -> int:
    """The node's axis that one of the program's is, of a value that is materialised."""
    dim %= len(value.view)
    if any(atom.axis == BATCH for atom in value.view[dim]):
        raise NotExpressible("an operation across the samples of a batch")
    return sum(not is_batch(group) for group in value.view[:dim])


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


def along(op: str) -> Handler:
    def handler(reading: Any, node: Any, a: Arguments) -> Value:
        x = materialised(reading.reader, value_of(reading, node, a["self"]))
        return Value(reading.node(node, op, [x.node], {"axis": axis_of(x, a["dim"])}), x.view)

    return handler


def normal(reading: Any, node: Any, x: Any, dims: Sequence[int], eps: float) -> Value:
    """With mean 0 and variance 1 over these axes."""
    apart = emit(reading, node, "Sub", x, reduced(reading, node, "ReduceMean", x, dims, True))
    mean = reduced(reading, node, "ReduceMean", emit(reading, node, "Mul", apart, apart), dims, True)
    root = each(reading, node, "Sqrt", emit(reading, node, "Add", mean, eps))
    return emit(reading, node, "Div", apart, root)


def affine(reading: Any, node: Any, x: Value, weight: Any, bias: Any, shape: Sequence[int]) -> Value:
    """Times one array and plus another, in a shape that meets the value's."""
    for op, array in (("Mul", weight), ("Add", bias)):
        if array is not None:
            x = emit(reading, node, op, x, reading.reshape(array, tuple(shape)))
    return x


def layer_norm(reading: Any, node: Any, a: Arguments) -> Value:
    shape = a["normalized_shape"]
    x = normal(reading, node, a["input"], range(-len(shape), 0), a["eps"])
    return affine(reading, node, x, a["weight"], a["bias"], shape)


def group_norm(reading: Any, node: Any, a: Arguments) -> Value:
    x, groups = a["input"], a.get("num_groups", a["input"].shape[1])
    if a.get("running_mean") is not None:
        refuse("InstanceNorm", "with running statistics")
    channels, rank = x.shape[1], len(x.shape)
    if a["weight"] is not None and a["bias"] is not None and rank == 4:
        attrs = {"groups": groups, "channels": channels, "eps": a["eps"]}
        source = reading.reader.image(materialised(reading.reader, x))
        return reading.layer(node, "GroupNorm", [source], attrs, weight=a["weight"], bias=a["bias"])
    cut = reading.reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    y = reading.reshape(materialised(reading.reader, normal(reading, node, cut, [2], a["eps"])), x.shape)
    return affine(reading, node, y, a["weight"], a["bias"], (channels, *[1] * (rank - 2)))


def batch_norm(reading: Any, node: Any, a: Arguments) -> Value:
    """Of vectors and sequences as of images."""
    x = a["input"]
    count, channels, *places = x.shape
    if len(places) > 1:
        refuse("BatchNorm", f"of {len(x.shape)} axes")
    image = reading.reshape(materialised(reading.reader, x), (count, channels, *places, *[1] * (2 - len(places))))
    image = materialised(reading.reader, image)
    made = LAYERS["batch_norm"](reading, _Sized(node, image.shape), {**a, "input": image})
    return reading.reshape(materialised(reading.reader, made), x.shape)


class _Sized:
    """A node of the program, as if its output had another shape."""

    def __init__(self, node: Any, shape: Sequence[int]) -> None:
        self.node, self.name, self.target = node, node.name, node.target
        self.meta = {**node.meta, "val": np.broadcast_to(np.float32(0), tuple(shape))}


# -- products --------------------------------------------------------------------------------------------------------------


def matmul(reading: Any, node: Any, first: Any, second: Any) -> Value:
    """Of torch's shapes: a vector is one row or one column."""
    ranks = len(first.shape), len(second.shape)
    if ranks[0] > 1 and ranks[1] == 2 and isinstance(first, Value) and hasattr(second, "target"):
        try:
            return LAYERS["linear"](
                reading, node, {"input": first, "weight": reading.permute(second, (1, 0)), "bias": None}
            )
        except NotExpressible:
            pass
    first = reading.reshape(first, (1, *first.shape)) if ranks[0] == 1 else first
    second = reading.reshape(second, (*second.shape, 1)) if ranks[1] == 1 else second
    rank = max(len(first.shape), len(second.shape))
    first, second = (value_of(reading, node, x) if not isinstance(x, Value) else numbers(reading, x) for x in (first, second))
    reader = reading.reader
    pairs = [materialised(reader, x) for x in (first, second)]
    if any(atom.axis == BATCH for group in (pairs[0].view[-1], pairs[1].view[-2]) for atom in group):
        raise NotExpressible("a product across the samples of a batch")
    outer = [Operand(Value(one.node, one.view[:-2])) for one in pairs]
    patterns = common_patterns(reader, outer, rank - 2)
    own = [pattern(pairs[0].view[-2]) or (False,), pattern(pairs[1].view[-1]) or (False,)]  # of rows and columns
    if sum(True in how for how in (*patterns, *own)) > 1:
        raise NotExpressible("a product of all samples of a batch with all")
    names = []
    for one, lead, how, place in zip(pairs, outer, own, (-2, -1)):
        sizes, _ = sizes_in(lead, patterns, reader.batch)
        inner = [_size_of(group) for group in one.view[-2:] if not is_batch(group)]
        if how == (True,):  # each sample is a row, or a column, by itself
            inner.insert(0 if place == -2 else 1, 1)
        names.append(reshaped_node(reader, one.node, (*sizes, *inner)))
    made = reading.node(node, "MatMul", names, {"inner": reader.shapes[names[0]][-1]})
    shape = list(reader.shapes[made])
    kept = [*shape[:-2], *(size for size, how in zip(shape[-2:], own) if how != (True,))]
    view = program_axes(reader, [*patterns, *own], kept)
    made = reshaped_node(reader, made, kept)
    view = view[:-2] + view[-1:] if ranks[0] == 1 else view
    return Value(made, view[:-1] if ranks[1] == 1 else view)


def _size_of(group: Any) -> int:
    return math.prod(atom.size for atom in group if atom.axis != BATCH)


def attention(reading: Any, node: Any, a: Arguments) -> Value:
    """softmax(scale q k' + mask) v, where no layer is for it: with a dropout, or heads that stand in another way."""
    q, k, v = (value_of(reading, node, a[name]) for name in ("query", "key", "value"))
    if a.get("enable_gqa"):
        times = q.shape[-3] // k.shape[-3]
        heads = [head for head in range(k.shape[-3]) for _ in range(times)]
        k, v = (taken(reading, node, x, -3, heads) for x in (k, v))
    scale = a["scale"] if a.get("scale") is not None else 1 / math.sqrt(q.shape[-1])
    order = [*range(len(k.shape) - 2), len(k.shape) - 1, len(k.shape) - 2]
    scores = emit(reading, node, "Mul", matmul(reading, node, q, reading.permute(k, order)), float(scale))
    mask = a.get("attn_mask")
    if a.get("is_causal"):
        mask = reading.torch.ones(q.shape[-2], k.shape[-2], dtype=reading.torch.bool).tril()
    if getattr(mask, "dtype", None) == reading.torch.bool or a.get("mask_is_bool"):
        scores = where(reading, node, mask, scores, -LARGE)
    elif mask is not None:
        scores = emit(reading, node, "Add", scores, mask)
    shares = along("Softmax")(reading, node, {"self": scores, "dim": -1})
    if a.get("dropout_p"):
        shares = Value(reading.node(node, "Dropout", [shares.node], {"p": a["dropout_p"]}), shares.view)
    return matmul(reading, node, shares, v)


def addmm(reading: Any, node: Any, a: Arguments) -> Value:
    """bias + x W, which is a Linear where bias and W are parameters."""
    if a.get("beta", 1) != 1 or a.get("alpha", 1) != 1:
        refuse("addmm", "with factors")
    first, second = (a["mat1"], a["mat2"]) if "mat1" in a else (a["batch1"], a["batch2"])
    if hasattr(second, "target") and hasattr(a["self"], "target") and isinstance(first, Value):
        weight = reading.permute(second, (1, 0))
        try:
            return LAYERS["linear"](reading, node, {"input": first, "weight": weight, "bias": a["self"]})
        except NotExpressible:
            pass
    return emit(reading, node, "Add", matmul(reading, node, first, second), a["self"])


def linear(reading: Any, node: Any, a: Arguments) -> Value:
    weight = a["weight"]
    order = (*range(len(weight.shape) - 2), len(weight.shape) - 1, len(weight.shape) - 2)
    product = matmul(reading, node, a["input"], reading.permute(value_of(reading, node, weight), order))
    return product if a["bias"] is None else emit(reading, node, "Add", product, a["bias"])


def convolution(reading: Any, node: Any, a: Arguments) -> Value:
    """Of one or two axes, also transposed, also with a computed weight."""
    x, weight, groups = a["input"], a["weight"], a.get("groups", 1)
    rank = len(weight.shape) - 2
    kind = node.target._schema.name.partition("::")[2]
    transposed = bool(a.get("transposed")) or "transpose" in kind
    if rank > 2 or len(x.shape) != rank + 2:
        refuse("Conv3d" if rank > 2 else "convolution", f"of {x.shape}")
    steps = {name: _steps(a.get(name), rank, neutral) for name, neutral in _NEUTRAL.items() if name in a}
    if isinstance(a.get("padding"), str):
        spans = [d * (k - 1) for d, k in zip(steps["dilation"], weight.shape[2:])]
        sides = [[0, 0] if a["padding"] == "valid" else [n // 2, n - n // 2] for n in ([0] * (2 - rank) + spans)]
        steps["padding"] = [side for pads in sides for side in pads]
    if rank == 1:
        x = reading.reshape(materialised(reading.reader, x), (*x.shape[:2], 1, x.shape[2]))
        weight = reading.reshape(weight, (*weight.shape[:2], 1, weight.shape[2]))
    source = reading.reader.image(materialised(reading.reader, value_of(reading, node, x)))
    out = weight.shape[1] * groups if transposed else weight.shape[0]
    into = weight.shape[0] if transposed else weight.shape[1] * groups
    output_padding = steps.pop("output_padding", [0, 0])
    attrs = conv_attrs(into, out, list(weight.shape[2:]), groups=groups, bias=False, **steps)
    if not transposed and hasattr(weight, "target"):
        made = reading.node(
            node, "Conv2d", [source], {**attrs, "bias": a["bias"] is not None}, weight=weight, bias=a["bias"]
        )
        y = reading.reader.plain(made)
    else:
        kernel = materialised(reading.reader, value_of(reading, node, weight)).node
        more = {"output_padding": window.plain(output_padding)} if transposed else {}
        attrs = {name: attr for name, attr in attrs.items() if name not in ("bias", "init")}
        made = reading.node(node, "ConvTranspose" if transposed else "Convolve", [source, kernel], {**attrs, **more})
        y = affine(reading, node, reading.reader.plain(made), None, a["bias"], (out, 1, 1))
    return reading.reshape(materialised(reading.reader, y), shape_of(node))


_NEUTRAL = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}


def _steps(given: Any, rank: int, neutral: int) -> List[int]:
    if isinstance(given, str):
        return [neutral] * 2
    given = pair(given, neutral) if rank == 2 else [neutral, *(given if isinstance(given, (list, tuple)) else [given])]
    return [int(one) for one in given]


def pooled1d(kind: str) -> Handler:
    """Of a sequence (N, C, steps) as of an image of one row."""

    def handler(reading: Any, node: Any, a: Arguments) -> Value:
        x = a["self"]
        image = reading.reshape(materialised(reading.reader, x), (*x.shape[:2], 1, x.shape[2]))
        steps = {name: _steps(a[name], 1, 0 if name == "padding" else 1) for name in _POOLING if a.get(name)}
        if "output_size" in a:
            steps["output_size"] = _steps(a["output_size"], 1, 1)
        shape = shape_of(node)
        sized = _Sized(node, (*shape[:2], 1, shape[2]))
        made = LAYERS[kind](reading, sized, {"divisor_override": None, **_POOLED, **a, "self": image, **steps})
        return reading.reshape(materialised(reading.reader, made), shape)

    return handler


_POOLING = ("kernel_size", "stride", "padding", "dilation")
_POOLED = {"dilation": 1, "count_include_pad": True, "ceil_mode": False, "stride": None, "padding": 0}


def adaptive_max_pool(reading: Any, node: Any, a: Arguments) -> Any:
    x, rank = a["self"], len(a["self"].shape)
    size = a["output_size"] if isinstance(a["output_size"], (list, tuple)) else [a["output_size"]]
    places = x.shape[rank - len(size) :]
    if any(n % out for n, out in zip(places, size)):
        refuse("AdaptiveMaxPool", f"of {places} to {tuple(size)}")
    cut = [part for n, out in zip(places, size) for part in (out, n // out)]
    lead = x.shape[: rank - len(size)]
    y = reading.reshape(materialised(reading.reader, x), (*lead, *cut))
    inner = [len(lead) + 2 * axis + 1 for axis in range(len(size))]
    return [reduced(reading, node, "ReduceMax", y, inner), None]


# -- moves -----------------------------------------------------------------------------------------------------------------


def taken(reading: Any, node: Any, x: Any, dim: int, index: Sequence[int]) -> Value:
    """Places of an axis by their numbers; a run of them is a Slice."""
    x = materialised(reading.reader, x if isinstance(x, Value) else value_of(reading, node, x))
    axis, index = axis_of(x, dim), [int(place) for place in index]
    steps = set(np.diff(index).tolist()) or {1}
    if index == list(range(reading.reader.shapes[x.node][axis])):
        return x
    if len(steps) == 1 and min(steps) > 0:
        step = {} if steps == {1} else {"step": min(steps)}
        attrs: Dict[str, Any] = {"axis": axis, "start": index[0], "end": index[-1] + 1, **step}
        made = reading.node(node, "Slice", [x.node], attrs)
    else:
        made = reading.node(node, "Take", [x.node], {"axis": axis, "index": index})
    reading.keep_whole(x.node, made)
    patterns = [(True,) if is_batch(group) else (False,) for group in x.view]
    return Value(made, program_axes(reading.reader, patterns, reading.reader.shapes[made]))


def select(reading: Any, node: Any, a: Arguments) -> Value:
    dim = a["dim"] % len(a["self"].shape)
    one = taken(reading, node, a["self"], dim, [a["index"] % a["self"].shape[dim]])
    return Value(one.node, one.view[:dim] + one.view[dim + 1 :])


def slice_(reading: Any, node: Any, a: Arguments) -> Value:
    size = a["self"].shape[a["dim"]]
    return taken(reading, node, a["self"], a["dim"], range(*slice(a["start"], a["end"], a["step"]).indices(size)))


def parts(reading: Any, node: Any, a: Arguments) -> List[Value]:
    """chunk, split and split_with_sizes."""
    found, start = [], 0
    for one in node.meta["val"]:
        size = one.shape[a["dim"]]
        found.append(taken(reading, node, a["self"], a["dim"], range(start, start + size)))
        start += size
    return found


def unbind(reading: Any, node: Any, a: Arguments) -> List[Value]:
    return [select(reading, node, {**a, "index": place}) for place in range(a["self"].shape[a["dim"]])]


def flip(reading: Any, node: Any, a: Arguments) -> Value:
    x = a["self"]
    for dim in a["dims"]:
        x = taken(reading, node, x, dim, range(x.shape[dim])[::-1])
    return x


def roll(reading: Any, node: Any, a: Arguments) -> Value:
    x = a["self"]
    for shift, dim in zip(a["shifts"], a["dims"] or refuse("roll", "of a flattened value")):
        x = taken(reading, node, x, dim, [(place - shift) % x.shape[dim] for place in range(x.shape[dim])])
    return x


def pad(reading: Any, node: Any, a: Arguments) -> Value:
    """By a constant, also cutting; by what lies inside."""
    x, amounts, mode = value_of(reading, node, a["self"]), list(a["pad"]), a.get("mode", "constant")
    rank, sides = len(x.shape), []
    for place in range(len(amounts) // 2):
        before, behind = amounts[2 * place : 2 * place + 2]
        dim = rank - 1 - place
        size = x.shape[dim]
        if mode == "constant":
            x = taken(reading, node, x, dim, range(max(0, -before), size - max(0, -behind)))
            sides.append((dim, max(0, before), max(0, behind)))
        else:
            how = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
            x = taken(reading, node, x, dim, np.pad(np.arange(size), (before, behind), mode=how))
    x = materialised(reading.reader, x)
    pads = [[0, 0] for _ in reading.reader.shapes[x.node]]
    for dim, before, behind in sides:
        if before or behind:
            pads[axis_of(x, dim)] = [before, behind]
    if not any(map(any, pads)):
        return x
    value = float(np.clip(a.get("value") or 0, -LARGE, LARGE))
    made = reading.node(node, "PadAxes", [x.node], {"pads": pads, **({"value": value} if value else {})})
    patterns = [(True,) if is_batch(group) else (False,) for group in x.view]
    return Value(made, program_axes(reading.reader, patterns, reading.reader.shapes[made]))


def concat(reading: Any, node: Any, operands: Sequence[Any], dim: int) -> Value:
    operands = [one for one in operands if math.prod(one.shape)]
    values = [operand(reading, one) for one in operands]
    rank = len(operands[0].shape)
    patterns = common_patterns(reading.reader, values, rank)
    if True in patterns[dim % rank]:
        raise NotExpressible("samples of a batch joined to others")
    names = []
    for one in values:
        sizes, repeats = sizes_in(one, patterns, reading.reader.batch)
        names.append(_node_of(reading, node, one, sizes, repeats, patterns))
    axis = sum(how != (True,) for how in patterns[: dim % rank])
    shape = reading.reader.shapes[names[0]]
    feature = 0 if len(shape) == 3 else len(shape) - 1
    made = reading.node(node, "Concat", names, {} if axis == feature else {"axis": axis})
    return Value(made, program_axes(reading.reader, patterns, reading.reader.shapes[made]))


def stack(reading: Any, node: Any, a: Arguments) -> Value:
    dim = a["dim"] % len(shape_of(node))
    lifted = [reading.reshape(one, (*one.shape[:dim], 1, *one.shape[dim:])) for one in a["tensors"]]
    return concat(reading, node, lifted, dim)


def expand(reading: Any, node: Any, a: Arguments) -> Any:
    """Repeated as it is said: what is folded afterwards is no broadcast."""
    shape = shape_of(node)
    x = materialised(reading.reader, value_of(reading, node, a["self"]))
    groups = filled(x.view, len(shape))
    sizes = [size for size, group in zip(shape, groups) if not is_batch(group)]
    if not any(is_batch(group) for group in groups) and shape and shape[0] == reading.reader.batch:
        groups, sizes = ((*whole(BATCH, reading.reader.batch),), *groups[1:]), list(shape[1:])
    flat = [group_size for group, group_size in zip(groups, _own_sizes(reading, x, len(shape))) if not is_batch(group)]
    name = reshaped_node(reading.reader, x.node, flat)
    if tuple(sizes) != reading.reader.shapes[name]:
        name = reading.node(node, "Expand", [name], {"shape": sizes})
    patterns = [(True,) if is_batch(group) else (False,) for group in groups]
    return Value(name, program_axes(reading.reader, patterns, sizes))


def _own_sizes(reading: Any, x: Value, rank: int) -> List[int]:
    """Sizes of a value's axes, with those that are missing in front."""
    return [1] * (rank - len(x.view)) + list(x.shape)


def repeat(reading: Any, node: Any, a: Arguments) -> Any:
    times = a["repeats"] if "repeats" in a else a["dims"]
    x = a["self"]
    x = reading.reshape(x, (*[1] * (len(times) - len(x.shape)), *x.shape))
    times = [1] * (len(x.shape) - len(times)) + list(times)
    for dim, count in enumerate(times):
        if count > 1 and not (dim == 0 and count == reading.reader.batch and x.shape[0] == 1):
            x = taken(reading, node, x, dim, [*range(x.shape[dim])] * count)
    return x


def index(reading: Any, node: Any, a: Arguments) -> Value:
    """By arrays of constants, in axes that stand side by side; or rows of a table by a value."""
    x, places = a["self"], list(a["indices"])
    used = [dim for dim, place in enumerate(places) if place is not None]
    if len(used) == 1 and isinstance(places[used[0]], Value) and used == [0]:
        return gather(reading, node, x, places[0])
    arrays = [np.asarray(places[dim].cpu()) for dim in used]
    if any(array.dtype == bool for array in arrays) or used != list(range(used[0], used[0] + len(used))):
        refuse("index", "by a mask" if any(array.dtype == bool for array in arrays) else "in axes apart")
    sizes = [x.shape[dim] for dim in used]
    arrays = [np.where(array < 0, array + size, array) for array, size in zip(arrays, sizes)]
    arrays = list(np.broadcast_arrays(*arrays))
    flat = np.ravel_multi_index(tuple(arrays), tuple(sizes))
    merged = (*x.shape[: used[0]], math.prod(sizes), *x.shape[used[-1] + 1 :])
    y = reading.reshape(materialised(reading.reader, value_of(reading, node, x)), merged)
    y = taken(reading, node, y, used[0], flat.ravel())
    return reading.reshape(y, (*x.shape[: used[0]], *flat.shape, *x.shape[used[-1] + 1 :]))


def index_select(reading: Any, node: Any, a: Arguments) -> Value:
    if isinstance(a["index"], Value):
        refuse("index_select", "by a value")
    return taken(reading, node, a["self"], a["dim"], a["index"].tolist())


def gather(reading: Any, node: Any, table: Any, places: Any) -> Value:
    """Rows of a table."""
    table = materialised(reading.reader, value_of(reading, node, table))
    if not isinstance(places, Value):
        array = np.asarray(places.cpu())
        rows = taken(reading, node, table, 0, array.ravel().tolist())
        return reading.reshape(rows, (*array.shape, *table.shape[1:]))
    if any(atom.axis == BATCH for group in table.view for atom in group):
        refuse("Gather", "from what differs among samples")
    places = materialised(reading.reader, places)
    made = reading.node(node, "Gather", [table.node, places.node], {})
    rest = as_group((False,), len(reading.reader.shapes[made]) - 1, table.shape[-1], reading.reader.batch)
    return Value(made, (*places.view, rest))


def embedding(reading: Any, node: Any, a: Arguments) -> Value:
    weight, places = a["weight"], a["indices"]
    known = reading.reader.nodes_input(places)
    if known and hasattr(weight, "target") and len(places.shape) == 2 and places.node not in reading.reader.nodes:
        reading.vocabularies[places.node] = min(weight.shape[0], reading.vocabularies.get(places.node, weight.shape[0]))
        try:
            attrs = {"num_embeddings": weight.shape[0], "embedding_dim": weight.shape[1], "init": "uniform_0.05"}
            return reading.reader.plain(reading.node(node, "Embedding", [places.node], attrs, weight=weight))
        except NotExpressible:
            pass
    return gather(reading, node, weight, places)


def resized(mode: str) -> Handler:
    """Upsampling as a product with a matrix of weights for each axis."""

    def handler(reading: Any, node: Any, a: Arguments) -> Value:
        x, functional = a.get("input", a.get("self")), reading.torch.nn.functional
        lead, places = len(x.shape) - 2, x.shape[2:]
        how = {"mode": mode} if mode == "nearest" else {"mode": mode, "align_corners": a["align_corners"]}
        for dim, (size, out) in enumerate(zip(places, shape_of(node)[2:])):
            eye = reading.torch.eye(size, dtype=reading.torch.float64)[None, None]
            matrix = functional.interpolate(eye, size=(out, size), **how)[0, 0]
            if bool(((matrix == 0) | (matrix == 1)).all()):
                x = taken(reading, node, x, 2 + dim, matrix.argmax(1).tolist())
                continue
            turned = reading.permute(x, [*range(2 + dim), *range(3 + dim, len(x.shape)), 2 + dim])
            made = matmul(reading, node, turned, matrix.T.contiguous())
            x = reading.permute(made, [*range(2 + dim), len(x.shape) - 1, *range(2 + dim, len(x.shape) - 1)])
        return x

    return handler


def to_dtype(reading: Any, node: Any, a: Arguments) -> Any:
    """Of numbers to numbers nothing changes: the graph has one precision."""
    x, dtype = a.get("self", a.get("input")), node.meta["val"].dtype
    x = value_of(reading, node, x) if dtype.is_floating_point or not isinstance(x, Value) else x
    return x


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
        reading, node, "Add", emit(reading, node, "Mul", above, float(scale)), emit(reading, node, "Mul", below, float(alpha))
    )


def recurrent(op: str, gates: int) -> Handler:
    """Layers of one direction or two, from a state of zeros; states of all steps, and the last of each direction."""

    def handler(reading: Any, node: Any, a: Arguments) -> Any:
        if not a["has_biases"] or any(bool(state.any()) for state in _listed(a["hx"])):
            refuse(op, "without biases" if not a["has_biases"] else "from a state that is not zero")
        x = a["input"]
        batch, steps = (x.view[0], x.view[1]) if a["batch_first"] else (x.view[1], x.view[0])
        if not is_batch(batch):
            refuse(op, "of what is no batch of sequences")
        params, ends = list(a["params"]), []
        source, reader = materialised(reading.reader, numbers(reading, x)).node, reading.reader
        for layer in range(a["num_layers"]):
            if layer and a["train"] and a["dropout"]:
                source = reading.node(node, "Dropout", [source], {"p": a["dropout"]})
            given = []
            for backward in range(1 + a["bidirectional"]):
                arrays = dict(zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), params))
                params = params[4:]
                width = arrays["weight_hh"].shape[1]
                attrs = {"input_size": reader.shapes[source][-1], "hidden_size": width}
                attrs.update({"biases": 2} if op == "LSTM" else {})
                one = reading.node(node, "Reverse", [source], {}) if backward else source
                one = reading.node(node, op, [one], attrs, **arrays)
                ends.append(reading.node(node, "Last", [one], {}))
                given.append(reading.node(node, "Reverse", [one], {}) if backward else one)
            source = given[0] if len(given) == 1 else reading.node(node, "Concat", given, {})
        out = reader.shapes[source]
        groups = (batch, whole(0, out[0])) if a["batch_first"] else (whole(0, out[0]), batch)
        lasts = [Value(end, ((), batch, whole(0, reader.shapes[end][0]))) for end in ends]
        states = lasts[0] if len(lasts) == 1 else concat(reading, node, lasts, 0)
        return [Value(source, (*groups, whole(1, out[1]))), states, None]

    return handler


def _listed(states: Any) -> List[Any]:
    return list(states) if isinstance(states, (list, tuple)) else [states]


def _not(reading: Any, node: Any, x: Any) -> Value:
    return emit(reading, node, "Equal", x, 0.0)


def compared(op: str, swapped: bool = False, negated: bool = False) -> Handler:
    def handler(reading: Any, node: Any, a: Arguments) -> Value:
        found = binary(op, swapped)(reading, node, {**a, "alpha": 1})
        return _not(reading, node, found) if negated else found

    return handler


def _scaled(op: str, factor: float) -> Handler:
    """An op, times a number."""
    return lambda reading, node, a: emit(reading, node, op, a.get("self", a.get("input")), factor)


PRIMITIVES: Dict[str, Handler] = {
    **{name: unary(op) for name, op in {"exp": "Exp", "log": "Log", "sqrt": "Sqrt", "abs": "Abs", "sign": "Sign"}.items()},
    **{name: unary(op) for name, op in {"sin": "Sin", "cos": "Cos", "erf": "Erf", "tanh": "Tanh"}.items()},
    **{name: unary(op) for name, op in {"sigmoid": "Sigmoid", "relu": "ReLU", "silu": "SiLU"}.items()},
    "rsqrt": unary("Power", exponent=-0.5),
    "reciprocal": unary("Power", exponent=-1.0),
    "neg": _scaled("Mul", -1.0),
    "square": lambda r, n, a: power(r, n, {"self": a["self"], "exponent": 2}),
    "pow": power,
    "leaky_relu": lambda r, n, a: each(r, n, "LeakyReLU", a["self"], slope=float(a["negative_slope"])),
    "elu": elu,
    "softplus": softplus,
    "prelu": prelu,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh"), clamp),
    "add": binary("Add"),
    "sub": binary("Sub"),
    "rsub": binary("Sub", swapped=True),
    "mul": binary("Mul"),
    "div": binary("Div"),
    "maximum": binary("Maximum"),
    "minimum": binary("Minimum"),
    "eq": compared("Equal"),
    "ne": compared("Equal", negated=True),
    "lt": compared("Less"),
    "gt": compared("Less", swapped=True),
    "le": compared("LessEqual"),
    "ge": compared("LessEqual", swapped=True),
    "logical_not": lambda r, n, a: _not(r, n, a["self"]),
    "bitwise_not": lambda r, n, a: _not(r, n, a["self"]),
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
    "layer_norm": layer_norm,
    **dict.fromkeys(("group_norm", "instance_norm"), group_norm),
    "batch_norm": batch_norm,
    "matmul": lambda r, n, a: matmul(r, n, a["self"], a["other"]),
    **dict.fromkeys(("mm", "bmm"), lambda r, n, a: matmul(r, n, a["self"], a["mat2"])),
    **dict.fromkeys(("addmm", "baddbmm"), addmm),
    "linear": linear,
    "scaled_dot_product_attention": attention,
    "lstm": recurrent("LSTM", 4),
    "gru": recurrent("GRU", 3),
    **dict.fromkeys(("conv1d", "conv2d", "convolution", "conv_transpose1d", "conv_transpose2d"), convolution),
    "max_pool1d": pooled1d("max_pool2d"),
    "avg_pool1d": pooled1d("avg_pool2d"),
    "adaptive_avg_pool1d": pooled1d("adaptive_avg_pool2d"),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), adaptive_max_pool),
    "upsample_nearest1d": resized("nearest"),
    "upsample_nearest2d": resized("nearest"),
    "upsample_bilinear2d": resized("bilinear"),
    "upsample_bicubic2d": resized("bicubic"),
    **dict.fromkeys(("cat", "concat"), lambda r, n, a: concat(r, n, a["tensors"], a["dim"])),
    "stack": stack,
    **dict.fromkeys(("pad", "constant_pad_nd"), pad),
    "slice": slice_,
    "select": select,
    **dict.fromkeys(("chunk", "split", "split_with_sizes"), parts),
    "unbind": unbind,
    "flip": flip,
    "roll": roll,
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), expand),
    **dict.fromkeys(("repeat", "tile"), repeat),
    "index": index,
    "index_select": index_select,
    "embedding": embedding,
    **dict.fromkeys(("to", "_to_copy", "type_as", "float"), to_dtype),
    "lift_fresh_copy": lambda r, n, a: a["self"],
}


def shaped(reading: Any, x: Any, shape: Optional[Sequence[int]]) -> Any:
    """Another shape of a value whose parts no longer stand in one axis."""
    return reading.reshape(materialised(reading.reader, x) if isinstance(x, Value) else x, shape)
