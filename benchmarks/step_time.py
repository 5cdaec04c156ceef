"""Our step in the `memory` pipeline over that of a hand-written loop of the same framework, interleaved.

Both live in processes of their own, with the same threads and allocator, and take turns; the figure is the median
over the rounds of the ratio of the two times a step, with its range and the 95 % interval of the median. Targets: at
most 1.03 on a CPU; on a GPU 1.02 at batch 100 and 1.05 at batch 1, where PyTorch's times are CUDA events' and the
others' are taken with the device idle. With --pairs both sides are started so often, as each process chooses its
algorithms anew, every other time in the other order: the rounds of all pairs count, and the median of each pair is kept,
too. With --control a second hand-written loop takes its turns, and its times over those of the first say what the host,
the GPU and the choice of algorithms make of two sides that do the same. Workloads have their own batch size and
optimizer; with --fit, TensorFlow's have Keras' Model.fit take turns, too. With --together a pair shares one process, and
with it XLA's choices for equal instructions, the threads and their places: what is left is mostly what the loops and
their programs differ in. With --apart a side ends before the other starts, where a GPU's memory does not hold both; the
ratio is then that of the sides' medians, pair by pair. Loops of language models are looked for in --loops as
loop_FRAMEWORK.py, else those of FRAMEWORK_language.py are taken.

Usage: python benchmarks/step_time.py [--frameworks torch,mxnet] [--models alexnet] [--save FILE]
       python benchmarks/step_time.py --models lstm_ibm,diabetes_ann,tiny_cnn,tweet_span --fit
       python benchmarks/step_time.py --frameworks keras-jax --models mobilenet_v2 --image-size 96 --execution default,fit
       python benchmarks/step_time.py --device cuda --python torch=/path/python --batch-size 1,100 --execution graph
"""

import argparse
import contextlib
import datetime
import functools
import itertools
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from framework_compare import registry
from framework_compare.datasets import arrays
from framework_compare.datasets.resolve import resolve
from framework_compare.environments import managed
from framework_compare.graph import initial_weights, weights_size
from framework_compare.launch import staging
from framework_compare.launch.staging import worker_environment
from framework_compare.plan.planning import build_graph
from framework_compare.protocol import TrainConfig
from framework_compare.samplers import host

HERE = Path(__file__).parent
# the variant of ResNet-50 that the hand-written loop has: stride on the 3x3 in torchvision and paddle.vision
OUR_VARIANT = {(framework, "resnet50"): "resnet50_v1_5" for framework in ("torch", "paddle", "jax")}
STEPS = {"alexnet": 4, "mobilenet_v2": 4, "resnet50": 2, "vgg16": 1}
ROUND_S = 0.3  # a round of a GPU, or of a workload, takes as many steps as last about so long
FIT_ROUND_S = 2.0  # where Model.fit takes turns, whose start is part of it


class Child:
    """A process that runs steps of a side when asked, which it makes when it is asked for the first time."""

    def __init__(self, python, source, job, loops=""):
        command = [python, HERE / "step_time_child.py", source, job, loops]
        self._errors = tempfile.TemporaryFile("w+")
        self._child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=worker_environment(managed=True, temporary=Path(tempfile.gettempdir())),
        )

    @property
    def pid(self):
        return self._child.pid

    def run(self, role, steps):
        """Seconds a step over `steps` steps of "ours", or of a hand-written loop: "hand", "control", "fit"."""
        print(role, steps, file=self._child.stdin, flush=True)
        for line in self._child.stdout:
            if line[0].isdigit():  # frameworks print too
                return float(line)
            if line.startswith("another model"):
                raise RuntimeError(line)
        code = self._child.wait()
        self._errors.seek(0)
        raise RuntimeError(f"the child of {role} ended with {code}: {self._errors.read()[-4000:]}")

    def close(self):
        self._child.stdin.close()
        self._child.wait(30)
        self._errors.close()


