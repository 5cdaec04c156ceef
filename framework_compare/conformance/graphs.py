"""Small networks that hold all ops of GraphBuilder between them, and those of ops that an adapter declares."""

from collections.abc import Callable, Collection

import numpy as np

from framework_compare import registry
from framework_compare.graph import Graph, GraphBuilder

NAMES: list[str] = []  # of those that the ladder is climbed with


def _network(body: Callable[[GraphBuilder, int], object]) -> Callable[..., Graph]:
    """Make a network known by its name from what adds its nodes, given the number of classes."""
    name = f"conformance-{body.__name__}"
    NAMES.append(name)

    def build(num_classes: int = 3, image_size: int = 32) -> Graph:
        g = GraphBuilder(name, num_classes=num_classes, image_size=image_size)
        body(g, num_classes)
        return g.build()

    build.__doc__ = body.__doc__
    return build


def register() -> None:
    """Make the small networks known by name."""
    for name in NAMES:
        registry.register_model(name, f"{__name__}:{name.rpartition('-')[2]}")


@_network
def branched(g: GraphBuilder, num_classes: int) -> None:
    """Strides, BatchNorm, a depthwise convolution, ReLU6, a shortcut added twice, global average pooling, dropout."""
    g.conv("stem", 8, 3, stride=2, padding=1)
    g.batchnorm("stem_bn")
    g.relu("stem_relu")
    shortcut = g.maxpool("pool", 3, stride=2, padding=1)
    g.conv("widen", 24, 1)
    g.batchnorm("widen_bn", eps=1e-3, momentum=0.01)
    g.relu6("widen_relu6")
    g.conv("depthwise", 24, 3, padding=1, groups=24)
    g.batchnorm("depthwise_bn")
    g.relu6("depthwise_relu6")
    g.conv("narrow", 8, 1)
    branch = g.batchnorm("narrow_bn")
    both = g.add("add", branch, shortcut)
    g.add("again", both, shortcut)  # an engine that adds gradients in place adds one into another here
    g.relu("relu")
    g.global_avgpool("avgpool")
    g.dropout("dropout", 0.2)
    g.linear("fc", num_classes)


@_network
def plain(g: GraphBuilder, num_classes: int) -> None:
    """Biases, groups, pooling without padding, adaptive pooling to windows that overlap, Flatten, two dropouts.

    Its logits are large, so that rounding moves the loss by more than a softmax kernel of few exact digits does.
    """
    g.conv("conv1", 8, 5, stride=2, padding=2, bias=True)
    g.relu("relu1")
    g.maxpool("pool1", 3, stride=2)
    g.conv("conv2", 12, 3, padding=1, groups=2, bias=True)
    g.relu("relu2")
    g.adaptive_avgpool("avgpool", 3)
    g.flatten("flatten")
    g.dropout("dropout1", 0.5)
    g.linear("fc1", 32, init="kaiming_normal_fan_in")
    g.relu("relu3")
    g.dropout("dropout2", 0.5)
    g.linear("fc2", num_classes, init="kaiming_normal_fan_in")


@_network
def gated(g: GraphBuilder, num_classes: int) -> None:
    """Squeeze and excitation, hard activations and SiLU, windows of two numbers, stochastic depth."""
    g.conv("stem", 8, 3, stride=2, padding=[0, 1, 0, 1])
    g.batchnorm("stem_bn")
    block = g.hardswish("stem_act")
    g.conv("across", 8, [1, 5], padding=[0, 4], dilation=[1, 2], bias=True)
    g.conv("down", 8, [5, 1], stride=[2, 1], padding=[2, 0])
    g.batchnorm("down_bn")
    wide = g.silu("down_act")
    g.conv("dilated", 8, 3, padding=2, dilation=2, groups=8)
    g.batchnorm("dilated_bn")
    features = g.hardswish("dilated_act")
    g.adaptive_avgpool("squeeze", 1)
    g.conv("reduce", 4, 1, bias=True)
    g.relu("reduce_relu")
    g.conv("excite", 8, 1, bias=True)
    gate = g.hardsigmoid("gate")
    g.mul("gated", gate, features)
    g.conv("project", 8, 1)
    g.batchnorm("project_bn")
    branch = g.stochastic_depth("depth", 0.2)
    g.add("add", branch, wide)
    g.adaptive_avgpool("rows", [4, 1])
    scaled = g.sigmoid("sigmoid")
    g.conv("shortcut", 8, 1, source=block)
    g.adaptive_avgpool("shortcut_pool", [4, 2])
    g.mul("by_row", "shortcut_pool", scaled)
    g.flatten("flatten")
    g.linear("fc1", 16, init="kaiming_normal_fan_in")
    g.hardswish("fc1_act")
    g.linear("fc2", num_classes, init="kaiming_normal_fan_in", bias=False)


