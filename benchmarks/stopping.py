"""How often an interval holds the truth where blocks are added until it is narrow enough, by simulation.

python benchmarks/stopping.py   # writes benchmarks/results/stopping.json, a minute

Ratios of blocks have normal noise (a standard deviation of logarithms). Blocks are added one by one from LEAST_RUNS on,
until the longer arm of the interval is within the target, at most 40. `looked` is the interval of studies under a budget,
with its stopping constant; `plain` is Student's.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from framework_compare.results.intervals import LEAST_RUNS, STOPPING, geometric_mean

OUT = Path(__file__).parent / "results" / "stopping.json"
TARGET, MOST_BLOCKS, SIMULATIONS = 0.05, 40, 2000


def stopped(logs, looked):
    """The interval that a study would end with, of the blocks' logarithms in their order."""
    for blocks in range(LEAST_RUNS, len(logs) + 1):
        interval = geometric_mean(np.exp(logs[:blocks]), looked=looked)
        if interval.high / interval.value - 1 <= TARGET:
            break
    return interval


def outcomes(noise, looked):
    generator = np.random.default_rng(int(1000 * noise))
    found = [stopped(logs, looked) for logs in generator.normal(0, noise, (SIMULATIONS, MOST_BLOCKS))]
    return {
        "held": round(float(np.mean([one.low <= 1 <= one.high for one in found])), 4),
        "blocks_mean": round(float(np.mean([one.runs for one in found])), 1),
    }


def main():
    noises = (0.01, 0.02, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1)
    report = {
        "target": TARGET,
        "stopping": STOPPING,
        "simulations": SIMULATIONS,
        "by noise": {
            f"{noise:g}": {name: outcomes(noise, name == "looked") for name in ("looked", "plain")} for noise in noises
        },
    }
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