def measure(framework, model, config, options, folder, python):
    spec = registry.framework(framework)
    job = write_job(spec, model, config, folder)
    python, source = managed.ensure(framework, python=python).python, staging.stage(spec)
    of_arrays = registry.of_arrays(model)
    third = "fit" if options.fit and of_arrays and framework == "tensorflow" else "control" if options.control else ""
    roles = ("ours", "hand", third)[: 3 if third else 2]
    start = functools.partial(Child, python, source, job, options.loops)
    if options.apart:
        times, steps = one_by_one(start, roles, options)
    else:
        few_steps = STEPS[model] if config.device == "cpu" and not of_arrays else None
        times, steps = side_by_side(start, roles, options, config, few_steps)
    rounds = 1 if options.apart else options.rounds
    return {
        "framework": framework,
        "model": model,
        **{name: getattr(config, name) for name in ("device", "batch_size", "image_size", "execution", "precision")},
        "steps_a_round": steps,
        "our_graph": OUR_VARIANT.get((framework, model), model),
        "pairs": options.pairs,
        "together": options.together,
        "apart": options.apart,
        "rounds": options.rounds,
        "ours_step_s": statistics.median(taken["ours"] for taken in times),
        "hand_step_s": statistics.median(taken["hand"] for taken in times),
        **over(times, "ours", "hand", rounds),
        **({"control": over(times, "control", "hand", rounds)} if third == "control" else {}),
        **({"over_fit": over(times, "ours", "fit", rounds)} if third == "fit" else {}),
    }


def side_by_side(start, roles, options, config, steps=None):
    """Seconds a step of each side in each round, all sides alive; and the steps of a round."""
    times = []
    for pair in range(options.pairs):
        with contextlib.ExitStack() as stack:
            children, child = {}, None
            for role in roles if pair % 2 == 0 else roles[::-1]:
                if child is None or not options.together:
                    child = stack.enter_context(contextlib.closing(start()))
                child.run(role, 2)  # before the next is there: compilers and libraries choose algorithms by timing them
                children[role] = child
            if steps is None:
                few = 20 if config.device != "cpu" else 2
                least = min(children[role].run(role, few) for role in roles)
                round_s = FIT_ROUND_S if "fit" in roles else ROUND_S
                steps = max(5 if config.device != "cpu" else 1, round(round_s / least))
            for turn in itertools.islice(turns(roles), options.rounds):
                times.append({role: children[role].run(role, steps) for role in turn})
    return times, steps


def one_by_one(start, roles, options):
    """The median of each side's rounds, pair by pair, a side alone at a time; and the steps of a round."""
    times, steps = [], None
    for pair in range(options.pairs):
        medians = {}
        for role in roles if pair % 2 == 0 else roles[::-1]:
            with contextlib.closing(start()) as child:
                child.run(role, 2)
                steps = steps or max(5, round(ROUND_S / child.run(role, 20)))
                medians[role] = statistics.median(child.run(role, steps) for _ in range(options.rounds))
        times.append(medians)
        print(f"pair {pair}:", *(f"{role} {1e3 * seconds:.3f} ms" for role, seconds in medians.items()), flush=True)
    return times, steps


def turns(roles):
    """Orders of the two or three sides, round by round.

    In two rounds of two, or six of three, each has each place and runs after each, itself too, equally often: where
    steps wait for the host, a side is faster in its turn when it ran last.
    """
    orders = ("01", "10") if len(roles) == 2 else ("012", "201", "102", "210", "021", "120")
    return itertools.cycle([roles[int(place)] for place in order] for order in orders)


def over(times, role, base, rounds):
    """Times of a side over those of another, round by round."""
    ratios = [taken[role] / taken[base] for taken in times]
    return {
        "ratio_median": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "interval": median_interval(ratios),
        "pair_medians": [round(statistics.median(ratios[n : n + rounds]), 4) for n in range(0, len(ratios), rounds)],
        "ratios": [round(ratio, 4) for ratio in ratios],
    }


def median_interval(values):
    """95 % interval of the median of independent values, however they are distributed; for less than 6 the range.

    Rounds of one pair of processes have its choices in common: for several pairs it is too narrow. Between the k-th smallest
    and the k-th largest of n values the median lies with probability 1 - 2 P(B < k), B binomial (n, 1/2).
    """
    ordered, count = sorted(values), len(values)
    below = itertools.accumulate(math.comb(count, k) / 2**count for k in range(count))
    place = max(0, sum(probability <= 0.025 for probability in below) - 1)
    return ordered[place], ordered[-1 - place]


def cells(options):
    """Frameworks x models x settings, as (framework, model, config)."""
    axes = (options.frameworks, options.models, options.execution, options.precision)
    for framework, model, execution, precision in itertools.product(*(axis.split(",") for axis in axes)):
        own = {"batch_size": 8, **registry.MODELS[model].settings}
        sizes = map(int, options.batch_size.split(",")) if options.batch_size else [own["batch_size"]]
        for size in sizes:
            given = dict(device=options.device, batch_size=size, execution=execution, precision=precision)
            if options.image_size and not registry.of_arrays(model):
                given.update(image_size=options.image_size)
            fixed = dict(pipeline="memory", threads=host.available_cores(), loader_workers=1)
            yield framework, model, TrainConfig(**{**own, **given, **fixed})


