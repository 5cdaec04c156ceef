"""How often a search over releases is right: one with a regression planted at a known release, or one where nothing changes.

    python benchmarks/release_search.py --searches 10 --plant 0.9.2 --save FILE --work FOLDER
    python benchmarks/release_search.py --searches 20 --save FILE --work FOLDER
    python benchmarks/release_search.py --searches 10 --plant 0.9.2 --python PATH --save FILE --work FOLDER
    python benchmarks/release_search.py --join FILE,FILE --save FILE
    python benchmarks/release_search.py --table --save FILE
    python benchmarks/release_search.py --simulate

JAX in the real environments of its releases. From the planted release on, an environment variable of the worker makes each
step wait for a share of the time that it took. Without --plant all releases run in the environment of the newest, so that
nothing can have changed. With --python they all run in that interpreter's JAX, and a variable of the environment names the
release, for machines without an index. --minutes ends early, in the middle of a search, too; the same command continues it.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from framework_compare import bisection, registry
from framework_compare.adapters import jax as adapter
from framework_compare.environments import managed
from framework_compare.results.version_search import CHANGED, LOOKS, search
from framework_compare.samplers import host

PLANTED = """
import os
import time

from framework_compare.adapters.jax.trainer import JaxTrainer

SHARE, SINCE = {share!r}, {since!r}


class Planted(JaxTrainer):
    @staticmethod
    def environment(config):
        return {{**JaxTrainer.environment(config), "PLANTED_SHARE": str(SHARE), "PLANTED_SINCE": SINCE}}

    def __init__(self, config):
        super().__init__(config)
        numbers = lambda text: [int(part) for part in text.split(".")]
        since, release = os.environ["PLANTED_SINCE"], os.environ.get("PLANTED_RELEASE") or self.version()
        slow = since and numbers(release) >= numbers(since)
        self.wait_share = float(os.environ["PLANTED_SHARE"]) if slow else 0.0

    def train_step(self, batch):
        began = time.perf_counter()
        loss = super().train_step(batch)
        self.jax.block_until_ready((self._leaves, loss) if not self._keeps_losses else self._leaves)
        end = time.perf_counter() + self.wait_share * (time.perf_counter() - began)
        while self.wait_share and time.perf_counter() < end:
            pass
        return loss
