"""Keras on JAX as its "writing a training loop from scratch in JAX" guide has it: stateless calls, one jitted step."""

import jax
import keras
from keras_models import make_fit, make_network


def make(model: str, images, labels, threads: int, execution: str = "default"):
    network = make_network(model, images.shape[1:])
    x, y = jax.device_put((images, labels.astype("int32")))
    if execution == "fit":
        return make_fit(network, x, y)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(learning_rate=0.001, momentum=0.9)
    optimizer.build(network.trainable_variables)

    def compute_loss(trainable, non_trainable, x, y):
        logits, non_trainable = network.stateless_call(trainable, non_trainable, x, training=True)
        return loss_of(y, logits), non_trainable

    gradient_of = jax.value_and_grad(compute_loss, has_aux=True)

    def train_step(state, x, y):
        trainable, non_trainable, of_optimizer = state
        (loss, non_trainable), gradients = gradient_of(trainable, non_trainable, x, y)
        trainable, of_optimizer = optimizer.stateless_apply(of_optimizer, gradients, trainable)
        return loss, (trainable, non_trainable, of_optimizer)

    train_step = jax.jit(train_step, donate_argnums=0)
    variables = network.trainable_variables, network.non_trainable_variables, optimizer.variables
    held = [tuple([variable.value for variable in one] for one in variables)]

    def step():
        loss, held[0] = train_step(held[0], x, y)
        return float(loss)

    return step, lambda: None
