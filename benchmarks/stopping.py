"""How often an interval holds the truth where runs are added until it is narrow enough, by simulation.

python benchmarks/stopping.py   # writes benchmarks/results/stopping.json, seconds

A cell's runs have normal noise (a standard deviation of logarithms). They are added one by one from the least number on,
until the longer arm of the interval is within the target, at most 40.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from framework_compare.results.intervals import geometric_mean

OUT = Path(__file__).parent / "results" / "stopping.json"
TARGET, MOST_RUNS, SIMULATIONS = 0.05, 40, 1000


def stopped(logs, least):
    """The interval that a study would end with, of the runs' logarithms in their order."""
    for runs in range(least, len(logs) + 1):
        interval = geometric_mean(np.exp(logs[:runs]))
        if interval.high / interval.value - 1 <= TARGET:
            break
    return interval


def outcomes(noise, least):
    generator = np.random.default_rng([least, int(1000 * noise)])
    found = [stopped(logs, least) for logs in generator.normal(0, noise, (SIMULATIONS, MOST_RUNS))]
    return {
        "held": round(float(np.mean([one.low <= 1 <= one.high for one in found])), 3),
        "within_target_of_the_truth": round(float(np.mean([abs(np.log(one.value)) <= TARGET for one in found])), 3),
        "runs_mean": round(float(np.mean([one.runs for one in found])), 1),
    }


def main():
    noises, least = (0.01, 0.02, 0.03, 0.05, 0.1), (2, 3, 5)
    report = {
        "target": TARGET,
        "from_runs": {n: {f"noise {noise:g}": outcomes(noise, n) for noise in noises} for n in least},
    }
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
