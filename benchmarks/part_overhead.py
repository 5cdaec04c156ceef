"""What a part adds to its block: `part` on a node, beside `run` of the same cells here, by turns.

Target: under 2 s, absorbing included. Both are commands of their own, with all imports, two cells and one repeat of a
test framework. Times mean something on a machine that does nothing else.

python benchmarks/part_overhead.py --save benchmarks/results/part_overhead.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

from framework_compare.samplers.host import describe
from framework_compare.store.study_file import Store
from framework_compare.study.executors import PART

PLUGINS = Path(__file__).parents[1] / "tests" / "plugins"
TRAINER = f"{PLUGINS / 'tiny.py'}:TinyTrainer"
PLUGIN = f"""
from framework_compare import registry
from framework_compare.registry import Framework

def register():
    registry.register_framework(Framework("tiny", {TRAINER!r}, "", "numpy", ((3, 8), (3, 99))))
    registry.register_model("linear", "linear:build")
"""
BLOCK = ["--frameworks=tiny", "--models=linear", "--dataset=fire-smoke-tiny", "--batch-size=2,4", "--epochs=2"]
QUIET = ["--threads=1", "--loader-workers=0", "--image-size=32", "--disturbance-threshold=1000"]


def install(place: Path) -> Dict[str, str]:
    """The environment of a user who has the test framework as a plug-in."""
    sys.path.append(str(PLUGINS))
    from slurm_cluster import install_plugin

    plugin = place / "plugin"
    plugin.mkdir()
    install_plugin(plugin, PLUGIN)
    found = {"PYTHONPATH": f"{plugin}:{PLUGINS}", "FRAMEWORK_COMPARE_CACHE": str(place / "cache")}
    return {**os.environ, **found, "SLURM_TMPDIR": str(place)}


def timed(environment: Dict[str, str], *arguments: Any) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-c", PART, *map(str, arguments)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(done.stdout)
    return time.perf_counter() - began


def statuses(folder: Path) -> List[str]:
    with Store.open(folder) as store:
        return [status for (status,) in store.select("SELECT status FROM run")[1]]


def measure(turns: int) -> Dict[str, Any]:
    """Medians of so many turns; a first one, which fills the caches, is not counted."""
    load = os.getloadavg()[0]
    seconds: Dict[str, List[float]] = {"run": [], "part": [], "absorb": []}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        environment, there = install(place), place / "there"
        timed(environment, "run", *BLOCK, *QUIET, f"--repeats={turns + 1}", f"--out={there}", "--on", "parts")
        for turn in range(1, turns + 2):
            here = place / f"here-{turn}"
            seconds["run"].append(timed(environment, "run", *BLOCK, *QUIET, "--repeats=1", f"--out={here}"))
            seconds["part"].append(timed(environment, "part", there, turn))
            seconds["absorb"].append(timed(environment, "absorb", there))
            assert statuses(here) == ["ok"] * 2 and statuses(there).count("ok") == 2 * turn
    kept = {step: values[1:] for step, values in seconds.items()}
    added = [part - run for part, run in zip(kept["part"], kept["run"])]
    whole = [part + absorb - run for part, absorb, run in zip(kept["part"], kept["absorb"], kept["run"])]
    return {
        "turns": turns,
        "seconds": {step: [round(value, 2) for value in values] for step, values in kept.items()},
        "part_over_run_s": round(statistics.median(added), 2),
        "part_and_absorb_over_run_s": round(statistics.median(whole), 2),
        "load_before": load,
        "machine": describe(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    text = json.dumps(measure(asked.turns), indent=1)
    print(text)
    if asked.save:
        asked.save.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
