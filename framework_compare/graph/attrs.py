"""Attributes of nodes that GraphBuilder and the importers write: each in its shortest form, defaults left out."""

from framework_compare.graph.window import Numbers, plain
from framework_compare.json_types import Fields


def unless(default: object, **attr: object) -> Fields:
    """The attribute where it is not the default: a graph without it is the same, and so is its checksum."""
    return {name: value for name, value in attr.items() if value != default}


def window_attrs(kernel: Numbers, stride: Numbers, padding: Numbers) -> Fields:
    return {"kernel": plain(kernel), "stride": plain(stride), "padding": plain(padding)}


def conv_attrs(
    into: int,
    out: int,
    kernel: Numbers,
    *,
    bias: bool,
    stride: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
    init: str = "kaiming_normal_fan_out",
) -> Fields:
    attrs = {"in_channels": into, "out_channels": out, **window_attrs(kernel, stride, padding)}
    return {**attrs, "groups": groups, "bias": bias, "init": init, **unless(1, dilation=plain(dilation))}


def linear_attrs(into: int, out: int, *, bias: bool, init: str = "normal_0.01") -> Fields:
    return {"in_features": into, "out_features": out, "init": init, **unless(True, bias=bias)}
