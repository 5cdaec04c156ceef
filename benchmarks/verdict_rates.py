"""How often verdicts on a real framework are wrong (A/A) and right (A/B): identical cells, and cells slowed by known shares.

python benchmarks/verdict_rates.py --python /path/to/torch/python --cells 60 --repeats 3 --epochs 8 --save FILE
python benchmarks/verdict_rates.py --cells 40 --slower 0.05 0.1 --repeats 3 --epochs 3 --save FILE

The cells are PyTorch's, of one small model, on one thread; without --python of a test framework, a linear classifier
in numpy whose steps also multiply matrices, as its processes start within a second. They differ in a learning rate that
changes no amount of work. Slowed cells wait after each step for a share of the time that the step took, so the true
ratio is known. All are in one study, in randomised blocks. A/A pairs are drawn at random, each cell in one pair; of A/B
pairs each cell has its slowed counterpart. "own" takes each pair's own variance only, "moderated" is what verdicts take.
--neighbour runs a busy loop beside them that takes half a core at random times.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import stats

from framework_compare import compare, registry
from framework_compare.adapters import torch as adapter
from framework_compare.registry import Framework
from framework_compare.results import intervals, pairing
from framework_compare.samplers import host
from framework_compare.study.progress import PlainWatcher

PLUGINS = Path(__file__).parents[1] / "tests" / "plugins"
TORCH = "from framework_compare.adapters.torch.trainer import TorchTrainer as Trainer"
OWN_VERSION = 'lambda self: str(__import__("torch").__version__)'  # there is no module of its name
NUMPY = """
class Trainer(TinyTrainer):
    matrix = np.ones((192, 192), dtype=np.float32)

    def train_step(self, batch):
        for _ in range(20):
            self.matrix @ self.matrix
        return super().train_step(batch)
"""
SLOWED = """
import time

{base}


class Slowed(Trainer):
    name = {name!r}
    version = {version}

    def train_step(self, batch):
        began = time.perf_counter()
        loss = super().train_step(batch)
        now = time.perf_counter()
        end = now + {share!r} * (now - began)
        time.sleep(max(end - now - 2e-4, 0))
        while time.perf_counter() < end:  # a sleep ends too late by some 0.1 ms
            pass
        return loss
"""
NEIGHBOUR = """
import random, time
while True:
    end = time.monotonic() + random.expovariate(1 / 3)
    while time.monotonic() < end:
        pass
    time.sleep(random.expovariate(1 / 3))
