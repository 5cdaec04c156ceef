"""Tables of the studies that gpu_study.py ran: one CSV of all cells, and what docs/gpu.md shows of it."""

import json

import pandas as pd

from framework_compare import Comparison

MODELS = ("alexnet", "mobilenet_v2", "resnet50", "vgg16")
# paths, and what is told apart in docs/gpu.md
HIDDEN = ("log_path", "trace_path", "warnings")


def write(out, to):
    """cells.csv, machine.json and tables.md of all studies below a folder."""
    studies = [Comparison.load(path.parent) for path in sorted(out.glob("*/study.sqlite"))]
    frame = pd.concat([study.frame for study in studies], ignore_index=True)
    # cells that a stopped call left planned are no result
    frame = frame[~frame.status.isin(["planned", "interrupted", "running"])]
    to.mkdir(parents=True, exist_ok=True)
    frame.drop(columns=[name for name in HIDDEN if name in frame]).to_csv(to / "cells.csv", index=False)
    machines = {json.dumps(study.machine, sort_keys=True) for study in studies}
    settings = frame.groupby("framework").framework_version.unique().map(list).to_dict()
    document = {"machines": [json.loads(text) for text in sorted(machines)], "versions": settings}
    (to / "machine.json").write_text(json.dumps(document, indent=1) + "\n")
    (to / "tables.md").write_text("\n".join(draw(frame)))


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
