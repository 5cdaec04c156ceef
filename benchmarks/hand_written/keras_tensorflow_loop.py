"""Keras on TensorFlow as its guide for custom loops has it: the loop of tensorflow_loop.py, which has no other networks."""

import tensorflow as tf
import tensorflow_loop
from keras_models import make_fit, make_network


def make(model: str, images, labels, threads: int, execution: str = "default"):
    if execution != "fit":
        return tensorflow_loop.make(model, images, labels, threads)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return make_fit(make_network(model, images.shape[1:]), tf.constant(images), tf.constant(labels))
