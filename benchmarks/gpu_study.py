"""The GPU record of docs/gpu.md: what runs it, and what makes its tables.

    python benchmarks/gpu_study.py run OUT --data PICTURES --python torch=PATH --python jax=PATH [--models alexnet]
    python benchmarks/gpu_study.py tables OUT docs/h200

`run` trains PyTorch (eager and as a CUDA graph) and JAX (jitted) in three precisions at batch 1 and 100 from memory,
then from pictures; one call a GPU may run beside another (CUDA_VISIBLE_DEVICES). A call that was stopped goes on.
`tables` puts all studies of a folder into one CSV and draws the tables; no path of the machine is in them.
"""

import argparse
import json
from pathlib import Path

import pandas as pd

from framework_compare import Comparison, compare

MODELS = ("alexnet", "mobilenet_v2", "resnet50", "vgg16")
# epochs that last seconds: the energy counter and NVML's averages need that
EPOCHS = {
    1: {"alexnet": 20, "mobilenet_v2": 8, "resnet50": 6, "vgg16": 6},
    100: {"alexnet": 120, "mobilenet_v2": 60, "resnet50": 25, "vgg16": 16},
}
PICTURES = {1: 100, 100: 400}
PRECISIONS = ["fp32", "tf32", "bf16"]
# paths, and what is told apart in docs/gpu.md
HIDDEN = ("log_path", "trace_path", "warnings", "parity", "parity_error", "parity_where")


def run(options):
    python = dict(pair.split("=", 1) for pair in options.python)
    held = {"dataset": options.data, "python": python, "threads": options.threads, "loader_workers": options.threads}
    for model in options.models.split(","):
        for batch_size in (1, 100):
            for framework, executions in (("torch", ["eager", "graph"]), ("jax", "graph")):
                compare(
                    framework, model, "cuda", out=options.out / f"{framework}-{model}-{batch_size}", precision=PRECISIONS,
                    execution=executions, pipeline="memory", batch_size=batch_size, limit=PICTURES[batch_size],
                    epochs=EPOCHS[batch_size][model], **held,
                )  # fmt: skip
        for framework, pipelines in (("torch", ["native", "shared"]), ("jax", "shared")):
            compare(
                framework, model, "cuda", out=options.out / f"{framework}-{model}-pictures", precision="bf16",
                pipeline=pipelines, batch_size=100, limit=700, epochs=3, **held,
            )  # fmt: skip
    for framework, executions in (("torch", ["graph", "compiled"]), ("jax", "graph")):
        compare(
            framework, "resnet50_v1_5", "cuda", out=options.out / f"{framework}-256", precision="bf16",
            execution=executions, pipeline="memory", batch_size=256, limit=512, epochs=40, **held,
        )  # fmt: skip


def tables(options):
    studies = [Comparison.load(path.parent) for path in sorted(options.out.glob("*/study.sqlite"))]
    frame = pd.concat([study.frame for study in studies], ignore_index=True)
    # cells that a stopped call left planned are no result
    frame = frame[~frame.status.isin(["planned", "interrupted", "running"])]
    options.to.mkdir(parents=True, exist_ok=True)
    frame.drop(columns=[name for name in HIDDEN if name in frame]).to_csv(options.to / "cells.csv", index=False)
    machines = {json.dumps(study.machine, sort_keys=True) for study in studies}
    settings = frame.groupby("framework").framework_version.unique().map(list).to_dict()
    document = {"machines": [json.loads(text) for text in sorted(machines)], "versions": settings}
    (options.to / "machine.json").write_text(json.dumps(document, indent=1) + "\n")
    (options.to / "tables.md").write_text("\n".join(draw(frame)))


def draw(frame):
    memory = frame[(frame.pipeline == "memory") & frame.execution.isin(["eager", "graph"])]
    for batch_size in (1, 100):
        chosen = memory[(memory.batch_size == batch_size) & memory.model.isin(MODELS)]
        yield from matrix(chosen, f"Images a second, batch {batch_size}, from memory", "images_per_s", 0)
        yield from matrix(chosen, f"Joules a picture (whole GPU, energy counter), batch {batch_size}", "gpu_j_per_image", 3)
        yield from matrix(
            chosen, f"GPU memory of the worker's processes, GiB, batch {batch_size}", "gpu_process_memory_peak_bytes", 1, 2**-30
        )
    yield from listing(frame[frame.pipeline != "memory"], "From pictures", ("framework", "model", "pipeline", "precision"))
    wide = frame[(frame.model == "resnet50_v1_5") & (frame.batch_size == 256)]
    yield from listing(wide, "ResNet-50 v1.5, bf16, batch 256, from memory", ("framework", "execution"))


def matrix(frame, title, figure, places, scale=1.0):
    """A row a framework, execution and precision, a column a network; statuses where there is no figure."""
    yield f"**{title}**\n"
    yield "| framework | execution | precision | " + " | ".join(MODELS) + " |"
    yield "|---" * (3 + len(MODELS)) + "|"
    rows = frame.drop_duplicates(["framework", "execution", "precision"])
    for _, row in rows.sort_values(["framework", "execution"], kind="stable", ascending=[False, True]).iterrows():
        same = frame[(frame.framework == row.framework) & (frame.execution == row.execution) & (frame.precision == row.precision)]
        cells = [show(same[same.model == model], figure, places, scale) for model in MODELS]
        yield f"| {row.framework} | {row.execution} | {row.precision} | " + " | ".join(cells) + " |"
    yield ""


def show(found, figure, places, scale):
    if found.empty:
        return "not run"
    value = found[figure].iloc[0]
    return found.status.iloc[0] if pd.isna(value) else f"{value * scale:,.{places}f}"


def listing(frame, title, keys):
    yield f"**{title}**\n"
    names = ("images/s", "host waits for data %", "copying %", "computing %", "GPU %", "status")
    yield "| " + " | ".join([*keys, *names]) + " |"
    yield "|---" * (len(keys) + len(names)) + "|"
    for _, row in frame.iterrows():
        shares = [row.data_wait_share, row.copy_share, row.compute_share]
        figures = [f"{row.images_per_s:,.0f}", *("-" if pd.isna(x) else f"{100 * x:.1f}" for x in shares)]
        gpu = "-" if pd.isna(row.gpu_percent_mean) else f"{row.gpu_percent_mean:.0f}"
        yield "| " + " | ".join([*(str(row[key]) for key in keys), *figures, gpu, row.status]) + " |"
    yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("run")
    one.add_argument("out", type=Path)
    one.add_argument("--data", required=True)
    one.add_argument("--python", action="append", default=[])
    one.add_argument("--models", default=",".join(MODELS))
    one.add_argument("--threads", type=int, default=16)
    two = parts.add_parser("tables")
    two.add_argument("out", type=Path)
    two.add_argument("to", type=Path)
    options = parser.parse_args()
    {"run": run, "tables": tables}[options.part](options)


if __name__ == "__main__":
    main()
