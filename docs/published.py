"""Draws images from the records: docs/reproductions/*.svg, the published figures and ours beside them, and that of the tutorial.

python docs/published.py
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt

from framework_compare import registry
from framework_compare.report.figures import files, look, marks, times
from framework_compare.report.names import title

DOCS = Path(__file__).parent
PUBLISHED = DOCS.parent / "framework_compare" / "report" / "published"
WIDTH = 560.0
OURS, THEIRS = "here", "published"
LERAT = [title(name) for name in ("tensorflow", "mxnet", "paddle", "singa")]
Rows = list[dict[str, Any]]


def table(record: str, begins: str, after: str = "") -> Iterator[list[str]]:
    """The rows of the table of a record whose heading line begins so, as texts: the first one below a line with `after`."""
    lines = (DOCS / "records" / record).read_text(encoding="utf-8").splitlines()
    below = next(place for place, line in enumerate(lines) if after in line)
    start = next(place for place, line in enumerate(lines) if place >= below and line.startswith(begins))
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return
        yield [part.strip() for part in line.strip("|").split("|")]


def number(text: str) -> float:
    """The first number of a cell of a table."""
    found = re.search(r"\d[\d,]*\.?\d*", text)
    return float(found[0].replace(",", "")) if found else math.nan


def dots(
    rows: Rows,
    x: str | list[str],
    panel: str,
    y: str,
    order: list[str],
    *,
    columns: int,
    log: bool = False,
    same: bool = False,
) -> Any:
    """A line for each `y`, with the published figure hollow and ours filled with its interval, in panels.

    same: all panels have the same lines.
    """
    scale = alt.Scale(type="log", nice=False, padding=12) if log else alt.Scale(zero=True)
    names = [title(name) for name in registry.PLAIN]
    shown = sorted({row["framework"] for row in rows}, key=names.index)
    base = alt.Chart(alt.InlineData(values=rows)).encode(y=alt.Y(f"{y}:N", sort=order, title=None))
    tints = alt.Scale(domain=shown, range=[look.COLOURS[names.index(name)] for name in shown])
    by = alt.Color("framework:N", title=None, scale=tints)
    form = alt.Shape(
        "framework:N",
        title=None,
        scale=alt.Scale(domain=shown, range=[look.SHAPES[names.index(name)] for name in shown]),
    )
    place = {
        "x": alt.X("value:Q", title=x, scale=scale, axis=alt.Axis(tickCount=5 if log else 3)),
        "color": by,
        "shape": form,
    }
    ours = base.transform_filter(f"datum.by == '{OURS}'")
    layers = alt.layer(
        ours.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q", color=by),
        ours.mark_point(filled=True, size=50, opacity=1).encode(**place),
        base.transform_filter(f"datum.by == '{THEIRS}'")
        .mark_point(size=50, opacity=1, strokeWidth=1, fill="white")
        .encode(**place),
    )
    wide = (WIDTH - 110) / columns
    sized = layers.properties(width=wide, height=alt.Step(24))
    panels = alt.Facet(f"{panel}:N", title=None, sort=list(dict.fromkeys(row[panel] for row in rows)))
    return sized.facet(facet=panels, columns=columns).resolve_scale(
        x="shared" if log else "independent", y="shared" if same else "independent"
    )


def lerat() -> Any:
    """Epoch time over PyTorch's on a CPU: published and here, by model and data set."""
    with (PUBLISHED / "lerat_table1_cpu.csv").open(encoding="utf-8") as file:
        seconds = {
            (title(row["framework"]), title(row["model"]), row["dataset"]): float(row["mean_epoch_s"])
            for row in csv.DictReader(file)
        }
    rows: Rows = []
    for model, dataset, _, *ratios in table("lerat2021.md", "| model | data set | PyTorch, ms | TensorFlow |"):
        for framework, text in zip(LERAT, ratios):
            row = {"framework": framework, "model": f"{model}, {dataset} data set"}
            value, *ends = map(float, re.findall(r"[\d.]+", text) or ["nan"])
            if ends:
                row |= {"low": ends[0], "high": ends[1]}
            theirs = seconds.get((framework, model, dataset), math.nan) / seconds["PyTorch", model, dataset]
            rows += [{**row, "by": by, "value": one} for by, one in ((OURS, value), (THEIRS, theirs)) if one == one]
    return dots(rows, "times PyTorch's; hollow: published", "model", "framework", LERAT, columns=2, log=True, same=True)


# Of each ladder: where the table of ours begins, the column of JAX, a line above it, and the published step beside a rung.
GAINS = (
    ("lstm_google", "| rung | torch s |", 4, '"lstm_google", ...', {"batch 100": 1, "NAdam": 2, "batch 500": 3}),
    ("lstm_ibm", "| rung | torch |", 2, '"abidate2025-ibm"', {"Adam": 1}),
    ("guava_cnn", "| rung | torch |", 2, '"abidate2025-guava"', {"GPU": 1, "one batch on the device": 2}),
    ("diabetes_ann", "| rung | torch |", 2, '"abidate2025-diabetes"', {"mixed precision": 1, "compiled": 2}),
)


