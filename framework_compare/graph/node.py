"""A layer of a network and the arrays it has.

Shapes leave the batch out. Their rank says what a value is: features (features,), a sequence (steps, features), an image
or feature map (channels, height, width), the windows of an image (rows, across, steps, features). Features are the
channels of an image and the last axis of all else. Arrays are batch-first everywhere: (N, steps, features).
"""

import dataclasses
import math
from typing import List, Tuple

from framework_compare.graph.window import Numbers, plain
from framework_compare.json_types import Document, Fields

Shape = Tuple[int, ...]
IMAGE = 3  # rank of an image


@dataclasses.dataclass(frozen=True)
class Parameter:
    """An array of the network with the initialiser that fills it.

    trainable: a step updates it. frozen: it would be trained, but its part of the network is frozen, or it is a
    constant. A running statistic is neither: training leaves a new value in it, without a gradient.
    """

    name: str
    shape: Shape
    init: str
    trainable: bool = True
    frozen: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def part(self) -> str:
        """The name that it has in its layer."""
        return self.name.rpartition(".")[2]

    @property
    def kind(self) -> str:
        """ "trained", "frozen" or "statistic"."""
        return "frozen" if self.frozen else "trained" if self.trainable else "statistic"


@dataclasses.dataclass(frozen=True)
class Node:
    """One layer: its torch.nn name in the network, its op, the nodes it reads, its attributes.

    The attribute "arrays" names another layer of the same op and the same attributes whose arrays it has, too: a module
    that is called twice. Their gradients add.
    """

    name: str
    op: str
    inputs: Tuple[str, ...]
    attrs: Document

    @property
    def arrays(self) -> str:
        """The name in front of those of its arrays."""
        return str(self.attrs.get("arrays", self.name))


def arrays(node: Node, **named: Tuple[Shape, str]) -> List[Parameter]:
    """Arrays that a step trains: shape and initialiser of each."""
    return [Parameter(f"{node.arrays}.{name}", shape, init) for name, (shape, init) in named.items()]


def affine(node: Node, features: int) -> List[Parameter]:
    """Scale and shift of a normalisation."""
    return arrays(node, weight=((features,), "ones"), bias=((features,), "zeros"))


def weight_and_bias(node: Node, *shape: int) -> List[Parameter]:
    """Return the parameters of a layer whose weight has outputs first; no bias if the node says so."""
    bias = {"bias": (shape[:1], "zeros")} if node.attrs.get("bias", True) else {}
    return arrays(node, weight=(shape, node.attrs["init"]), **bias)


def feature_axis(shape: Shape) -> int:
    """Axis of a shape without the batch on which its features stand."""
    return 0 if len(shape) == IMAGE else len(shape) - 1


def with_features(shape: Shape, features: int) -> Shape:
    """The shape with another number of features."""
    axis = feature_axis(shape)
    return (*shape[:axis], features, *shape[axis + 1 :])


# -- attributes, each in its shortest form, defaults left out ----------------------------------------------------------


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
