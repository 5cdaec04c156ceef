"""ATen operators that move, choose and repeat numbers, as primitives."""

from __future__ import annotations

import functools
import math
from typing import Any, Dict, Iterable, List, Sequence

import numpy as np

from framework_compare.graph.node import unless
from framework_compare.importers.common.axes import common_patterns, is_batch, pattern, program_axes, reshaped_node
from framework_compare.importers.common.reading import filled
from framework_compare.importers.common.views import BATCH, NotExpressible, Value, whole
from framework_compare.importers.torch.operands import LARGE, Arguments, At, Handler, axis_of
from framework_compare.importers.torch.operators import BROADCASTS, JOINS, operator_name, refuse


def taken(at: At, x: Any, dim: int, index: Iterable[int]) -> Any:
    """Places of an axis by their numbers; a run of them is a Slice, none an empty constant."""
    index = [int(place) for place in index]
    if not index:
        shape = [0 if place == dim % len(x.shape) else size for place, size in enumerate(x.shape)]
        return at.torch.zeros(shape)
    x = at.plain(x if isinstance(x, Value) else at.value(x))
    axis = axis_of(x, dim)
    steps = set(np.diff(index).tolist()) or {1}
    if index == list(range(at.reader.shapes[x.node][axis])):
        return x
    if len(steps) == 1 and min(steps) > 0:
        ends = {"start": index[0], "end": index[-1] + 1, **unless(1, step=min(steps))}
        made = at.add("Slice", [x.node], {"axis": axis, **ends})
    else:
        made = at.add("Take", [x.node], {"axis": axis, "index": index})
    if x.node in at.reading.whole_numbers:  # and stays one
        at.reading.whole_numbers.add(made)
    return at.like(x.view, made)


def select(at: At, a: Arguments) -> Value:
    dim = a["dim"] % len(a["self"].shape)
    one = taken(at, a["self"], dim, [a["index"] % a["self"].shape[dim]])
    return Value(one.node, one.view[:dim] + one.view[dim + 1 :])


def slice_(at: At, a: Arguments) -> Value:
    size = a["self"].shape[a["dim"]]
    return taken(at, a["self"], a["dim"], range(*slice(a["start"], a["end"], a["step"]).indices(size)))


def parts(at: At, a: Arguments) -> List[Value]:
    """chunk, split and split_with_sizes."""
    found, start = [], 0
    for one in at.node.meta["val"]:
        size = one.shape[a["dim"]]
        found.append(taken(at, a["self"], a["dim"], range(start, start + size)))
        start += size
    return found


def flip(at: At, a: Arguments) -> Value:
    x = a["self"]
    for dim in a["dims"]:
        x = taken(at, x, dim, range(x.shape[dim])[::-1])
    return x


def roll(at: At, a: Arguments) -> Value:
    x = a["self"]
    for shift, dim in zip(a["shifts"], a["dims"] or refuse("roll", "of a flattened value")):
        x = taken(at, x, dim, [(place - shift) % x.shape[dim] for place in range(x.shape[dim])])
    return x


