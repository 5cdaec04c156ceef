"""AlexNet by hand and the networks of keras.applications, for the loops of TensorFlow and of Keras on its back ends.

`make_fit` is the step of a compiled model, the same on each back end.
"""

import keras
from keras import layers


def make_alexnet(shape):
    return keras.Sequential(
        [
            keras.Input(shape),
            layers.ZeroPadding2D(2),
            layers.Conv2D(64, 11, strides=4, activation="relu"),
            layers.MaxPooling2D(3, strides=2),
            layers.Conv2D(192, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(3, strides=2),
            layers.Conv2D(384, 3, padding="same", activation="relu"),
            layers.Conv2D(256, 3, padding="same", activation="relu"),
            layers.Conv2D(256, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(3, strides=2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(4096, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(4096, activation="relu"),
            layers.Dense(3),
        ]
    )


def make_from_zoo(name: str, shape):
    build = getattr(keras.applications, {"mobilenet_v2": "MobileNetV2", "resnet50": "ResNet50", "vgg16": "VGG16"}[name])
    return build(weights=None, classes=3, input_shape=shape, classifier_activation=None)


def make_network(model: str, shape=(224, 224, 3)):
    return make_alexnet(shape) if model == "alexnet" else make_from_zoo(model, shape)


def make_fit(network, x, y):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(keras.optimizers.SGD(learning_rate=0.001, momentum=0.9), loss)
    return lambda: float(network.train_on_batch(x, y)), lambda: None
