"""What parts cost: planning a study of 1,000 cells in 100 parts, absorbing them, and making its tables.

python benchmarks/part_cost.py --save benchmarks/results/part_cost.json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

from store_cost import made_run

from framework_compare import api
from framework_compare.comparison import Comparison
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.samplers.host import describe
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import Store
from framework_compare.study import parts
from framework_compare.study.run_options import RunOptions

MODELS, FRAMEWORKS, SIZES, REPEATS = 50, ("tiny", "small"), 10, 2


def cells() -> List[Cell]:
    """1,000: of each model, those of one turn are a part."""
    configs = [TrainConfig(batch_size=size) for size in range(1, SIZES + 1)]
    return [
        Cell(name, f"model-{number:02d}", "small", "cpu", config)
        for number in range(MODELS)
        for config in configs
        for name in FRAMEWORKS
    ]


def plan(folder: Path) -> None:
    """A study without results, and its parts."""
    with Store.create(folder, settings={"order_seed": 1}, machine={}, cells=cells(), repeats=REPEATS) as store:
        parts.plan(store, RunOptions(), (), ())


def fill(folder: Path, samples: int) -> None:
    """Results for every part, as two nodes would leave them."""
    run = made_run(3, samples, samples / 10)
    for number in sorted(parts.numbers(folder)):
        planned = parts.PartPlan.read(folder, number)
        machine = {**describe(), "node": f"node-{number % 2}"}
        place = parts.result_path(folder, number)
        with Store.create(place, settings={}, machine=machine, cells=planned.cells, repeats=1) as store:
            store._connection.execute("PRAGMA synchronous = OFF")  # of the filling, which is not measured
            for run_id, _, _ in store.plan():
                store.record(run_id, run)


def absorb(folder: Path) -> None:
    api.absorb(folder)


def tabulate(folder: Path) -> None:
    text = Comparison.load(folder).table(style="markdown")
    assert "model-00" in text


STEPS: Dict[str, Callable[[Path], None]] = {"plan": plan, "absorb": absorb, "tabulate": tabulate}


def measured(step: str, folder: Path) -> Dict[str, float]:
    """Wall and CPU seconds of a fresh process, imports included, and its peak memory."""
    began = time.perf_counter()
    command = [sys.executable, __file__, "--step", step, "--study", str(folder)]
    cpu_s, peak = map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    return {"seconds": round(time.perf_counter() - began, 2), "cpu_s": round(cpu_s, 2), "peak_mib": round(peak, 1)}


def measure(samples: int) -> Dict[str, Any]:
    """Seconds and peak memory of each step, and of all."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "study"
        found = {"plan": measured("plan", folder)}
        fill(folder, samples)
        found.update({step: measured(step, folder) for step in ("absorb", "tabulate")})
        with Store.open(folder) as store:
            counts = [
                store.select(f"SELECT count(*) FROM {table}")[1][0][0] for table in ("cell", "part", "run", "epoch")
            ]
        return {
            "asked": {"cells": MODELS * SIZES * len(FRAMEWORKS), "repeats": REPEATS, "samples_a_run": samples},
            "stored": dict(zip(("cells", "parts", "runs", "epochs"), counts)),
            "file_bytes": (folder / FILE).stat().st_size,
            "steps": found,
            "seconds": round(sum(step["seconds"] for step in found.values()), 2),
            "cpu_s": round(sum(step["cpu_s"] for step in found.values()), 2),
            "peak_mib": max(step["peak_mib"] for step in found.values()),
            "load_before": load,
            "machine": describe(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100, help="of each run")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--study", type=Path)
    asked = parser.parse_args()
    if asked.step:
        STEPS[asked.step](asked.study)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
        return
    text = json.dumps(measure(asked.samples), indent=1)
    print(text)
    if asked.save:
        asked.save.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