def pad(at: At, a: Arguments) -> Value:
    """Pad or crop by a constant, or by what lies inside."""
    x, amounts, mode = at.value(a["self"]), list(a["pad"]), a.get("mode", "constant")
    rank, sides = len(x.shape), []
    for place in range(len(amounts) // 2):
        before, behind = amounts[2 * place : 2 * place + 2]
        dim = rank - 1 - place
        size = x.shape[dim]
        if mode == "constant":
            x = taken(at, x, dim, range(max(0, -before), size - max(0, -behind)))
            sides.append((dim, max(0, before), max(0, behind)))
        else:
            how: Any = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
            x = taken(at, x, dim, np.pad(np.arange(size), (before, behind), mode=how))
    x = at.plain(x)
    pads = [[0, 0] for _ in at.reader.shapes[x.node]]
    for dim, before, behind in sides:
        if before or behind:
            pads[axis_of(x, dim)] = [before, behind]
    if not any(map(any, pads)):
        return x
    value = float(np.clip(a.get("value") or 0, -LARGE, LARGE))
    return at.like(x.view, at.add("PadAxes", [x.node], {"pads": pads, **unless(0.0, value=value)}))


def concat(at: At, operands: Sequence[Any], dim: int) -> Value:
    operands = [one for one in operands if math.prod(one.shape)]
    values = [at.operand(one) for one in operands]
    rank = len(operands[0].shape)
    patterns = common_patterns(at.reader, values, rank)
    if True in patterns[dim % rank]:
        raise NotExpressible("joining samples of a batch")
    names = [at.of_rank(one, patterns) for one in values]
    axis = sum(how != (True,) for how in patterns[: dim % rank])
    made = at.add("Concat", names, unless(at.reader.feature_axis(names[0]), axis=axis))
    return Value(made, program_axes(at.reader, patterns, at.reader.shapes[made]))


def stack(at: At, a: Arguments) -> Value:
    dim = a["dim"] % len(at.shape)
    lifted = [at.reshape(one, (*one.shape[:dim], 1, *one.shape[dim:])) for one in a["tensors"]]
    return concat(at, lifted, dim)


def expand(at: At, a: Arguments) -> Any:
    """Repeated as it is said: what is folded afterwards is no broadcast."""
    shape = at.shape
    x = at.plain(at.value(a["self"]))
    groups = filled(x.view, len(shape))

    def own(wanted: Sequence[int]) -> List[int]:
        """Return the shape of one sample, whose axes may be folded into one with the batch."""
        rest = [(size, True in pattern(group)) for size, group in zip(wanted, groups) if not is_batch(group)]
        return [size // at.reader.batch if folded else size for size, folded in rest]

    sizes = own(shape)
    if not any(is_batch(group) for group in groups) and shape and shape[0] == at.reader.batch:
        groups, sizes = ((*whole(BATCH, at.reader.batch),), *groups[1:]), list(shape[1:])
    name = reshaped_node(at.reader, x.node, own(filled(x.shape, len(shape), 1)))
    if tuple(sizes) != at.reader.shapes[name]:
        name = at.add("Expand", [name], {"shape": sizes})
    return at.like(groups, name)


def repeat(at: At, a: Arguments) -> Any:
    x = at.reshape(a["self"], (*[1] * (len(a["repeats"]) - len(a["self"].shape)), *a["self"].shape))
    for dim, count in enumerate(a["repeats"]):
        if count > 1 and not (dim == 0 and count == at.reader.batch and x.shape[0] == 1):
            x = taken(at, x, dim, [*range(x.shape[dim])] * count)
    users = {operator_name(user.target) for user in at.node.users}
    if x.shape[0] == at.shape[0] or not users - {*BROADCASTS, *JOINS}:
        return x
    x = at.plain(at.value(x))
    name = reshaped_node(at.reader, x.node, at.reader.shapes[x.node][1:])
    return at.like((whole(BATCH, at.reader.batch), *x.view[1:]), name)


def index(at: At, a: Arguments) -> Value:
    """Index adjacent axes by constant arrays, or rows of a table by a value."""
    x, places = a["self"], list(a["indices"])
    used = [dim for dim, place in enumerate(places) if place is not None]
    if len(used) == 1 and isinstance(places[used[0]], Value) and used == [0]:
        return gather(at, x, places[0])
    arrays = [np.asarray(places[dim].cpu()) for dim in used]
    if any(array.dtype == bool for array in arrays) or used != list(range(used[0], used[0] + len(used))):
        refuse("index", "by a mask" if any(array.dtype == bool for array in arrays) else "in axes apart")
    sizes = [x.shape[dim] for dim in used]
    arrays = [np.where(array < 0, array + size, array) for array, size in zip(arrays, sizes)]
    arrays = list(np.broadcast_arrays(*arrays))
    flat = np.ravel_multi_index(tuple(arrays), tuple(sizes))
    merged = (*x.shape[: used[0]], math.prod(sizes), *x.shape[used[-1] + 1 :])
    y = at.reshape(at.plain(at.value(x)), merged)
    y = taken(at, y, used[0], flat.ravel())
    return at.reshape(y, (*x.shape[: used[0]], *flat.shape, *x.shape[used[-1] + 1 :]))


def index_select(at: At, a: Arguments) -> Value:
    if isinstance(a["index"], Value):
        refuse("index_select", "by a value")
    return taken(at, a["self"], a["dim"], a["index"].tolist())


def gather(at: At, table: Any, places: Any) -> Value:
    """Rows of a table."""
    table = at.plain(at.value(table))
    if not isinstance(places, Value):
        array = np.asarray(places.cpu())
        batch = at.reader.batch
        if array.ndim > 1 and len(array) == batch and (array == array[:1]).all():  # made for each sample, the same
            rows = taken(at, table, 0, array[0].ravel().tolist())
            rows = at.reshape(rows, (*array.shape[1:], *table.shape[1:]))
            return Value(rows.node, (whole(BATCH, batch), *rows.view))
        rows = taken(at, table, 0, array.ravel().tolist())
        return at.reshape(rows, (*array.shape, *table.shape[1:]))
    if any(atom.axis == BATCH for group in table.view for atom in group):
        refuse("Gather", "from values that differ among samples")
    if len(table.shape) == 1:
        rows = gather(at, at.reshape(table, (*table.shape, 1)), places)
        return at.reshape(rows, tuple(places.shape))
    places = at.plain(places)
    made = at.add("Gather", [table.node, places.node], {})
    return Value(made, (*places.view, whole(len(at.reader.shapes[made]) - 1, table.shape[-1])))


def embedding(at: At, a: Arguments) -> Value:
    weight, places = a["weight"], a["indices"]
    known = at.reader.is_fed(places)
    if known and hasattr(weight, "target") and len(places.shape) == 2:
        try:
            attrs = {"num_embeddings": weight.shape[0], "embedding_dim": weight.shape[1], "init": "uniform_0.05"}
            made = at.reader.plain(at.add("Embedding", [places.node], attrs, weight=weight))
            return without_row(at, made, places, a.get("padding_idx", -1))
        except NotExpressible:
            pass
    return without_row(at, gather(at, weight, places), places, a.get("padding_idx", -1))


def embedding_bag(at: At, a: Arguments) -> Any:
    """Sums or means of rows, of bags that all have the same number."""
    places, starts, how = a["indices"], a["offsets"], BAGS.get(a["mode"])
    if how is None or a["per_sample_weights"] is not None or isinstance(starts, Value):
        refuse("EmbeddingBag", "of mode 'max'" if how is None else "with weights or bags of any size")
    count, bags = math.prod(places.shape), len(starts) - a["include_last_offset"]
    if count % bags or starts.tolist()[:bags] != list(range(0, count, count // bags)):
        refuse("EmbeddingBag", "with bags of different sizes")
    known = at.reshape(places, (bags, count // bags))
    rows = embedding(at, {"weight": a["weight"], "indices": known, "padding_idx": -1})
    return [at.reduced(how, rows, 1), None, None, None]


BAGS = {0: "ReduceSum", 1: "ReduceMean"}


def without_row(at: At, rows: Value, places: Any, row: int) -> Value:
    """Rows of an embedding of which one, that of padding, gets no gradient."""
    if row < 0 or not isinstance(places, Value):
        return rows
    is_row = at.emit("Equal", places, float(row))
    is_row = at.reshape(is_row, (*is_row.shape, 1))
    return at.emit("Where", is_row, at.each("Detach", rows), rows)


def written(at: At, base: Any, part: Any, new: Any) -> Value:
    """A value of which a slice, or one place of an axis, has got other numbers."""
    shape = part.args[0].meta["val"].shape
    dim, *places = part.args[1:] or (0,)
    dim %= len(shape)
    if operator_name(part.target) == "select":
        start = places[0] % shape[dim]
        end, step = start + 1, 1
        new = at.reshape(new, (*shape[:dim], 1, *shape[dim + 1 :]))
    else:
        start, end, step = slice(*(*places, None, None, None)[:3]).indices(shape[dim])
    if step != 1:
        refuse("writing", "in steps")
    constant = not isinstance(base, Value) and not hasattr(base, "target")
    around = [
        base.narrow(dim, first, last - first) if constant else taken(at, base, dim, range(first, last))
        for first, last in ((0, start), (end, shape[dim]))
        if first < last
    ]
    return concat(at, [*around[: start > 0], new, *around[start > 0 :]], dim)


def copied(at: At, a: Arguments) -> Any:
    """Return what is written over a value, in its shape."""
    source = a["src"]
    return source if tuple(source.shape) == at.shape else expand(at, {"self": source})


def gather_along(at: At, a: Arguments) -> Any:
    """Places of an axis by a value: the sum of what stands where the axis has that number."""
    x, dim, places = a["self"], a["dim"] % len(at.shape), a["index"]
    if not isinstance(x, Value) and not hasattr(x, "target") and bool((x == x.flatten()[0]).all()):
        return x.new_full(at.shape, x.flatten()[0].item())
    if any(size != other for axis, (size, other) in enumerate(zip(x.shape, at.shape)) if axis != dim):
        refuse("gather", "of a part of other axes")
    size, count = x.shape[dim], at.shape[dim]
    number = np.arange(size).reshape(size, *[1] * (len(at.shape) - dim - 1))
    if count > 1:
        x = at.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))
        places = at.reshape(places, (*at.shape[: dim + 1], 1, *at.shape[dim + 1 :]))
        dim += 1
    chosen = at.emit("Where", at.emit("Equal", places, number), x, 0.0)
    return at.reduced("ReduceSum", chosen, dim, count == 1)


def unfold(at: At, a: Arguments) -> Any:
    """Windows of an axis, which may overlap; the places in a window are the last axis."""
    shape, size, step = a["self"].shape, a["size"], a["step"]
    dim = a["dimension"] % len(shape)
    count = (shape[dim] - size) // step + 1
    places = [step * number + place for number in range(count) for place in range(size)]
    cut = at.reshape(taken(at, a["self"], dim, places), (*shape[:dim], count, size, *shape[dim + 1 :]))
    return at.permute(cut, [axis for axis in range(len(shape) + 1) if axis != dim + 1] + [dim + 1])


def col2im(at: At, a: Arguments) -> Value:
    """Sum windows that overlap into an image."""
    sizes, kernel, pads = a["output_size"], a["kernel_size"], a["padding"]
    counts = [
        (size + 2 * pad - dilation * (side - 1) - 1) // stride + 1
        for size, pad, dilation, side, stride in zip(sizes, pads, a["dilation"], kernel, a["stride"])
    ]
    batch, channels = at.shape[:2]
    x = at.reshape(at.plain(a["self"]), (batch, channels, *kernel, *counts))
    for dim in (2, 3):  # places in a window, then places of windows: (N, C, rows, columns, rows, columns)
        dilation, stride, size = a["dilation"][dim - 2], a["stride"][dim - 2], sizes[dim - 2] + 2 * pads[dim - 2]
        lines = [taken(at, x, dim, [place]) for place in range(kernel[dim - 2])]
        spread = [_spread(at, line, dim + 2, place * dilation, stride, size) for place, line in enumerate(lines)]
        x = functools.reduce(lambda one, other: at.emit("Add", one, other), spread)
        x = taken(at, x, dim + 2, range(pads[dim - 2], size - pads[dim - 2]))
    return at.reshape(x, at.shape)


def _spread(at: At, x: Value, dim: int, start: int, step: int, size: int) -> Value:
    """The places of an axis in steps among `size` places, zeros between."""
    rank, count = len(x.shape), x.shape[dim]
    if step > 1:
        apart = at.reshape(x, (*x.shape[: dim + 1], 1, *x.shape[dim + 1 :]))
        apart = pad(at, {"self": apart, "pad": [0, 0] * (rank - dim - 1) + [0, step - 1]})
        x = at.reshape(apart, (*x.shape[:dim], count * step, *x.shape[dim + 1 :]))
    return pad(at, {"self": x, "pad": [0, 0] * (rank - dim - 1) + [start, size - start - count * step]})


HANDLERS: Dict[str, Handler] = {
    "col2im": col2im,
    **dict.fromkeys(("cat", "concat"), lambda at, a: concat(at, a["tensors"], a["dim"])),
    "stack": stack,
    **dict.fromkeys(("pad", "constant_pad_nd"), pad),
    "slice": slice_,
    "select": select,
    **dict.fromkeys(("chunk", "split", "split_with_sizes"), parts),
    "flip": flip,
    "roll": roll,
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), expand),
    "repeat": repeat,
    "index": index,
    "index_select": index_select,
    "gather": gather_along,
    "unfold": unfold,
    "copy": copied,
    "fill": lambda at, a: at.torch.full(at.shape, float(a["value"]), dtype=at.torch.float64),
    "embedding": embedding,
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), embedding_bag),
}
