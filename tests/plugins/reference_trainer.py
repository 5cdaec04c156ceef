"""A framework that is the reference in float32, so that a test can put one mistake into it.

Workers get it from reference_adapter.py.
"""

import functools
import io

import numpy
from PIL import Image

from framework_compare.batches import preprocess
from framework_compare.batches.images import SharedPipeline
from framework_compare.parity.network.oracle import LOSSES, OPS, Oracle
from framework_compare.protocol import Batch, Declared


def decode_once():
    """Level 4's thousands of images are a few dozen files: decode each once, to the same pixels."""
    if preprocess.simplejpeg is not None:
        preprocess.simplejpeg = DecodeOnce()
    decode_any = preprocess._decode_any

    def decode(data, crop, divisor):
        image = rgb_of(data)
        return decode_any(data, crop, divisor) if image is None else (image.crop(preprocess._region(crop, 1)), 1)

    preprocess._decode_any = decode


class DecodeOnce:
    """The JPEG library, its answers kept."""

    def __init__(self):
        library = preprocess.simplejpeg
        self.decode_jpeg = functools.lru_cache(maxsize=128)(library.decode_jpeg)
        self.decode_jpeg_header = library.decode_jpeg_header


@functools.lru_cache(maxsize=64)
def rgb_of(data):
    """All of a PNG that is RGB as it is stored, None of any other image."""
    image = Image.open(io.BytesIO(data))
    if image.format != "PNG" or image.mode != "RGB":
        return None
    image.load()
    return image


decode_once()


class ReferenceTrainer:
    name = "reference"
    layout = "NCHW"
    declared = Declared(
        ops=frozenset(OPS),
        losses=frozenset(LOSSES),
        optimizers=frozenset({"sgd"}),
        executions={"cpu": frozenset({"default", "eager"})},
        precisions={"cpu": frozenset({"fp32"})},
    )

    @staticmethod
    def environment(config):
        return {"OPENBLAS_NUM_THREADS": str(config.threads)}

    def __init__(self, config):
        self.config = config
        self.random = numpy.random.default_rng(config.seed)

    def version(self):
        return "1.0"

    def unsupported(self):
        return None

    def settings(self):
        return {"execution": "eager"}

    def build(self, graph):
        self.graph = self.lower(graph)
        self.oracle = None

    def lower(self, graph):
        return graph

    def load_weights(self, weights):
        self.oracle = Oracle(self.graph, weights, numpy.float32)

    def weights(self):
        return {name: array.copy() for name, array in self.oracle.weights.items()}

    def host_array(self, shape):
        return numpy.empty(shape, dtype=numpy.float32)

    def to_device_batch(self, images, labels):
        return Batch(images, labels, len(labels))

    def read_batch(self, batch):
        return batch.images, batch.labels

    def open_pipeline(self, files):
        return SharedPipeline.of(files, self.config, workers=0)

    def epoch(self, pipeline, number):
        return (self.to_device_batch(images, labels) for images, labels in pipeline.epoch(number))

    def train_step(self, batch):
        config = self.config
        return self.oracle.train_step(
            batch.images,
            batch.labels,
            learning_rate=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            dropout=self.random,
        )[0]

    def gradients(self, batch):
        return self.oracle.gradients(batch.images, batch.labels, dropout=self.random)[2]

    def read_losses(self, losses):
        return [float(loss) for loss in losses]

    def forward(self, batch, *, training=False):
        return self.oracle.forward(batch.images, training=training, dropout=self.random)

    def synchronize(self):
        """Nothing to wait for."""

    def device_times(self):
        return None

    def profile(self, step, folder):
        step()
        return []

    def release(self):
        """Nothing is held."""
