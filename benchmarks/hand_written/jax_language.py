"""GPT-2's decoder in JAX as its users write it: float32 weights, bfloat16 products, cuDNN's attention, one donated step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

SIZES = {"gpt_nano": (4, 4, 128), "gpt2_small": (12, 12, 768)}  # layers, heads, width


def dense(random, inputs, outputs):
    return {"w": 0.02 * random.standard_normal((inputs, outputs), np.float32), "b": np.zeros(outputs, np.float32)}


def norm(width):
    return {"g": np.ones(width, np.float32), "b": np.zeros(width, np.float32)}


def parameters_of(vocabulary, window, layers, width):
    random = np.random.default_rng(0)
    blocks = [
        {
            **{"ln_1": norm(width), "qkv": dense(random, width, 3 * width), "proj": dense(random, width, width)},
            **{"ln_2": norm(width), "fc": dense(random, width, 4 * width), "out": dense(random, 4 * width, width)},
        }
        for _ in range(layers)
    ]
    tables = {name: dense(random, rows, width)["w"] for name, rows in (("wte", vocabulary), ("wpe", window))}
    return {**tables, "blocks": blocks, "ln_f": norm(width)}


def make(model, inputs, target, task, threads, execution="default", precision="fp32"):
    """Steps on one batch, and the number of parameters."""
    layers, heads, width = SIZES[model]
    gpu = jax.devices()[0].platform == "gpu"
    dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
    kernel = "cudnn" if gpu and precision == "bf16" else None

    def linear(layer, x):
        return x @ layer["w"].astype(dtype) + layer["b"].astype(dtype)

    def layernorm(layer, x):
        exact = x.astype(jnp.float32)
        centred = exact - exact.mean(-1, keepdims=True)
        return (centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * layer["g"] + layer["b"]).astype(
            dtype
        )

    def forward(p, tokens):
        table = p["wte"].astype(dtype)
        x = table[tokens] + p["wpe"].astype(dtype)[: tokens.shape[1]]
        for block in p["blocks"]:
            parts = jnp.split(linear(block["qkv"], layernorm(block["ln_1"], x)), 3, -1)
            q, k, v = (part.reshape(*part.shape[:2], heads, -1) for part in parts)
            y = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=kernel)
            x = x + linear(block["proj"], y.reshape(x.shape))
            x = x + linear(block["out"], jax.nn.gelu(linear(block["fc"], layernorm(block["ln_2"], x))))
        return (layernorm(p["ln_f"], x) @ table.T).astype(jnp.float32)

    def loss_of(p, tokens, following):
        return optax.softmax_cross_entropy_with_integer_labels(forward(p, tokens), following).mean()

    fall = optax.warmup_cosine_decay_schedule(0.0, 6e-4, 100, 1000, 6e-5)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(fall, b1=0.9, b2=0.95, weight_decay=0.1, mask=lambda p: jax.tree.map(lambda a: a.ndim >= 2, p)),
    )

    def train_step(state, tokens, following):
        p, moments = state
        loss, gradients = jax.value_and_grad(loss_of)(p, tokens, following)
        updates, moments = optimizer.update(gradients, moments, p)
        return (optax.apply_updates(p, updates), moments), loss

    jitted = jax.jit(train_step, donate_argnums=0)
    p = jax.tree.map(jnp.asarray, parameters_of(task.outputs, inputs.shape[1], layers, width))
    state = [(p, optimizer.init(p))]
    x, y = jnp.asarray(inputs), jnp.asarray(target.astype(np.int32))

    def go(steps):
        for _ in range(steps):
            state[0], loss = jitted(state[0], x, y)
        loss.block_until_ready()

    return go, sum(array.size for array in jax.tree.leaves(p))