"""


def slowed(folder: Path, share: float, of_torch: bool) -> str:
    """Registers PyTorch's own adapter, or the test framework's, with a wait after each step; the framework's name."""
    if not of_torch:
        name, path = f"numpy-{share:g}", folder / f"slowed_{round(1000 * share)}.py"
        text = SLOWED.format(base=NUMPY, name=name, share=share, version="Trainer.version")
        path.write_text((PLUGINS / "tiny.py").read_text() + text)
        registry.FRAMEWORKS[name] = Framework(name, f"{path}:Slowed", "", "numpy", ((3, 8), (3, 99)))
        return name
    name = f"torch-{share:g}"
    package = folder / name / "torch"
    shutil.copytree(Path(adapter.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").write_text("from framework_compare.adapters.torch.slowed import Slowed as Slowed\n")
    (package / "slowed.py").write_text(SLOWED.format(base=TORCH, name=name, share=share, version=OWN_VERSION))
    registry.FRAMEWORKS[name] = Framework(name, f"{package}:Slowed", "", "torch", ((3, 8), (3, 99)))
    return name


@contextlib.contextmanager
def neighbour(wanted: bool):
    busy = subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) if wanted else None
    try:
        yield
    finally:
        if busy:
            busy.kill()
            busy.wait()


def run(options, folder: Path):
    shares = [0.0, *options.slower]
    names = [slowed(folder, share, bool(options.python)) for share in shares]
    if not options.python:
        sys.path.insert(0, str(PLUGINS))
        registry.MODELS["linear"] = registry.Model("linear:build")
    model = options.model or ("mobilenet_v2" if options.python else "linear")
    with neighbour(options.neighbour):
        return names, compare(
            names, model, out=folder / "study", dataset="fire-smoke-tiny", limit=options.steps, batch_size=1,
            image_size=options.image_size, epochs=options.epochs, repeats=options.repeats, pipeline="memory", threads=1,
            loader_workers=0, learning_rate=[1e-3 + 1e-9 * number for number in range(options.cells)],
            python={name: options.python or sys.executable for name in names}, verify="off", retries_when_disturbed=0,
            disturbance_threshold=options.threshold, watcher=PlainWatcher(),
        )  # fmt: skip


def of_pairs(pairs, blocks, truth):
    """What verdicts on pairs of cells come to, the second of which takes `truth` times as long as the first."""
    own = [intervals.paired_ratio(blocks[slow], blocks[fast]) for fast, slow in pairs]
    moderated = [blocks.ratio(slow, fast) for fast, slow in pairs]
    return {"truth": truth, "own": of_ratios(own, truth), "moderated": of_ratios(moderated, truth)}


def of_ratios(found, truth):
    found = [one for one in found if one is not None and one.p is not None]
    shown = sum(one.p < 0.05 for one in found)
    held = sum(one.low <= truth <= one.high for one in found)
    widths = [(one.high - one.low) / 2 / one.value for one in found]
    return {
        "pairs": len(found),
        "shown": shown,
        "shown_share_95": binomial(shown, len(found)),
        "held": held,
        "held_share_95": binomial(held, len(found)),
        "median_ratio": float(np.median([one.value for one in found])),
        "median_half_width": float(np.median(widths)),
    }


def binomial(count, of):
    ends = stats.binomtest(count, of).proportion_ci()
    return [round(float(ends.low), 4), round(float(ends.high), 4)]


def report(names, result, seed):
    blocks, cells = pairing.block_seconds(result.epochs), result.frame
    by_name = {name: [place for place in cells.index[cells.framework == name] if place in blocks] for name in names}
    alike = list(by_name[names[0]])
    random.Random(seed).shuffle(alike)
    found = {"A/A": of_pairs(list(zip(alike[::2], alike[1::2])), blocks, 1.0)}
    for name in names[1:]:
        share = float(name.partition("-")[2])
        rates = dict(zip(cells.index, cells.learning_rate))
        slow = {rates[place]: place for place in by_name[name]}
        pairs = [(place, slow[rates[place]]) for place in by_name[names[0]] if rates[place] in slow]
        found[f"A/B {share:g}"] = of_pairs(pairs, blocks, 1 + share)
    everything = [(a, b) for n, a in enumerate(alike) for b in alike[n + 1 :]]
    found["A/A, all pairs"] = of_pairs(everything, blocks, 1.0)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="an interpreter that has torch; default: none, and numpy's cells")
    parser.add_argument("--cells", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=48, help="per epoch, of one image each")
    parser.add_argument("--model", help="default: mobilenet_v2; of numpy's cells linear")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--slower", type=float, nargs="*", default=[])
    parser.add_argument("--threshold", type=float, default=0.1)
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        names, result = run(options, Path(folder))
        epochs, runs = result.epochs, result.frame.runs_ok
        document = {
            "command": f"python {' '.join(['benchmarks/verdict_rates.py', *without_paths(sys.argv[1:])])}",
            "date": datetime.date.today().isoformat(),
            "machine": host.describe(),
            "versions": sorted(set(result.frame.framework_version.dropna())),
            "minutes": round(float(result.runs.wall_s.sum()) / 60, 1),
            "runs_ok": int(runs.sum()),
            "run_epochs_s": float(epochs.groupby("run_id").epoch_s.sum().median()),
            "epoch_s_median": float(epochs.epoch_s.median()),
            "others_took_of_a_core": {
                "median": float(epochs.disturbed_share.median()),
                "most": float(epochs.disturbed_share.max()),
            },
            "epochs_marked_disturbed": int((epochs.disturbed == 1).sum()),
            "runs_unsettled": int(result.frame.runs_unsettled.sum()),
            "epochs_warming": int(result.frame.epochs_warming.sum()),
            "epochs": len(epochs),
            "results": report(names, result, options.seed),
            "seconds_by_cell_and_block": [
                [result.frame.framework[cell], {block: round(s, 5) for block, s in of.items()}]
                for cell, of in pairing.block_seconds(epochs).items()
            ],
        }
    text = json.dumps(document, indent=1)
    print(text)
    if options.save:
        Path(options.save).write_text(text + "\n")


def without_paths(arguments):
    """The command as anybody would give it."""
    places = {"--python": "PYTHON", "--save": "FILE"}
    return [places.get(before, text) for before, text in zip(["", *arguments], arguments)]


if __name__ == "__main__":
    main()
