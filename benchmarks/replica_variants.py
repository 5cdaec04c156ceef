"""What keeps two replicas from twice the speed of one: our step on two GPUs with its engine set in several ways.

    python benchmarks/replica_variants.py torch FILE      in an interpreter with torch and framework_compare
    python benchmarks/replica_variants.py jax FILE        likewise with jax

AlexNet unless asked, bf16, batch 128 per GPU in memory, medians of five times 80 steps; FILE gets all times, as JSON. In
PyTorch DistributedDataParallel's arguments and NCCL's vary, with none of it and with no communication as bounds; in
JAX options of XLA. Variables of NCCL, such as NCCL_PROTO, are those of the shell. With --cpu two replicas on a CPU, to
try the script itself.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import numpy as np

from framework_compare import registry
from framework_compare.graph import initial_weights, weight_views, weights_size
from framework_compare.protocol import Replicas, TrainConfig

TIMES = 5
# Of DistributedDataParallel; `alone` and `plain` do without, `silent` exchanges nothing, `blocks` are NCCL's.
TORCH = {
    "one GPU": {"alone": True, "plain": True},
    "both, each for itself": {"plain": True},
    "as it is": {},
    "no communication": {"silent": True},
    "bucket 1 MB": {"ddp": {"bucket_cap_mb": 1}},
    "bucket 70 MB": {"ddp": {"bucket_cap_mb": 70}},
    "bucket 300 MB": {"ddp": {"bucket_cap_mb": 300}},
    "no view": {"ddp": {"gradient_as_bucket_view": False}},
    "static graph": {"ddp": {"static_graph": True}},
    "blocks <= 4": {"blocks": (1, 4)},
    "blocks <= 8": {"blocks": (1, 8)},
    "blocks <= 16": {"blocks": (1, 16)},
    "blocks >= 24": {"blocks": (24, 32)},
    "as it is, again": {},
}
_EACH = {"xla_gpu_all_reduce_combine_threshold_bytes": 1}
JAX = {
    "one device": None,
    "as it is": {},
    "no latency hiding": {"xla_gpu_enable_latency_hiding_scheduler": False},
    "latency hiding": {"xla_gpu_enable_latency_hiding_scheduler": True},
    "each array by itself": _EACH,
    "8 MB together": {"xla_gpu_all_reduce_combine_threshold_bytes": 8 << 20},
    "80 MB together": {"xla_gpu_all_reduce_combine_threshold_bytes": 80 << 20},
    "each, high priority": {**_EACH, "xla_gpu_enable_highest_priority_async_stream": True},
    "each, no graphs": {**_EACH, "xla_gpu_enable_command_buffer": ""},
    "each, 8 channels": {**_EACH, "xla_gpu_nccl_collective_max_nchannels": 8},
    "each, registered buffers": {**_EACH, "xla_gpu_enable_nccl_user_buffers": True},
    "as it is, again": {},
}


def config(options, device):
    size = 64 if options.cpu else 224
    how = {"threads": 1, "execution": "default"} if options.cpu else {"threads": 4, "execution": "graph"}
    return TrainConfig(
        batch_size=options.batch_size, device=device, precision="bf16", pipeline="memory", loader_workers=1,
        image_size=size, **how,
    )  # fmt: skip


def made(trainer, options, count):
    """Build and load a trainer; its batch of `count` images."""
    size = trainer.config.image_size
    graph = registry.load(registry.MODELS[options.model].build)(num_classes=3, image_size=size)
    flat = np.empty(weights_size(graph), np.float32)
    initial_weights(graph, 0, flat)
    trainer.build(graph)
    trainer.load_weights(weight_views(graph, flat))
    images = np.random.default_rng(0).standard_normal((count, size, size, 3), dtype=np.float32)
    return trainer.adopt(images, np.arange(count, dtype=np.int64) % 3)


def step_s(trainer, batch, steps):
    trainer.synchronize()
    begun = time.perf_counter()
    handed = [trainer.train_step(batch) for _ in range(steps)]
    trainer.synchronize()
    taken = (time.perf_counter() - begun) / steps
    trainer.read_losses(handed)
    return taken


def tell(found, name, times, options):
    found[name] = times
    print(f"{name:28} {1e3 * statistics.median(times):.3f} ms", flush=True)
    with open(options.file, "w", encoding="utf-8") as file:
        json.dump({"model": options.model, "batch_size": options.batch_size, "seconds_a_step": found}, file, indent=1)


def start_ranks():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, *sys.argv]
    ranks = [subprocess.Popen(command, env={**os.environ, "ADDRESS": address, "RANK": str(n)}) for n in range(2)]
    return max(rank.wait() for rank in ranks)


def torch_rank(options):
    """One rank: the variants one after the other, in one process group, with our own adapter's captured step."""
    import torch
    import torch.distributed as dist

    from framework_compare.adapters.torch import TorchTrainer
    from framework_compare.adapters.torch import replicas as data_parallel

    rank = int(os.environ["RANK"])
    device = "cpu" if options.cpu else f"cuda:{rank}"
    replicas = Replicas(("cpu", "cpu") if options.cpu else ("cuda:0", "cuda:1"), rank, os.environ["ADDRESS"], 2)
    join, found, now = data_parallel.Group.join, {}, {}

    def join_once(group):
        if not dist.is_initialized():
            join(group)

    def wrapped(group, network):
        how = now["how"]
        if how.get("plain"):
            return network
        parallel = torch.nn.parallel.DistributedDataParallel
        arguments = {"gradient_as_bucket_view": True, data_parallel._statistics_flag(parallel): False}
        arguments.update(how.get("ddp", {}))
        if "blocks" in how and not options.cpu:
            given = dist.ProcessGroupNCCL.Options()
            given.config.min_ctas, given.config.max_ctas = how["blocks"]
            arguments["process_group"] = dist.new_group(pg_options=given)
        network = parallel(network, device_ids=None if options.cpu else [rank], **arguments)
        if how.get("silent"):
            network.register_comm_hook(None, silent)
        return network

    def silent(state, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    data_parallel.Group.join, data_parallel.Group._wrapped = join_once, wrapped
    data_parallel.Group.wait = lambda group: None  # ranks meet below
    for name, now["how"] in TORCH.items():
        trainer = TorchTrainer(config(options, device), replicas)
        batch = made(trainer, options, options.batch_size)
        idle = now["how"].get("alone") and rank
        step_s(trainer, batch, 5)
        times = []
        for _ in range(TIMES):
            dist.barrier()
            trainer.synchronize()
            times += [] if idle else [step_s(trainer, batch, options.steps)]
        dist.barrier()
        if rank == 0:
            tell(found, name, times, options)
        trainer.release()
    os._exit(0)  # to leave the group waits for ranks that may have gone


def jax_process(options):
    from framework_compare.adapters.jax import JaxTrainer

    kind = "cpu" if options.cpu else "cuda"
    one, both = ("cpu", "cpu:0,1") if options.cpu else ("cuda:0", "cuda:0,1")
    os.environ.update(JaxTrainer.environment(config(options, both)))
    import jax

    if options.cpu:
        jax.config.update("jax_num_cpu_devices", 2)
    found = {}
    replicas = Replicas(("cpu", "cpu") if options.cpu else (f"{kind}:0", f"{kind}:1"))
    for name, compiler in JAX.items():
        alone = compiler is None
        trainer = JaxTrainer(config(options, one if alone else both), None if alone else replicas)
        batch = made(trainer, options, options.batch_size * (1 if alone else 2))
        trainer._step = jax.jit(trainer._step_of_leaves, donate_argnums=0, compiler_options=compiler or None)
        step_s(trainer, batch, 5)
        tell(found, name, [step_s(trainer, batch, options.steps) for _ in range(TIMES)], options)
        trainer.release()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=["torch", "jax"])
    parser.add_argument("file")
    parser.add_argument("--model", default="alexnet")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    if options.framework == "jax":
        jax_process(options)
    elif "RANK" in os.environ:
        torch_rank(options)
    else:
        sys.exit(start_ranks())


if __name__ == "__main__":
    main()