@_network
def joined(g: GraphBuilder, num_classes: int) -> None:
    """Branches joined, cut and shuffled, a layer called twice, pooling that rounds up, flattened values no Linear reads."""
    g.conv("stem", 8, 3, stride=2, padding=1)
    g.maxpool("stem_pool", 3, stride=2, ceil_mode=True)
    g.batchnorm("stem_bn")
    stem = g.relu("stem_relu")
    g.conv("left", 4, 1, bias=True)  # another value is read by it below
    left = g.relu("left_relu")
    g.conv("right", 8, 3, padding=1, bias=True, source=stem)
    right = g.relu("right_relu")
    g.concat("joined", left, right, stem)
    g.maxpool("joined_pool", [3, 2], stride=2, ceil_mode=True)
    g.batchnorm("joined_bn")
    g.relu("joined_relu")
    first = g.split("first", 0, [8, 12], 0)
    second = g.split("second", 0, [8, 12], 1, source="joined_relu")
    g.conv("second_conv", 8, 3, padding=1, groups=4, source=second)
    g.again("left_again", "left", "second_conv")
    g.concat("again", first, "second_conv", "left_again")
    shuffled = g.channel_shuffle("shuffle", 2)
    g.avgpool("average", 2, stride=2, ceil_mode=True)
    g.conv("to_vector", 6, 1)
    pooled = g.flatten("pooled")
    g.avgpool("counted", 3, stride=2, padding=1, count_include_pad=True, ceil_mode=True, source=shuffled)
    g.take("corner", 1, 0, 3, step=2)
    g.layernorm("corner_norm")
    corner = g.flatten("flat_corner")
    g.concat("both", pooled, corner)
    g.linear("fc", num_classes, init="kaiming_normal_fan_in")


@_network
def attention(g: GraphBuilder, num_classes: int) -> None:
    """A ConvNeXt block with its scale of each channel, then a ViT block with class token and positions."""
    patches = g.conv("patches", 12, 8, stride=8, bias=True)
    g.conv("depthwise", 12, 3, padding=1, groups=12, bias=True)
    g.layernorm("norm", eps=1e-6)
    g.linear("up", 24, init="kaiming_normal_fan_in")
    g.gelu("gelu")
    branch = g.linear("down", 12, init="kaiming_normal_fan_in")
    scale = g.parameter("scale", [12, 1, 1])
    g.mul("scaled", scale, branch)
    depth = g.stochastic_depth("depth", 0.1)
    g.add("residual", depth, patches)
    tokens = g.tokens("tokens")
    token = g.parameter("class_token", [1, 12])
    g.concat("with_token", token, tokens, axis=0)
    positions = g.parameter("positions", g.shape())
    start = g.add("positioned", "with_token", positions)
    g.layernorm("norm1")
    g.linear("qkv", 36, init="kaiming_normal_fan_in")
    g.attention("attention", 3)
    g.linear("out", 12, init="kaiming_normal_fan_in", bias=False)
    attended = g.again("out_again", "out")
    middle = g.add("residual1", start, attended)
    g.layernorm("norm2")
    g.linear("fc1", 24, init="kaiming_normal_fan_in")
    g.gelu("fc1_gelu", approximate="tanh")
    g.dropout("dropout", 0.1)
    mixed = g.linear("fc2", 12, init="kaiming_normal_fan_in")
    end = g.add("residual2", middle, mixed)
    g.layernorm("norm3")
    first = g.select("first", 0)
    mean = g.global_avgpool("mean", source=end)
    g.add("both", first, mean)
    g.linear("head", num_classes, init="kaiming_normal_fan_in")


