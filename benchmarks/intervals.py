"""How often intervals and verdicts over few runs are right, by simulation: why t of logarithms, and why five runs.

python benchmarks/intervals.py   # writes benchmarks/results/intervals.json, seconds

Each cell's runs have noise of 3 % (a standard deviation of logarithms), and blocks drift by 20 %, which both cells
share. `bca` is scipy.stats.bootstrap of the same logarithms of ratios.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import scipy
from scipy import stats

from framework_compare.results.intervals import geometric_mean, holm

OUT = Path(__file__).parent / "results" / "intervals.json"
NOISE, SIMULATIONS = 0.03, 4000
SHAPES = {
    "normal": lambda generator, shape: generator.normal(0, NOISE, shape),
    "laplace": lambda generator, shape: generator.laplace(0, NOISE / np.sqrt(2), shape),
    "one in ten 20 % slower": lambda generator, shape: (
        generator.normal(0, NOISE, shape) + np.log(1.2) * (generator.random(shape) < 0.1)
    ),
    "skewed": lambda generator, shape: generator.exponential(NOISE, shape),
}


def ratios(generator, shape, runs, simulations=SIMULATIONS):
    """Logarithms of the ratios of two cells' runs, a row per simulation; the blocks' drift is gone from them."""
    cells = SHAPES[shape](generator, (simulations, 2, runs))
    return cells[:, 1] - cells[:, 0]


def coverage(shape, runs):
    found = [geometric_mean(np.exp(row)) for row in ratios(np.random.default_rng(runs), shape, runs)]
    return {
        "held": round(float(np.mean([one.low <= 1 <= one.high for one in found])), 4),
        "half_width": round(float(np.median([(one.high - one.low) / 2 for one in found])), 4),
    }


def bca(shape, runs):
    inside = []
    generator = np.random.default_rng(runs)
    for row in ratios(generator, shape, runs, 500):
        ends = stats.bootstrap((row,), np.mean, n_resamples=999, random_state=generator).confidence_interval
        inside.append(ends.low <= 0 <= ends.high)
    return round(float(np.mean(inside)), 3)


def power(slower, runs, cells, shape="normal", simulations=500):
    """How often the one slower cell of so many is shown to be slower than each, after Holm's correction."""
    generator = np.random.default_rng([runs, cells, int(1000 * slower)])
    found = []
    for _ in range(simulations):
        logs = SHAPES[shape](generator, (cells, runs))
        logs[0] += np.log(slower)
        pairs = list(itertools.combinations(range(cells), 2))
        corrected = holm([geometric_mean(np.exp(logs[a] - logs[b])).p for a, b in pairs])
        found += [p < 0.05 for p, (a, _) in zip(corrected, pairs) if a == 0]
    return round(float(np.mean(found)), 3)


def main():
    runs = (2, 3, 4, 5, 6, 8, 12, 20)
    report = {
        "scipy": scipy.__version__,
        "noise": NOISE,
        "t_of_logarithms": {shape: {n: coverage(shape, n) for n in runs} for shape in SHAPES},
        "bca": {shape: {n: bca(shape, n) for n in (3, 5, 8, 20)} for shape in ("normal", "skewed")},
        "shown": {
            f"{slower:g}x, {cells} cells": {n: power(slower, n, cells) for n in runs[:6]}
            for slower, cells in itertools.product((1.05, 1.1, 1.2), (2, 5))
        },
    }
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
