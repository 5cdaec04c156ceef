"""Studies made without training: a run with a record of every kind, epochs of known seconds, and what holds them."""

import re

from framework_compare.comparison import Comparison
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Energy, Epoch, Phase, Run, Sample
from framework_compare.store.study_file import Store

TORCH = Cell("torch", "alexnet", "small", "cpu", TrainConfig(learning_rate=0.1 + 0.2))
PADDLE = Cell("paddle", "alexnet", "small", "cpu", TrainConfig())
SECOND = 1_000_000_000
RUN = Run(
    "ok",
    started_at="2024-01-01T00:00:00+00:00",
    wall_s=3.5,
    exit_code=0,
    log_path="logs/1.log",
    framework_version="2.1",
    interpreter="python",
    settings={"layout": "NHWC", "threads": [1, 2]},
    parameters=57_016_131,
    peak_rss_bytes=2**40,
    warnings=("first", "second"),
    phases=(Phase("build", 0, SECOND), Phase("epochs", SECOND, 3 * SECOND, 5)),
    epochs=(Epoch(1, SECOND, 3 * SECOND, 0.5, 791, 50, 1.1, 0.04, 0.03, 0.05, 0.1, 1.5),),
    samples=(Sample(SECOND), Sample(2 * SECOND, 99.5, 1, 2, 3, 50.0, 20.0, 1.0, 4, 120.5, 3, 61.0, 1980.0, 36)),
    energy=(Energy("gpu", SECOND, 10.5, "counter"), Energy("host-package-0", SECOND, 7.25, "counter")),
    gauges={"gpu": "NVIDIA H200"},
)


def create(folder, cells=(TORCH, PADDLE), repeats=1, **fields):
    given = {"settings": {}, "machine": {}, **fields}
    return Store.create(folder, cells=cells, repeats=repeats, **given)


def epochs(*seconds, start_ns=0, images=100, steps=10, wait=0.0):
    """Epochs of these lengths, one after the other; wait: the share of each that waits for data."""
    found, at = [], start_ns
    for number, length in enumerate(seconds, 1):
        end = at + round(length * SECOND)
        found.append(Epoch(number, at, end, wait * length, images, steps, 1.0, 0.1, 0.1, 0.1))
        at = end
    return tuple(found)


def ok(*seconds, images=100, steps=10, **fields):
    """A run of such epochs, none of them disturbed."""
    return Run("ok", **{"epochs": epochs(*seconds, images=images, steps=steps), "disturbed_epochs": 0, **fields})


def recorded(folder, cells, runs, repeats=1, **fields):
    """The study of the cells; runs: block by block, or by cell and repeat. None is one that is still to be run."""
    with create(folder, cells, repeats, **fields) as store:
        given = None if callable(runs) else iter(runs)
        for run_id, cell, repeat in store.plan():
            run = runs(cell, repeat) if given is None else next(given, None)
            if run is not None:
                store.record(run_id, run)
    return Comparison.load(folder)


def selected(folder, query):
    """Rows of a stored study."""
    with Store.open(folder) as store:
        return store.select(query)


def parity_row(text):
    """The verdict of parity.json whose text in a table is this."""
    failed = re.search(r", not \d", text) is not None
    status = "failed" if failed else "passed" if text[:1].isdigit() else text
    return {"parity": text, "parity_status": status, "parity_error": None, "parity_where": None}
