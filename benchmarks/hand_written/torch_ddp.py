"""Data parallelism as PyTorch's tutorial has it: a process a GPU, DistributedDataParallel, bf16, channels_last.

python torch_ddp.py MODEL GPUS BATCH STEPS      prints seconds a step, of three times STEPS, as JSON
"""

import json
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torchvision
from torch import nn


def start(gpus, arguments):
    """The ranks, as torchrun starts them; what rank 0 prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(gpus)}
    ranks = [
        subprocess.Popen([sys.executable, __file__, *arguments], env={**common, "RANK": str(rank)})
        for rank in range(gpus)
    ]
    return max(rank.wait() for rank in ranks)


def train(model, gpus, batch, steps):
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True
    network = getattr(torchvision.models, model)(num_classes=3).to(device, memory_format=torch.channels_last)
    if gpus > 1:
        dist.init_process_group("nccl", device_id=device)
        network = nn.parallel.DistributedDataParallel(network, device_ids=[rank], gradient_as_bucket_view=True)
    network.train()
    x = torch.randn(batch, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    y = torch.arange(batch, device=device) % 3
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.001, momentum=0.9, fused=True)

    def go(count):
        torch.cuda.synchronize()
        if gpus > 1:
            dist.barrier()
        begun = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = criterion(network(x), y)
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / count

    go(10)
    times = [go(steps) for _ in range(3)]
    if rank == 0:
        print(json.dumps(times), flush=True)
    os._exit(0)


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    if "RANK" in os.environ:
        train(name, *map(int, numbers))
    sys.exit(start(int(numbers[0]), sys.argv[1:]))
