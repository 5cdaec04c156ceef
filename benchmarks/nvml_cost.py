"""What sampling a GPU at 10 Hz costs the run: step times with the recorder on over those with it off, interleaved.

One worker trains in the `memory` pipeline; every round times it twice, once while the parent samples its processes and
the GPU, in turns. The figure is the median of the ratios with its 95 % interval and range. Target: under 1.005. Steps
that wait for the host scatter by a tenth, so they are given four times the rounds.

Usage: python benchmarks/nvml_cost.py --python torch=/path/to/python --python jax=/path/to/python [--rounds 30]
       [--frameworks torch] [--save FILE]
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
CELLS = (
    ("torch", "alexnet", 1, "graph", 1),
    ("torch", "alexnet", 1, "eager", 4),
    ("torch", "resnet50", 100, "graph", 1),
    ("jax", "alexnet", 1, "graph", 4),
    ("jax", "mobilenet_v2", 1, "graph", 4),
)


def measure(framework, model, batch_size, execution, python, rounds, folder):
    spec = registry.framework(framework)
    config = TrainConfig(
        device="cuda",
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
        for on in (True, False) if number % 2 else (False, True):
            with Recorder(child.pid, device="cuda", hz=10) if on else nullcontext():
                taken[on] = child.run("ours", steps)
        times.append((taken[True], taken[False]))
    child.close()
    ratios = [on / off for on, off in times]
    return {
        "framework": framework,
        "model": model,
        "batch_size": batch_size,
        "execution": execution,
        "rounds": rounds,
        "steps_a_round": steps,
        "step_s": statistics.median(off for _, off in times),
        "ratio_median": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "interval": median_interval(ratios),
        "ratios": [round(ratio, 4) for ratio in ratios],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", default="torch,jax")
    parser.add_argument("--python", action="append", default=[], help="FRAMEWORK=PATH of an interpreter that has it")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--save")
    options = parser.parse_args()
    pythons, frameworks = dict(pair.split("=", 1) for pair in options.python), options.frameworks.split(",")
    rows = []
    for framework, model, batch_size, execution, times in CELLS:
        if framework not in frameworks:
            continue
        with tempfile.TemporaryDirectory() as folder:
            asked = (framework, model, batch_size, execution, pythons.get(framework), times * options.rounds)
            rows.append(measure(*asked, Path(folder)))
        row = rows[-1]
        low, high = row["interval"]
        print(
            f"{framework:6}{model:13}batch {batch_size:<4}{execution:6}{1e3 * row['step_s']:.3f} ms a step,"
            f" on/off {row['ratio_median']:.4f} (95 % {low:.4f}-{high:.4f}; {row['ratio_low']:.4f}-{row['ratio_high']:.4f})",
            flush=True,
        )
    if options.save:
        document = {
            "command": f"python benchmarks/nvml_cost.py --frameworks {options.frameworks} --rounds {options.rounds}",
            "date": datetime.date.today().isoformat(),
            "machine": host.describe(),
            "versions": {name: managed.find(name, python=pythons.get(name)).version for name in frameworks},
            "rows": rows,
        }
        Path(options.save).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
