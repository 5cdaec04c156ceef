"""Sides of benchmarks/step_time.py, in a framework's environment: reads "SIDE STEPS", answers with seconds a step.

Usage: python step_time_child.py SOURCE JOB LOOPS, where SOURCE is the staged worker side. A side is made when it is asked
for; "ours" is ours, whatever has another name a hand-written loop of its own.
"""

import importlib
import itertools
import json
import os
import sys
import time

LANGUAGE = ("gpt_nano", "gpt2_small")  # of which FRAMEWORK_language.py has loops, for GPUs, too
SECOND_BIASES = 0.02  # of all parameters: a framework's own LSTM has two biases, ours trains one


def main(source, job_path, loops):
    sys.path[:0] = [source, loops]
    with open(job_path) as file:
        job = json.load(file)
    from framework_compare.protocol import TrainConfig

    config = TrainConfig.from_dict(job["config"])
    module, _, name = job["trainer"].partition(":")
    trainer_class = getattr(importlib.import_module(module), name)
    os.environ.update(trainer_class.environment(config))
    sides = {}
    for line in sys.stdin:
        role, steps = line.split()
        if role not in sides:
            of_text = "data" in job and os.path.exists(os.path.join(loops, f"loop_{trainer_class.name}.py"))
            others = make_language if of_text else make_workload if "data" in job else make_hand
            make = make_ours if role == "ours" else others
            sides[role] = make(job, config, trainer_class, role)
        print(json.dumps(sides[role](int(steps))), flush=True)


def make_ours(job, config, trainer_class, role):
    """The runner's own epoch loop over the held batch."""
    from framework_compare.events import EventWriter
    from framework_compare.protocol import Job
    from framework_compare.worker.runner import Runner
    from framework_compare.worker.sources import open_source

    document = {name: value for name, value in job.items() if name not in ("zoo_model", "parameters")}
    runner = Runner(Job.from_dict(document), trainer_class, EventWriter(os.open(os.devnull, os.O_WRONLY)))
    runner.trainer = trainer_class(config)
    runner.trainer.build(runner.graph)
    runner.load_weights()
    held = open_source(runner.trainer, runner.data, config).held[0]
    timed = clock(config, trainer_class)
    return lambda steps: timed(lambda: runner.run_epoch(itertools.repeat(held, steps), 1)) / steps


def make_workload(job, config, trainer_class, role):
    """The hand-written loop of a workload on its first batch; it must have as many parameters as ours, or nearly so."""
    from framework_compare.batches.arrays import ArrayPipeline, read_split

    share_allocator(config, trainer_class)
    name = trainer_class.name
    split = read_split(job["data"]["path"], "train")
    layout = "NHWC" if name in ("tensorflow", "jax") else "NCHW"
    with ArrayPipeline(split, batch_size=config.batch_size, layout=layout) as pipeline:
        inputs, target = next(iter(pipeline.epoch(1)))
    of_language = job["zoo_model"] in LANGUAGE
    loop = importlib.import_module(f"{name}_language" if of_language else f"{name}_workloads")
    how = {"fit": True} if role == "fit" else {}
    if of_language:
        how = {"execution": config.execution, "precision": config.precision}
    go, count = loop.make(job["zoo_model"], inputs, target, split.task, config.threads, **how)
    if abs(count / job["parameters"] - 1) > SECOND_BIASES:
        sys.exit(print(f"another model: {count} parameters, ours has {job['parameters']}", flush=True))
    timed = clock(config, trainer_class)
    return lambda steps: timed(lambda: go(steps)) / steps


def make_language(job, config, trainer_class, role):
    """The step of a loop that has a `common.run(arguments, name, step, gradients)`, with the losses read at each step."""
    import common

    from framework_compare.batches.arrays import ArrayPipeline, read_split

    share_allocator(config, trainer_class)
    with ArrayPipeline(read_split(job["data"]["path"], "train"), batch_size=config.batch_size) as pipeline:
        inputs, target = next(iter(pipeline.epoch(1)))
    batch, made = (inputs, target.astype("int32")), {}
    sys.argv[1:] = [job["zoo_model"], "--threads", str(config.threads)]
    common.run = lambda arguments, name, step, gradients: made.update(step=step)
    importlib.import_module(f"loop_{trainer_class.name}").main()

    def go(steps):
        for number in range(steps):
            float(made["step"](*batch, common.rate(number)))

    timed = clock(config, trainer_class)
    return lambda steps: timed(lambda: go(steps)) / steps


def share_allocator(config, trainer_class):
    """What our trainer sets for the process."""
    from framework_compare.worker.processes import keep_freed_memory

    if trainer_class.name in ("torch", "paddle", "keras-torch") and config.device == "cpu":
        keep_freed_memory()


def make_hand(job, config, trainer_class, role):
    """The hand-written loop, with the allocator and environment variables that our trainer sets."""
    import numpy as np

    share_allocator(config, trainer_class)
    if trainer_class.name == "torch":
        import torch

        from framework_compare.adapters.torch.pipeline import import_torchvision

        import_torchvision(torch)
    rng = np.random.default_rng(0)
    size = config.image_size
    channels_first = trainer_class.name in ("torch", "mxnet", "paddle", "singa")
    shape = (config.batch_size, 3, size, size) if channels_first else (config.batch_size, size, size, 3)
    images = rng.standard_normal(shape, dtype=np.float32)
    labels = np.arange(config.batch_size, dtype=np.int64) % 3
    if trainer_class.name.startswith("keras-"):
        how = {"execution": config.execution}
    else:
        how = {} if config.device == "cpu" else {"execution": config.execution, "precision": config.precision}
    loop = importlib.import_module(f"{trainer_class.name.replace('-', '_')}_loop")
    step, synchronize = loop.make(job["zoo_model"], images, labels, config.threads, **how)

    def go(steps):
        for _ in range(steps):
            step()
        synchronize()

    timed = clock(config, trainer_class)
    return lambda steps: timed(lambda: go(steps)) / steps


def clock(config, trainer_class):
    """What times a call that ends with the device idle, in seconds: CUDA events where PyTorch has them."""
    if trainer_class.name == "torch" and config.device != "cpu":
        return between_events

    def timed(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return timed


def between_events(call):
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


if __name__ == "__main__":
    main(*sys.argv[1:])
