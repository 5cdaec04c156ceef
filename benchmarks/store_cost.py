"""What the store costs: recording an hour's run, tabulating 10,000 cells, and a study of 1,000 cells in 100 parts.

    python benchmarks/store_cost.py --save benchmarks/results/store_cost.json
    python benchmarks/store_cost.py --parts --save benchmarks/results/part_cost.json

Each step of the last two runs in a fresh process: wall and CPU seconds, imports included, and peak memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from framework_compare import api
from framework_compare.comparison import Comparison
from framework_compare.events import EventReader
from framework_compare.launch.transcript import Transcript
from framework_compare.protocol import TrainConfig
from framework_compare.records import PHASES, Cell, Epoch, Phase, Run, Sample
from framework_compare.results.runs import store_figures
from framework_compare.samplers.host import describe
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import Store
from framework_compare.study import parts
from framework_compare.study.run_options import RunOptions

SECOND = 1_000_000_000
FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle")
MODELS = ("alexnet", "mobilenet_v2", "resnet50", "vgg16", "resnet50_v1_5")


def cells(count, frameworks=FRAMEWORKS, models=MODELS):
    """So many cells of distinct batch sizes; of each model and size, one per framework."""
    sizes = range(1, count // (len(frameworks) * len(models)) + 1)
    return [
        Cell(framework, model, "small", "cpu", TrainConfig(batch_size=size))
        for size, model, framework in itertools.product(sizes, models, frameworks)
    ]


def made_run(epochs, samples, seconds):
    """A run that is ok, with figures of the shape real ones have."""
    step = int(seconds * SECOND)
    start, width = 9 * SECOND, step // epochs
    return Run(
        "ok",
        started_at="2024-01-01T00:00:00+00:00",
        wall_s=seconds,
        exit_code=0,
        log_path="runs/00001-torch-alexnet-cpu/log.txt",
        framework_version="2.1",
        interpreter="3.11.7",
        settings={"execution": "eager", "layout": "channels_last", "threads": 2},
        parameters=57_016_131,
        peak_rss_bytes=2 << 30,
        phases=tuple(Phase(name, n * SECOND, (n + 1) * SECOND, 1 << 30) for n, name in enumerate(PHASES)),
        epochs=tuple(
            Epoch(n + 1, start + n * width, start + (n + 1) * width, 0.5, 791, 50, 1.0 / (n + 1), 0.7, 0.69, 0.71)
            for n in range(epochs)
        ),
        samples=tuple(
            Sample(start + n * step // samples, 150.0 + n % 50, (1 << 30) + n * 4096, 40, 3, 80.0, 40.0)
            for n in range(samples)
        ),
    )


def fill(place, planned, run, machine, settings=None):
    """A finished study of these cells, of which filling is not measured."""
    with Store.create(place, settings=settings or {}, machine=machine, cells=planned, repeats=1) as store:
        store._connection.execute("PRAGMA synchronous = OFF")
        for run_id, _, _ in store.plan():
            store.record(run_id, run)
            store_figures(store, run_id)


def event_lines(epochs, seconds):
    """What a worker sends in such a run: two progress events a second, an event an epoch."""
    lines = [{"event": "progress", "t_ns": n, "epoch": 1, "steps": n} for n in range(2 * seconds)]
    for n in range(epochs):
        times = dict(start_ns=10 * n, end_ns=10 * n + 9, data_wait_ns=1, step_ns=[1, 2, 3])
        lines.append({"event": "epoch", "t_ns": n, "number": n + 1, **times, "images": 791, "steps": 50, "loss": 1.0})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def recording(folder, *, epochs=100, hz=10, seconds=3600):
    """CPU seconds to take in the events of a run and to store it, over the seconds that it lasts."""
    run, lines = made_run(epochs, hz * seconds, seconds), event_lines(epochs, seconds)
    with Store.create(folder, settings={}, machine={}, cells=cells(1, ("torch",), ("alexnet",)), repeats=1) as store:
        clock = [time.process_time()]
        transcript, reader = Transcript(0, epochs), EventReader()
        for start in range(0, len(lines), 300):
            for event in reader.feed(lines[start : start + 300]):
                transcript.add(event)
        clock.append(time.process_time())
        store.begin(1)
        store.record(1, run)
        clock.append(time.process_time())
        store_figures(store, 1)
        clock.append(time.process_time())
    names = ("events_cpu_s", "record_cpu_s", "figures_cpu_s")
    found = {name: round(after - before, 4) for name, before, after in zip(names, clock, clock[1:])}
    found["percent_of_one_core"] = round(100 * (clock[-1] - clock[0]) / seconds, 4)
    return {"samples": len(run.samples), **found, "file_bytes": (folder / FILE).stat().st_size}


def reading(folder, count=10_000, *, models=MODELS, samples=100, epochs=3, styles=("terminal", "markdown", "csv")):
    """What it takes to open a study of so many cells and make its table, in each style."""
    fill(folder, cells(count, models=models), made_run(epochs, samples, samples / 10), describe())
    found = {style: measured(style, folder) for style in styles}
    return {"cells": count, "samples": samples, "file_bytes": (folder / FILE).stat().st_size, **found}


def sweep(folder, samples=100):
    """What it takes to plan parts, absorb what two nodes would leave of them, and make the tables."""
    found = {"plan": measured("plan", folder)}
    run = made_run(3, samples, samples / 10)
    for number in sorted(parts.numbers(folder)):
        planned = parts.PartPlan.read(folder, number)
        machine, settings = {**describe(), "node": f"node-{number % 2}"}, {parts.PART_OF: planned.identity}
        fill(parts.result_path(folder, number), planned.cells, run, machine, settings)
    found.update({step: measured(step, folder) for step in ("absorb", "markdown")})
    with Store.open(folder) as store:
        stored = {name: store.select(f"SELECT count(*) FROM {name}")[0][0] for name in ("cell", "part", "run", "epoch")}
    return {**stored, "file_bytes": (folder / FILE).stat().st_size, **found}


def plan(folder):
    models = [f"model-{number:02d}" for number in range(50)]
    planned = cells(1000, ("tiny", "small"), models)
    with Store.create(folder, settings={"order_seed": 1}, machine={}, cells=planned, repeats=2) as store:
        parts.plan(store, RunOptions(), (), ())


def measured(step, folder):
    """A step in a fresh process."""
    began = time.perf_counter()
    command = [sys.executable, __file__, "--step", step, "--study", str(folder)]
    cpu_s, peak = map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    return {"seconds": round(time.perf_counter() - began, 2), "cpu_s": round(cpu_s, 2), "peak_mib": round(peak, 1)}


def take(step, folder):
    if step in ("plan", "absorb"):
        {"plan": plan, "absorb": api.absorb}[step](folder)
    else:
        assert Comparison.load(folder).table(style=step)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    high = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(usage.ru_utime + usage.ru_stime, int(high.split()[1]) / 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", action="store_true", help="the study in parts alone")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--step", help="taken in this process")
    parser.add_argument("--study", type=Path)
    asked = parser.parse_args()
    if asked.step:
        return take(asked.step, asked.study)
    with tempfile.TemporaryDirectory() as place:
        found = {
            cost.__name__: cost(Path(place) / cost.__name__)
            for cost in ([sweep] if asked.parts else [recording, reading])
        }
    text = json.dumps({"machine": describe(), **found}, indent=1)
    print(text)
    if asked.save:
        asked.save.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