def write_job(spec, model, config, folder):
    workload = registry.MODELS[model]
    document = {"config": config.to_dict(), "trainer": staging.trainer_target(spec), "zoo_model": model}
    if workload.of_arrays:
        data = arrays.load(workload.dataset, **workload.options)
        data.write(folder / "data.npz")
        graph = build_graph(model, config, data.task)
        document.update(data={"kind": "arrays", "path": str(folder / "data.npz")}, parameters=graph.parameter_count())
    else:
        graph = build_graph(OUR_VARIANT.get((spec.name, model), model), config)
        document["images"] = str(write_images(folder, config.batch_size))
    weights = folder / "weights.npy"
    flat = np.lib.format.open_memmap(weights, mode="w+", dtype=np.float32, shape=(weights_size(graph),))
    initial_weights(graph, 0, flat)
    job = folder / "job.json"
    job.write_text(json.dumps({**document, "graph": graph.to_dict(), "weights": str(weights)}))
    return job


def write_images(folder, count):
    index = resolve("fire-smoke-tiny")
    images = folder / "images.json"
    times = -(-count // len(index.files))
    listing = {name: list(value) * (times if name != "classes" else 1) for name, value in index.files.__dict__.items()}
    images.write_text(json.dumps(listing))
    return images


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", default="torch,tensorflow,mxnet,paddle,jax")
    parser.add_argument("--models", default="alexnet,mobilenet_v2,resnet50,vgg16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", help="one, or several with commas between; default: 8, a workload's own")
    parser.add_argument(
        "--image-size", type=int, help="default: 224; only hand-written loops with Keras' models have others"
    )
    parser.add_argument("--execution", default="default", help="likewise")
    parser.add_argument("--precision", default="fp32", help="likewise")
    parser.add_argument("--python", action="append", default=[], help="FRAMEWORK=PATH of an interpreter that has it")
    parser.add_argument("--rounds", type=int, default=10, help="of each pair of processes")
    parser.add_argument("--pairs", type=int, default=1, help="of processes, one after the other")
    parser.add_argument("--control", action="store_true", help="a second hand-written loop takes turns, too")
    parser.add_argument("--fit", action="store_true", help="Keras' Model.fit takes turns, too")
    parser.add_argument("--together", action="store_true", help="the sides of a pair share a process")
    parser.add_argument("--apart", action="store_true", help="a side ends before the other starts")
    parser.add_argument("--loops", default=HERE / "hand_written", help="folder of the hand-written loops")
    parser.add_argument("--save")
    options = parser.parse_args()
    pythons = dict(pair.split("=", 1) for pair in options.python)
    rows = []
    for framework, model, config in cells(options):
        with tempfile.TemporaryDirectory() as folder:
            python = pythons.get(framework)
            row = measure(framework, model, config, options, Path(folder), python)
        rows.append(row)
        print(
            f"{framework:12}{model:14}batch {config.batch_size:<5}{config.execution:10}{config.precision:6}"
            f"ours {1e3 * row['ours_step_s']:.3f} ms  hand {1e3 * row['hand_step_s']:.3f} ms  ratio {shown(row)}"
            + "".join(f"  {name} {shown(row[name])}" for name in ("control", "over_fit") if name in row),
            flush=True,
        )
        if options.save:
            save(Path(options.save), rows, pythons)


def shown(ratio):
    low, high = ratio["interval"]
    medians = " ".join(f"{median:.3f}" for median in ratio["pair_medians"])
    return f"{ratio['ratio_median']:.3f} (95 % {low:.3f}-{high:.3f} if rounds are independent; pairs {medians})"


def save(path, rows, pythons):
    versions = {name: managed.find(name, python=pythons.get(name)).version for name in {r["framework"] for r in rows}}
    # where an interpreter or a file is on this machine is nobody else's business
    command = [word.partition("=")[0] + "=PYTHON" if "=" in word else word for word in sys.argv[1:]]
    if "--loops" in command:
        command[command.index("--loops") + 1] = "FOLDER"
    if "--save" in command:
        command[command.index("--save") + 1] = "FILE"
    document = {
        "command": "python " + " ".join(["benchmarks/step_time.py", *command]),
        "date": datetime.date.today().isoformat(),
        "machine": host.describe(),
        "versions": versions,
        "threads": host.available_cores(),
        "rows": rows,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
