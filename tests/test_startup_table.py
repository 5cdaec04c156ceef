"""Start-up beside epochs: what it comes to, and when an execution has paid for its own."""

from __future__ import annotations

import math

import pytest
import stored_study
from table_study import rows

from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Phase, Run
from framework_compare.report.time_tables import steps_until_paid

SECOND = 1_000_000_000
IMAGES, BATCH = 100, 10


def run_of(startup_s, epoch_s):
    """A process of two epochs of ten steps; half of its start-up is the first step."""
    begin = round(startup_s * SECOND)
    epochs = stored_study.epochs(epoch_s, epoch_s, start_ns=begin, images=IMAGES)
    end = epochs[-1].end_ns
    phases = (Phase("spawn", 0, begin // 2), Phase("first-step", begin // 2, begin), Phase("epochs", begin, end))
    return Run("ok", phases=phases, epochs=epochs)


def study(folder, runs):
    """`runs` maps (framework, execution) to a Run."""
    cells = [
        Cell(name, "alexnet", "small", "cpu", TrainConfig(execution=execution, batch_size=BATCH))
        for name, execution in runs
    ]
    settings = {"datasets": {"small": {"images": IMAGES}}}
    return stored_study.recorded(folder, cells, runs.values(), settings=settings)


def test_an_execution_pays_after_the_steps_that_make_up_for_its_start(tmp_path):
    runs = {
        ("torch", "eager"): run_of(4, 2.0),
        ("torch", "compiled"): run_of(34, 1.5),
        ("torch", "graph"): run_of(6, 2.5),
        ("jax", "graph"): run_of(8, 1.0),
        ("mxnet", "eager"): Run("crashed", "SIGSEGV"),
    }
    comparison = study(tmp_path, runs)
    assert comparison.frame.startup_s.tolist()[:4] == [4, 34, 6, 8]
    assert rows(comparison.table("startup", "markdown")) == [
        ["PyTorch", "AlexNet", "eager", "4.00", "2.00", "2.00", "-", "-"],
        # 30 s more for steps that are 0.05 s shorter: 600 steps, of which ten are an epoch
        ["PyTorch", "AlexNet", "compiled", "34.0", "17.0", "1.50", "600", "60.0"],
        ["PyTorch", "AlexNet", "graph", "6.00", "3.00", "2.50", "never", "never"],
        ["JAX", "AlexNet", "graph", "8.00", "4.00", "1.00", "-", "-"],
        ["MXNet", "AlexNet", "eager", "crashed (1)", "-", "-", "-", "-"],
    ]
    assert "startup_s" in comparison.table("startup", "csv")


@pytest.mark.parametrize(
    ("start", "step", "paid"),
    [(10, 0.5, 0), (12, 0.5, 4), (12.1, 0.5, 5), (12, 1, math.inf), (9, 1.5, math.inf), (9, 1, 0), (math.nan, 1, None)],
)
def test_steps_until_a_start_has_paid(start, step, paid):
    found = steps_until_paid(start, step, 10, 1)
    assert math.isnan(found) if paid is None else found == paid
