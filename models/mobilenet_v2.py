"""MobileNetV2, width 1.0 (Sandler et al. 2018, table 2), torchvision's names and initialisers."""

from framework_compare.graph import Graph, GraphBuilder

# expansion t, channels c, repeats n, stride s
INVERTED_RESIDUALS = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


def build(num_classes: int = 3, image_size: int = 224) -> Graph:
    g = GraphBuilder("mobilenet_v2", num_classes=num_classes, image_size=image_size)
    _conv_bn_relu6(g, "features.0", 32, 3, stride=2)
    index = 1
    for expansion, channels, repeats, first_stride in INVERTED_RESIDUALS:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            _inverted_residual(g, f"features.{index}", expansion, channels, stride)
            index += 1
    _conv_bn_relu6(g, f"features.{index}", 1280, 1)
    g.global_avgpool("avgpool")
    g.dropout("classifier.0", 0.2)
    g.linear("classifier.1", num_classes)
    return g.build()


def _conv_bn_relu6(g: GraphBuilder, name: str, out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
    g.conv(f"{name}.0", out, kernel, stride=stride, padding=kernel // 2, groups=groups)
    g.batchnorm(f"{name}.1")
    g.relu6(f"{name}.2")


def _inverted_residual(g: GraphBuilder, name: str, expansion: int, channels: int, stride: int) -> None:
    source = g.last
    hidden = g.shape()[0] * expansion
    layer = 0
    if expansion != 1:
        _conv_bn_relu6(g, f"{name}.conv.0", hidden, 1)
        layer = 1
    _conv_bn_relu6(g, f"{name}.conv.{layer}", hidden, 3, stride=stride, groups=hidden)
    g.conv(f"{name}.conv.{layer + 1}", channels, 1)
    projection = g.batchnorm(f"{name}.conv.{layer + 2}")
    if g.shape(source) == g.shape(projection):
        g.add(f"{name}.add", projection, source)