"""


def plant(folder: Path, since: str, share: float) -> None:
    """Put JAX's adapter with a wait in the place of JAX's; every release waits for its steps, so that only that differs."""
    package = folder / "jax"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(Path(adapter.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").write_text("from framework_compare.adapters.jax.planted import Planted as Planted\n")
    (package / "planted.py").write_text(PLANTED.format(since=since, share=share))
    entry = registry.FRAMEWORKS["jax"]
    pins = str(Path(adapter.__file__).parent / entry.requirements)
    registry.FRAMEWORKS["jax"] = dataclasses.replace(entry, trainer=f"{package}:Planted", requirements=pins)


def wrapper(folder: Path, release: str, python: str) -> Path:
    """An interpreter that says which release it stands for."""
    path = folder / f"python-{release}"
    path.write_text(f'#!/bin/sh\nexport PLANTED_RELEASE={release}\nexec {python} "$@"\n')
    path.chmod(0o755)
    return path


def one(options: argparse.Namespace, folder: Path) -> dict:
    began = time.monotonic()
    releases = options.same.split(",")
    python = {}
    if options.python:
        python = {f"jax@{release}": str(wrapper(options.work, release, options.python)) for release in releases}
        bisection._between = lambda *_: tuple(releases)  # no index is asked
    elif not options.plant:
        python = dict.fromkeys([f"jax@{release}" for release in releases], str(managed.ensure("jax").python))
    found = bisection.bisect(
        "jax", options.versions, options.model, None, threshold=options.threshold, sample=options.sample, out=folder,
        threads=1, loader_workers=0, pipeline="memory", batch_size=options.batch_size, verify="off", python=python,
    )  # fmt: skip
    return {
        "at": datetime.datetime.now().isoformat(timespec="seconds"),
        "wall_s": round(time.monotonic() - began, 1),
        "outcome": found.outcome,
        "release": found.release,
        "before": found.versions[found.found.before],
        "after": found.versions[found.found.after],
        "sentence": found.sentence,
        "answers": [dataclasses.asdict(answer) for answer in found.found.answers],
    }


def table(kept: dict) -> str:
    lines = ["| search | outcome | release | ratio of the last | duels | blocks |", "|---|---|---|---|---|---|"]
    for number, found in enumerate(kept["each"], 1):
        last = found["answers"][0]
        ratio = f"{last['ratio']:.3f} [{last['low']:.3f}, {last['high']:.3f}]"
        blocks = " + ".join(str(answer["blocks"]) for answer in found["answers"])
        lines.append(
            f"| {number} | {found['outcome']} | {found['release'] or '-'} | {ratio} | {len(found['answers'])} | {blocks} |"
        )
    return "\n".join(lines)


def drawer(change: float, at: int, noise: float, random: np.random.Generator) -> Callable[[int, int], list[float]]:
    """Measures synthetic releases: blocks are looked at again, not drawn again."""
    drawn: dict[int, list[float]] = {}

    def measure(place: int, blocks: int) -> list[float]:
        if place not in drawn:
            truth = change if place >= at else 0.0
            drawn[place] = (truth + noise * random.standard_normal(LOOKS[-1])).tolist()
        return drawn[place][:blocks]

    return measure


def simulate(searches: int = 10_000) -> str:
    """Shares of outcomes of synthetic searches for 5 %: the right release, nothing, doubt, a wrong answer."""
    random = np.random.default_rng(36)
    lines = [
        "| change | noise per block | right | unchanged | inconclusive | wrong release | mean blocks |",
        "|---|---|---|---|---|---|---|",
    ]
    for size in (0.0, 0.03, 0.05, 0.07, 0.10):
        for noise in (0.01, 0.03, 0.05):
            counts = dict.fromkeys(("right", "unchanged", "inconclusive", "wrong"), 0)
            blocks = 0
            for _ in range(searches):
                releases = int(random.integers(2, 40))
                at = int(random.integers(1, releases))
                found = search(releases, 0.05, drawer(float(np.log1p(size)), at, noise, random))
                blocks += sum(answer.blocks for answer in found.answers)
                hit = size and (found.outcome, found.after) == (CHANGED, at)
                counts["right" if hit else "wrong" if found.outcome == CHANGED else found.outcome] += 1
            shares = [f"{count / searches:.2%}" for count in counts.values()]
            lines.append(f"| {size:.0%} | {noise:.0%} | {' | '.join(shares)} | {blocks / searches:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--plant", default="", help="the release from which on steps are slower")
    parser.add_argument("--share", type=float, default=0.07)
    parser.add_argument("--versions", default="0.9..0.10")
    parser.add_argument("--same", default="0.9.0,0.9.0.1,0.9.1,0.9.2,0.10.0,0.10.1,0.10.2")
    parser.add_argument("--model", default="mnist_cnn")
    parser.add_argument(
        "--batch-size", type=int, default=80, help="one that divides 4,000 images has one step to compile"
    )
    parser.add_argument("--threshold", default="5%")
    parser.add_argument("--sample", default="4s")
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--work", type=Path, help="where the duels of unfinished searches stay")
    parser.add_argument("--python", help="an interpreter with JAX that all releases run in")
    parser.add_argument("--join", help="files of several processes, with commas between; no search is run")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--simulate", action="store_true")
    options = parser.parse_args()
    if options.simulate:
        print(simulate())
        return
    if options.join:
        reports = [json.loads(Path(name).read_text()) for name in options.join.split(",")]
        every = [found for report in reports for found in report["each"]]
        options.save.write_text(json.dumps({**reports[0], "each": every}, indent=1) + "\n", encoding="utf-8")
        return
    kept = json.loads(options.save.read_text()) if options.save.exists() else {"each": []}
    if options.table:
        print(table(kept))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    plant(options.work, options.plant, options.share)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, min(60 * options.minutes, 1e8))
    try:
        while len(kept["each"]) < options.searches:
            folder = options.work / f"search-{len(kept['each'])}"
            kept["each"].append(one(options, folder))
            asked = {
                name: value
                for name, value in vars(options).items()
                if name not in ("save", "work", "minutes", "python", "join", "table")
            }
            kept.update({"date": datetime.date.today().isoformat(), "machine": host.describe(), "settings": asked})
            options.save.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
            print(kept["each"][-1]["sentence"], flush=True)
    except KeyboardInterrupt:
        print(f"stopped in search {len(kept['each'])}; the same command continues it", file=sys.stderr)


if __name__ == "__main__":
    main()