@_network
def windows(g: GraphBuilder, num_classes: int) -> None:
    """A block of Swin with its padding, shifted windows and relative bias, attention of three inputs, a merging."""
    g.conv("patches", 8, 4, stride=4, bias=True)
    start = g.layernorm("norm")
    g.layernorm("norm1")
    side, lack = g.shape()[1], -g.shape()[1] % 3
    g.pad("pad", [0, lack, lack, 0])
    g.roll("shift", [-1, -1])
    g.windows("windows", [3, 3])
    g.linear("qkv", 24, init="kaiming_normal_fan_in")
    bias = g.relative_bias("bias", [3, 3], 2)
    g.attention("attention", 2, "qkv", bias=bias, shifted=([3, 3], [1, 1]))
    g.linear("out", 8, init="kaiming_normal_fan_in")
    g.from_windows("whole", [3, 3])
    g.roll("back", [1, 1])
    g.take("rows", 1, 0, side)
    branch = g.take("columns", 2, lack, lack + side)
    g.add("residual", start, branch)
    whole = side - side % 2
    even, odd = (g.take(f"rows{i}", 1, i, whole, step=2, source="residual") for i in (0, 1))
    sides = ((i, j, rows) for i, rows in enumerate((even, odd)) for j in (0, 1))
    parts = [g.take(f"part{i}{j}", 2, j, whole, step=2, source=rows) for i, j, rows in sides]
    g.concat("merged", *parts)
    g.layernorm("merged_norm")
    g.linear("merge", 16, init="kaiming_normal_fan_in", bias=False)
    tokens = g.tokens("tokens")
    q, k, v = (g.linear(name, 16, init="kaiming_normal_fan_in", source=tokens) for name in ("q", "k", "v"))
    g.attention("plain", 4, q, k, v, scale=0.4)
    g.global_avgpool("mean")
    g.linear("head", num_classes, init="kaiming_normal_fan_in")


@_network
def primitives(g: GraphBuilder, num_classes: int) -> None:
    """Return what programs compute beside layers: on images, on matrices, on constants."""
    one = g.constant("one", np.ones((1, 1, 1)))
    g.conv("stem", 8, 4, stride=4, bias=True, init="kaiming_normal_fan_in", source="input")
    g.op("norm", "GroupNorm", groups=2, channels=8, eps=1e-3)
    leaky = g.op("leaky", "LeakyReLU", slope=0.1)
    window = {"in_channels": 8, "out_channels": 4, "kernel": [3, 2], "stride": 2, "padding": [1, 0], "groups": 2}
    kernel = g.parameter("up_kernel", [8, 2, 3, 2], init="kaiming_normal_fan_in")
    up = g.op("up", "ConvTranspose", leaky, kernel, output_padding=[1, 0], **window)
    raw = g.parameter("kernel", [6, 2, 3, 3], init="kaiming_normal_fan_in")
    apart = g.op("apart", "Sub", raw, g.op("kernel_mean", "ReduceMean", raw, axes=[1, 2, 3]))
    window = {"in_channels": 4, "out_channels": 6, "kernel": 3, "stride": [2, 1], "padding": 1, "groups": 2}
    x = g.op("convolved", "Convolve", up, apart, **window)
    wave = g.add("wave", g.op("sin", "Sin", x), g.mul("twice", g.op("cos", "Cos", x), x))
    size = g.op("root", "Sqrt", g.add("more", g.op("abs", "Abs", wave), one))
    share = g.op("share", "Div", g.op("erf", "Erf", wave), size)
    g.op("power", "Power", size, exponent=-1.5)
    g.op("capped", "Minimum", g.op("raised", "Maximum", share, g.parameter("floor", [6, 1, 1])), "power")
    pixels = g.shape()[1] * g.shape()[2]
    rows = g.op("rows", "Permute", g.op("cut", "Reshape", shape=[6, pixels]), order=[1, 0])
    scores = g.op("scores", "MatMul", rows, g.parameter("matrix", [6, 5], init="kaiming_normal_fan_in"), inner=6)
    g.op("turned", "Permute", g.op("weighed", "Softmax", scores, axis=0), order=[1, 0])
    g.op("joined", "MatMul", "turned", rows, inner=pixels)  # (5, 6)
    g.op("logs", "LogSoftmax", axis=1)
    sums = g.op("sums", "CumSum", axis=0)
    g.op("taken", "Take", axis=1, index=[3, 1, 1, 0])
    g.op("padded", "PadAxes", pads=[[1, 0], [0, 2]], value=-40.0)
    g.op("exp", "Exp", g.op("tamed", "Sub", "padded", g.op("most", "ReduceMax", axes=[1])))
    first = g.op("wide", "Expand", g.op("total", "ReduceSum", axes=[0]), shape=[5, 6])
    ones = g.constant("ones", np.ones((5, 6)))
    places = g.op("places", "CumSum", ones, axis=1)
    behind = g.op("behind", "Less", ones, places)
    chosen = g.op("chosen", "Where", g.op("here", "Equal", places, ones), first, sums)
    g.op("logged", "Log", g.op("positive", "Exp", g.mul("damped", chosen, g.parameter("damping", [1, 6]))))
    g.op("held", "Mul", "logged", g.op("detach", "Detach", "logged"))
    g.op("gated", "Sub", "held", behind)
    index = g.op("index", "Cast", g.op("until", "LessEqual", places, ones))
    index = g.op("index_row", "Reshape", g.take("index_first", 0, 0, 1, source=index), shape=[6])
    g.op("rows_of", "Gather", g.parameter("table", [2, 5]), index)
    g.op("together", "MatMul", "gated", "rows_of", inner=6)
    signs = g.constant("signs", 2 * (np.arange(25.0).reshape(5, 5) % 3 - 1))
    g.op("signed", "Mul", "together", g.op("sign", "Sign", signs))
    # Logits of hundreds would hit the bound of 64 that Paddle's softmax has on a CPU.
    small = g.mul("small", "signed", g.constant("scale", np.full((1, 1), 1 / 64)))
    g.op("flat", "Reshape", small, shape=[25])
    g.linear("head", num_classes, init="kaiming_normal_fan_in")


