"""A graph in the ops that a framework has: what only moves numbers becomes Reshape, Permute and Slice.

Axes of a program are those of the framework's arrays, the batch first and an image's channels where the framework has them.
Ops that no graph of a user's has, and their attributes:

Reshape: shape, with -1 for the batch. Permute: order of all axes. Select: axis, which is gone, and index. Max, Mean: axis,
which is gone. Repeat: a value of length 1 along the batch and `shape` else, for each sample of a second one. Constant:
value, a float32 array of length 1 along the batch.

Slice and Split count `axis` likewise, as Concat, Reverse and Roll (`axes`) do; Slice always has its step, and `at`, by which
an array is indexed. Pad has `pads`, (before, behind) for each axis. Attention has `mask`, an array or None, and `operands`,
1 or 3; RelativeBias has `index`, Constant its `value`. Quanv2d reads the pixels of patches (N, patches, 4) and gives as many.
"""

import math
import re
from typing import Callable, Collection, FrozenSet, List, Mapping, Sequence, Tuple

import numpy as np

from framework_compare.graph.attention import relative_index, rotary_tables, shift_mask
from framework_compare.graph.network import Graph
from framework_compare.graph.node import IMAGE, Node, Shape
from framework_compare.graph.ops import OPS, concat_axis
from framework_compare.graph.primitives import ALONG, REDUCTIONS, constant_array
from framework_compare.graph.program import Lowering, Program, Step, permuted, reshaped
from framework_compare.graph.window import Window
from framework_compare.json_types import Fields

# Axes of the input and of the output in a graph; those in brackets are one axis.
PATTERNS = {
    "Tokens": "c h w -> (h w) c",
    "ChannelShuffle": "(g c) h w -> (c g) h w",
    "Windows": "c (r d) (l a) -> r l (d a) c",
    "FromWindows": "r l (d a) c -> c (r d) (l a)",
}
# What an op needs of a framework that has none of that name; of its forms, those in graphs of images.
NEEDS: Mapping[str, FrozenSet[str]] = {
    "Flatten": frozenset({"Reshape"}),
    **dict.fromkeys(PATTERNS, frozenset({"Reshape", "Permute"})),
    "GlobalAvgPool": frozenset({"AdaptiveAvgPool2d", "Reshape"}),
    "Maxout": frozenset({"Reshape", "Max"}),
    "Last": frozenset({"Select"}),
    "Split": frozenset({"Slice"}),
    "Roll": frozenset({"Slice", "Concat"}),
    "Rotary": frozenset({"Reshape", "Slice", "Concat", "Mul", "Add", "Constant"}),
}
# Forms of ops that a framework may have beside the usual one; without it another op is put in front.
OF_CHANNELS = {"Linear": "LinearOfChannels", "LayerNorm": "LayerNormOfChannels"}  # of an image's, in front of its rows
UNEVEN = "Conv2dPaddedUnevenly"


def graph_ops(has: Collection[str]) -> FrozenSet[str]:
    """The ops of graphs that a framework with these computes."""
    return frozenset(op for op in OPS if op in has or (op in NEEDS and NEEDS[op].issubset(has)))


def lowered(
    graph: Graph,
    has: Collection[str],
    *,
    channels_last: bool = False,
    as_stored: Collection[str] = (),
    views: bool = False,
) -> Program:
    """The program for a framework that has the ops `has`.

    as_stored: names of each Flatten whose readers take the order of an image's axes that the framework has. views:
    Permute copies nothing, so that what becomes an image keeps its channels last in memory.
    """
    lowering = Lowering(graph, frozenset(has), channels_last, frozenset(as_stored), views)
    for node in graph.nodes:
        if node.op in RULES:
            RULES[node.op](lowering, node, lowering.given[node.inputs[0]] if node.inputs else ())
        else:
            lowering.one(node)
    return Program(graph, lowering.needed(), lowering.shapes, frozenset(lowering.shared))


Rule = Callable[[Lowering, Node, Shape], None]  # shape: of the first input, in the graph


# -- shapes and orders ---------------------------------------------------------------------------------------------------

PATCHES, FROM_PATCHES = "c (r d) (l a) -> (r l) (c d a)", "(r l) q -> q r l"


