"""TensorFlow as its guides have it: Keras layers in a tf.function step, or Model.fit (`fit`), Keras' Adam."""

import keras
import tensorflow as tf
from keras import layers


def lstm_ibm(task):
    recurrent = []
    for index in range(4):
        recurrent += [layers.LSTM(50, return_sequences=index < 3), layers.Dropout(0.2)]
    return keras.Sequential([keras.Input((60, 1)), *recurrent, layers.Dense(1)])


def tweet_span(task):
    return keras.Sequential(
        [
            keras.Input(task.inputs[0].shape, dtype="int64"),
            layers.Embedding(task.inputs[0].vocabulary, 64),
            layers.Bidirectional(layers.LSTM(64, return_sequences=True)),
            layers.Dropout(0.5),
            layers.Dense(task.outputs),
        ]
    )


def tiny_cnn(task):
    network = keras.Sequential([keras.Input((64, 64, 3))])
    for index, (out, stride) in enumerate([(64, 1), (128, 1), (128, 2), (256, 1), (256, 2), (512, 1)]):
        network.add(layers.ZeroPadding2D(1))
        network.add(layers.Conv2D(out, 3, strides=stride, use_bias=False))
        network.add(layers.BatchNormalization())
        network.add(layers.ReLU())
        if index == 0:
            network.add(layers.ZeroPadding2D(1))  # of values that are not negative
            network.add(layers.MaxPooling2D(3, strides=2))
    for layer in (layers.ZeroPadding2D(1), layers.AveragePooling2D(3, strides=2), layers.Flatten()):
        network.add(layer)
    network.add(layers.Dense(task.outputs))
    return network


def diabetes_ann(task):
    blocks = [layer for _ in range(2) for layer in (layers.Dense(32, activation="relu"), layers.Dropout(0.2))]
    return keras.Sequential([keras.Input((8,)), *blocks, layers.Dense(task.outputs)])


LOSSES = {
    "lstm_ibm": keras.losses.MeanSquaredError,
    "tweet_span": lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1),
    "tiny_cnn": lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "diabetes_ann": lambda: keras.losses.BinaryCrossentropy(from_logits=True),
}


def make(model, inputs, target, task, threads, fit=False):
    """Steps on one batch, and the number of parameters."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    network, loss_of = globals()[model](task), LOSSES[model]()
    optimizer = keras.optimizers.Adam(learning_rate=0.001, epsilon=1e-7)
    x, y = tf.constant(inputs), tf.constant(target)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, network(x, training=True))
        gradients = tape.gradient(loss, network.trainable_weights)
        optimizer.apply(gradients, network.trainable_weights)
        return loss

    def go(steps):
        for _ in range(steps):
            float(train_step(x, y))

    count = sum(int(tf.size(weight)) for weight in network.trainable_weights)
    if not fit:
        return go, count
    network.compile(optimizer=optimizer, loss=loss_of)
    data = tf.data.Dataset.from_tensors((x, y)).repeat()
    return lambda steps: network.fit(data, steps_per_epoch=steps, epochs=1, verbose=0), count
