"""PyTorch as its tutorials and its performance guide have it: torchvision's networks, channels_last, SGD.

On a GPU the guide's further advice: cuDNN's choice of algorithm, the fused optimizer, losses that stay on the device,
and for `graph` the whole step captured as in the notes on CUDA graphs.
"""

import contextlib

import torch
import torchvision  # the benchmark has made it importable beside a CPU build
from torch import nn


def make(model: str, images, labels, threads: int, execution: str = "", precision: str = "fp32"):
    torch.set_num_threads(threads)
    device = "cuda" if execution else "cpu"
    network = getattr(torchvision.models, model)(num_classes=3).to(device, memory_format=torch.channels_last)
    network.train()
    x = torch.from_numpy(images).to(device, memory_format=torch.channels_last)
    y = torch.from_numpy(labels).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.001, momentum=0.9, fused=device == "cuda")
    if device == "cuda":
        return make_cuda(network, x, y, criterion, optimizer, execution, precision)

    def step():
        optimizer.zero_grad()
        loss = criterion(network(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, lambda: None


def make_cuda(network, x, y, criterion, optimizer, execution, precision):
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    autocast = torch.autocast("cuda", dtype=torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    call = torch.compile(network) if execution == "compiled" else network
    total = torch.zeros((), device="cuda")

    def step():
        optimizer.zero_grad()
        with autocast:
            loss = criterion(call(x), y)
        loss.backward()
        optimizer.step()
        total.add_(loss.detach())

    if execution in ("default", "eager"):
        return step, torch.cuda.synchronize
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay, torch.cuda.synchronize