@_network
def normed(g: GraphBuilder, num_classes: int) -> None:
    """BatchNorm with the fewest other ops, for adapters that declare few."""
    g.conv("stem", 8, 3, stride=2, padding=1)
    g.batchnorm("stem_bn")
    g.relu("stem_relu")
    g.maxpool("pool", 3, stride=2, padding=1)
    g.conv("widen", 12, 3, padding=1)
    g.batchnorm("widen_bn", eps=1e-3, momentum=0.01)
    g.relu("relu")
    g.global_avgpool("avgpool")
    g.linear("fc", num_classes)


def heavy(num_classes: int = 3, image_size: int = 64) -> Graph:
    """Convolutions that keep a core busy for tens of milliseconds a step, so that a second thread would have work."""
    g = GraphBuilder("conformance-heavy", num_classes=num_classes, image_size=image_size)
    g.conv("conv1", 32, 3, padding=1)
    g.relu("relu1")
    g.conv("conv2", 64, 3, padding=1)
    g.relu("relu2")
    g.global_avgpool("avgpool")
    g.linear("fc", num_classes)
    return g.build()


def ops_of(graph: Graph) -> set[str]:
    return {node.op for node in graph.nodes}


def questioned(ops: Collection[str], num_classes: int, image_size: int) -> Graph:
    """Return the network of conduct: `branched`, or the part of a smaller one that these ops suffice for."""
    return _suited(branched(num_classes, image_size), ops, "stem", "fc")


def replacing(ops: Collection[str], num_classes: int, image_size: int) -> Graph:
    """Return the network that replaces the first one, of these ops: its layers have other names and shapes."""
    return _suited(plain(num_classes, image_size), ops, "conv1", "fc2")


def busy(ops: Collection[str], num_classes: int) -> Graph:
    """Return the network on which threads are watched: `heavy`, or a wide layer on all pixels."""
    whole = heavy(num_classes)
    if ops_of(whole).issubset(ops):
        return whole
    g = GraphBuilder("conformance-wide", num_classes=num_classes, image_size=whole.image_size)
    _to_vector(g, ops)
    g.linear("wide", 512, init="kaiming_normal_fan_in")
    g.linear("fc", num_classes)
    return g.build()


def _suited(whole: Graph, ops: Collection[str], first: str, last: str) -> Graph:
    """Return a network, or what of convolution, BatchNorm, ReLU, pooling and dropout is among these ops, and a Linear."""
    if ops_of(whole).issubset(ops):
        return whole
    g = GraphBuilder("conformance-declared", num_classes=whole.num_classes, image_size=whole.image_size)
    if "Conv2d" in ops:
        g.conv(first, 8, 3, stride=2, padding=1, bias=True)
    if "BatchNorm2d" in ops:
        g.batchnorm(f"{first}_bn")
    if "ReLU" in ops:
        g.relu(f"{first}_relu")
    if "MaxPool2d" in ops:
        g.maxpool("pool", 2, stride=2)
    _to_vector(g, ops)
    if "Dropout" in ops:
        g.dropout("dropout", 0.2)
    g.linear(last, whole.num_classes, init="kaiming_normal_fan_in")
    return g.build()


def _to_vector(g: GraphBuilder, ops: Collection[str]) -> None:
    if "Flatten" in ops:
        g.flatten("flatten")
    else:
        g.global_avgpool("avgpool")


def lack(ops: Collection[str]) -> str:
    """Return what the smallest network needs of ops that are not among these, in words; "" where it can be built."""
    lacking = [] if "Linear" in ops else ["op 'Linear'"]
    if not {"Flatten", "GlobalAvgPool"} & set(ops):
        lacking.append("op 'Flatten' or 'GlobalAvgPool'")
    return " and ".join(lacking)
