"""What the store costs: recording an hour's run, and opening a study of 10,000 cells and making its tables.

python benchmarks/store_cost.py --save benchmarks/results/store_cost.json
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

from framework_compare.events import EventReader
from framework_compare.launch.transcript import Transcript
from framework_compare.protocol import TrainConfig
from framework_compare.records import PHASES, Cell, Epoch, Phase, Run, Sample
from framework_compare.results.runs import store_figures
from framework_compare.samplers.host import describe
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import Store

SECOND = 1_000_000_000
FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle")
MODELS = ("alexnet", "mobilenet_v2", "resnet50", "vgg16", "resnet50_v1_5")
READ = """
import sys, time
began = time.perf_counter()
from framework_compare import Comparison
result = Comparison.load(sys.argv[1])
loaded = time.perf_counter()
rows = len(result.frame)
framed = time.perf_counter()
text = result.table(style=sys.argv[2])
done = time.perf_counter()
peak = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
print(rows, len(text), loaded - began, framed - loaded, done - framed, peak)
"""


def made_run(epochs: int, samples: int, seconds: float) -> Run:
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


def event_lines(epochs: int, seconds: int) -> bytes:
    """What a worker sends in such a run: two progress events a second, an event an epoch."""
    lines = []
    for n in range(2 * seconds):
        lines.append({"event": "progress", "t_ns": n, "epoch": 1, "steps": n})
    for n in range(epochs):
        times = dict(start_ns=10 * n, end_ns=10 * n + 9, data_wait_ns=1, step_ns=[1, 2, 3])
        fields = dict(**times, images=791, steps=50, loss=1.0)
        lines.append({"event": "epoch", "t_ns": n, "number": n + 1, **fields})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def measure_recording(folder: Path, *, epochs: int, hz: int, seconds: int) -> Dict[str, Any]:
    """CPU seconds to take in the events of a run and to store it, over the seconds that it lasts."""
    run, lines = made_run(epochs, hz * seconds, seconds), event_lines(epochs, seconds)
    cells = [Cell("torch", "alexnet", "small", "cpu", TrainConfig())]
    with Store.create(folder, settings={}, machine={}, cells=cells, repeats=1) as store:
        began = time.process_time()
        transcript, reader = Transcript(0, epochs), EventReader()
        for start in range(0, len(lines), 300):
            for event in reader.feed(lines[start : start + 300]):
                transcript.add(event)
        listened = time.process_time()
        store.begin(1)
        store.record(1, run)
        stored = time.process_time()
        store_figures(store, 1)
        done = time.process_time()
    return {
        "epochs": epochs,
        "samples": len(run.samples),
        "run_s": seconds,
        "events_cpu_s": round(listened - began, 4),
        "record_cpu_s": round(stored - listened, 4),
        "figures_cpu_s": round(done - stored, 4),
        "percent_of_one_core": round(100 * (done - began) / seconds, 4),
        "file_bytes": (folder / FILE).stat().st_size,
    }


def fill(folder: Path, cells: int, *, samples: int, epochs: int) -> None:
    """A finished study of so many cells."""
    planned = [
        Cell(framework, model, "small", "cpu", TrainConfig(batch_size=size))
        for size in range(1, cells // (len(FRAMEWORKS) * len(MODELS)) + 1)
        for model in MODELS
        for framework in FRAMEWORKS
    ]
    run = made_run(epochs, samples, samples / 10)
    with Store.create(folder, settings={}, machine=describe(), cells=planned, repeats=1) as store:
        store._connection.execute("PRAGMA synchronous = OFF")  # of the filling, which is not measured
        for run_id in range(1, len(planned) + 1):
            store.record(run_id, run)
            store_figures(store, run_id)


def measure_reading(folder: Path, style: str, times: int) -> Dict[str, Any]:
    """Wall seconds and peak memory of a fresh process that loads the study and makes its table; the median of some."""
    found: List[Tuple[float, ...]] = []
    for _ in range(times):
        began = time.perf_counter()
        command = [sys.executable, "-c", READ, str(folder), style]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append((time.perf_counter() - began, *map(float, text.split())))
    process_s, rows, characters, load_s, frame_s, table_s, peak = sorted(found)[len(found) // 2]
    return {
        "style": style,
        "cells": int(rows),
        "characters": int(characters),
        "load_s": round(load_s, 3),
        "frame_s": round(frame_s, 3),
        "table_s": round(table_s, 3),
        "total_s": round(load_s + frame_s + table_s, 3),
        "process_s": round(process_s, 3),
        "peak_mib": round(peak, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=100, help="of each cell of the big study")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder) / "big"
        recording = measure_recording(Path(folder) / "hour", epochs=100, hz=10, seconds=3600)
        began = time.perf_counter()
        fill(big, asked.cells, samples=asked.samples, epochs=3)
        result = {
            "asked": {"cells": asked.cells, "samples_a_cell": asked.samples, "epochs_a_cell": 3, "times": asked.times},
            "machine": describe(),
            "recording": recording,
            "filling_s": round(time.perf_counter() - began, 1),
            "file_bytes": (big / FILE).stat().st_size,
            "reading": [measure_reading(big, style, asked.times) for style in ("terminal", "markdown", "csv")],
            "writer_peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        }
    text = json.dumps(result, indent=1)
    print(text)
    if asked.save:
        asked.save.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
