"""Decoders that predict the next token: GPT-2's kind (Radford et al. 2019) and Llama's (Touvron et al. 2023)."""

import math
from typing import Tuple

from framework_compare.graph import Graph, GraphBuilder, Task

DEVIATION = 0.02  # of initial matrices; less where a product ends in the residual stream
MULTIPLE = 32  # to which the width of a gated MLP is rounded up


def gpt(task: Task, layers: int = 4, heads: int = 4, width: int = 128, name: str = "gpt_nano") -> Graph:
    """LayerNorm before each part, learnt positions, GELU (tanh), and a head tied to the embedding."""
    plain, last = _inits(layers)
    g = GraphBuilder(name, task)
    tokens = g.embedding("wte", width, init=plain)
    positions = g.parameter("wpe", (task.inputs[0].shape[0], width), init=plain)
    stream = g.add("embedded", tokens, positions)
    for number in range(layers):
        block = f"h.{number}"
        g.layernorm(f"{block}.ln_1", source=stream)
        g.linear(f"{block}.attn.qkv", 3 * width, init=plain)
        g.attention(f"{block}.attn.heads", heads, causal=True)
        mixed = g.linear(f"{block}.attn.proj", width, init=last)
        stream = g.add(f"{block}.attended", stream, mixed)
        g.layernorm(f"{block}.ln_2", source=stream)
        g.linear(f"{block}.mlp.fc", 4 * width, init=plain)
        g.gelu(f"{block}.mlp.act", approximate="tanh")
        out = g.linear(f"{block}.mlp.proj", width, init=last)
        stream = g.add(f"{block}.out", stream, out)
    g.layernorm("ln_f", source=stream)
    g.unembedding("head", "wte")
    return g.build()


def llama(
    task: Task,
    layers: int = 4,
    heads: int = 4,
    kv_heads: int = 2,
    width: int = 128,
    inner: int = 0,
    name: str = "llama_nano",
) -> Graph:
    """RMSNorm, rotary positions, grouped queries, a gated MLP (SwiGLU), no biases, and a head of its own."""
    plain, last = _inits(layers)
    inner = inner or -(-8 * width // 3 // MULTIPLE) * MULTIPLE
    g = GraphBuilder(name, task)
    stream = g.embedding("wte", width, init=plain)
    for number in range(layers):
        block = f"h.{number}"
        normed = g.rmsnorm(f"{block}.norm_1", source=stream)
        each = width // heads
        q, k, v = (
            g.linear(f"{block}.attn.{part}", count * each, init=plain, bias=False, source=normed)
            for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q = g.rotary(f"{block}.attn.turned_q", heads, source=q)
        k = g.rotary(f"{block}.attn.turned_k", kv_heads, source=k)
        g.attention(f"{block}.attn.heads", heads, q, k, v, causal=True, kv_heads=kv_heads)
        mixed = g.linear(f"{block}.attn.proj", width, init=last, bias=False)
        stream = g.add(f"{block}.attended", stream, mixed)
        normed = g.rmsnorm(f"{block}.norm_2", source=stream)
        gate = g.linear(f"{block}.mlp.gate", inner, init=plain, bias=False, source=normed)
        gate = g.silu(f"{block}.mlp.act", source=gate)
        up = g.linear(f"{block}.mlp.up", inner, init=plain, bias=False, source=normed)
        g.mul(f"{block}.mlp.gated", gate, up)
        out = g.linear(f"{block}.mlp.out", width, init=last, bias=False)
        stream = g.add(f"{block}.out", stream, out)
    g.rmsnorm("norm_f", source=stream)
    g.linear("head", task.outputs, init=plain, bias=False)
    return g.build()


def _inits(layers: int) -> Tuple[str, str]:
    return f"normal_{DEVIATION}", f"normal_{DEVIATION / math.sqrt(2 * layers):.6g}"
