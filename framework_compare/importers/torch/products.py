"""Products, convolutions, norms, pooling and recurrent layers in forms that no single layer of the graph has."""

import contextlib
import math
from typing import Any, Dict, Optional

from framework_compare.graph import window
from framework_compare.graph.node import conv_attrs
from framework_compare.importers.common import axes
from framework_compare.importers.common.axes import is_batch, pattern, program_axes, reshaped_node
from framework_compare.importers.common.views import BATCH, NotExpressible, Value, whole
from framework_compare.importers.torch.attention import Scores, attend, attend_steps, hides_nothing, is_triangle
from framework_compare.importers.torch.moves import concat, taken
from framework_compare.importers.torch.operands import LARGE, Arguments, At, Handler, Learned, affine, along, normal
from framework_compare.importers.torch.operators import HANDLERS as LAYERS
from framework_compare.importers.torch.operators import pair, refuse
from framework_compare.json_types import Fields


def layer_norm(at: At, a: Arguments) -> Value:
    shape = a["normalized_shape"]
    x = normal(at, a["input"], range(-len(shape), 0), a["eps"])
    return affine(at, x, a["weight"], a["bias"], shape)


def group_norm(at: At, a: Arguments) -> Value:
    x, groups = a["input"], a.get("num_groups", a["input"].shape[1])
    if a.get("running_mean") is not None:
        refuse("InstanceNorm", "with running statistics")
    channels, rank = x.shape[1], len(x.shape)
    if a["weight"] is not None and a["bias"] is not None and rank == 4:
        attrs = {"groups": groups, "channels": channels, "eps": a["eps"]}
        source = at.reader.image(at.plain(x))
        return at.layer("GroupNorm", [source], attrs, weight=a["weight"], bias=a["bias"])
    cut = at.reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    y = at.reshape(at.plain(normal(at, cut, [2], a["eps"])), x.shape)
    return affine(at, y, a["weight"], a["bias"], (channels, *[1] * (rank - 2)))


