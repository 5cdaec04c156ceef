"""What a hand-written loop of GPT-2 in PyTorch's eager mode gains from each choice that its author has, on a GPU.

Each variant trains the decoder of `hand_written/torch_language.py` from the start on one batch: AdamW, clipping, a schedule.
The figure is the median of the rounds, each of some steps between two CUDA events; the first variant runs once more at
the end. --profile lists the kernels that take longest in a step of the variants named.

Usage: python benchmarks/language_variants.py [--batch-size 16] [--variants NAME,NAME] [--profile NAME,NAME] [--save FILE]
"""

import argparse
import contextlib
import functools
import json
import statistics
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parent / "hand_written"))
import torch_language as hand  # noqa: E402

VOCABULARY, WINDOW = 50257, 1024
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
# What is changed in the loop as it is written.
VARIANTS = {
    "as written": {},
    "tokens drawn from all rows": {"rows": VOCABULARY},
    "vocabulary padded to 50,304": {"vocabulary": 50304},
    "loss on bf16 logits": {"half_loss": True},
    "bf16 residual stream": {"half_stream": True},
    "bf16 weights, fp32 master copy": {"master": True},
    "bf16 weights and states": {"pure": True},
    "autocast without its cache": {"cache": False},
    "no clipping": {"clip": ""},
    "clipping tensor by tensor": {"clip": "single"},
    "AdamW foreach": {"adam": "foreach"},
    "matmul precision high": {"matmul": "high"},
    "GELU by erf": {"gelu": "none"},
    "flash attention": {"attention": "flash"},
    "cuDNN attention": {"attention": "cudnn"},
    "CUDA graph": {"graph": True},
    "padded, all rows": {"vocabulary": 50304, "rows": 50304},
    "padded, bf16 logits": {"vocabulary": 50304, "half_loss": True},
    "padded, bf16 logits, all rows": {"vocabulary": 50304, "half_loss": True, "rows": 50304},
    "padded, bf16 weights, fp32 master copy": {"vocabulary": 50304, "master": True},
    "padded, bf16 weights and states": {"vocabulary": 50304, "pure": True},
    "padded, bf16 weights and states, all rows": {"vocabulary": 50304, "pure": True, "rows": 50304},
    "padded, bf16 weights and states, CUDA graph": {"vocabulary": 50304, "pure": True, "graph": True},
}


class Decoder(hand.Decoder):
    """The hand-written one with the choices of a variant."""

    def choose(self, half_stream=False, half_loss=False, **_):
        self.half_stream, self.half_loss = half_stream, half_loss
        return self

    def forward(self, tokens, following):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        x = x.bfloat16() if self.half_stream else x
        for block in self.blocks:
            x = block(x)
        x = functional.linear(self.ln_f(x), self.wte.weight)
        with torch.autocast(x.device.type, enabled=False) if self.half_loss else contextlib.nullcontext():
            return functional.cross_entropy(x.view(-1, x.shape[-1]), following.view(-1))


def optimizer_of(parameters, adam):
    """AdamW as the hand-written loop has it; decay is for matrices."""
    groups = [
        {"params": [p for p in parameters if (p.dim() >= 2) == decays], "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]
    return torch.optim.AdamW(groups, lr=hand.RATE, betas=(0.9, 0.95), eps=1e-8, **{adam: True})


def make(batch, window, size, device, variant):
    """A function that takes a step and returns its loss."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision(variant.get("matmul", "highest"))
    rows = variant.get("rows", 25)  # as many as the generated text has
    drawn = torch.randint(rows, (batch, window + 1), device=device)
    x, y = drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
    model = Decoder(variant.get("vocabulary", VOCABULARY), window, *hand.SIZES[size]).choose(**variant).to(device)
    own = list(model.parameters())
    masters = [p.detach().clone().requires_grad_() for p in own] if variant.get("master") else own
    if variant.get("master") or variant.get("pure"):
        model.bfloat16()
        own = list(model.parameters())
        masters = masters if variant.get("master") else own
        half = contextlib.nullcontext
    else:
        half = functools.partial(torch.autocast, device, torch.bfloat16, cache_enabled=variant.get("cache", True))
    optimizer = optimizer_of(masters, variant.get("adam", "fused"))
    clip = variant.get("clip", "foreach")
    attention = BACKENDS.get(variant.get("attention", ""))

    def step():
        with half(), sdpa_kernel(attention) if attention else contextlib.nullcontext():
            loss = model(x, y)
        loss.backward()
        if variant.get("master"):
            for master, p in zip(masters, own):
                master.grad = p.grad.float()
        if clip:
            nn.utils.clip_grad_norm_(masters, 1.0, foreach=clip == "foreach")
        optimizer.step()
        if variant.get("master"):
            with torch.no_grad():
                torch._foreach_copy_(own, masters)
        for p in own if not variant.get("graph") else ():
            p.grad = None
        return loss

    if variant.get("graph"):
        return captured(step, own, optimizer)
    number = 0

    def scheduled():
        nonlocal number
        for group in optimizer.param_groups:
            group["lr"] = hand.rate(number)
        number += 1
        return step()

    return scheduled


def captured(step, parameters, optimizer):
    """Replays of a step in a CUDA graph; the rate stays that of the first step."""
    for group in optimizer.param_groups:
        group["lr"], group["capturable"] = torch.tensor(hand.rate(0), device="cuda"), True
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
            for p in parameters:
                p.grad = None
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


def timed(step, steps, rounds):
    """Milliseconds per step in each round."""
    if not torch.cuda.is_available():
        return [0.0 * step().item()]
    found = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(steps):
            step()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / steps)
    return found


def kernels(step, count=14):
    """The kernels that take longest in three steps: milliseconds per step, calls per step, name."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)
    total = sum(row.self_device_time_total for row in rows) / 3e3
    each = [[round(row.self_device_time_total / 3e3, 3), row.count / 3, row.key[:110]] for row in rows[:count]]
    return {"ms_of_all": round(total, 3), "kernels": each}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--size", default="gpt2_small")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variants", default="")
    parser.add_argument("--profile", default="as written")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    names = options.variants.split(";") if options.variants else [*VARIANTS, "as written"]
    rows, profiled = [], options.profile.split(";")
    for number, name in enumerate(names):
        row = {"variant": name}
        try:
            step = make(options.batch_size, options.window, options.size, device, VARIANTS[name])
            for _ in range(5):
                loss = step()
            row["loss_after_5"] = loss.item()
            row["ms"] = [round(one, 3) for one in timed(step, options.steps, options.rounds)]
            row["tokens_per_s"] = round(
                options.batch_size * options.window / max(1e-9, statistics.median(row["ms"])) * 1e3
            )
            if device == "cuda":
                row["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
            if device == "cuda" and name in profiled and number < len(VARIANTS):
                row["profile"] = kernels(step)
        except RuntimeError as error:
            row["error"] = str(error)[:300]
        step = None
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.save:
            about = {
                "torch": torch.__version__,
                "batch": options.batch_size,
                "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            }
            options.save.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
