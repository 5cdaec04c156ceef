"""The small CNNs of tutorials and notebooks: 3x3 convolutions without padding, ReLU, 2x2 pooling, linear layers."""

from typing import Sequence

from framework_compare.graph import Graph, GraphBuilder, Task


def guava_cnn(task: Task) -> Graph:
    """Pools behind every convolution."""
    return _cnn("guava_cnn", task, (32, 64, 128), (128, 64, 32), pools=3)


def cifar_cnn(task: Task) -> Graph:
    """TensorFlow's CNN tutorial on CIFAR-10: pools behind all convolutions but the last."""
    return _cnn("cifar_cnn", task, (32, 64, 64), (64,), pools=2)


def mnist_cnn(task: Task) -> Graph:
    """The same on grey digits, as Chollet's book has it."""
    return _cnn("mnist_cnn", task, (32, 64, 64), (64,), pools=2)


def _cnn(name: str, task: Task, widths: Sequence[int], units: Sequence[int], *, pools: int) -> Graph:
    g = GraphBuilder(name, task)
    for index, width in enumerate(widths):
        g.conv(f"features.{index}.conv", width, 3, bias=True, init="glorot_uniform")
        g.relu(f"features.{index}.relu")
        if index < pools:
            g.maxpool(f"features.{index}.pool", 2, stride=2)
    g.flatten("flatten")
    for index, width in enumerate(units):
        g.linear(f"classifier.{index}.linear", width, init="glorot_uniform")
        g.relu(f"classifier.{index}.relu")
    g.linear("fc", task.outputs, init="glorot_uniform")
    return g.build()
