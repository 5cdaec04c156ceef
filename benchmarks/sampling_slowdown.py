"""What sampling costs the run: step times with the recorder on over those with it off, interleaved in one process.

One worker trains in the `memory` pipeline; every round times it once without readings and once at each rate, in turns,
while the parent samples its processes and, with --device cuda, the GPU. The figure is the median of the ratios with its
95 % interval and range. Target: under 1.005 at 10 Hz. Runs of two processes differ by more than readings cost; one
process differs from itself by less. Steps on a GPU that wait for the host scatter by a tenth, so they are given four
times the rounds.

Usage: python benchmarks/sampling_slowdown.py [--hz 1 10 100] [--rounds 100] [--frameworks torch,jax] [--save FILE]
       python benchmarks/sampling_slowdown.py --device cuda --python torch=/path/to/python --python jax=/path/to/python
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from step_time import Child, median_interval, write_job

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.launch import staging
from framework_compare.protocol import TrainConfig
from framework_compare.samplers import host
from framework_compare.samplers.recorder import Recorder

ROUND_S = 0.5
# and how many times the rounds: four where steps wait for the host
CPU_CELLS = (
    ("torch", "mobilenet_v2", 1, "default", 1),
    ("tensorflow", "mobilenet_v2", 1, "default", 1),
    ("jax", "mobilenet_v2", 1, "default", 1),
)
GPU_CELLS = (
    ("torch", "alexnet", 1, "graph", 1),
    ("torch", "alexnet", 1, "eager", 4),
    ("torch", "resnet50", 100, "graph", 1),
    ("jax", "alexnet", 1, "graph", 4),
    ("jax", "mobilenet_v2", 1, "graph", 4),
)


def measure(framework, model, batch_size, execution, python, rounds, device, rates_hz, folder):
    """One row per rate."""
    spec = registry.framework(framework)
    config = TrainConfig(
        device=device,
        batch_size=batch_size,
        execution=execution,
        pipeline="memory",
        threads=host.available_cores(),
        loader_workers=1,
    )
    job = write_job(spec, model, config, folder)
    child = Child(managed.ensure(framework, python=python).python, staging.stage(spec), job)
    child.run("ours", 5)
    steps = max(5, round(ROUND_S / child.run("ours", 20)))
    times = []
    for number in range(rounds):
        taken = {}
        turn = (0.0, *rates_hz)
        turn = turn[number % len(turn) :] + turn[: number % len(turn)]
        for hz in turn if number // len(turn) % 2 else turn[::-1]:
            with Recorder(child.pid, device=device, hz=hz) if hz else nullcontext():
                taken[hz] = child.run("ours", steps)
        times.append(taken)
    child.close()
    return [
        {
            "framework": framework,
            "model": model,
            "batch_size": batch_size,
            "execution": execution,
            "hz": hz,
            "rounds": rounds,
            "steps_a_round": steps,
            "step_s": statistics.median(taken[0.0] for taken in times),
            **of_ratios([taken[hz] / taken[0.0] for taken in times]),
        }
        for hz in rates_hz
    ]


def of_ratios(ratios):
    return {
        "ratio_median": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "interval": median_interval(ratios),
        "ratios": [round(ratio, 4) for ratio in ratios],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--frameworks", default="torch,jax")
    parser.add_argument("--hz", type=float, nargs="+", default=[10.0], help="readings per second, beside none")
    parser.add_argument("--python", action="append", default=[], help="FRAMEWORK=PATH of an interpreter that has it")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--save")
    options = parser.parse_args()
    pythons, frameworks = dict(pair.split("=", 1) for pair in options.python), options.frameworks.split(",")
    rows = []
    for framework, model, batch_size, execution, times in CPU_CELLS if options.device == "cpu" else GPU_CELLS:
        if framework not in frameworks:
            continue
        asked = (framework, model, batch_size, execution, pythons.get(framework), times * options.rounds)
        with tempfile.TemporaryDirectory() as folder:
            found = measure(*asked, options.device, options.hz, Path(folder))
        for row in found:
            low, high = row["interval"]
            print(
                f"{framework:11}{model:13}batch {batch_size:<4}{execution:8}{1e3 * row['step_s']:.3f} ms a step, at"
                f" {row['hz']:g} Hz over none {row['ratio_median']:.4f} (95 % {low:.4f}-{high:.4f};"
                f" {row['ratio_low']:.4f}-{row['ratio_high']:.4f})",
                flush=True,
            )
        rows += found
    if options.save:
        document = {
            "command": f"python benchmarks/sampling_slowdown.py --device {options.device} --frameworks {options.frameworks}"
            f" --hz {' '.join(f'{hz:g}' for hz in options.hz)} --rounds {options.rounds}",
            "date": datetime.date.today().isoformat(),
            "machine": host.describe(),
            "versions": {name: managed.find(name, python=pythons.get(name)).version for name in frameworks},
            "rows": rows,
        }
        Path(options.save).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
