"""GPT-2's decoder in PyTorch as its users write it: autocast, fused AdamW, clipping, and torch.compile with the loss in it."""

import contextlib
import math

import torch
from torch import nn
from torch.nn import functional

SIZES = {"gpt_nano": (4, 4, 128), "gpt2_small": (12, 12, 768)}  # layers, heads, width
RATE, RAMP, END = 6e-4, 100, 1000


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, steps, width = x.shape
        parts = self.qkv(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(n, steps, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, steps, width))
        return x + self.out(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self, vocabulary, window, layers, heads, width):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(window, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, following):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), following.view(-1))


def rate(step):
    if step < RAMP:
        return RATE * (step + 1) / RAMP
    return RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1, (step - RAMP) / (END - RAMP)))))


def make(model, inputs, target, task, threads, execution="default", precision="fp32"):
    """Steps on one batch, and the number of parameters."""
    torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    x, y = torch.from_numpy(inputs).to(device), torch.from_numpy(target).to(device)
    network = Decoder(task.outputs, inputs.shape[1], *SIZES[model]).to(device)
    groups = [
        {"params": [p for p in network.parameters() if (p.dim() >= 2) == decays], "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8, fused=True)
    call = torch.compile(network) if execution == "compiled" else network
    half = torch.autocast(device, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    number = 0

    def go(steps):
        nonlocal number
        for _ in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = rate(number)
            number += 1
            with half:
                loss = call(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()

    return go, sum(parameter.numel() for parameter in network.parameters())
