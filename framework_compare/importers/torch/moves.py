"""ATen operators that move, choose and repeat numbers, as primitives."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Sequence

import numpy as np

from framework_compare.importers.common.axes import (
    as_group,
    common_patterns,
    is_batch,
    materialised,
    program_axes,
    reshaped_node,
    sizes_in,
)
from framework_compare.importers.common.reading import filled
from framework_compare.importers.common.views import BATCH, NotExpressible, Value, whole
from framework_compare.importers.torch.operands import LARGE, axis_of, emit, node_of, operand, value_of
from framework_compare.importers.torch.operators import Arguments, Handler, refuse, shape_of


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
        names.append(node_of(reading, node, one, sizes, repeats, patterns))
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
    flat = [size for group, size in zip(groups, filled(x.shape, len(shape), 1)) if not is_batch(group)]
    name = reshaped_node(reading.reader, x.node, flat)
    if tuple(sizes) != reading.reader.shapes[name]:
        name = reading.node(node, "Expand", [name], {"shape": sizes})
    patterns = [(True,) if is_batch(group) else (False,) for group in groups]
    return Value(name, program_axes(reading.reader, patterns, sizes))


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
        batch = reading.reader.batch
        if array.ndim > 1 and len(array) == batch and (array == array[:1]).all():  # made for each sample, the same
            rows = reading.reshape(
                taken(reading, node, table, 0, array[0].ravel().tolist()), (*array.shape[1:], *table.shape[1:])
            )
            return Value(rows.node, (whole(BATCH, batch), *rows.view))
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
    known = reading.reader.is_fed(places)
    if known and hasattr(weight, "target") and len(places.shape) == 2:
        try:
            attrs = {"num_embeddings": weight.shape[0], "embedding_dim": weight.shape[1], "init": "uniform_0.05"}
            made = reading.reader.plain(reading.node(node, "Embedding", [places.node], attrs, weight=weight))
            return without_row(reading, node, made, places, a.get("padding_idx", -1))
        except NotExpressible:
            pass
    return without_row(reading, node, gather(reading, node, weight, places), places, a.get("padding_idx", -1))


def without_row(reading: Any, node: Any, rows: Value, places: Any, row: int) -> Value:
    """Rows of an embedding of which one, that of padding, gets no gradient."""
    if row < 0 or not isinstance(places, Value):
        return rows
    is_row = emit(reading, node, "Equal", places, float(row))
    is_row = reading.reshape(is_row, (*is_row.shape, 1))
    return emit(reading, node, "Where", is_row, Value(reading.node(node, "Detach", [rows.node], {}), rows.view), rows)


def gather_along(reading: Any, node: Any, a: Arguments) -> Any:
    """From a constant that is one number everywhere."""
    x = a["self"]
    if isinstance(x, Value) or hasattr(x, "target") or not bool((x == x.flatten()[0]).all()):
        refuse("gather", "by computed places")
    return x.new_full(shape_of(node), x.flatten()[0].item())


HANDLERS: Dict[str, Handler] = {
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
    "gather": gather_along,
    "embedding": embedding,
}
