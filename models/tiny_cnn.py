"""A CNN for Tiny ImageNet, 64 pixels a side: Clockware/nn-tiny-imagenet-200, whose average pool counts its padding."""

from framework_compare.graph import Graph, GraphBuilder, Task

#          out, stride
LAYERS = [(128, 1), (128, 2), (256, 1), (256, 2), (512, 1)]


def build(task: Task) -> Graph:
    g = GraphBuilder("tiny_cnn", task)
    _conv_bn_relu(g, "features.0", 64, 1)
    g.maxpool("maxpool", 3, stride=2, padding=1)
    for index, (out, stride) in enumerate(LAYERS, start=1):
        _conv_bn_relu(g, f"features.{index}", out, stride)
    g.avgpool("avgpool", 3, stride=2, padding=1, count_include_pad=True)
    g.flatten("flatten")
    g.linear("fc", task.outputs, init="glorot_uniform")
    return g.build()


def _conv_bn_relu(g: GraphBuilder, name: str, out: int, stride: int) -> None:
    g.conv(f"{name}.conv", out, 3, stride=stride, padding=1)
    g.batchnorm(f"{name}.bn")
    g.relu(f"{name}.relu")
