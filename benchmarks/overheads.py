"""What the comparison itself costs: the parent while a cell runs, the start of a worker, memory by number of images.

Targets: at most 1 % of one core and 200 MB for the parent; at most 0.5 s from spawn to the first step apart from
the framework's own import, build and first step; peak memory that does not grow with the number of images.

Usage: python benchmarks/overheads.py DATASET [--frameworks torch,mxnet] [--models alexnet] [--save FILE]
"""

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from framework_compare.samplers import host

# a process of its own for each cell, so that one cell's parent does not carry the memory of the one before
CHILD = """
import json, resource, sys, time
import psutil
from framework_compare.api import compare
from framework_compare.comparison import Comparison
from framework_compare.study.progress import Watcher

class Meter(Watcher):
    rss = 0
    def cpu(self):
        return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    def event(self, cell, event):
        if event["event"] == "hello":
            self.start = time.monotonic(), self.cpu()
        self.rss = max(self.rss, psutil.Process().memory_info().rss)
        self.share = (self.cpu() - self.start[1]) / (time.monotonic() - self.start[0] + 1e-9)

request = json.loads(sys.argv[1])
meter = Meter()
result = compare(watcher=meter, repeats=1, **request)
row = result.frame.iloc[0]
phases = result.phases.set_index("phase").seconds
found = {
    "framework": row.framework, "model": row.model, "pipeline": row.pipeline, "pictures": int(row.pictures),
    "status": row.status, "reason": row.reason, "epoch_s": row.epoch_s,
    "parent_cpu_percent_of_one_core": 100 * meter.share, "parent_rss_bytes": meter.rss,
    "start_s": {name: phases[name] for name in ("spawn", "load-weights", "open-data")},
    "framework_s": {name: phases[name] for name in ("import", "build", "first-step")},
    "peak_rss_bytes": int(row.peak_rss_bytes), "pss_peak_bytes": int(row.pss_peak_bytes),
}
found["start_total_s"] = sum(found["start_s"].values())
print("RESULT" + json.dumps(found))
"""


def measure(request):
    with tempfile.TemporaryDirectory() as folder:
        arguments = json.dumps({**request, "out": str(Path(folder) / "study")})
        done = subprocess.run([sys.executable, "-c", CHILD, arguments], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not lines:
        raise SystemExit(done.stderr)
    return json.loads(lines[0][len("RESULT") :])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--frameworks", default="torch,tensorflow,mxnet,paddle")
    parser.add_argument("--models", default="alexnet,mobilenet_v2,resnet50,vgg16")
    parser.add_argument("--save")
    options = parser.parse_args()
    frameworks, models = options.frameworks.split(","), options.models.split(",")
    basics = {"dataset": options.dataset, "batch_size": 8, "epochs": 2}
    starts = [
        report(measure({**basics, "frameworks": f, "models": m, "limit": 24, "warmup_steps": 0}))
        for f in frameworks
        for m in models
    ]
    growth = [
        report(
            measure({**basics, "frameworks": f, "models": "mobilenet_v2", "pipeline": p, "limit": n, "image_size": 64})
        )
        for f in frameworks
        for p in ("native", "shared")
        for n in (100, 791)
    ]
    if options.save:
        document = {
            "command": "python benchmarks/overheads.py DATASET",
            "date": datetime.date.today().isoformat(),
            "machine": host.describe(),
            "start_and_parent": starts,
            "memory_by_pictures": growth,
        }
        Path(options.save).write_text(json.dumps(document, indent=1) + "\n")


def report(row):
    print(
        f"{row['framework']:11}{row['model']:13}{row['pipeline']:7}{row['pictures']:4} images {row['status']}"
        f"  parent {row['parent_cpu_percent_of_one_core']:.2f} % {row['parent_rss_bytes'] / 1e6:.0f} MB"
        f"  start {row['start_total_s']:.2f} s { ({k: round(v, 2) for k, v in row['start_s'].items()}) }"
        f"  peak rss {row['peak_rss_bytes'] / 1e9:.2f} pss {row['pss_peak_bytes'] / 1e9:.2f} GB",
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