def batch_norm(at: At, a: Arguments) -> Value:
    """Read BatchNorm of vectors, sequences and images; without running statistics also of an array such as a weight."""
    x = a["input"]
    if a["running_mean"] is None and a["running_var"] is None and a["training"]:
        x = at.value(x)
        y = normal(at, x, [dim for dim in range(len(x.shape)) if dim != 1], a["eps"])
        return affine(at, y, a["weight"], a["bias"], (x.shape[1], *[1] * (len(x.shape) - 2)))
    count, channels, *places = x.shape
    if _has_parts(x):
        steps = sum(x.view[2:], x.view[0][1:])
        apart = Value(x.node, (x.view[0][:1], x.view[1], steps))
        made = batch_norm(at.sized(apart.shape), {**a, "input": apart})
        made = at.reshape(made, (at.reader.batch, channels, count // at.reader.batch, *places))
        return at.reshape(at.permute(made, [0, 2, 1, *range(3, 3 + len(places))]), x.shape)
    if len(places) > 1:
        refuse("BatchNorm", f"of {len(x.shape)} axes")
    image = at.reshape(at.plain(x), (count, channels, *places, *[1] * (2 - len(places))))
    image = at.plain(image)
    made = LAYERS["batch_norm"](at.sized(image.shape), {**a, "input": image})
    return at.reshape(at.plain(made), x.shape)


def _has_parts(x: object) -> bool:
    """Return whether samples of a layer are steps or windows of the network's samples."""
    return isinstance(x, Value) and len(x.view[0]) > 1 and x.view[0][0].axis == BATCH


def conv2d_of_parts(at: At, a: Arguments) -> Value:
    """A Conv2d of windows that a network took for samples: one call for each window."""
    x = a["input"]
    if not _has_parts(x) or len(x.shape) != 4:
        refuse("Conv2d", f"of {len(x.shape)} axes")
    windows = x.shape[0] // at.reader.batch
    if windows > MOST_WINDOWS:
        refuse("Conv2d", f"of {windows} windows; at most {MOST_WINDOWS} are read")
    apart = at.plain(Value(x.node, (x.view[0][:1], x.view[0][1:], *x.view[1:])))
    one = at.sized((at.reader.batch, *at.shape[1:]))
    parts = [taken(at, apart, 1, [number]) for number in range(windows)]
    parts = [reshaped_node(at.reader, y.node, at.reader.shapes[y.node][1:]) for y in parts]
    made = [LAYERS["conv2d"](one, {**a, "input": at.reader.plain(name)}) for name in parts]
    rows = [at.reshape(y, (y.shape[0], 1, *y.shape[1:])) for y in made]
    return at.reshape(concat(at, rows, 1), at.shape)


def matmul(at: At, first: Any, second: Any) -> Value:
    """Multiply as torch does: a vector is one row or one column."""
    ranks = len(first.shape), len(second.shape)
    if ranks[0] > 1 and ranks[1] == 2:
        layer = _as_linear(at, first, second, None)
        if layer is not None:
            return layer
    first = at.reshape(first, (1, *first.shape)) if ranks[0] == 1 else first
    second = at.reshape(second, (*second.shape, 1)) if ranks[1] == 1 else second
    rank = max(len(first.shape), len(second.shape))
    reader, values = at.reader, [at.value(x) for x in (first, second)]
    pairs = [at.plain(x) for x in values]
    if any(atom.axis == BATCH for group in (pairs[0].view[-1], pairs[1].view[-2]) for atom in group):
        raise NotExpressible("a product across the samples of a batch")
    outer = [axes.Operand(Value(one.node, one.view[:-2])) for one in pairs]
    patterns = axes.common_patterns(reader, outer, rank - 2)
    own = [pattern(pairs[0].view[-2]) or (False,), pattern(pairs[1].view[-1]) or (False,)]  # of rows and columns
    if sum(True in how for how in (*patterns, *own)) > 1:
        raise NotExpressible("a product between the samples of a batch")
    names = []
    for one, lead, how, place in zip(pairs, outer, own, (-2, -1)):
        sizes, _ = axes.sizes_in(lead, patterns, reader.batch)
        inner = [axes.size_of(group) for group in one.view[-2:] if not is_batch(group)]
        if how == (True,):  # each sample is a row or a column of its own
            inner.insert(0 if place == -2 else 1, 1)
        names.append(reshaped_node(reader, one.node, (*sizes, *inner)))
    made = at.add("MatMul", names, {"inner": reader.shapes[names[0]][-1]})
    shape = list(reader.shapes[made])
    kept = [*shape[:-2], *(size for size, how in zip(shape[-2:], own) if how != (True,))]
    view = program_axes(reader, [*patterns, *own], kept)
    made = reshaped_node(reader, made, kept)
    view = view[:-2] + view[-1:] if ranks[0] == 1 else view
    return Value(made, view[:-1] if ranks[1] == 1 else view)


def attention(at: At, a: Arguments) -> Value:
    """softmax(scale q k' + mask) v: the layer where its mask is one of the layer's, else primitives."""
    q, k, v = (at.value(a[name]) for name in ("query", "key", "value"))
    mask = a.get("attn_mask")
    causal = bool(a.get("is_causal")) or is_triangle(mask)
    scale = 1 / math.sqrt(q.shape[-1]) if a.get("scale") is None else float(a["scale"])
    if not a.get("dropout_p") and (causal or hides_nothing(mask)):
        with contextlib.suppress(NotExpressible):
            return attend(at, Scores(q, k, scale, (), causal=causal), v)
        with contextlib.suppress(NotExpressible):
            return attend_steps(at, (q, k, v), scale, causal)
    if a.get("enable_gqa"):
        times = q.shape[-3] // k.shape[-3]
        heads = [head for head in range(k.shape[-3]) for _ in range(times)]
        k, v = (taken(at, x, -3, heads) for x in (k, v))
    order = [*range(len(k.shape) - 2), len(k.shape) - 1, len(k.shape) - 2]
    scores = at.emit("Mul", matmul(at, q, at.permute(k, order)), scale)
    if a.get("is_causal"):
        mask = at.torch.ones(q.shape[-2], k.shape[-2], dtype=at.torch.bool).tril()
    boolean = _is_boolean(at, mask)
    if mask is not None:
        scores = at.emit("Where", mask, scores, -LARGE) if boolean else at.emit("Add", scores, mask)
    shares = _seen(at, mask, boolean, along("Softmax")(at, {"self": scores, "dim": -1}))
    if a.get("dropout_p"):
        shares = at.each("Dropout", shares, p=a["dropout_p"])
    return matmul(at, shares, v)


def _is_boolean(at: At, mask: object) -> bool:
    if isinstance(mask, Value):  # which does not say it; the program does
        source = at.node.kwargs.get("attn_mask") or at.node.args[3]
        return bool(source.meta["val"].dtype == at.torch.bool)
    return getattr(mask, "dtype", None) == at.torch.bool


def _seen(at: At, mask: object, boolean: bool, shares: Value) -> Value:
    """Shares, which torch has as zero for a step from which a mask hides all."""
    if isinstance(mask, Value):
        return at.emit("Mul", shares, at.reduced("ReduceMax", mask, -1, True)) if boolean else shares
    if not isinstance(mask, at.torch.Tensor):
        return shares
    seen = (mask if boolean else ~mask.isneginf()).any(-1, keepdim=True)
    return shares if bool(seen.all()) else at.emit("Mul", shares, seen)


def addmm(at: At, a: Arguments) -> Value:
    """bias + x W, which is a Linear where bias and W are parameters."""
    if a.get("beta", 1) != 1 or a.get("alpha", 1) != 1:
        refuse("addmm", "with factors")
    first, second = (a["mat1"], a["mat2"]) if "mat1" in a else (a["batch1"], a["batch2"])
    layer = _as_linear(at, first, second, a["self"]) if hasattr(a["self"], "target") else None
    return at.emit("Add", matmul(at, first, second), a["self"]) if layer is None else layer


def _as_linear(at: At, x: Any, weight: Any, bias: Any) -> Optional[Value]:
    """A Linear layer with an array (in, out) of the module's; None for another product."""
    if not isinstance(x, Value) or not hasattr(weight, "target"):
        return None
    with contextlib.suppress(NotExpressible):
        weight = at.permute(weight, (1, 0))
        return LAYERS["linear"](at, {"input": x, "weight": weight, "bias": bias})
    return None


def linear(at: At, a: Arguments) -> Value:
    weight = a["weight"]
    tied = _tied(at, weight) if a["bias"] is None else None
    if tied is not None:
        name, view = axes.rows(at.reader, at.numbers(a["input"]))
        return at.with_features(at.reader.add(at.reading.stem(at.node), "Unembedding", [name], tied), view)
    order = (*range(len(weight.shape) - 2), len(weight.shape) - 1, len(weight.shape) - 2)
    product = matmul(at, a["input"], at.permute(at.value(weight), order))
    return product if a["bias"] is None else at.emit("Add", product, a["bias"])


def _tied(at: At, weight: Learned) -> Optional[Fields]:
    """Attributes of a head that has the array of an embedding; None where there is none with it."""
    for node in at.reader.nodes.values():
        name = f"{node.arrays}.weight"
        if node.op == "Embedding" and at.reader.origin.get(name) == getattr(weight, "target", ""):
            same = at.reader.arrays[name].tobytes() == weight.content
            return {**node.attrs, "arrays": node.arrays} if same else None
    return None


def convolution(at: At, a: Arguments) -> Value:
    """Read any convolution of one or two axes, also transposed, also with a computed weight."""
    x, weight, groups, transposed = (a[name] for name in ("input", "weight", "groups", "transposed"))
    rank = len(weight.shape) - 2
    if rank > 2:
        refuse("Conv3d", f"of {x.shape}")
    steps: Fields = {name: pair(a[name]) if rank == 2 else [neutral, *a[name]] for name, neutral in _NEUTRAL.items()}
    if rank == 1:
        x = at.reshape(at.plain(x), (*x.shape[:2], 1, x.shape[2]))
        weight = at.reshape(weight, (*weight.shape[:2], 1, weight.shape[2]))
    x = at.plain(at.value(x))
    alone = x.shape[0] == 1 and not is_batch(x.view[0])  # no batch: the same for all samples
    source = reshaped_node(at.reader, x.node, x.shape[1:]) if alone else at.reader.image(x)
    out = weight.shape[1] * groups if transposed else weight.shape[0]
    into = weight.shape[0] if transposed else weight.shape[1] * groups
    output_padding = steps.pop("output_padding")
    attrs = conv_attrs(into, out, list(weight.shape[2:]), groups=groups, bias=False, **steps)
    if not transposed and hasattr(weight, "target"):
        made = at.add("Conv2d", [source], {**attrs, "bias": a["bias"] is not None}, weight=weight, bias=a["bias"])
        y = at.reader.plain(made)
    else:
        kernel = at.plain(at.value(weight)).node
        more = {"output_padding": window.plain(output_padding)} if transposed else {}
        attrs = {name: attr for name, attr in attrs.items() if name not in ("bias", "init")}
        made = at.add("ConvTranspose" if transposed else "Convolve", [source, kernel], {**attrs, **more})
        y = affine(at, at.reader.plain(made), None, a["bias"], (out, 1, 1))
    y = Value(y.node, ((), *y.view[1:])) if alone else y
    return at.reshape(at.plain(y), at.shape)


_NEUTRAL = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}


def adaptive_max_pool(at: At, a: Arguments) -> Any:
    x, size = a["self"], pair(a["output_size"])
    places = x.shape[-2:]
    if any(n % out for n, out in zip(places, size)):
        refuse("AdaptiveMaxPool", f"of {places} to {tuple(size)}")
    cut = [part for n, out in zip(places, size) for part in (out, n // out)]
    return [at.reduced("ReduceMax", at.reshape(at.plain(x), (*x.shape[:-2], *cut)), [-3, -1]), None]


def resized(mode: str, antialias: bool = False) -> Handler:
    """Resizing as a product with a matrix of weights for each axis."""

    def handler(at: At, a: Arguments) -> Value:
        x, functional = a.get("input", a.get("self")), at.torch.nn.functional
        places = x.shape[2:]
        how = {"mode": mode} if mode == "nearest" else {"mode": mode, "align_corners": a["align_corners"]}
        for dim, (size, out) in enumerate(zip(places, at.shape[2:])):
            eye = at.torch.eye(size, dtype=at.torch.float64)[None, None]
            matrix = functional.interpolate(eye, size=(out, size), **how, antialias=antialias)[0, 0]
            if bool(((matrix == 0) | (matrix == 1)).all()):
                x = taken(at, x, 2 + dim, matrix.argmax(1).tolist())
                continue
            turned = at.permute(x, [*range(2 + dim), *range(3 + dim, len(x.shape)), 2 + dim])
            made = matmul(at, turned, matrix.T.contiguous())
            x = at.permute(made, [*range(2 + dim), len(x.shape) - 1, *range(2 + dim, len(x.shape) - 1)])
        return x

    return handler


def recurrent(op: str, gates: int) -> Handler:
    """Layers of one direction or two, from a state of zeros; states of all steps, and the last of each direction."""

    def handler(at: At, a: Arguments) -> Any:
        initial = a["hx"] if isinstance(a["hx"], (list, tuple)) else [a["hx"]]
        if not a["has_biases"] or any(bool(state.any()) for state in initial):
            refuse(op, "without biases" if not a["has_biases"] else "from a state that is not zero")
        if any(user.args[1] == 2 and user.users for user in at.node.users):
            refuse(op, "whose last cell state is read")
        if op == "LSTM" and a["params"][1].shape[1] * gates != a["params"][1].shape[0]:
            refuse(op, "whose states are projected")
        x = a["input"]
        batch, steps = (x.view[0], x.view[1]) if a["batch_first"] else (x.view[1], x.view[0])
        if not is_batch(batch):
            refuse(op, "of something other than a batch of sequences")
        params, ends = list(a["params"]), []
        source, reader = at.plain(at.numbers(x)).node, at.reader
        for layer in range(a["num_layers"]):
            if layer and a["train"] and a["dropout"]:
                source = at.add("Dropout", [source], {"p": a["dropout"]})
            given = []
            for backward in range(1 + a["bidirectional"]):
                arrays = dict(zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), params))
                params = params[4:]
                width = arrays["weight_hh"].shape[1]
                attrs = {"input_size": reader.shapes[source][-1], "hidden_size": width}
                attrs.update({"biases": 2} if op == "LSTM" else {})
                one = at.add("Reverse", [source], {}) if backward else source
                one = at.add(op, [one], attrs, **arrays)
                ends.append(at.add("Last", [one], {}))
                given.append(at.add("Reverse", [one], {}) if backward else one)
            source = given[0] if len(given) == 1 else at.add("Concat", given, {})
        out = reader.shapes[source]
        groups = (batch, whole(0, out[0])) if a["batch_first"] else (whole(0, out[0]), batch)
        lasts = [Value(end, ((), batch, whole(0, reader.shapes[end][0]))) for end in ends]
        states = lasts[0] if len(lasts) == 1 else concat(at, lasts, 0)
        return [Value(source, (*groups, whole(1, out[1]))), states, None]

    return handler


MOST_WINDOWS = 16
HANDLERS: Dict[str, Handler] = {
    "conv2d": conv2d_of_parts,
    "layer_norm": layer_norm,
    **dict.fromkeys(("group_norm", "instance_norm"), group_norm),
    "batch_norm": batch_norm,
    "matmul": lambda at, a: matmul(at, a["self"], a["other"]),
    **dict.fromkeys(("mm", "bmm"), lambda at, a: matmul(at, a["self"], a["mat2"])),
    **dict.fromkeys(("addmm", "baddbmm"), addmm),
    "linear": linear,
    "scaled_dot_product_attention": attention,
    "lstm": recurrent("LSTM", 4),
    "gru": recurrent("GRU", 3),
    "convolution": convolution,
    "adaptive_max_pool2d": adaptive_max_pool,
    **{f"upsample_{kind}": resized(kind[:-2]) for kind in ("nearest1d", "nearest2d", "bilinear2d", "bicubic2d")},
    **{f"_upsample_{kind}2d_aa": resized(kind, antialias=True) for kind in ("bilinear", "bicubic")},
}
