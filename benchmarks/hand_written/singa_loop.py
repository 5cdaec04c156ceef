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
    from singa import autograd, layer, opt, tensor
    from singa.model import Model

    operators, layers = Operators(singa, private=False), []

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

    def add(one):
        layers.append(one)
        return one

    def conv(out, kernel, stride=1, padding=0, bias=True):
        return add(layer.Conv2d(out, kernel, stride=stride, padding=padding, bias=bias))

    def normed(one, relu=None):
        norm = add(layer.BatchNorm2d(momentum=0.1))
        return (lambda x: norm(one(x))) if relu is None else (lambda x: relu(norm(one(x))))

    def classifier(widths):
        linears = [add(layer.Linear(width)) for width in (*widths, 3)]

        def classify(x):
            x = autograd.flatten(x)
            for linear in linears[:-1]:
                x = autograd.relu(linear(autograd.dropout(x, 0.5)))
            return linears[-1](x)

        return classify

    def relu6(x):
        return autograd.clip(x, 0.0, 6.0)

    def alexnet():
        steps = []
        for out, kernel, stride, padding, pooled in ALEXNET:
            steps += [conv(out, kernel, stride, padding), autograd.relu]
            steps += [add(layer.MaxPool2d(3, 2))] if pooled else []
        return [*steps, classifier((4096, 4096))]

    def vgg16():
        steps = []
        for out, times in VGG16:
            for _ in range(times):
                steps += [conv(out, 3, 1, 1), autograd.relu]
            steps.append(add(layer.MaxPool2d(2, 2)))
        linears = [add(layer.Linear(width)) for width in (4096, 4096, 3)]

        def classify(x):
            x = autograd.flatten(x)
            for linear in linears[:-1]:
                x = autograd.dropout(autograd.relu(linear(x)), 0.5)
            return linears[-1](x)

        return [*steps, classify]

    def bottleneck(width, stride, projected):
        first = normed(conv(width, 1, stride, bias=False), autograd.relu)
        second = normed(conv(width, 3, 1, 1, bias=False), autograd.relu)
        third = normed(conv(4 * width, 1, bias=False))
        shortcut = normed(conv(4 * width, 1, stride, bias=False)) if projected else lambda x: x
        return lambda x: autograd.relu(autograd.add(third(second(first(x))), shortcut(x)))

    def resnet50():
        steps = [normed(conv(64, 7, 2, 3, bias=False), autograd.relu), add(layer.MaxPool2d(3, 2, 1))]
        for width, blocks, stride in RESNET50:
            steps += [bottleneck(width, stride if block == 0 else 1, block == 0) for block in range(blocks)]
        return [*steps, add(layer.AvgPool2d(7, 1)), autograd.flatten, add(layer.Linear(3))]

    def inverted(before, expansion, out, stride):
        hidden = before * expansion
        widen = normed(conv(hidden, 1, bias=False), relu6) if expansion > 1 else lambda x: x
        depthwise = normed(add(Depthwise(hidden, stride)), relu6)
        narrow = normed(conv(out, 1, bias=False))
        if stride == 1 and before == out:
            return lambda x: autograd.add(narrow(depthwise(widen(x))), x)
        return lambda x: narrow(depthwise(widen(x)))

    def mobilenet_v2():
        steps, before = [normed(conv(32, 3, 2, 1, bias=False), relu6)], 32
        for expansion, out, repeats, stride in MOBILENET_V2:
            for repeat in range(repeats):
                steps.append(inverted(before, expansion, out, stride if repeat == 0 else 1))
                before = out
        last = add(layer.Linear(3))
        steps += [normed(conv(1280, 1, bias=False), relu6), add(layer.AvgPool2d(7, 1)), autograd.flatten]
        return [*steps, lambda x: last(autograd.dropout(x, 0.2))]

    steps = {"alexnet": alexnet, "vgg16": vgg16, "resnet50": resnet50, "mobilenet_v2": mobilenet_v2}[model]()

    class Network(Model):
        def forward(self, x):
            for one in steps:
                x = one(x)
            return x

    network = Network()
    network.register_layers(*layers)
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
