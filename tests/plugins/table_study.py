"""Studies of which tables are made: epochs of known seconds, failures, cells that did not run yet; rows of tables."""

import csv
import io

from stored_study import SECOND, epochs, recorded

from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run, Sample

MODELS = ("alexnet", "mobilenet_v2", "resnet50", "vgg16")
FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle")
ALL = (*FRAMEWORKS, "jax")


def ok(*seconds):
    made = epochs(*seconds, wait=0.1)
    times = range(SECOND, made[-1].end_ns, SECOND)
    samples = tuple(Sample(t, 100.0 + t / SECOND, 2**30, 11) for t in times)
    return Run("ok", epochs=made, samples=samples, disturbed_epochs=0)


def study(folder, outcomes, *, datasets=("small",), configs=(TrainConfig(),), images=None, repeats=1):
    """`outcomes` maps (framework, model) to a Run, or to one per repeat; None stays planned."""
    keys = [(f, m, d, c) for c in configs for d in datasets for m in MODELS for f in ALL if (f, m) in outcomes]
    cells = [Cell(f, m, d, c.device, c) for f, m, d, c in keys]
    settings = {"datasets": {name: images or {"images": 791, "skipped": 2} for name in datasets}}

    def run_of(cell, repeat):
        outcome = outcomes[cell.framework, cell.model]
        return outcome[repeat - 1] if isinstance(outcome, list) else outcome

    return recorded(folder, cells, run_of, repeats, settings=settings)


def csv_rows(text):
    """Rows of a CSV table by their columns."""
    return list(csv.DictReader(io.StringIO(text)))


def rows(text):
    """The bodies of Markdown tables, blanks taken off."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[field.strip() for field in line.strip("|").split("|")] for line in lines[2:] if ":---" not in line]
