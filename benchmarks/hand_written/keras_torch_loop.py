"""Keras on PyTorch as its "writing a training loop from scratch in PyTorch" guide has it, SGD with momentum of Keras'."""

import keras
import torch
from keras_models import make_fit, make_network


def make(model: str, images, labels, threads: int, execution: str = "default"):
    torch.set_num_threads(threads)
    network = make_network(model, images.shape[1:])
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    if execution == "fit":
        return make_fit(network, x, y)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(learning_rate=0.001, momentum=0.9)

    def step():
        logits = network(x, training=True)
        loss = loss_of(y, logits)
        network.zero_grad()
        loss.backward()
        trained = list(network.trainable_weights)
        gradients = [variable.value.grad for variable in trained]
        with torch.no_grad():
            optimizer.apply(gradients, trained)
        return float(loss)

    return step, lambda: None
