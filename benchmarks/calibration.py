"""How often verdicts on cells without a difference are wrong, and how wide intervals are, before and after moderation.

python benchmarks/calibration.py   # writes benchmarks/results/calibration.json, minutes

"own": each pair's variance is that of its own ratios; "moderated": drawn towards that of all pairs
(`results/moderation.py`), as verdicts have it. Simulated runs have noise of 3 %, blocks drift by 20 %, groups of cells
are compared within themselves. Then the 180 runs of the A/A study (`verdict_rates_runs.json`), dealt anew to 60 cells
within their blocks: cells that nobody can tell apart, with the noise of a machine.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np

from framework_compare.results.block_times import BlockTimes, Stratum
from framework_compare.results.intervals import holm, paired_ratio

RESULTS = Path(__file__).parent / "results"
NOISE, STUDIES, DEALS = 0.03, 300, 20
GROUPS = {"3 cells": [3], "5 cells": [5], "4 models of 5 cells": [5] * 4, "6 models of 2 cells": [2] * 6}
CELLS = {
    "alike": lambda generator, count: np.ones(count),
    "spread twofold": lambda generator, count: np.exp(generator.normal(0, math.log(2), count)),
    "half six times noisier": lambda generator, count: np.where(np.arange(count) % 2, 1 / 3, 2),
    "one ten times noisier": lambda generator, count: np.where(np.arange(count), 0.7, 7),
}
SHAPES = {
    "normal": lambda generator, shape: generator.normal(size=shape),
    "heavy tails": lambda generator, shape: generator.standard_t(3, shape) / math.sqrt(3),
    "one in ten held up": lambda generator, shape: 0.67 * generator.normal(size=shape) + 6 * (
        generator.random(shape) < 0.1
    ),
    "neighbours alike": lambda generator, shape: in_turns(generator, shape, 0.4),
}  # fmt: skip


def in_turns(generator, shape, likeness):
    """Noise that follows itself from run to run (AR(1)), of runs in a random order in each block."""
    cells, blocks = shape
    series = generator.normal(size=cells * blocks)
    for run in range(1, len(series)):
        series[run] = likeness * series[run - 1] + math.sqrt(1 - likeness**2) * series[run]
    return np.stack([generator.permutation(block) for block in series.reshape(blocks, cells)], axis=1)


def verdicts(logs, groups):
    """Of all pairs of a study's logarithms: their ratios by themselves and moderated."""
    numbers = [number for number, count in enumerate(groups) for _ in range(count)]
    seconds = BlockTimes(
        {cell: dict(enumerate(row)) for cell, row in enumerate(np.exp(logs))},
        {cell: Stratum("here", number) for cell, number in enumerate(numbers)},
    )
    pairs = [(a, b) for a, b in itertools.combinations(range(len(logs)), 2) if numbers[a] == numbers[b]]
    return {
        "own": [paired_ratio(seconds[a], seconds[b]) for a, b in pairs],
        "moderated": [seconds.ratio(a, b) for a, b in pairs],
    }


def rates(studies):
    """Shares of false verdicts and the median half-width, over studies whose cells do not differ."""
    every = {kind: [study[kind] for study in studies] for kind in ("own", "moderated")}
    return {kind: _rates(found) for kind, found in every.items()}


def _rates(studies):
    ratios = [one for study in studies for one in study]
    return {
        "wrong_of_pairs": round(float(np.mean([one.p < 0.05 for one in ratios])), 4),
        "wrong_of_studies_after_holm": round(
            float(np.mean([min(holm([one.p for one in study])) < 0.05 for study in studies])), 4
        ),
        "median_half_width": round(float(np.median([(one.high - one.low) / 2 / one.value for one in ratios])), 4),
    }


def simulated(groups, runs, cells, shape):
    generator = np.random.default_rng([sum(groups), runs, sorted(CELLS).index(cells), sorted(SHAPES).index(shape)])
    studies = []
    for _ in range(STUDIES):
        scale = NOISE * CELLS[cells](generator, sum(groups))
        logs = SHAPES[shape](generator, (sum(groups), runs)) * scale[:, None] + generator.normal(0, 0.2, runs)
        studies.append(verdicts(logs, groups))
    return rates(studies)


def dealt(cells):
    """The runs of the A/A study as those of studies of so many cells, drawn within their blocks."""
    blocks = np.log(json.loads((RESULTS / "verdict_rates_runs.json").read_text(encoding="utf-8"))["blocks"])
    generator = np.random.default_rng(cells)
    deals = DEALS if cells > 20 else DEALS * 30
    return rates(
        [
            verdicts(np.stack([generator.permutation(block)[:cells] for block in blocks], 1), [cells])
            for _ in range(deals)
        ]
    )


def main():
    report = {
        "noise": NOISE,
        "studies": STUDIES,
        "simulated": {
            f"{groups}, {runs} runs": {
                f"cells {cells}, {shape}": simulated(GROUPS[groups], runs, cells, shape)
                for cells, shape in itertools.product(CELLS, SHAPES)
                if shape == "normal" or cells == "alike"
            }
            for groups, runs in itertools.product(GROUPS, (3, 5))
        },
        "runs of the A/A study": {f"{cells} cells": dealt(cells) for cells in (3, 5, 10, 60)},
    }
    (RESULTS / "calibration.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
