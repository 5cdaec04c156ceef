"""TensorFlow as its "writing a training loop from scratch" guide has it: Keras networks, a tf.function step, SGD."""

import keras
import tensorflow as tf
from keras_models import make_network


def make(model: str, images, labels, threads: int, execution: str = "", precision: str = "fp32"):
    """A step that reads its loss, and what waits for the device. With an execution: a step that a GPU runs behind."""
    tf.config.experimental.enable_tensor_float_32_execution(precision != "fp32")
    if precision == "bf16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    network = make_network(model, images.shape[1:])
    x, y = tf.constant(images), tf.constant(labels)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(learning_rate=0.001, momentum=0.9)

    @tf.function(jit_compile=execution == "compiled" or None)
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, network(x, training=True))
        gradients = tape.gradient(loss, network.trainable_weights)
        optimizer.apply(gradients, network.trainable_weights)
        return loss

    if not execution:
        return lambda: float(train_step(x, y)), lambda: None
    losses = []

    def step():
        losses[:] = [train_step(x, y)]

    return step, lambda: losses[0].numpy()
