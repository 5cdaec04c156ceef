"""ResNet-50 (He et al. 2016), torchvision's names.

`build` is v1 as published: a bottleneck halves the image in its first 1x1 convolution. `build_v1_5` does it in
the 3x3, as torchvision and NVIDIA do: the same parameters, 6 % more multiplications.
"""

from framework_compare.graph import Graph, GraphBuilder, Task

BLOCKS = [3, 4, 6, 3]
EXPANSION = 4


def build(num_classes: int = 3, image_size: int = 224) -> Graph:
    g = GraphBuilder("resnet50", num_classes=num_classes, image_size=image_size)
    return _layers(g, num_classes, stride_in_3x3=False)


def build_v1_5(num_classes: int = 3, image_size: int = 224) -> Graph:
    g = GraphBuilder("resnet50_v1_5", num_classes=num_classes, image_size=image_size)
    return _layers(g, num_classes, stride_in_3x3=True)


def build_for(task: Task) -> Graph:
    """`build`, for small images such as CIFAR-10's: of 32 pixels the last stage sees one."""
    return _layers(GraphBuilder("resnet50", task), task.outputs, stride_in_3x3=False)


def _layers(g: GraphBuilder, num_classes: int, *, stride_in_3x3: bool) -> Graph:
    g.conv("conv1", 64, 7, stride=2, padding=3)
    g.batchnorm("bn1")
    g.relu("relu")
    g.maxpool("maxpool", 3, stride=2, padding=1)
    for stage, blocks in enumerate(BLOCKS, start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            _bottleneck(g, f"layer{stage}.{block}", 32 * 2**stage, stride, stride_in_3x3)
    g.global_avgpool("avgpool")
    g.linear("fc", num_classes)
    return g.build()


def _bottleneck(g: GraphBuilder, name: str, width: int, stride: int, stride_in_3x3: bool) -> None:
    shortcut = g.last
    strides = (1, stride, 1) if stride_in_3x3 else (stride, 1, 1)
    widths = (width, width, width * EXPANSION)
    for i, (out, kernel) in enumerate(zip(widths, (1, 3, 1))):
        g.conv(f"{name}.conv{i + 1}", out, kernel, stride=strides[i], padding=kernel // 2)
        g.batchnorm(f"{name}.bn{i + 1}")
        if i < 2:
            g.relu(f"{name}.relu{i + 1}")
    branch = g.last
    if g.shape(shortcut) != g.shape(branch):
        g.conv(f"{name}.downsample.0", width * EXPANSION, 1, stride=stride, source=shortcut)
        shortcut = g.batchnorm(f"{name}.downsample.1")
    g.add(f"{name}.add", branch, shortcut)
    g.relu(f"{name}.relu")