def _rearranged(to: Lowering, pattern: str, shape: Shape, **sizes: int) -> List[Step]:
    """Rearrange a shape of the graph by Reshape, Permute and Reshape, each where it changes something."""
    left, right = ([(one or other).split() for one, other in _GROUP.findall(side)] for side in pattern.split("->"))
    for group, size in zip(left, shape):
        unknown = [axis for axis in group if axis not in sizes]
        sizes.update({axis: size // math.prod(sizes.get(one, 1) for one in group) for axis in unknown})
    as_view = to.views and len(left) != IMAGE == len(right)
    given, wanted = to.own(left), (*right[1:], right[0]) if as_view else to.own(right)
    axes = [axis for group in given for axis in group]
    order = [axes.index(axis) for group in wanted for axis in group]
    cut = reshaped(*(sizes[axis] for axis in axes))
    out = reshaped(*(math.prod(sizes[axis] for axis in group) for group in wanted))
    steps = [cut] if len(axes) > len(given) else []
    steps += [permuted(cut.shape, *order)] if order != sorted(order) else []
    steps += [out] if len(axes) > len(wanted) else []
    return [*steps, permuted(out.shape, 2, 0, 1)] if as_view else steps


_GROUP = re.compile(r"\(([^)]*)\)|(\w)")


def _moved(to: Lowering, node: Node, shape: Shape) -> None:
    if node.op in to.has:
        to.one(node)
        return
    a = node.attrs
    sizes = {"g": a["groups"]} if "groups" in a else dict(zip("da", a.get("window", ())))
    to.chain(node, *_rearranged(to, PATTERNS[node.op], shape, **sizes))


def _flatten(to: Lowering, node: Node, shape: Shape) -> None:
    turned = len(shape) == IMAGE and node.name not in to.as_stored
    to.chain(node, *(_rearranged(to, "c h w -> (c h w)", shape) if turned else [reshaped(math.prod(shape))]))


def _maxout(to: Lowering, node: Node, shape: Shape) -> None:
    pieces, out = node.attrs["pieces"], to.given[node.name]
    to.chain(node, reshaped(*out, pieces), Step("Max", {"axis": 1 + len(out)}, out))


def _global_avgpool(to: Lowering, node: Node, shape: Shape) -> None:
    out = to.given[node.name]
    if len(shape) == IMAGE:
        to.chain(node, Step("AdaptiveAvgPool2d", {"output": 1}, to.own((*out, 1, 1))), reshaped(*out))
    else:
        to.chain(node, Step("Mean", {"axis": 1}, out))


def _parameter(to: Lowering, node: Node, shape: Shape) -> None:
    value = Step("Parameter", node.attrs, to.given[node.name])
    turned = len(value.shape) == IMAGE and to.channels_last
    to.chain(node, value, *([permuted(value.shape, 1, 2, 0)] if turned else []))


def _quanv2d(to: Lowering, node: Node, shape: Shape) -> None:
    _, rows, columns = to.given[node.name]
    even = (1, 2 * rows, 2 * columns)
    cuts = [to.cut(to.own(shape), to.axis(a, IMAGE), 0, even[a]) for a in (1, 2) if shape[a] != even[a]]
    patches = _rearranged(to, PATCHES, even, d=2, a=2)
    out = Step("Quanv2d", node.attrs, patches[-1].shape)
    to.chain(node, *cuts, *patches, out, *_rearranged(to, FROM_PATCHES, out.shape, r=rows))


# -- parts of axes -------------------------------------------------------------------------------------------------------


def _select(to: Lowering, node: Node, shape: Shape) -> None:
    index = node.attrs.get("index", -1) % shape[0]
    to.chain(node, Step("Select", {"axis": 1, "index": index}, to.given[node.name]))


def _slice(to: Lowering, node: Node, shape: Shape) -> None:
    a = node.attrs
    to.chain(node, to.cut(to.own(shape), to.axis(a["axis"], len(shape)), a["start"], a["end"], a.get("step", 1)))


def _split(to: Lowering, node: Node, shape: Shape) -> None:
    a, axis = node.attrs, to.axis(node.attrs["axis"], len(shape))
    if "Split" in to.has:
        to.one(node, axis=axis)
    else:
        start = sum(a["sizes"][: a["index"]])
        to.chain(node, to.cut(to.own(shape), axis, start, start + a["sizes"][a["index"]]))


def _concat(to: Lowering, node: Node, shape: Shape) -> None:
    """Values without a batch are repeated for each sample of the others."""
    axis = to.axis(concat_axis(node, shape), len(shape))
    like = next((name for name in node.inputs if name not in to.shared), "")
    inputs = [
        to.append(f"{node.name}.repeated{number}", "Repeat", [name, like], {"shape": to.shapes[name]}, to.shapes[name])
        if like and name in to.shared
        else name
        for number, name in enumerate(node.inputs)
    ]
    to.append(node.name, "Concat", inputs, {"axis": axis}, to.own(to.given[node.name]))


def _pad(to: Lowering, node: Node, shape: Shape) -> None:
    to.one(node, pads=_pads(to, node.attrs["padding"]), value=node.attrs.get("value", 0.0))


def _pads(to: Lowering, sides: Sequence[int]) -> Sequence[Tuple[int, int]]:
    """Before and behind each axis of an image's array."""
    top, bottom, left, right = sides
    inner = ((top, bottom), (left, right))
    return ((0, 0), *inner, (0, 0)) if to.channels_last else ((0, 0), (0, 0), *inner)


def _roll(to: Lowering, node: Node, shape: Shape) -> None:
    """Lower Roll: join what leaves the image to its other side, axis by axis."""
    axes = [to.axis(axis, IMAGE) for axis in (1, 2)]
    if "Roll" in to.has:
        to.one(node, axes=axes)
        return
    source, given = node.inputs[0], to.own(shape)
    rolled = [(axis, shift % given[axis - 1]) for axis, shift in zip(axes, node.attrs["shifts"])]
    rolled = [(axis, shift) for axis, shift in rolled if shift] or [(axes[0], given[axes[0] - 1])]
    for number, (axis, shift) in enumerate(rolled, start=1):
        cut, end = given[axis - 1] - shift, given[axis - 1]
        name = node.name if number == len(rolled) else f"{node.name}.lowered{number}"
        behind, before = (to.cut(given, axis, *part) for part in ((cut, end), (0, cut)))
        parts = [
            to.append(f"{name}.{side}", part.op, [source], part.attrs, part.shape)
            for side, part in (("behind", behind), ("before", before))
            if part.shape[axis - 1]
        ]
        source = to.append(name, "Concat", parts, {"axis": axis}, given)


# -- forms of an op ------------------------------------------------------------------------------------------------------


def _of_features(to: Lowering, node: Node, shape: Shape) -> None:
    """Lower an op of features: for channels in front by the framework's own op, or with them turned to the end."""
    if len(shape) != IMAGE or to.channels_last:
        to.one(node)
    elif OF_CHANNELS[node.op] in to.has:
        to.one(node, OF_CHANNELS[node.op])
    else:
        turned, (channels, *places) = permuted(shape, 1, 2, 0), to.given[node.name]
        made = Step(node.op, node.attrs, (*places, channels))
        to.chain(node, turned, made, permuted(made.shape, 2, 0, 1))


def _conv2d(to: Lowering, node: Node, shape: Shape) -> None:
    window = Window.of(node.attrs)
    if window.is_symmetric:
        to.one(node)
    elif UNEVEN in to.has:
        to.one(node, UNEVEN)
    else:
        pads = _pads(to, [side for sides in window.pads for side in sides])
        (top, bottom), (left, right) = window.pads
        padded = to.own((shape[0], shape[1] + top + bottom, shape[2] + left + right))
        conv = Step(node.op, {**node.attrs, "padding": 0}, to.own(to.given[node.name]))
        to.chain(node, Step("Pad", {"pads": pads, "value": 0.0}, padded), conv)


def _attention(to: Lowering, node: Node, shape: Shape) -> None:
    mask = shift_mask(node.attrs, *shape[:2])
    to.one(node, mask=mask, operands=len(node.inputs) - bool(node.attrs.get("bias")))


def _rotary(to: Lowering, node: Node, shape: Shape) -> None:
    """Each head's features times cosines, and with its halves swapped times signed sines.

    A second input (graph.generation) has the positions of the steps, which else stand one after the other.
    """
    steps, heads = shape[0], node.attrs["heads"]
    cut = (steps, heads, shape[1] // heads)
    half, width, name = cut[2] // 2, cut[2], node.name
    x = to.append(f"{name}.heads", "Reshape", node.inputs[:1], {"shape": (-1, *cut)}, cut)
    parts = [to.cut(cut, 3, half, width), to.cut(cut, 3, 0, half)]
    halves = [to.append(f"{name}.half{n}", one.op, [x], one.attrs, one.shape) for n, one in enumerate(parts)]
    swapped = to.append(f"{name}.swapped", "Concat", halves, {"axis": 3}, cut)
    products = []
    window = node.attrs.get("window", steps)
    tables = rotary_tables(window, width, node.attrs["theta"])
    for kind, value, table in zip(("cosines", "sines"), (x, swapped), tables):
        constant = f"rotary_{kind}_{window}_{width}_{node.attrs['theta']:g}".replace(".", "_")
        placed = node.inputs[1:]
        if constant not in to.shapes:  # one for all layers
            table = table[:, 0] if placed else table
            to.append(constant, "Constant", (), {"value": table[None]}, table.shape)
        if placed:
            rows = to.append(f"{name}.{kind}_rows", "Gather", [constant, *placed], {}, (steps, width))
            constant = to.append(f"{rows}_cut", "Reshape", [rows], {"shape": (-1, steps, 1, width)}, (steps, 1, width))
        products.append(to.append(f"{name}.{kind}", "Mul", [value, constant], {}, cut))
    turned = to.append(f"{name}.turned", "Add", products, {}, cut)
    to.append(name, "Reshape", [turned], {"shape": (-1, *shape)}, shape)


def _relative_bias(to: Lowering, node: Node, shape: Shape) -> None:
    attrs = {**node.attrs, "index": relative_index(node.attrs["window"])}
    to.append(node.name, node.op, (), attrs, to.given[node.name])


# -- primitives ----------------------------------------------------------------------------------------------------------


def _along(to: Lowering, node: Node, shape: Shape) -> None:
    """Axes of an array in place of those of the graph."""
    a = node.attrs
    changed: Fields = {"axis": to.axis(a["axis"], len(shape))} if "axis" in a else {}
    if "axes" in a:
        changed["axes"] = tuple(to.axis(axis, len(shape)) for axis in a["axes"])
    if "pads" in a:
        changed["pads"] = ((0, 0), *to.own([tuple(sides) for sides in a["pads"]]))
    to.one(node, **changed)


def _in_graph_order(to: Lowering, node: Node, shape: Shape) -> None:
    """Computed with the axes of the graph; where those of an image stand otherwise, between two Permutes."""
    inputs, out, attrs = [to.plain(name) for name in node.inputs], to.given[node.name], dict(node.attrs)
    if "shape" in attrs:
        attrs["shape"] = (-1, *out)
    if "order" in attrs:
        attrs["order"] = (0, *(1 + axis for axis in attrs["order"]))
    if node.op == "MatMul":  # one matrix for all: no copy of it for each sample
        second = to.given[node.inputs[1]]
        attrs["shared"] = node.inputs[1] in to.shared and math.prod(second[:-2]) == 1
    turned = len(out) == IMAGE and to.channels_last
    made = f"{node.name}.plain" if turned else node.name
    to.append(made, node.op, inputs, attrs, out)
    if turned:
        step = permuted(out, 1, 2, 0)
        to.append(node.name, step.op, [made], step.attrs, step.shape)
        to.plains[node.name] = made


def _constant(to: Lowering, node: Node, shape: Shape) -> None:
    array = constant_array(node.attrs).astype(np.float32)
    turned = np.moveaxis(array, 0, -1) if array.ndim == IMAGE and to.channels_last else array
    to.append(node.name, "Constant", (), {"value": np.ascontiguousarray(turned)[None]}, turned.shape)


RULES: Mapping[str, Rule] = {
    "Constant": _constant,
    **dict.fromkeys((*REDUCTIONS, *ALONG, "Take", "PadAxes"), _along),
    **dict.fromkeys(("Reshape", "Permute", "Expand", "MatMul", "Gather"), _in_graph_order),
    **dict.fromkeys(
        ("Convolve", "ConvTranspose"), lambda to, node, shape: to.one(node, size=to.own(to.given[node.name]))
    ),
    **dict.fromkeys(PATTERNS, _moved),
    "Attention": _attention,
    "Concat": _concat,
    "Conv2d": _conv2d,
    "Flatten": _flatten,
    "GlobalAvgPool": _global_avgpool,
    "Last": _select,
    "LayerNorm": _of_features,
    "Linear": _of_features,
    "Maxout": _maxout,
    "Pad": _pad,
    "Parameter": _parameter,
    "Quanv2d": _quanv2d,
    "RelativeBias": _relative_bias,
    "Reverse": lambda to, node, shape: to.one(node, axis=1),
    "Roll": _roll,
    "Rotary": _rotary,
    "Select": _select,
    "Slice": _slice,
    "Split": _split,
}
