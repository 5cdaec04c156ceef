"""How often duels are wrong (A/A) and right (A/B): a real framework against itself, or against itself slowed by a known share.

    python benchmarks/duels.py --pairs 200 --save FILE
    python benchmarks/duels.py --pairs 40 --slower 0.05 --save FILE
    python benchmarks/duels.py --pairs 200 --neighbour --save FILE
    python benchmarks/duels.py --pairs 30 --slower 0.05 --model alexnet,mobilenet_v2,resnet50 --budget 5min --save FILE
    taskset -c 2,3 python benchmarks/duels.py --python PATH --minutes 9 --save FILE
    python benchmarks/duels.py --join FILE,FILE --save FILE

Each duel is of fresh workers, so that no two share a process; --slower takes a share of the steps twice, from a random one
on: a wait or a busy loop would change how fast the steps are. --budget compares several models in one study, two cells of
each. --neighbour runs a busy loop beside them that takes half a core at random times. A file that is there is gone on with,
so that many hours add up. Several at a time on one machine need cores of their own (taskset), and each its own
XDG_RUNTIME_DIR, or they wait for each other; --join makes one file of theirs.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import stats

from framework_compare import compare, duel, registry
from framework_compare.adapters import torch as adapter
from framework_compare.environments import managed
from framework_compare.registry import Framework
from framework_compare.samplers import host

SLOWED = """
import random

from framework_compare.adapters.torch.trainer import TorchTrainer


class Slowed(TorchTrainer):
    name = {name!r}
    version = lambda self: str(__import__("torch").__version__)  # there is no module of its name
    steps = random.randrange({every})

    def train_step(self, batch):
        self.steps += 1
        if self.steps % {every} == 0:
            super().train_step(batch)
        return super().train_step(batch)
"""
NEIGHBOUR = """
import random, time
while True:
    end = time.monotonic() + random.expovariate(1 / 3)
    while time.monotonic() < end:
        pass
    time.sleep(random.expovariate(1 / 3))
