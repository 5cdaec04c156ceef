"""Mistakes in a network, as methods of the float32 reference: level 0 to 5 has each at its own place."""

from __future__ import annotations


def change(op: str, which: int = 0, **attrs) -> str:
    """A `lower` that changes attributes of the which-th node of an op."""
    return f"""
    def lower(self, graph):
        import dataclasses
        nodes = list(graph.nodes)
        place = [i for i, node in enumerate(nodes) if node.op == {op!r}]
        if len(place) > {which}:
            i = place[{which}]
            nodes[i] = dataclasses.replace(nodes[i], **{{'attrs': {{**nodes[i].attrs, **{attrs!r}}}}})
        return dataclasses.replace(graph, nodes=tuple(nodes))
"""


def configured(changes: str) -> str:
    """An `__init__` that takes another config, with these changes, than it is given."""
    return f"""
    def __init__(self, config):
        import dataclasses
        super().__init__(dataclasses.replace(config, {changes}))
"""


RENAMED_OP = """
    def lower(self, graph):
        import dataclasses
        nodes = tuple(dataclasses.replace(n, op="ReLU") if n.op == "ReLU6" else n for n in graph.nodes)
        return dataclasses.replace(graph, nodes=nodes)
"""
MOMENTUM_OFF = configured("momentum=config.momentum * 0.999")
LESS_DECAY = """
    def train_step(self, batch):
        config, oracle = self.config, self.oracle
        before = {name: array.copy() for name, array in oracle.weights.items()}
        loss = super().train_step(batch)
        for name, array in before.items():
            if array.ndim == 1 and not name.endswith(("running_mean", "running_var")):
                oracle.weights[name] += numpy.float32(config.learning_rate * config.weight_decay) * array
        return loss
"""
SWAPPED_STRIDES = """
    def lower(self, graph):
        import dataclasses
        strides = {"conv2": 1, "conv3": 2}
        nodes = tuple(
            dataclasses.replace(n, attrs={**n.attrs, "stride": strides[n.name]}) if n.name in strides else n
            for n in graph.nodes
        )
        return dataclasses.replace(graph, nodes=nodes)
"""
EXTRA_BIAS = """
    def weights(self):
        return {**super().weights(), "conv1.bias": numpy.zeros(8, numpy.float32)}
"""
SUMMED = """
    def gradients(self, batch):
        return {name: g * batch.size for name, g in super().gradients(batch).items()}

    def train_step(self, batch):
        config = self.config
        return self.oracle.train_step(batch.images, batch.labels, learning_rate=config.learning_rate * batch.size,
                                      momentum=config.momentum, weight_decay=config.weight_decay / batch.size)[0]
"""
NESTEROV = """
    def train_step(self, batch):
        config, oracle = self.config, self.oracle
        before = {name: array.copy() for name, array in oracle.weights.items()}
        loss, _, gradients = oracle.train_step(batch.images, batch.labels, learning_rate=config.learning_rate,
                                               momentum=config.momentum, weight_decay=config.weight_decay)
        for name, gradient in gradients.items():
            g = gradient + numpy.float32(config.weight_decay) * before[name]
            step = g + numpy.float32(config.momentum) * oracle.slots[name]["momentum"]
            oracle.weights[name] = before[name] - numpy.float32(config.learning_rate) * step
        return loss
"""
BIASED = """
    def train_step(self, batch):
        old = {name: a.copy() for name, a in self.oracle.weights.items() if name.endswith("running_var")}
        loss = super().train_step(batch)
        shapes = self.graph.shapes()
        for name, before in old.items():
            count = batch.size * shapes[name[:-12]][1] * shapes[name[:-12]][2]
            batch_share = self.oracle.weights[name] - numpy.float32(0.9) * before
            self.oracle.weights[name] = numpy.float32(0.9) * before + batch_share * numpy.float32((count - 1) / count)
        return loss
"""
BOUNDED = """
    def train_step(self, batch):
        from framework_compare.parity.network.oracle import LOSSES
        config = self.config
        _, logits, _ = self.oracle.train_step(batch.images, batch.labels, learning_rate=config.learning_rate,
                                              momentum=config.momentum, weight_decay=config.weight_decay)
        bounded = numpy.maximum(logits, logits.max(axis=1, keepdims=True) - numpy.float32(0.25))
        return LOSSES["cross_entropy"](bounded, batch.labels)[0]
"""
DROPOUT_ON = """
    def forward(self, batch, *, training=False):
        return super().forward(batch, training=True) if not training and any(
            n.op == "Dropout" for n in self.graph.nodes) else super().forward(batch, training=training)
"""
UNSCALED_DROPOUT = """
    def forward(self, batch, *, training=False):
        logits = super().forward(batch, training=training)
        return logits * numpy.float32(0.75) if training and self.graph.nodes[-1].op == "Dropout" else logits
"""
BGR = """
    def epoch(self, pipeline, number):
        return (self.to_device_batch(numpy.ascontiguousarray(i[:, ::-1]), l) for i, l in pipeline.epoch(number))
"""
SWAPPED_CLASS = """
    def epoch(self, pipeline, number):
        swap = {0: 1, 1: 0}
        for images, labels in pipeline.epoch(number):
            yield self.to_device_batch(images, numpy.array([swap.get(int(l), int(l)) for l in labels]))
"""
DROPPED = """
    def epoch(self, pipeline, number):
        return (self.to_device_batch(i, l) for i, l in pipeline.epoch(number) if len(l) == self.config.batch_size)
"""
SAME_CROPS = """
    def epoch(self, pipeline, number):
        for images, labels in pipeline.epoch(1):
            turned = (images[::-1].copy(), labels[::-1].copy())
            yield self.to_device_batch(*(turned if number > 1 else (images, labels)))
"""
NEVER_FLIPPED = configured('flip="none"')
NOT_RESTORED = """
    def weights(self):
        return {name: array * numpy.float32(1.0000002) for name, array in super().weights().items()}
"""
# What no level of one network shows.
DECAYED = configured("weight_decay=config.weight_decay or 1e-3")
NO_LOADER = """
    def open_pipeline(self, images):
        from framework_compare.errors import Unsupported
        raise Unsupported("its loader is not installed")
"""
MUTATIONS = {
    "bias added to a convolution": (EXTRA_BIAS, 0, "conv1.bias"),
    "weights rounded on the way": (NOT_RESTORED, 0, "is not read back"),
    "padding off by one": (change("MaxPool2d", padding=0, kernel=2), 1, "pool"),
    "stride on the wrong convolution": (SWAPPED_STRIDES, 1, "conv2"),
    "eps 1e-3 for 1e-5": (change("BatchNorm2d", eps=1e-3), 1, "bn1"),
    "ReLU for ReLU6": (RENAMED_OP, 1, "relu2"),
    "loss summed for averaged": (SUMMED, 2, "fc"),
    "BatchNorm momentum 0.9 for 0.1": (change("BatchNorm2d", momentum=0.9), 3, "bn1.running"),
    "biased running variance": (BIASED, 3, "running_var"),
    "losses of bounded logits": (BOUNDED, 3, "loss of step"),
    "Nesterov for plain momentum": (NESTEROV, 3, ""),
    "momentum a thousandth too small": (MOMENTUM_OFF, 3, ""),
    "no weight decay of biases and BatchNorm": (LESS_DECAY, 3, ""),
    "RGB for BGR": (BGR, 4, "pixels"),
    "one class index swapped": (SWAPPED_CLASS, 4, "pixels"),
    "last partial batch dropped": (DROPPED, 4, "images"),
    "the same crops in every epoch": (SAME_CROPS, 4, "in the same order"),
    "never flipped": (NEVER_FLIPPED, 4, "flipped"),
    "dropout left on": (DROPOUT_ON, 5, "evaluation"),
    "dropout not scaled": (UNSCALED_DROPOUT, 5, "scaled"),
    "dropout of another share": (change("Dropout", p=0.3), 5, "dropped"),
}
