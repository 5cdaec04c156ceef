"""A study with everything that a report may draw, made without training: repeats, readings, a failure, disturbances."""

import random
from pathlib import Path
from typing import Optional, Sequence, Tuple

from framework_compare.comparison import Comparison
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Energy, Epoch, Phase, ProfileRow, Run, Sample
from framework_compare.store.study_file import Store

SECOND = 1_000_000_000
FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle", "jax")  # of a study of twenty cells
MODELS = ("alexnet", "mobilenet_v2", "resnet50", "vgg16")
SPREAD = 0.01  # of an epoch's length
MIB = 2**20
STARTING = (("spawn", 0.2), ("import", 1.0), ("build", 0.3), ("first-step", 0.5), ("warm-up", 0.4))
SETTINGS = {"datasets": {"fire-smoke-small": {"images": 791, "skipped": 0}}, "framework_compare": "0.1.0"}
MACHINE = {"cpu": "A processor", "available_cores": 8, "memory_bytes": 32_000_000_000, "os": "Debian", "gpus": []}


def run(seconds: float, *, seed: int = 0, start_s: float = 0, disturbed: bool = False, epochs: int = 3) -> Run:
    """A run that is ok, whose epochs take about `seconds`; one of them longer where it was disturbed."""
    draw = random.Random(seed)
    at, phases = int(start_s * SECOND), []
    for name, length in STARTING:
        phases.append(Phase(name, at, at + int(length * SECOND), 300 * MIB))
        at = phases[-1].end_ns
    first, lines = at, []
    for number in range(1, epochs + 1):
        marked = disturbed and number == 2
        end = at + int(seconds * draw.uniform(1 - SPREAD, 1 + SPREAD) * (1.3 if marked else 1) * SECOND)
        share, step = (0.4, 0.1) if marked else (0.01, 0.1)
        known = (number, at, end, 0.1, 100, 10, 1 / number, step, step, step, None, None)
        lines.append(Epoch(*known, share, 0.0, 0.0, 0, 0, int(marked)))
        at = end
    phases.append(Phase("epochs", first, at, 900 * MIB))
    times = range(int(start_s * SECOND), at + SECOND, SECOND // 5)
    return Run(
        "ok",
        started_at=f"2026-11-22T10:{int(start_s) // 60 % 60:02d}:{int(start_s) % 60:02d}+00:00",
        wall_s=at / SECOND - start_s,
        framework_version="1.2.3",
        peak_rss_bytes=900 * MIB,
        phases=tuple(phases),
        epochs=tuple(lines),
        samples=tuple(
            Sample(t, draw.uniform(90, 200), draw.randint(300, 900) * MIB, draw.randint(8, 12)) for t in times
        ),
        energy=tuple(Energy("host-package-0", t, 20.0 * (t / SECOND - start_s), "counter") for t in times),
        profile=tuple(ProfileRow("operator", f"operator {n}", 3, 1 / (n + 1)) for n in range(12)),
        disturbed_epochs=int(disturbed),
        disturbed_s=1.3 * seconds if disturbed else 0.0,
        disturbed_share=0.4 if disturbed else None,
    )


def study(
    folder: Path,
    frameworks: Sequence[str] = ("torch", "mxnet", "jax"),
    models: Sequence[str] = ("alexnet", "vgg16"),
    *,
    configs: Tuple[TrainConfig, ...] = (TrainConfig(),),
    repeats: int = 3,
    failing: Sequence[Tuple[str, str]] = (("jax", "vgg16"),),
    failure: Run = Run("crashed", "no memory left", log_tail="Traceback\n  MemoryError", died_in="epochs"),
    dataset: str = "fire-smoke-small",
    faster: float = 1.0,
    data: Optional[dict] = None,
) -> Comparison:
    """A finished study in `folder`; the first framework is the fastest, the second was disturbed in its first run.

    data: more that the study keeps on its data set.
    """
    cells = [Cell(f, m, dataset, c.device, c) for c in configs for m in models for f in frameworks]
    settings = {**SETTINGS, "datasets": {dataset: {"images": 791, "skipped": 0, **(data or {})}}}
    with Store.create(folder, settings=settings, machine=MACHINE, cells=cells, repeats=repeats) as store:
        at = 0.0
        for number, (run_id, cell, repeat) in enumerate(store.plan()):
            if (cell.framework, cell.model) in failing:
                store.record(run_id, failure)
                continue
            seconds = faster * (1 + 0.3 * frameworks.index(cell.framework)) * (1 + models.index(cell.model))
            disturbed = frameworks.index(cell.framework) == 1 and repeat == 1
            made = run(seconds, seed=number, start_s=at, disturbed=disturbed)
            store.record(run_id, made)
            at += (made.wall_s or 0.0) + 1
    return Comparison.load(folder)