"""


def slowed(folder, share):
    """Register PyTorch's adapter with a wait after each step; the framework's name."""
    name = f"torch-{share:g}"
    package = folder / name / "torch"
    shutil.copytree(Path(adapter.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").write_text("from framework_compare.adapters.torch.slowed import Slowed as Slowed\n")
    (package / "slowed.py").write_text(SLOWED.format(name=name, every=round(1 / share)))
    registry.FRAMEWORKS[name] = Framework(name, f"{package}:Slowed", "", "torch", ((3, 8), (3, 99)))
    return name


@contextlib.contextmanager
def neighbour(wanted):
    busy = subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) if wanted else None
    try:
        yield
    finally:
        if busy:
            busy.kill()
            busy.wait()


def settings(options, folder, other, python):
    return dict(
        out=folder, batch_size=options.batch_size, image_size=options.image_size, pipeline=options.pipeline,
        threads=options.threads, loader_workers=1, verify="off",
        python=dict.fromkeys({"torch", other}, python) if python else {},
    )  # fmt: skip


def several(options, folder, other, python):
    """The verdicts of one study of several models within a budget."""
    began = time.monotonic()
    frameworks, models = ["torch", other], options.model.split(",")
    asked = settings(options, folder, other, python)
    result = compare(frameworks, models, dataset=options.data, budget=options.budget, **asked)
    wall_s = round(time.monotonic() - began, 1)
    for verdict in result.verdicts(correct=False):
        if verdict.model in models:
            turned = verdict.slower == "torch"
            low, high = (1 / verdict.high, 1 / verdict.low) if turned and verdict.low else (verdict.low, verdict.high)
            mine = result.frame[result.frame.model == verdict.model].index
            yield {
                "at": datetime.datetime.now().isoformat(timespec="seconds"),
                "model": verdict.model,
                "wall_s": wall_s,
                "measured_s": round(float(result.slices[result.slices.cell.isin(mine)].measured_s.sum()), 1),
                "ratio": 1 / verdict.ratio if turned else verdict.ratio,
                "low": low,
                "high": high,
                "p": verdict.p,
                "blocks": verdict.blocks,
                "reason": verdict.reason,
                "seconds": [
                    [round(value, 5) for value in result.block_times.get(place, {}).values()] for place in mine
                ],
            }


def one(options, folder, other, python):
    began = time.monotonic()
    found = duel(
        "torch", other, options.model, options.data, blocks=options.blocks, sample=options.sample,
        **settings(options, folder, other, python),
    )  # fmt: skip
    result, ratio = found.comparison, found.ratio
    times = [result.block_times.get(place, {}) for place in (0, 1)]
    counted = result.slices[result.slices.void == ""]
    return {
        "at": datetime.datetime.now().isoformat(timespec="seconds"),
        "wall_s": round(time.monotonic() - began, 1),
        "measured_s": round(float(result.slices.measured_s.sum()), 1),
        "ratio": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "p": ratio.p,
        "blocks": ratio.runs,
        "reason": found.reason,
        "rounds": len(counted) // 2,
        "void": {name: int(n) // 2 for name, n in result.slices.void.value_counts().items() if name},
        "seconds": [[round(value, 5) for value in side.values()] for side in times],
    }


def summary(duels, truth):
    known = [one for one in duels if one["p"] is not None]
    wrong = sum(one["p"] < 0.05 for one in known)
    held = sum(one["low"] <= truth <= one["high"] for one in known)
    halves = [(one["high"] - one["low"]) / 2 / one["ratio"] for one in known]
    logs = np.log([np.mean(one["seconds"][0]) for one in known])
    return {
        "truth": truth,
        "duels": len(duels),
        "without verdict": len(duels) - len(known),
        "difference shown": wrong,
        "share 95 %": exact(wrong, len(known)),
        "interval holds the truth": held,
        "held 95 %": exact(held, len(known)),
        "median ratio": float(np.median([one["ratio"] for one in known])),
        "median half-width": float(np.median(halves)),
        "median measured seconds": float(np.median([one["measured_s"] for one in known])),
        "median wall seconds": float(np.median([one["wall_s"] for one in known])),
        "session SD of logarithms": float(logs.std(ddof=1)) if len(logs) > 1 else None,
    }


def exact(count, of):
    if not of:
        return None
    ends = stats.binomtest(count, of).proportion_ci()
    return [round(float(ends.low), 4), round(float(ends.high), 4)]


def join(files, path):
    """One report of several processes that ran side by side, each on cores of its own."""
    reports = [json.loads(file.read_text()) for file in files]
    if any(report["settings"] != reports[0]["settings"] for report in reports):
        raise SystemExit("the files have different settings; join those of the same")
    cores = [report["machine"].pop("cores allowed") for report in reports]
    duels = [{"cores": allowed, **one} for allowed, report in zip(cores, reports) for one in report["each"]]
    found = summary(duels, 1 + reports[0]["settings"]["slower"])
    path.write_text(json.dumps({**reports[0], "side by side": cores, "summary": found, "each": duels}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--slower", type=float, default=0.0)
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--data", default="fire-smoke-tiny")
    parser.add_argument("--budget", help="of one study of several models, with commas between")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--sample", type=float, default=3.0)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pipeline", default="memory")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--python", help="an interpreter that has PyTorch; default: the managed one")
    parser.add_argument("--join", help="files of several processes, with commas between; no duel is run")
    parser.add_argument("--save", required=True)
    options = parser.parse_args()
    if options.join:
        return join([Path(name) for name in options.join.split(",")], Path(options.save))
    path, until = Path(options.save), time.monotonic() + 60 * options.minutes
    duels = json.loads(path.read_text())["each"] if path.exists() else []
    without = ("save", "pairs", "minutes", "python", "join")
    asked = {name: value for name, value in vars(options).items() if name not in without}
    with tempfile.TemporaryDirectory() as folder, neighbour(options.neighbour):
        environment = managed.ensure("torch", python=options.python)
        python = options.python or (str(environment.python) if options.slower else "")
        other = slowed(Path(folder), options.slower) if options.slower else "torch"
        while len(duels) < options.pairs and time.monotonic() < until:
            asked_of = (options, Path(folder) / f"duel-{len(duels)}", other, python)
            duels += several(*asked_of) if options.budget else [one(*asked_of)]
            report = {
                "date": datetime.date.today().isoformat(),
                "machine": {**host.describe(), "cores allowed": sorted(os.sched_getaffinity(0))},
                "torch": environment.version,
                "settings": asked,
                "summary": summary(duels, 1 + options.slower),
                "each": duels,
            }
            path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            print(len(duels), {name: duels[-1][name] for name in ("ratio", "low", "high", "wall_s")}, flush=True)
    print(json.dumps(report["summary"], indent=1))


if __name__ == "__main__":
    main()
