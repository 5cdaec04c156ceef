"""Shapes and parameters of the ops that read images or make them."""

import math
from typing import List, Tuple

from framework_compare.errors import UsageError
from framework_compare.graph.node import IMAGE, Node, Parameter, Shape, arrays, weight_and_bias
from framework_compare.graph.window import Window
from framework_compare.json_types import Document


def image(node: Node, shape: Shape) -> Shape:
    """The shape of an image; UsageError for another."""
    if len(shape) != IMAGE:
        raise UsageError(f"layer {node.name}: expects an image (channels, height, width), gets shape {shape}")
    return shape


def conv2d_shape(node: Node, shape: Shape) -> Shape:
    a = node.attrs
    if image(node, shape)[0] != a["in_channels"]:
        raise UsageError(f"layer {node.name}: expects {a['in_channels']} channels, gets {shape[0]}")
    return (a["out_channels"], *_window(node, shape))


def _window(node: Node, shape: Shape) -> Tuple[int, int]:
    """Height and width after a sliding window."""
    window = Window.of(node.attrs)
    size = window.output(shape[1:])
    padded = (pixels + sum(pads) for pixels, pads in zip(shape[1:], window.pads))
    if min(size) < 1 or any(span > pixels for span, pixels in zip(window.spans, padded)):
        height, width = window.spans
        raise UsageError(f"layer {node.name}: a {height}x{width} window does not fit {shape[1]}x{shape[2]}")
    return size


def pool2d_shape(node: Node, shape: Shape) -> Shape:
    window = Window.of(node.attrs)
    if not window.is_symmetric:
        raise UsageError(f"layer {node.name}: padding {node.attrs['padding']} of a pooling is not symmetric")
    if any(2 * pads[0] > kernel for pads, kernel in zip(window.pads, window.kernel)):  # a window of nothing but padding
        raise UsageError(f"layer {node.name}: padding {node.attrs['padding']} is more than half the window")
    return (image(node, shape)[0], *_window(node, shape))


def conv2d_parameters(node: Node) -> List[Parameter]:
    a = node.attrs
    return weight_and_bias(node, a["out_channels"], a["in_channels"] // a["groups"], *Window.of(a).kernel)


def adaptive_size(attrs: Document) -> Tuple[int, int]:
    """Height and width of an adaptive pooling's output, which is one number or two."""
    output = attrs["output"]
    height, width = (output, output) if isinstance(output, int) else output
    return height, width


def adaptive_avgpool2d_shape(node: Node, shape: Shape) -> Shape:
    return (image(node, shape)[0], *adaptive_size(node.attrs))


def global_avgpool_shape(node: Node, shape: Shape) -> Shape:
    if len(shape) not in (2, IMAGE):
        raise UsageError(f"layer {node.name}: expects an image or a sequence, gets shape {shape}")
    return shape[:1] if len(shape) == IMAGE else shape[1:]


def channel_shuffle_shape(node: Node, shape: Shape) -> Shape:
    if image(node, shape)[0] % node.attrs["groups"]:
        raise UsageError(f"layer {node.name}: {shape[0]} channels cannot be divided into {node.attrs['groups']} groups")
    return shape


def pad_shape(node: Node, shape: Shape) -> Shape:
    top, bottom, left, right = node.attrs["padding"]
    channels, height, width = image(node, shape)
    return (channels, height + top + bottom, width + left + right)


def tokens_shape(node: Node, shape: Shape) -> Shape:
    channels, height, width = image(node, shape)
    return (height * width, channels)


def windows_shape(node: Node, shape: Shape) -> Shape:
    (channels, height, width), (down, across) = image(node, shape), node.attrs["window"]
    if height % down or width % across:
        raise UsageError(f"layer {node.name}: {down}x{across} windows do not divide {height}x{width}")
    return (height // down, width // across, down * across, channels)


def from_windows_shape(node: Node, shape: Shape) -> Shape:
    down, across = node.attrs["window"]
    if len(shape) != IMAGE + 1 or shape[2] != down * across:
        raise UsageError(f"layer {node.name}: expects {down}x{across} windows of an image, gets shape {shape}")
    return (shape[3], shape[0] * down, shape[1] * across)


def quanv2d_shape(node: Node, shape: Shape) -> Shape:
    if len(shape) != IMAGE or shape[0] != 1 or min(shape[1:]) < 2:
        raise UsageError(f"layer {node.name}: expects a grey image (1, height, width) of at least 2x2, gets {shape}")
    return (4, shape[1] // 2, shape[2] // 2)


def quanv2d_parameters(node: Node) -> List[Parameter]:
    angles = sum(name != "CNOT" for name, _, _ in node.attrs["gates"])
    return arrays(node, angles=((angles,), "uniform_circle")) if node.attrs["trained"] else []


def window_macs(node: Node, out: Shape) -> int:
    """Each weight of a convolution is used once at each place of the output."""
    return conv2d_parameters(node)[0].size * math.prod(out[1:])
