"""Weak scaling over GPUs of one host: our cells on 1, 2, .. devices, beside DistributedDataParallel by hand.

    python benchmarks/replicas.py --python torch=PATH --python jax=PATH [--models resnet50] [--gpus 1,2] [--executions graph]
    python benchmarks/replicas.py --hand torch=PATH

Batches are in memory, so that steps alone are timed. A line a cell: images/s of all GPUs together, milliseconds a step,
speed-up over the first number of GPUs, its share of the ideal, joules an image of all GPUs, and what was not measured.
The interpreters need the framework, numpy, Pillow and simplejpeg; this one psutil and nvidia-ml-py.
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from framework_compare import registry
from framework_compare.graph import initial_weights, weights_size
from framework_compare.launch.jobs import run_job
from framework_compare.launch.limits import Limits
from framework_compare.plan.values import by_framework, split
from framework_compare.protocol import Job, TrainConfig

MODELS = "resnet50,vgg16,mobilenet_v2,alexnet"
STEPS = {"resnet50": 60, "vgg16": 50, "mobilenet_v2": 80, "alexnet": 250}  # an epoch of some seconds
EPOCHS = 4
HAND = Path(__file__).parent / "hand_written" / "torch_ddp.py"


@dataclasses.dataclass(frozen=True)
class Given:
    """An interpreter of the user's."""

    python: Path
    managed: bool = False


def device(gpus):
    return "cuda:" + ",".join(map(str, range(gpus))) if gpus > 1 else "cuda:0"


def our_cell(framework, python, model, gpus, execution, options, folder):
    """The run of a cell; its line's figures, or its status and reason."""
    config = TrainConfig(
        batch_size=options.batch_size, epochs=EPOCHS, device=device(gpus), precision=options.precision,
        execution=execution, pipeline="memory", threads=4, loader_workers=1, warmup_steps=5,
    )  # fmt: skip
    graph = registry.load(registry.MODELS[model].build)(num_classes=3, image_size=224)
    weights = np.empty(weights_size(graph), np.float32)
    initial_weights(graph, 0, weights)
    np.save(folder / "weights.npy", weights)
    count = STEPS[model] * options.batch_size * gpus
    picture = folder / "picture.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8)
    Image.fromarray(noise).save(picture)
    listed = {"classes": list("abc"), "paths": [str(picture)] * count, "formats": ["JPEG"] * count}
    (folder / "pictures.json").write_text(json.dumps({**listed, "labels": [n % 3 for n in range(count)]}))
    job = Job(
        config, graph=graph.to_dict(), pictures=str(folder / "pictures.json"), weights=str(folder / "weights.npy")
    )
    spec = registry.framework(framework)
    run = run_job(spec, Given(Path(python)), job, folder / "run", limits=Limits(timeout_s=options.timeout), hz=10.0)
    if run.status != "ok":
        return f"{run.status}: {run.reason}", run
    epochs = [epoch for epoch in run.epochs if epoch.number > 1]
    return statistics.median(epoch.images / epoch.seconds for epoch in epochs), run


def joules_an_image(run):
    """Of all GPUs, over the epochs after the first."""
    start, end = run.epochs[0].end_ns, run.epochs[-1].end_ns
    images, total = sum(epoch.images for epoch in run.epochs[1:]), 0.0
    for name in sorted({reading.device for reading in run.energy if reading.device.startswith("gpu")}):
        readings = [(reading.t_ns - start, reading.energy_j) for reading in run.energy if reading.device == name]
        first, last = np.interp([0, end - start], *zip(*readings))
        total += last - first
    return total / images if total else float("nan")


def by_hand(python, model, gpus, options):
    command = [python, str(HAND), model, str(gpus), str(options.batch_size), str(STEPS[model])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout, check=False)
    if done.returncode:
        return f"failed: {done.stderr.strip().splitlines()[-1:]}"
    step_s = statistics.median(json.loads(done.stdout.splitlines()[-1]))
    return gpus * options.batch_size / step_s


def say(name, model, gpus, images_per_s, first, options, energy=float("nan")):
    if isinstance(images_per_s, str):
        print(f"{name:16} {model:13} {gpus} GPU: {images_per_s}", flush=True)
        return
    step_ms = 1e3 * gpus * options.batch_size / images_per_s
    speedup = images_per_s / first[1] if first else float("nan")
    share = speedup * first[0] / gpus if first else float("nan")
    print(
        f"{name:16} {model:13} {gpus} GPU: {images_per_s:8.0f} images/s {step_ms:7.2f} ms a step,"
        f" x {speedup:.2f} ({share:.0%}), {energy:.4f} J an image",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="FRAMEWORK=PATH of ours; repeatable")
    parser.add_argument("--hand", help="torch=PATH of the loop by hand")
    parser.add_argument("--models", type=split, default=split(MODELS))
    parser.add_argument("--gpus", type=lambda text: split(text, int), default=[1, 2])
    parser.add_argument("--executions", type=split, default=["graph"])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds of one cell")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no cell is started")
    options = parser.parse_args()
    begun = time.monotonic()
    sides = [(name, path, how) for name, path in by_framework("--python", options.python).items()
             for how in options.executions]  # fmt: skip
    sides += [
        (None, path, "by hand") for path in by_framework("--hand", [options.hand] if options.hand else []).values()
    ]
    for name, path, how in sides:
        for model in options.models:
            first = None
            for gpus in options.gpus:
                if time.monotonic() - begun > options.until:
                    print("no time left", flush=True)
                    return
                energy = float("nan")
                if name is None:
                    figure = by_hand(path, model, gpus, options)
                else:
                    with tempfile.TemporaryDirectory() as folder:
                        figure, run = our_cell(name, path, model, gpus, how, options, Path(folder))
                    if isinstance(figure, str):
                        print(run.log_tail, flush=True)
                    else:
                        energy = joules_an_image(run)
                first = first or (None if isinstance(figure, str) else (gpus, figure))
                say(f"{name or 'torch'} {how}", model, gpus, figure, first, options, energy)


if __name__ == "__main__":
    main()