def abidate() -> Any:
    """Speed-up over the first rung of four ladders: published, and here on an H100."""
    with (PUBLISHED / "abidate_gains.csv").open(encoding="utf-8") as file:
        published = [row for row in csv.DictReader(file) if row["phase"] == "train" and row["time_s"]]
    rows: Rows = []
    for workload, begins, jax, after, beside in GAINS:
        theirs = {int(row["rung"]): float(row["time_s"]) for row in published if row["workload"] == workload}
        ours = list(table("workloads-gpu.md", begins, after))
        for rung, place in beside.items():
            row = {"rung": rung, "ladder": workload}
            rows.append({**row, "framework": "TensorFlow", "by": THEIRS, "value": theirs[0] / theirs[place]})
            for name, column in (("PyTorch", 1), ("JAX", jax)):
                seconds = {cells[0]: number(cells[column]) for cells in ours}
                rows.append({**row, "framework": name, "by": OURS, "value": number(ours[0][column]) / seconds[rung]})
    order = list(dict.fromkeys(row["rung"] for row in rows))
    return dots(rows, "speed-up over the first rung; hollow: published", "ladder", "rung", order, columns=1, log=True)


def profiling() -> Any:
    """Seconds per epoch by rung of the ladder `tf-profiling`, here; nothing is published."""
    rows = [
        {"framework": name, "rung": rung, "by": OURS, "value": number(text), "ladder": "cifar_cnn"}
        for rung, *texts in table("workloads-gpu.md", "| rung | torch | jax |")
        for name, text in zip(("PyTorch", "JAX"), texts)
    ]
    order = list(dict.fromkeys(row["rung"] for row in rows))
    return dots(rows, "seconds per epoch", "ladder", "rung", order, columns=1, log=True)


def guide() -> Any:
    """Accuracy on real data of two models of the guide, here, beside that of the majority class."""
    rows: Rows = []
    for name, _, _, baseline, *values in table("workloads.md", "| workload | samples, epochs | metric |"):
        if name.strip("`") in ("mnist_cnn", "text_rnn"):
            for framework, text in zip(("torch", "tensorflow", "mxnet", "paddle", "jax"), values):
                row = {"framework": title(framework), "model": name.strip("`")}
                rows.append({**row, "by": OURS, "value": number(text), "low": number(baseline), "high": number(text)})
    order = [title(name) for name in registry.PLAIN]
    named = ["accuracy; line: from that", "of the majority class"]
    return dots(rows, named, "model", "framework", order, columns=2)


# Of the study of four models: ratios that are not significant after Holm's correction, of those with an interval.
UNSURE = (("MXNet", "AlexNet"), ("MXNet", "ResNet-50"), ("PyTorch", "VGG-16"), ("TensorFlow", "VGG-16"))


def four_models() -> Any:
    """Slowdown relative to the fastest of five frameworks, for four models."""
    models = ["AlexNet", "MobileNetV2", "ResNet-50", "VGG-16"]
    rows: Rows = []
    for name, *cells in table("fire_smoke.md", "| | AlexNet |", "## Close rivals first, JAX"):
        ratios = [[number(part) for part in re.findall(r"[\d.]+", cell.partition(";")[2])] for cell in cells]
        for model, (ratio, *ends) in zip(models, ratios):
            unsure = (name, model) in UNSURE or not ends and ratio != 1
            text = f"{'~ ' if unsure else ''}{ratio:.2f}x"
            interval = f"[{ends[0]:.2f}, {ends[1]:.2f}]" if ends else ""
            rows.append(
                {"framework_label": name, "condition_label": model, "ratio": ratio, "text": text, "interval": interval}
            )
        mean = math.exp(sum(math.log(one[0]) for one in ratios) / len(ratios))
        rows.append(
            {
                "framework_label": name,
                "condition_label": times.MEAN,
                "ratio": mean,
                "text": f"{mean:.2f}x",
                "interval": "",
            }
        )
    base = marks.chart(rows).encode(y=alt.Y("framework_label:N", sort=None, title=None))
    tiles = times.tiles_of(base).properties(width=72, height=36 * 5)
    return marks.panels(tiles, [*models, times.MEAN], 3)


def image(chart: Any) -> str:
    """A chart as SVG whose texts have room in any reader's font."""
    return files.roomy(files.render(chart, 11.0, WIDTH), "white").svg


IMAGES = {"lerat2021": lerat, "abidate2025": abidate, "tf-profiling": profiling, "gpu-guide": guide}
GALLERY = {"four-models": four_models}  # a study with a record, and not in the archive

if __name__ == "__main__":
    (DOCS / "reproductions").mkdir(exist_ok=True)
    for folder, images in (("reproductions", IMAGES), ("gallery", GALLERY)):
        for name, draw in images.items():
            (DOCS / folder / f"{name}.svg").write_text(image(draw()), encoding="utf-8")
