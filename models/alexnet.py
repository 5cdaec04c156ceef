"""AlexNet, the one-tower variant of "One weird trick for parallelizing CNNs" (Krizhevsky 2014), torchvision's names.

Kaiming normal in the convolutions and normal(0, 0.01) in the linear layers, as torchvision has it for VGG: with the
paper's normal(0, 0.01) throughout, or torch's default, plain SGD at 0.001 barely moves in a few epochs.
"""

from framework_compare.graph import Graph, GraphBuilder

#         name          out  kernel stride padding, then a pool or not
FEATURES = [
    ("features.0", 64, 11, 4, 2, True),
    ("features.3", 192, 5, 1, 2, True),
    ("features.6", 384, 3, 1, 1, False),
    ("features.8", 256, 3, 1, 1, False),
    ("features.10", 256, 3, 1, 1, True),
]


def build(num_classes: int = 3, image_size: int = 224) -> Graph:
    g = GraphBuilder("alexnet", num_classes=num_classes, image_size=image_size)
    for name, out, kernel, stride, padding, pool in FEATURES:
        index = int(name.split(".")[1])
        g.conv(name, out, kernel, stride=stride, padding=padding, bias=True)
        g.relu(f"features.{index + 1}")
        if pool:
            g.maxpool(f"features.{index + 2}", 3, stride=2)
    g.adaptive_avgpool("avgpool", 6)
    g.flatten("flatten")
    for index, width in ((0, 4096), (3, 4096)):
        g.dropout(f"classifier.{index}", 0.5)
        g.linear(f"classifier.{index + 1}", width)
        g.relu(f"classifier.{index + 2}")
    g.linear("classifier.6", num_classes)
    return g.build()
