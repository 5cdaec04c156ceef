"""A study of two cells, and a run with a record of every kind."""

from __future__ import annotations

import re

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


def rows(store, table):
    return store.select(f"SELECT * FROM {table}")[1]


def parity_row(text):
    """The verdict of parity.json whose text in a table is this."""
    failed = re.search(r", not \d", text) is not None
    status = "failed" if failed else "passed" if text[:1].isdigit() else text
    return {"parity": text, "parity_status": status, "parity_error": None, "parity_where": None}
