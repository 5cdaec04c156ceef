"""SINGA as its examples have it: a Model of its layers, opt.SGD, eager, on the wheel as our adapter repairs it.

Two parts are ours, as SINGA has none: the repairs, and the convolution in groups of MobileNetV2. Its examples let
gradients pile up until Python's collector runs, and so does this. COLLECT has it run after each step.
"""

import gc

from framework_compare.adapters.singa import repairs
from framework_compare.adapters.singa.operators import Operators

COLLECT = False
ALEXNET = [
    (64, 11, 4, 2, True),
    (192, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, False),
    (256, 3, 1, 1, True),
]
VGG16 = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]
RESNET50 = [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]
MOBILENET_V2 = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


def make(model: str, images, labels, threads: int):
    singa = repairs.load()
    from singa import autograd, opt, tensor
    from singa.model import Model

    parts = Parts(singa)
    steps = NETWORKS[model](parts)

    class Network(Model):
        def forward(self, x):
            for one in steps:
                x = one(x)
            return x

    network = Network()
    network.register_layers(*parts.layers)
    x = tensor.Tensor(data=images, requires_grad=False)
    y = tensor.Tensor(data=labels.astype("int32"), dtype=tensor.int32, requires_grad=False)
    sgd = opt.SGD(lr=0.001, momentum=0.9)
    autograd.training = False
    network.forward(x)  # makes the parameters: autograd would lose gradients of those made in a step
    autograd.training = True

    def step():
        loss = autograd.softmax_cross_entropy(network.forward(x), y)
        sgd(loss)
        value = tensor.to_numpy(loss)[0]
        if COLLECT:
            gc.collect()
        return value

    return step, lambda: None


class Parts:
    """What networks consist of, and in `layers` each layer that was made."""

    def __init__(self, singa):
        from singa import autograd, layer

        self.autograd, self.layer, self.depthwise_layer = autograd, layer, depthwise_of(singa)
        self.layers = []

    def add(self, one):
        self.layers.append(one)
        return one

    def conv(self, out, kernel, stride=1, padding=0, bias=True):
        return self.add(self.layer.Conv2d(out, kernel, stride=stride, padding=padding, bias=bias))

    def depthwise(self, channels, stride):
        return self.add(self.depthwise_layer(channels, stride))

    def normed(self, one, relu=None):
        norm = self.add(self.layer.BatchNorm2d(momentum=0.1))
        return (lambda x: norm(one(x))) if relu is None else (lambda x: relu(norm(one(x))))

    def relu6(self, x):
        return self.autograd.clip(x, 0.0, 6.0)

    def linear(self, width):
        return self.add(self.layer.Linear(width))

    def max_pool(self, *window):
        return self.add(self.layer.MaxPool2d(*window))

    def avg_pool(self, *window):
        return self.add(self.layer.AvgPool2d(*window))


def depthwise_of(singa):
    from singa import layer, tensor

    operators = Operators(singa, private=False)

    class Depthwise(layer.Layer):
        def __init__(self, channels, stride):
            super().__init__()
            self.a = dict(out_channels=channels, kernel=3, stride=stride, padding=1, groups=channels, bias=False)

        def initialize(self, x):
            shape = (self.a["groups"], 1, 3, 3)
            self.W = tensor.Tensor(shape, requires_grad=True, stores_grad=True, name=f"{self.name}.W")
            self.W.gaussian(0.0, 0.1)
            self.handle = operators.conv_handle(self.a, x)

        def forward(self, x):
            return operators.grouped_conv2d(self.handle, self.a["groups"], x, self.W, None)

    return Depthwise


def alexnet(parts):
    autograd, steps = parts.autograd, []
    for out, kernel, stride, padding, pooled in ALEXNET:
        steps += [parts.conv(out, kernel, stride, padding), autograd.relu]
        steps += [parts.max_pool(3, 2)] if pooled else []
    linears = [parts.linear(width) for width in (4096, 4096, 3)]

    def classify(x):
        x = autograd.flatten(x)
        for linear in linears[:-1]:
            x = autograd.relu(linear(autograd.dropout(x, 0.5)))
        return linears[-1](x)

    return [*steps, classify]


def vgg16(parts):
    autograd, steps = parts.autograd, []
    for out, times in VGG16:
        for _ in range(times):
            steps += [parts.conv(out, 3, 1, 1), autograd.relu]
        steps.append(parts.max_pool(2, 2))
    linears = [parts.linear(width) for width in (4096, 4096, 3)]

    def classify(x):
        x = autograd.flatten(x)
        for linear in linears[:-1]:
            x = autograd.dropout(autograd.relu(linear(x)), 0.5)
        return linears[-1](x)

    return [*steps, classify]


def bottleneck(parts, width, stride, projected):
    autograd, conv, normed = parts.autograd, parts.conv, parts.normed
    first = normed(conv(width, 1, stride, bias=False), autograd.relu)
    second = normed(conv(width, 3, 1, 1, bias=False), autograd.relu)
    third = normed(conv(4 * width, 1, bias=False))
    shortcut = normed(conv(4 * width, 1, stride, bias=False)) if projected else lambda x: x
    return lambda x: autograd.relu(autograd.add(third(second(first(x))), shortcut(x)))


def resnet50(parts):
    autograd = parts.autograd
    steps = [parts.normed(parts.conv(64, 7, 2, 3, bias=False), autograd.relu), parts.max_pool(3, 2, 1)]
    for width, blocks, stride in RESNET50:
        steps += [bottleneck(parts, width, stride if block == 0 else 1, block == 0) for block in range(blocks)]
    return [*steps, parts.avg_pool(7, 1), autograd.flatten, parts.linear(3)]


def inverted(parts, before, expansion, out, stride):
    autograd, conv, normed, hidden = parts.autograd, parts.conv, parts.normed, before * expansion
    widen = normed(conv(hidden, 1, bias=False), parts.relu6) if expansion > 1 else lambda x: x
    depthwise = normed(parts.depthwise(hidden, stride), parts.relu6)
    narrow = normed(conv(out, 1, bias=False))
    if stride == 1 and before == out:
        return lambda x: autograd.add(narrow(depthwise(widen(x))), x)
    return lambda x: narrow(depthwise(widen(x)))


def mobilenet_v2(parts):
    autograd = parts.autograd
    steps, before = [parts.normed(parts.conv(32, 3, 2, 1, bias=False), parts.relu6)], 32
    for expansion, out, repeats, stride in MOBILENET_V2:
        for repeat in range(repeats):
            steps.append(inverted(parts, before, expansion, out, stride if repeat == 0 else 1))
            before = out
    last = parts.linear(3)
    steps += [parts.normed(parts.conv(1280, 1, bias=False), parts.relu6), parts.avg_pool(7, 1), autograd.flatten]
    return [*steps, lambda x: last(autograd.dropout(x, 0.2))]


NETWORKS = {"alexnet": alexnet, "vgg16": vgg16, "resnet50": resnet50, "mobilenet_v2": mobilenet_v2}
