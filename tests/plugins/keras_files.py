"""Keras models as users write them, and files of such: `python keras_files.py FOLDER` where Keras is installed."""

import sys

import keras
from keras import layers


def residual():
    """Residual, gate, unequal padding, depthwise, a Dense behind a Flatten, a softmax, a head that is not used."""
    images = keras.Input((16, 16, 3), name="images")
    x = layers.Rescaling(0.5, offset=-0.25)(images)
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    y = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, activation="silu")(x)
    y = layers.Conv2D(8, (1, 3), padding="same")(y)
    gate = layers.GlobalAveragePooling2D()(y)
    gate = layers.Dense(4, activation="relu")(gate)
    gate = layers.Dense(8, activation="sigmoid")(gate)
    y = layers.Multiply()([y, layers.Reshape((1, 1, 8))(gate)])
    x = layers.Activation("relu")(layers.Add()([x, y]))
    x = layers.Concatenate()(
        [x, layers.AveragePooling2D(2, strides=1, padding="valid")(layers.ZeroPadding2D(((1, 0), (0, 1)))(x))]
    )
    other = layers.Dense(3, name="other")(layers.GlobalAveragePooling2D()(x))
    x = layers.Dropout(0.3)(layers.Flatten()(x))
    return keras.Model(images, [layers.Dense(5, activation="softmax", name="head")(x), other], name="residual")


def sequential():
    """Layers in a row, one of them a model itself."""
    block = keras.Sequential(
        [layers.SeparableConv2D(6, 3, activation="gelu"), layers.BatchNormalization()], name="block"
    )
    head = [layers.GlobalAveragePooling2D(), layers.LayerNormalization(), layers.Dense(5), layers.Softmax()]
    convolution = layers.Conv2D(4, 3, kernel_regularizer="l2")
    return keras.Sequential([keras.Input((16, 16, 3)), convolution, block, *head], name="sequential")


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = layers.Dense(5)

    def call(self, x):
        return self.head(keras.ops.mean(x, (1, 2)))


def _ended(x, images):
    return keras.Model(images, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


def unknown():
    images = keras.Input((16, 16, 3))
    x = layers.LeakyReLU()(layers.Conv2D(4, 3, name="first")(images))
    return _ended(layers.GaussianNoise(0.1)(layers.LeakyReLU()(x)) + 1, images)


def shared():
    images, layer = keras.Input((16, 16, 3)), layers.Conv2D(3, 3, name="twice")
    return _ended(layer(layer(images)), images)


def frozen():
    model = sequential()
    model.layers[0].trainable = False
    return model


def two_inputs():
    one, other = keras.Input((16, 16, 3)), keras.Input((16, 16, 3))
    return _ended(layers.Add()([one, other]), [one, other])


def row():
    parts = [layers.Dense(16, activation="relu"), layers.BatchNormalization(), layers.Dropout(0.2)]
    return keras.Sequential([keras.Input((6,)), *parts, layers.Dense(1, activation="sigmoid")])


def row_and_tokens():
    row, user = keras.Input((6,), name="row"), keras.Input((3,), dtype="int32", name="user")
    tokens = layers.Flatten()(layers.Embedding(9, 4)(user))
    x = layers.Concatenate()([layers.Dense(8, activation="tanh")(row), tokens])
    ends = layers.Dense(3, activation="softmax", name="kind")(x), layers.Dense(1, name="amount")(x)
    return keras.Model([row, user], ends)


def series():
    steps = keras.Input((20, 2))
    x = layers.Conv1D(8, 3, padding="causal", dilation_rate=2, activation="relu")(steps)
    x = layers.BatchNormalization()(x)
    x = layers.Conv1D(6, 4, strides=2, padding="same")(x)
    x = layers.Bidirectional(layers.LSTM(6, return_sequences=True))(x)
    ends = [layers.LSTM(5)(x), layers.GlobalAveragePooling1D()(x), layers.GlobalMaxPooling1D()(x)]
    return keras.Model(steps, layers.Dense(1)(layers.Concatenate()(ends)))


def grey():
    images = keras.Input((16, 16, 1))
    return _ended(layers.Conv2D(4, 3)(images), images)


def no_model():
    return 3


def unsafe():
    images = keras.Input((16, 16, 3))
    return _ended(layers.Lambda(lambda x: __import__("os").system("touch opened") or x)(images), images)


class Own(layers.Layer):
    def call(self, x):
        return x


def foreign():
    images = keras.Input((16, 16, 3))
    return _ended(Own()(images), images)


if __name__ == "__main__":
    for make in (sequential, unsafe, foreign):
        make().save(f"{sys.argv[1]}/{make.__name__}.keras")
