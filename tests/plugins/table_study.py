"""Studies of which tables are made: epochs of known seconds, failures, cells that did not run yet; rows of tables."""

from __future__ import annotations

from framework_compare.comparison import Comparison
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Epoch, Run, Sample
from framework_compare.store.study_file import Store

SECOND = 1_000_000_000
MODELS = ("alexnet", "mobilenet_v2", "resnet50", "vgg16")
FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle")
ALL = (*FRAMEWORKS, "jax")


def ok(*seconds):
    at, epochs = 0, []
    for number, length in enumerate(seconds, 1):
        end = at + int(length * SECOND)
        epochs.append(Epoch(number, at, end, 0.1 * length, 100, 10, 1.0, 0.1, 0.1, 0.1))
        at = end
    samples = tuple(Sample(t, 100.0 + t / SECOND, 2**30, 11) for t in range(SECOND, at, SECOND))
    return Run("ok", epochs=tuple(epochs), samples=samples, disturbed_epochs=0)


def study(folder, outcomes, *, datasets=("small",), configs=(TrainConfig(),), pictures=None, repeats=1):
    """`outcomes` maps (framework, model) to a Run, or to one per repeat; None stays planned."""
    keys = [(f, m, d, c) for c in configs for d in datasets for m in MODELS for f in ALL if (f, m) in outcomes]
    cells = [Cell(f, m, d, c.device, c) for f, m, d, c in keys]
    settings = {"datasets": {name: pictures or {"pictures": 791, "skipped": 2} for name in datasets}}
    with Store.create(folder, settings=settings, machine={}, cells=cells, repeats=repeats) as store:
        for run_id, cell, repeat in store.plan():
            outcome = outcomes[cell.framework, cell.model]
            if outcome is not None:
                store.record(run_id, outcome[repeat - 1] if isinstance(outcome, list) else outcome)
    return Comparison.load(folder)


def rows(text):
    """The bodies of Markdown tables, blanks taken off."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[field.strip() for field in line.strip("|").split("|")] for line in lines[2:] if ":---" not in line]
