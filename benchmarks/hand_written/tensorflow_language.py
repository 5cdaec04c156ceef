"""GPT-2's decoder in TensorFlow as its users write it: float32 weights, bfloat16 products, Keras' AdamW, one compiled step."""

import keras
import numpy as np
import tensorflow as tf

SIZES = {"gpt_nano": (4, 4, 128), "gpt2_small": (12, 12, 768)}  # layers, heads, width


def weights_of(vocabulary, window, layers, width):
    random = np.random.default_rng(0)
    arrays = {"wte": (vocabulary, width), "wpe": (window, width), "ln_f.g": (width,), "ln_f.b": (width,)}
    for number in range(layers):
        for name, inputs, outputs in (("qkv", 1, 3), ("proj", 1, 1), ("fc", 1, 4), ("out", 4, 1)):
            arrays[f"{number}.{name}.w"] = (inputs * width, outputs * width)
            arrays[f"{number}.{name}.b"] = (outputs * width,)
        for name in ("ln_1", "ln_2"):
            arrays[f"{number}.{name}.g"] = arrays[f"{number}.{name}.b"] = (width,)
    fill = {"g": np.ones, "b": np.zeros}
    return {
        name: fill[name[-1]](shape, "float32") if len(shape) == 1 else 0.02 * random.standard_normal(shape, "float32")
        for name, shape in arrays.items()
    }


def make(model, inputs, target, task, threads, execution="default", precision="fp32"):
    """Steps on one batch, and the number of parameters."""
    if not tf.config.list_physical_devices("GPU"):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    layers, heads, width = SIZES[model]
    batch, window = inputs.shape
    dtype = tf.bfloat16 if precision == "bf16" else tf.float32
    arrays = weights_of(task.outputs, window, layers, width)
    kept = {name: keras.Variable(array, name=name.replace(".", "_")) for name, array in arrays.items()}
    w = {name: variable.value for name, variable in kept.items()}
    later = tf.constant(np.triu(np.full((window, window), -np.inf, "float32"), 1))

    def linear(name, x):
        rows = tf.matmul(tf.reshape(x, (batch * window, -1)), tf.cast(w[f"{name}.w"], dtype))
        return tf.reshape(rows + tf.cast(w[f"{name}.b"], dtype), (batch, window, -1))

    def layernorm(name, x):
        exact = tf.cast(x, tf.float32)
        mean, variance = tf.nn.moments(exact, -1, keepdims=True)
        return tf.cast((exact - mean) * tf.math.rsqrt(variance + 1e-5) * w[f"{name}.g"] + w[f"{name}.b"], dtype)

    def attend(qkv):
        parts = tf.transpose(tf.reshape(qkv, (batch, window, 3, heads, width // heads)), (2, 0, 3, 1, 4))
        q, k, v = tf.unstack(parts)
        scores = tf.cast(tf.matmul(q, k, transpose_b=True), tf.float32) * (width // heads) ** -0.5 + later
        y = tf.matmul(tf.cast(tf.nn.softmax(scores), dtype), v)
        return tf.reshape(tf.transpose(y, (0, 2, 1, 3)), (batch, window, width))

    def forward(tokens):
        table = tf.cast(w["wte"], dtype)
        x = tf.gather(table, tokens) + tf.cast(w["wpe"], dtype)
        for number in range(layers):
            x += linear(f"{number}.proj", attend(linear(f"{number}.qkv", layernorm(f"{number}.ln_1", x))))
            up = tf.nn.gelu(linear(f"{number}.fc", layernorm(f"{number}.ln_2", x)), approximate=True)
            x += linear(f"{number}.out", up)
        last = tf.reshape(layernorm("ln_f", x), (batch * window, width))
        return tf.cast(tf.matmul(last, table, transpose_b=True), tf.float32)

    fall = keras.optimizers.schedules.CosineDecay(0.0, 900, alpha=0.1, warmup_target=6e-4, warmup_steps=100)
    optimizer = keras.optimizers.AdamW(
        fall, weight_decay=0.1, beta_1=0.9, beta_2=0.95, epsilon=1e-8, global_clipnorm=1.0
    )
    optimizer.exclude_from_weight_decay(var_list=[kept[name] for name, array in arrays.items() if array.ndim == 1])
    optimizer.build(list(kept.values()))
    x, y = tf.constant(inputs), tf.reshape(tf.constant(target.astype("int32")), (-1,))

    @tf.function(jit_compile=execution == "compiled")
    def train_step():
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=forward(x))
            loss = tf.reduce_mean(losses)
        # the gradient of rows that are read is one row per read; its norm needs their sums
        optimizer.apply([tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, list(w.values()))])
        return loss

    def go(steps):
        for _ in range(steps):
            loss = train_step()
        loss.numpy()

    return go, sum(array.size for array in arrays.values())
