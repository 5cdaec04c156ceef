"""VGG-16, configuration D without BatchNorm (Simonyan and Zisserman 2015), torchvision's names and initialisers.

`build_transfer` is the usual exercise of transfer learning: its convolutions frozen, a small new head trained.
"""

from framework_compare.graph import Graph, GraphBuilder, Task

CONFIGURATION_D = "64 64 M 128 128 M 256 256 256 M 512 512 512 M 512 512 512 M"  # outputs of a layer, or max pooling


def build(num_classes: int = 3, image_size: int = 224) -> Graph:
    g = GraphBuilder("vgg16", num_classes=num_classes, image_size=image_size)
    _features(g)
    g.adaptive_avgpool("avgpool", 7)
    g.flatten("flatten")
    for index in (0, 3):
        g.linear(f"classifier.{index}", 4096)
        g.relu(f"classifier.{index + 1}")
        g.dropout(f"classifier.{index + 2}", 0.5)
    g.linear("classifier.6", num_classes)
    return g.build()


def build_transfer(task: Task, hidden: int = 256) -> Graph:
    """The base's weights are seeded ones: its cost is that of pretrained ones, its accuracy is not."""
    g = GraphBuilder("vgg16_frozen", task)
    _features(g)
    g.flatten("flatten")
    g.linear("head.0", hidden, init="glorot_uniform")
    g.relu("head.1")
    g.linear("head.2", task.outputs, init="glorot_uniform")
    return g.build().frozen("features.")


def _features(g: GraphBuilder) -> None:
    index = 0
    for width in CONFIGURATION_D.split():
        if width == "M":
            g.maxpool(f"features.{index}", 2, stride=2)
            index += 1
        else:
            g.conv(f"features.{index}", int(width), 3, padding=1, bias=True)
            g.relu(f"features.{index + 1}")
            index += 2
