"""Coverage of intervals from rounds, by simulation: a machine that flickers and drifts, workers that differ.

python benchmarks/turns.py   # writes benchmarks/results/turns.json, a minute

Each block has fresh workers, whose lasting effect is normal (2 %). The machine's speed changes with time: a random walk
(drift), two states that change at random (flicker), or steps of a 1/f kind; each slice sees it where its turn stands in the
round, in the orders that `launch.rounds` draws, and has noise of its own (5 %). The estimate is that of studies: by block the
seconds over samples, then Student's interval of the blocks' ratios. Beside it the same work in sequence: all slices of
a worker in a row.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import numpy as np

from framework_compare.launch import rounds
from framework_compare.results.intervals import paired_ratio

OUT = Path(__file__).parent / "results" / "turns.json"
SIMULATIONS, LASTING, OWN = 10_000, 0.02, 0.05


def drift(generator, slots):
    return np.cumsum(generator.normal(0, 0.01, slots))


def flicker(generator, slots):
    changes = generator.random(slots) < 0.1
    return 0.3 * (np.cumsum(changes) % 2)


def pink(generator, slots):
    """The sum of processes that change every 2, 8, 32 and 128 slices."""
    parts = [np.repeat(generator.normal(0, 0.05, slots // every + 1), every)[:slots] for every in (2, 8, 32, 128)]
    return np.sum(parts, axis=0)


def study(machine, cells, blocks, count, generator, interleaved):
    """Log seconds of each cell in each block."""
    found = np.empty((cells, blocks))
    for block in range(blocks):
        speed = machine(generator, cells * count)
        if interleaved:
            orders = itertools.islice(rounds.orders(cells, random.Random(int(generator.integers(2**31)))), count)
            owners = np.concatenate(list(orders))
        else:
            owners = np.repeat(generator.permutation(cells), count)
        noisy = speed + generator.normal(0, OWN, cells * count)
        found[:, block] = [np.log(np.exp(noisy[owners == cell]).mean()) for cell in range(cells)]
    return found + generator.normal(0, LASTING, (cells, blocks))


def rates(machine, cells, blocks, count, interleaved):
    generator = np.random.default_rng(7)
    held, halves = [], []
    for _ in range(SIMULATIONS):
        times = np.exp(study(machine, cells, blocks, count, generator, interleaved))
        one = paired_ratio(dict(enumerate(times[0])), dict(enumerate(times[1])))
        held.append(one.low <= 1 <= one.high)
        halves.append((one.high - one.low) / 2 / one.value)
    return {"held": round(float(np.mean(held)), 4), "half-width": round(float(np.median(halves)), 4)}


def main():
    machines = {"drift": drift, "flicker": flicker, "pink": pink}
    report = {"simulations": SIMULATIONS, "lasting effect of a worker": LASTING, "noise of a slice": OWN, "rates": {}}
    for (name, machine), (cells, blocks, count) in itertools.product(
        machines.items(), ((2, 8, 9), (2, 5, 15), (5, 5, 15), (5, 3, 12))
    ):
        report["rates"][f"{name}, {cells} cells, {blocks} blocks of {count} rounds"] = {
            way: rates(machine, cells, blocks, count, way == "in turns") for way in ("in turns", "in sequence")
        }
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report["rates"], indent=1))


if __name__ == "__main__":
    main()
