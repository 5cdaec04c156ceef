"""JAX as its guides have it: pure functions of dictionaries of arrays, lax.scan, optax, one donated jitted step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

RNG = np.random.default_rng(0)


def dense(inputs, outputs):
    bound = (6 / (inputs + outputs)) ** 0.5
    return {"w": RNG.uniform(-bound, bound, (inputs, outputs)).astype(np.float32), "b": np.zeros(outputs, np.float32)}


def linear(layer, x):
    return x @ layer["w"] + layer["b"]


def cell(inputs, units):
    return {"x": dense(inputs, 4 * units), "h": dense(units, 4 * units)["w"]}


def lstm(layer, x, reverse=False):
    """(N, T, C) to (N, T, units); the inputs' product is one for all steps."""

    def step(state, inputs):
        h, c = state
        i, f, g, o = jnp.split(inputs + h @ layer["h"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((x.shape[0], layer["h"].shape[0]))
    _, outputs = lax.scan(step, (start, start), linear(layer["x"], x).swapaxes(0, 1), reverse=reverse)
    return outputs.swapaxes(0, 1)


def dropout(key, x, rate):
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def lstm_ibm(task):
    def forward(p, x, keys):
        for index in range(4):
            x = dropout(keys[index], lstm(p["lstm"][index], x), 0.2)
        return linear(p["fc"], x[:, -1])

    return {"lstm": [cell(1 if index == 0 else 50, 50) for index in range(4)], "fc": dense(50, 1)}, forward


def tweet_span(task):
    def forward(p, x, keys):
        x = p["embedding"][x]
        both = jnp.concatenate([lstm(p["forward"], x), lstm(p["backward"], x, reverse=True)], axis=-1)
        return linear(p["fc"], dropout(keys[0], both, 0.5))

    table = 0.05 * RNG.standard_normal((task.inputs[0].vocabulary, 64)).astype(np.float32)
    fc = dense(128, task.outputs)
    return {"embedding": table, "forward": cell(64, 64), "backward": cell(64, 64), "fc": fc}, forward


def tiny_cnn(task):
    plan, parameters, channels = [(64, 1), (128, 1), (128, 2), (256, 1), (256, 2), (512, 1)], [], 3
    for out, _ in plan:
        kernel = ((2 / (9 * channels)) ** 0.5 * RNG.standard_normal((3, 3, channels, out))).astype(np.float32)
        parameters.append({"w": kernel, "scale": np.ones(out, np.float32), "bias": np.zeros(out, np.float32)})
        channels = out

    def pool(x, start, operator):
        pads = ((0, 0), (1, 1), (1, 1), (0, 0))
        return lax.reduce_window(x, start, operator, (1, 3, 3, 1), (1, 2, 2, 1), pads)

    def forward(p, x, keys):
        for index, ((_, stride), one) in enumerate(zip(plan, p["features"])):
            sides = [(1, 1), (1, 1)]
            x = lax.conv_general_dilated(
                x, one["w"], (stride, stride), sides, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
            x = jax.nn.relu((x - mean) * (one["scale"] * lax.rsqrt(variance + 1e-5)) + one["bias"])
            if index == 0:
                x = pool(x, -jnp.inf, lax.max)
        x = pool(x, 0.0, lax.add) / 9
        return linear(p["fc"], x.reshape(x.shape[0], -1))

    return {"features": parameters, "fc": dense(512 * 4 * 4, task.outputs)}, forward


def diabetes_ann(task):
    def forward(p, x, keys):
        for index in range(2):
            x = dropout(keys[index], jax.nn.relu(linear(p["layers"][index], x)), 0.2)
        return linear(p["fc"], x)

    return {"layers": [dense(8, 32), dense(32, 32)], "fc": dense(32, task.outputs)}, forward


def tokens(logits, labels):
    counts = labels >= 0
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels * counts)
    return (losses * counts).sum() / counts.sum()


LOSSES = {
    "lstm_ibm": lambda outputs, y: optax.squared_error(outputs, y).mean(),
    "tweet_span": tokens,
    "tiny_cnn": lambda logits, y: optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(),
    "diabetes_ann": lambda logits, y: optax.sigmoid_binary_cross_entropy(logits, y).mean(),
}


def make(model, inputs, target, task, threads):
    """Steps on one batch, and the number of parameters."""
    parameters, forward = globals()[model](task)
    optimizer = optax.adam(0.001, eps=1e-7)

    def loss_of(parameters, x, y, key):
        return LOSSES[model](forward(parameters, x, jax.random.split(key, 4)), y)

    def train_step(state, x, y):
        parameters, moments, key = state
        key, drawn = jax.random.split(key)
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y, drawn)
        updates, moments = optimizer.update(gradients, moments)
        return (optax.apply_updates(parameters, updates), moments, key), loss

    jitted = jax.jit(train_step, donate_argnums=0)
    parameters = jax.tree.map(jnp.asarray, parameters)
    state = [(parameters, optimizer.init(parameters), jax.random.key(0))]
    x, y = jnp.asarray(inputs), jnp.asarray(target)

    def go(steps):
        for _ in range(steps):
            state[0], loss = jitted(state[0], x, y)
            float(loss)

    return go, sum(array.size for array in jax.tree.leaves(parameters))
